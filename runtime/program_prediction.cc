#include "runtime/program_prediction.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "formats/calibration_yaml.h"
#include "formats/cluster_yaml.h"
#include "planner/parallelism/program/program_times.h"
#include "planner/tasks/program_memory.h"

namespace weft::runtime {
Result<Prediction> Predict(const TrainOptions& o, const planner::ModelSpec& model, const planner::StepProgram& program, int place) {
  Prediction prediction;
  const auto add_peaks = [&] {
    prediction.peak.clear();
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      const planner::RankTimeline* own = prediction.timeline ? &prediction.timeline->ranks[rank] : nullptr;
      prediction.peak.push_back(planner::PeakMemoryOf(program, model, static_cast<int64_t>(rank), own));
    }
  };
  add_peaks();
  if (o.calibration.empty()) return prediction;
  WEFT_ASSIGN_OR_RETURN(const std::vector<planner::MeasuredConstant> measured, formats::ReadMeasuredConstants(o.calibration));
  const planner::Calibration calibration = planner::Calibration().With(measured);
  planner::GroupNetwork network{.single_ring = true};
  if (!o.cluster.empty()) {
    WEFT_ASSIGN_OR_RETURN(const planner::ClusterSpec cluster, formats::ResolveCluster(o.cluster));
    if (cluster.TotalGpus() < static_cast<int64_t>(program.ranks.size())) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: {} devices, the program has {} ranks", o.cluster, cluster.TotalGpus(), program.ranks.size()));
    }
    network = planner::MakeGroupNetwork(cluster, planner::CollectiveLibrary::kWeft, calibration);
  }
  WEFT_ASSIGN_OR_RETURN(const planner::InstructionTimes times,
                        planner::TimesOf(program, calibration, network, o.stretch > 0 ? o.stretch : 1));
  if (o.stretch > 0 && place >= 0) {
    const planner::RankClass& list = program.classes[static_cast<size_t>(program.ranks[static_cast<size_t>(place)].rank_class)];
    for (const planner::Instruction& i : list.instructions)
      prediction.least.push_back(planner::Communicates(i.action) ? Seconds(0) : times.compute(list, i));
  }
  if (o.cluster.empty() && program.ranks.size() > 1) return prediction;
  WEFT_ASSIGN_OR_RETURN(prediction.timeline, planner::TimelineOf(program, times));
  add_peaks();
  return prediction;
}

RankPlanned PlannedOf(const Prediction& prediction, size_t rank) {
  RankPlanned planned;
  if (rank < prediction.peak.size()) planned.peak = prediction.peak[rank];
  if (!prediction.timeline || rank >= prediction.timeline->ranks.size()) return planned;
  planned.iteration = prediction.timeline->ranks[rank].step;
  planned.parts = prediction.timeline->ranks[rank].parts;
  return planned;
}

}  // namespace weft::runtime
