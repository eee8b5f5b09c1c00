#include "cli/validate_predict.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::cli {
namespace {

using formats::MetricKind;
using formats::ValidationCase;
using planner::CostModel;
using planner::Recompute;

/// Full recomputation of as few layers per stage as needed, all of them if nothing fits.
void FewestLayers(const CostModel& model, ValidationCase& row, CostModel::Scratch& scratch) {
  row.strategy.recompute = Recompute::kFull;
  const int64_t layers = (row.job.model.layers + row.strategy.pp - 1) / row.strategy.pp;
  for (int64_t count = 1; count < layers; ++count) {
    row.strategy.recompute_layers = count;
    if (model.Fits(row.strategy, scratch)) return;
  }
  row.strategy.recompute_layers = -1;
}

/// Interleaved runs whose chunks are not stated: one layer each where two do not fit, as fewer micro-batches are then in
/// flight.
void ChooseChunks(const CostModel& model, ValidationCase& row, CostModel::Scratch& scratch) {
  planner::Strategy& s = row.strategy;
  if (!row.chunks_unknown || s.schedule != planner::ScheduleKind::kInterleaved || model.Fits(s, scratch)) return;
  planner::Strategy finer = s;
  finer.vpp = (row.job.model.layers + s.pp - 1) / s.pp;
  if (model.WhyIllegal(finer) || !model.Fits(finer, scratch)) return;
  s = finer;
  row.defaults.push_back(fmt::format("vpp={}: one layer per chunk, as two do not fit", s.vpp));
}

/// Runs whose recomputation is not stated: none, attention's core, or the fewest layers of each stage that let it fit; all
/// of them if nothing fits.
void ChooseRecompute(const CostModel& model, ValidationCase& row, CostModel::Scratch& scratch) {
  if (!row.recompute_unknown || (row.strategy.recompute != Recompute::kNone && model.Fits(row.strategy, scratch))) return;
  if (row.strategy.recompute != Recompute::kNone) return FewestLayers(model, row, scratch);
  for (const Recompute choice : {Recompute::kNone, Recompute::kSelective}) {
    row.strategy.recompute = choice;
    if (model.Fits(row.strategy, scratch)) return;
  }
  // Grace hosts take activations over the chip-to-chip link, about as fast as they arise.
  if (row.zero_unknown && row.strategy.pp == 1) {
    row.strategy.zero_stage = 3;
    row.strategy.recompute = Recompute::kNone;
    if (model.Fits(row.strategy, scratch)) return;
  }
  if (row.cluster.device.name.starts_with("gb")) {
    row.strategy.recompute = Recompute::kNone;
    row.offloaded = true;
    row.defaults.push_back("activations that do not fit are offloaded to the host");
    return;
  }
  FewestLayers(model, row, scratch);
}

/// Bytes of a stage's layers alone: what the figures of arXiv 2205.05198 show.
double LayerStateBytes(const ValidationCase& row) {
  const double layers = static_cast<double>(row.job.model.layers) / static_cast<double>(row.strategy.pp);
  return 18 * layers * static_cast<double>(planner::LayerParameterCount(row.job.model)) /
         static_cast<double>(row.strategy.tp);
}

double FirstStageActivations(const CostModel& model, const planner::Strategy& strategy, CostModel::Scratch& scratch) {
  std::vector<planner::MemoryUse> stages(static_cast<size_t>(strategy.pp));
  model.EvaluateMemory(strategy, stages, scratch);
  return static_cast<double>(stages[0].activations.count());
}

Result<double> PredictPart(const CostModel& model, const ValidationCase& row, const std::string& metric,
                           CostModel::Scratch& scratch) {
  if (metric == "param_optimizer_memory") return LayerStateBytes(row) / 0x1p30;
  const double activations = FirstStageActivations(model, row.strategy, scratch);
  if (metric == "activation_memory") return activations / 0x1p30;
  if (metric == "activation_memory_vs_tp_baseline") {
    planner::Strategy baseline = row.strategy;
    baseline.sequence_parallel = false;
    baseline.recompute = Recompute::kNone;
    return 100 * activations / FirstStageActivations(model, baseline, scratch);
  }
  const planner::LayerSeconds layer = model.OneLayer(row.strategy, scratch);
  if (metric == "layer_forward_time") return 1e3 * layer.forward.count();
  if (metric == "layer_backward_time") return 1e3 * layer.backward.count();
  return Fail(Code::kFailedPrecondition, fmt::format("metric {} is not predicted", metric));
}

std::string SweepOf(const formats::ValidationRow& row, std::string_view stack) {
  return fmt::format("{} {} {} {} {} {} {} {}", stack, row.model, row.gpu, row.gpus.value_or(0), row.global_batch.value_or(0),
                     row.seq.value_or(0), row.metric, formats::Note(row.notes, "precision"));
}

std::string SettingOf(const ValidationCase& row) {
  const planner::Strategy& s = row.strategy;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", row.job.model.layers, row.job.model.hidden,
                     row.job.model.heads, planner::FrameworkName(row.framework), s.tp, s.pp, s.dp, s.cp, s.ep, s.vpp, s.micro_batch, s.zero_stage,
                     s.shard_group, static_cast<int>(s.recompute), s.sequence_parallel, static_cast<int>(s.schedule));
}

