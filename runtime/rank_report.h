// What each rank measured of its steps, beside what the planner says of them: gathered on rank 0, for the summary and the trace.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap.h"
#include "common/result.h"
#include "planner/planner.h"
#include "runtime/execute/step_record.h"
#include "runtime/report.h"

namespace weft::runtime {

/// Means over the steps behind the first kWarmUpSteps, or over all where there are no more.
struct RankMeasured {
  Seconds iteration{0};
  planner::StepParts parts;
  Bytes peak;                 ///< of the process's tensors
  double busy = 0;            ///< processor time over time: of one core
  double overruns = 0;        ///< share of the stretched computations that took longer by themselves
};

/// Adds a rank's steps up. Threads: one.
class StepSums {
 public:
  /// A step begins: the processor's time counts from here.
  void Begin();
  void Add(Seconds iteration, const StepRecord& record);
  /// `peak`: of the whole run.
  RankMeasured Means(Bytes peak) const;

 private:
  size_t steps_ = 0;
  RankMeasured sum_;
  Seconds time_{0}, processor_{0}, processor_before_{0};
  int64_t stretched_ = 0, overruns_ = 0;
};

/// Of all ranks, in order. Collective; without a bootstrap that of one. Errors: the bootstrap's.
[[nodiscard]] Result<std::vector<RankMeasured>> GatherMeasured(const RankMeasured& mine, collectives::Bootstrap* bootstrap);
/// What of a core each rank's computations took in its last step, by instruction. Collective, as GatherMeasured().
[[nodiscard]] Result<std::vector<std::vector<Seconds>>> GatherComputations(const std::vector<Seconds>& mine,
                                                                          collectives::Bootstrap* bootstrap);
/// The spans of all ranks' last step.
[[nodiscard]] Result<std::vector<std::vector<planner::InstructionSpan>>> GatherSpans(const std::vector<planner::InstructionSpan>& mine,
                                                                                  collectives::Bootstrap* bootstrap);

/// A Chrome trace, which Perfetto opens: for each rank a process with what was measured of a step, and one with what was planned, if
/// anything was; in each a track for computations and one for each communicator. Times since the rank's own step began. Requires:
/// spans of each rank's list.
std::string ProgramTraceText(const planner::StepProgram& program, const std::vector<std::vector<planner::InstructionSpan>>& measured,
                             const std::optional<planner::ProgramTimeline>& planned);

}  // namespace weft::runtime
