// The collective table of a submitted job: what its communicator should use per collective and size, as the text that travels
// in its launch environment (netplugin/abi/collective_table.h) and as the plan shows it.
//
// An entry is made only where it pays: our own runtime runs a ring unless another schedule is faster by a tenth (levels are
// weighed on the links that probes have shown, planner/collectives/grouping.h, where the ranks are on them); NCCL keeps
// its own choice unless what the network between nodes really gives makes another cell of its table faster by a tenth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/job_reduction.h"
#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::controller {

struct CollectiveJob {
  int64_t ranks = 0;                   ///< of the job's communicator over all ranks
  int64_t nodes = 0;                   ///< ranks is a multiple of it
  bool own_runtime = true;             ///< weft-train without a plan; else NCCL
  planner::ClusterSpec cluster;        ///< the machines
  const RankFabric* fabric = nullptr;  ///< where the ranks are; null: on equal links. For our own runtime
  std::optional<BitsPerSecond> node_rate;  ///< that a node can send to the others at; none: what its NICs give
};

/// Entries from 1 KiB to 1 GiB, ascending per collective; empty where nothing pays, the job has one rank, or NCCL's model knows
/// the device not. Errors: kInvalidArgument as planner::Choose.
[[nodiscard]] Result<std::vector<v1::CollectiveChoice>> ChooseCollectives(const CollectiveJob& job);

/// The text of WEFT_COLLECTIVES. Errors: kInvalidArgument for an entry that the grammar has no words for; kResourceExhausted
/// for more entries than the format holds.
[[nodiscard]] Result<std::string> CollectiveTableText(const std::vector<v1::CollectiveChoice>& choices);

}  // namespace weft::controller