std::string_view KindName(const ValidationCase& row, const std::string& metric) {
  if (row.kind == MetricKind::kFits) return "fits";
  if (row.kind == MetricKind::kMemory || metric.find("memory") != std::string::npos) return "memory";
  return "time";
}

/// Whether `weft plan` would call the setting feasible at its default risk; of what the row does not say, whether any choice
/// is.
Result<bool> IsFeasible(const ValidationCase& row, const planner::Calibration& calibration) {
  WEFT_ASSIGN_OR_RETURN(const CostModel model,
                        CostModel::Make(row.job, row.cluster, calibration, {.framework = row.framework}));
  CostModel::Scratch scratch;
  ValidationCase choice = row;
  ChooseChunks(model, choice, scratch);
  ChooseRecompute(model, choice, scratch);
  planner::MemoryUse memory;
  if (model.Fits(choice.strategy, scratch, &memory)) return true;
  return choice.offloaded && memory.total() - memory.activations <= model.usable_memory();
}

}  // namespace

Result<RowPrediction> PredictRow(const formats::ValidationRow& row, std::string_view file,
                                 const planner::Calibration& calibration, bool asks_feasibility) {
  WEFT_ASSIGN_OR_RETURN(ValidationCase question, formats::MakeValidationCase(row));
  WEFT_ASSIGN_OR_RETURN(const CostModel model,
                        CostModel::Make(question.job, question.cluster, calibration, {.framework = question.framework, .risk = std::nullopt}));
  if (auto why = model.WhyIllegal(question.strategy)) return Fail(Code::kFailedPrecondition, *why);
  static thread_local CostModel::Scratch scratch;
  scratch.Clear();
  const ValidationCase stated = question;
  ChooseChunks(model, question, scratch);
  ChooseRecompute(model, question, scratch);
  RowPrediction out{.file = std::string(file), .source = row.source, .model = row.model, .metric = row.metric,
                    .line = row.line, .measured = question.measured};
  out.kind = KindName(question, row.metric);
  out.strategy = question.strategy;
  out.estimate = model.EvaluateSimulated(question.strategy, scratch);
  if (asks_feasibility || question.kind == MetricKind::kFits) {
    WEFT_ASSIGN_OR_RETURN(out.feasible, IsFeasible(stated, calibration));
  }
  out.defaults = question.defaults;
  out.sweep = SweepOf(row, planner::FrameworkName(question.framework));
  out.setting = SettingOf(question);
  if (question.kind != MetricKind::kTime) out.sweep.clear();
  out.complete = question.kind == MetricKind::kTime && row.tp && row.pp && row.dp && row.micro_batch &&
                 row.global_batch && row.seq && row.layers && row.hidden;
  switch (question.kind) {
    case MetricKind::kTime: out.predicted = out.estimate.iteration.count(); break;
    case MetricKind::kFits: out.predicted = out.feasible ? 1 : 0; break;
    case MetricKind::kMemory:
      out.predicted = static_cast<double>(
          (row.metric == "peak_memory_nvidia_smi" ? out.estimate.memory.total() : out.estimate.memory.allocated()).count());
      break;
    case MetricKind::kPart: {
      WEFT_ASSIGN_OR_RETURN(out.predicted, PredictPart(model, question, row.metric, scratch));
      break;
    }
  }
  return out;
}

}  // namespace weft::cli
