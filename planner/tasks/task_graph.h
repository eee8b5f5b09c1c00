// One iteration as a graph of compute and communication, and what the layers below may do with it: for each transfer how
// many bytes, from when on, and until when without making the iteration longer. Slack is what lets the flow layer serve
// one job's transfer later than another's at no cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"
#include "planner/tasks/pipeline.h"
#include "planner/tasks/pipeline_order.h"

namespace weft::planner::inline tasks {

/// A task and what must be over before it. Tasks of a stage must be chained by dependencies: the graph knows no resources.
class TaskGraph {
 public:
  /// Adds a task that starts when all of `after` are over; returns its index. Requires: every one of `after` was added
  /// before, duration ≥ 0.
  int32_t Add(Seconds duration, std::span<const int32_t> after);

  int32_t size() const { return static_cast<int32_t>(duration_.size()); }
  Seconds duration(int32_t task) const { return duration_[static_cast<size_t>(task)]; }
  std::span<const int32_t> after(int32_t task) const;

 private:
  std::vector<Seconds> duration_;
  std::vector<int32_t> after_;         // of all tasks, one after another
  std::vector<size_t> first_after_{0};  // [tasks + 1]
};

/// When a task runs if all run as early as possible, and the latest times at which the whole is not later.
struct TaskWindow {
  Seconds earliest_start{0}, earliest_end{0};
  Seconds latest_start{0}, latest_end{0};
  Seconds slack() const { return latest_end - earliest_end; }
};

/// [tasks]. Times by one pass forward and one backward over the graph. `deadline` of the whole: its length if shorter.
/// Complexity: O(tasks + dependencies).
std::vector<TaskWindow> Windows(const TaskGraph& graph, Seconds deadline = Seconds(0));

/// What the messages and gradient exchanges of a pipeline carry; times are the hops of the PipelineProblem.
struct PipelineTraffic {
  Bytes message;                              ///< one micro-batch over one boundary, either way
  std::span<const Bytes> gradients;           ///< [p × v] exchanged by data parallelism after the last backward, or empty
  std::span<const Seconds> gradient_times;    ///< [p × v], or empty
  Seconds optimizer{0};                       ///< on each stage, after the gradients of its chunks
};

/// A transfer that the flow layer serves.
struct TransferDemand {
  enum class Kind : uint8_t { kActivation, kGradientMessage, kGradientExchange };
  Kind kind = Kind::kActivation;
  int64_t from = 0, to = 0;     ///< stages; equal for kGradientExchange, which runs between the stage's replicas
  int64_t chunk = 0;            ///< of the sender
  int64_t micro_batch = 0;      ///< last one for kGradientExchange
  Bytes bytes;
  TaskWindow window;            ///< may run from earliest_start; harmless until latest_end
};

/// A pass of a stage, as early as it can run.
struct PassWindow {
  int64_t stage = 0;
  StagePass pass;
  TaskWindow window;
};

struct PipelineDemands {
  Seconds iteration{0};
  std::vector<PassWindow> passes;   ///< those of one stage in the order in which it runs them
  std::vector<TransferDemand> transfers;
};

/// All transfers of an iteration with their windows. Errors: as SimulatePipeline; kInvalidArgument where the spans of
/// `traffic` have other sizes than the stages. Complexity: O(p·m·v).
[[nodiscard]] Result<PipelineDemands> DemandsOf(const PipelineProblem& problem, const PipelineTraffic& traffic);

}  // namespace weft::planner::tasks
