// Which strategies exist for a model on a number of GPUs: divisibility, group sizes, what the frameworks can do. Cheap
// tests first; costs and memory are not asked.
#pragma once

#include <optional>
#include <string>

#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// The rules, in the order in which they are tested.
enum class Rule {
  kLegal,
  kPositive,        ///< every degree is at least 1, zero_stage 0 to 3
  kGpus,            ///< dp · tp · cp · pp = GPUs of the job
  kBatch,           ///< dp · micro_batch divides the global batch
  kReplicas,        ///< replicas that may differ (local_steps > 1, gossip) share no state and no sample; a narrow wire needs two
  kHeads,           ///< tp divides the heads; key/value heads divide tp or are divided by it
  kWidth,           ///< tp divides the inner width
  kStages,          ///< pp · vpp at most the layers (embedding and head may count as layers)
  kInterleave,      ///< vpp > 1 needs pp > 1 and an interleaving schedule, and the other way round
  kContext,         ///< cp divides the sequence; Ulysses: cp · tp divides the heads
  kExperts,         ///< ep divides the experts; ep · etp divides tp · cp · dp
  kShard,           ///< shard_group divides dp · cp
  kZeroPipeline,    ///< ZeRO-3 with pp > 1 keeps its parameters after the forward pass
  kGrid,            ///< 2D, 2.5D, 3D: tp has the shape of the grid, batch and heads divide, no experts
  kSequence,        ///< sequence parallelism needs tp > 1
  kOperators,       ///< sharding per operator is a form of ZeRO-3 over at least two replicas, without keep_after_forward
  kConvolution,     ///< a CNN is split in space by tp only
};

/// Safe for any values of the strategy.
Rule CheckLegal(const JobSpec& job, int64_t gpus, const Strategy& strategy);

/// Rule::kReplicas alone: what an exchange asks of the degrees.
bool ReplicasFit(const ModelSpec& model, const Strategy& strategy);

/// The rule broken, with its values, e.g. "heads: tp=16 does not divide 12 heads"; nullopt if legal.
std::optional<std::string> WhyIllegal(const JobSpec& job, int64_t gpus, const Strategy& strategy);

}  // namespace weft::planner::parallelism
