#include "tests/real/program_profile.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner/parallelism/program/program_times.h"

namespace weft::real {
namespace {

using planner::CommunicatorKind;

/// The iteration where communicators of these kinds take no time.
Result<Seconds> IterationWithout(const planner::StepProgram& program, const planner::InstructionTimes& times,
                                 const std::set<CommunicatorKind>& kinds) {
  planner::InstructionTimes left = times;
  left.communicate = [&](const planner::RankClass& list, const planner::Instruction& i) {
    const bool free = kinds.contains(program.communicators[static_cast<size_t>(i.communicator)].kind);
    return free ? Seconds(0) : times.communicate(list, i);
  };
  WEFT_ASSIGN_OR_RETURN(const planner::ProgramTimeline timeline, planner::TimelineOf(program, left));
  Seconds longest{0};
  for (const planner::RankTimeline& rank : timeline.ranks) longest = std::max(longest, rank.step);
  return longest;
}

}  // namespace

Result<planner::JobPlan> PricedByProgram(planner::JobPlan plan, const planner::StepProgram& program,
                                         const planner::ClusterSpec& cluster, const planner::Calibration& calibration,
                                         double stretch) {
  const auto network = planner::MakeGroupNetwork(cluster, planner::CollectiveLibrary::kWeft, calibration);
  WEFT_ASSIGN_OR_RETURN(const planner::InstructionTimes times, planner::TimesOf(program, calibration, network, stretch));
  planner::Prediction& predicted = plan.predicted;
  std::set<CommunicatorKind> gone;
  WEFT_ASSIGN_OR_RETURN(Seconds before, IterationWithout(program, times, gone));
  // As a share of the peak: the work of an iteration is what it was.
  predicted.mfu *= predicted.iteration / before;
  predicted.iteration = before;
  const auto take = [&](std::initializer_list<CommunicatorKind> kinds, Seconds* waits) -> Status {
    gone.insert(kinds);
    WEFT_ASSIGN_OR_RETURN(const Seconds after, IterationWithout(program, times, gone));
    *waits = std::max(Seconds(0), before - after);
    before = after;
    return Ok();
  };
  planner::Estimate& parts = predicted.parts;
  WEFT_RETURN_IF_ERROR(take({CommunicatorKind::kTensor}, &parts.tensor));
  WEFT_RETURN_IF_ERROR(take({CommunicatorKind::kContext}, &parts.context));
  WEFT_RETURN_IF_ERROR(take({CommunicatorKind::kExpert, CommunicatorKind::kExpertTensor}, &parts.expert));
  WEFT_RETURN_IF_ERROR(take({CommunicatorKind::kPipeline}, &parts.pipeline));
  WEFT_RETURN_IF_ERROR(take({CommunicatorKind::kData, CommunicatorKind::kExpertData, CommunicatorKind::kEmbedding}, &parts.data));
  return plan;
}

}  // namespace weft::real
