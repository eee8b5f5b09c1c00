// What one iteration of a strategy does, as typed operations: what computes, what is sent, behind what it hides, and what is held in
// memory for how long. One account: the cost model's times are sums over it, communication volumes, communicators and memory over
// time (memory_over_time.h) are read off it.
//
// Ranks of a stage are equal, and stages that do the same are one class, so that a list of 16,384 GPUs is as long as its classes
// are many. Layer by layer within a pass: an operation stands for the equal ones of all layers of its stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/units.h"
#include "planner/collectives/collective_cost.h"
#include "planner/tasks/schedule_kind.h"

namespace weft::planner::inline tasks {

/// What a communicator is for, as frameworks name their groups.
enum class CommunicatorKind : uint8_t { kTensor, kContext, kExpert, kExpertTensor, kData, kExpertData, kPipeline, kEmbedding, kWorld };
/// "tensor", "context", "expert", "expert-tensor", "data", "expert-data", "pipeline", "embedding", "world".
std::string_view CommunicatorKindName(CommunicatorKind kind);

/// kBroadcast: from one rank to all, or the sum of all to one.
enum class OperationKind : uint8_t { kCompute, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kSendReceive };

/// "compute", "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send".
std::string_view OperationKindName(OperationKind kind);

/// When an operation runs: in every micro-batch's forward pass, data gradient (recomputation with it) or weight gradient, or once
/// per iteration.
enum class OperationPass : uint8_t { kForward, kData, kWeight, kOnce };
/// "forward", "data-gradient", "weight-gradient", "once".
std::string_view OperationPassName(OperationPass pass);

/// Of one rank of a stage, and one micro-batch, or one iteration where it runs once.
struct Operation {
  std::string_view what;             ///< "tensor gathers", "gradients" …
  OperationKind kind = OperationKind::kCompute;
  OperationPass pass = OperationPass::kForward;
  double calls = 1;                  ///< equal ones, one after another; a fraction where layers are counted as their mean
  double seconds = 0;                ///< of all calls, alone
  double exposed = 0;                ///< s that the pass takes longer for it; of compute all
  // Of compute:
  double flops = 0;                  ///< of all calls
  // Of communication:
  CommunicatorKind communicator = CommunicatorKind::kTensor;
  Group group = {};
  double bytes = 0;                  ///< of one call: the full tensor, or what a sender sends
  std::string_view algorithm = {};   ///< "ring", "tree", "nvls", "nvls-tree", "hierarchical", "parameter-server", "direct", "send"
  std::string_view hides_behind = {};  ///< empty if nothing

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// Bytes that one rank sends in all calls of a communication. Pipelined: every rank hands on what it got.
double BytesSent(const Operation& operation);

/// What held bytes are for, as MemoryUse adds them up; kBuffers, the program's own, is a part of its transients.
enum class HoldingPart : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kTransient, kBuffers, kContext };
/// "parameters", "gradients", "optimizer", "activations", "transient", "buffers", "context".
std::string_view HoldingPartName(HoldingPart part);

/// How long bytes are held.
enum class HoldingSpan : uint8_t {
  kIteration,   ///< all the time
  kMicroBatch,  ///< from a micro-batch's forward pass to the end of its backward pass, or of its weight gradient where that is split off
  kPass,        ///< while a pass runs, whatever its direction
  kBackward,    ///< while a backward pass runs; where it is split its data gradient
};
/// "iteration", "micro-batch", "pass", "backward".
std::string_view HoldingSpanName(HoldingSpan span);

/// Whose passes hold bytes: those of all chunks of the stage, of the first, or of the last.
enum class HoldingChunks : uint8_t { kAll, kFirst, kLast };
/// "all", "first", "last".
std::string_view HoldingChunksName(HoldingChunks chunks);

/// Bytes that one rank of a stage holds.
struct Holding {
  std::string_view what;               ///< "parameters", "activations", "logits" …
  HoldingPart part = HoldingPart::kParameters;
  HoldingSpan span = HoldingSpan::kIteration;
  HoldingChunks chunks = HoldingChunks::kAll;
  Bytes bytes;                         ///< of one chunk and micro-batch, unless held all the time

  friend bool operator==(const Holding&, const Holding&) = default;
};

/// What the ranks of equal stages do.
struct StageOperations {
  std::vector<int64_t> stages;         ///< which, ascending
  std::vector<Operation> operations;
  std::vector<Holding> memory;
  double fragmentation = 0;            ///< what the allocator cannot give back, per byte of activations and transients at their peak

  friend bool operator==(const StageOperations&, const StageOperations&) = default;
};

struct OperationList {
  static constexpr int kVersion = 1;  ///< of what `weft plan --output json` prints of it
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int64_t stages = 1, chunks = 1, micro_batches = 1;
  int64_t ranks_per_stage = 1;
  std::vector<StageOperations> classes;
  /// Where the names of a list are that was read; those of one that was made are constants.
  std::shared_ptr<const std::set<std::string, std::less<>>> texts = {};

  /// Requires: 0 ≤ stage < stages.
  const StageOperations& OfStage(int64_t stage) const;
};

}  // namespace weft::planner::tasks
