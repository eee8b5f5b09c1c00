#include "cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/plan_interval.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

using nlohmann::json;

double Gibibytes(Bytes amount) { return static_cast<double>(amount.count()) / 0x1p30; }

json StrategyJson(const planner::Strategy& strategy) {
  json out;
  for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
    const int64_t value = variable.get(strategy);
    const bool flag = variable.name == "sequence_parallel" || variable.name == "keep_after_forward";
    const std::string text = variable.print(value);
    const bool word = variable.name == "bucket_bytes" ? false : text != fmt::format("{}", value);
    if (flag) {
      out[std::string(variable.name)] = value != 0;
    } else if (word) {
      out[std::string(variable.name)] = text;
    } else {
      out[std::string(variable.name)] = value;
    }
  }
  return out;
}

json GroupsJson(const std::vector<planner::GroupShare>& groups) {
  json out = json::array();
  for (const planner::GroupShare& group : groups) {
    out.push_back({{"name", group.name},
                   {"gpus", group.gpus},
                   {"sequences", group.sequences},
                   {"stage_layers", group.layers},
                   {"strategy", StrategyJson(group.strategy)},
                   {"iteration_s", group.time.count()}});
  }
  return out;
}

json DecisionJson(const planner::OperatorDecision& d) {
  const int64_t whole = d.slices - d.sharded;
  return {{"slices", d.slices}, {"sharded", d.sharded}, {"kept", d.kept ? whole : 0}, {"replicated", d.kept ? 0 : whole}};
}

/// How many operators do what, and, stage by stage, which: layers that decide alike, in slices of each operator.
json OperatorsJson(const std::vector<planner::StageOperators>& stages) {
  const planner::OperatorCount count = planner::CountOperators(stages);
  json list = json::array();
  for (const planner::StageOperators& stage : stages) {
    json runs = json::array();
    for (const planner::OperatorRun& run : stage.runs) {
      runs.push_back({{"layers", run.layers},
                      {"mixture", run.moe},
                      {"attention", DecisionJson(run.attention)},
                      {run.moe ? "experts" : "mlp", DecisionJson(run.mlp)}});
    }
    json entry = {{"layers", runs}};
    if (stage.head) entry["head_slices"] = stage.head_slices;
    list.push_back(std::move(entry));
  }
  return {{"replicated", count.replicated}, {"kept", count.kept}, {"sharded", count.sharded}, {"split", count.split},
          {"stages", list}};
}

json LayersJson(const planner::LayerComparison& comparison) {
  json stages = json::array();
  for (const planner::LayerStage& stage : comparison.layers.stages) {
    json runs = json::array();
    for (const planner::LayerRunPlan& run : stage.runs) {
      runs.push_back({{"layers", run.layers}, {"tp", run.strategy.tp}, {"cp", run.strategy.cp}, {"dp", run.strategy.dp},
                      {"sharded", run.strategy.sharded}, {"recomputed", run.strategy.recomputed}});
    }
    stages.push_back(std::move(runs));
  }
  return {{"iteration_s", comparison.layers.iteration.count()}, {"uniform_s", comparison.uniform.count()},
          {"pp", comparison.layers.pp}, {"micro_batches", comparison.layers.micro_batches}, {"stages", stages}};
}

json OperationJson(const planner::Operation& o) {
  json out = {{"what", o.what},         {"kind", planner::OperationKindName(o.kind)},
              {"calls", o.calls},       {"pass", planner::OperationPassName(o.pass)},
              {"seconds", o.seconds},   {"exposed_s", o.exposed}};
  if (o.kind == planner::OperationKind::kCompute) {
    out["flops"] = o.flops;
    return out;
  }
  out["communicator"] = planner::CommunicatorKindName(o.communicator);
  out["size"] = o.group.size;
  out["stride"] = o.group.stride;
  out["bytes"] = o.bytes;
  out["algorithm"] = o.algorithm;
  if (!o.hides_behind.empty()) out["hides_behind"] = o.hides_behind;
  return out;
}

json HoldingJson(const planner::Holding& piece) {
  json out = {{"what", piece.what},
              {"part", planner::HoldingPartName(piece.part)},
              {"held", planner::HoldingSpanName(piece.span)},
              {"bytes", piece.bytes.count()}};
  if (piece.chunks != planner::HoldingChunks::kAll) out["chunks"] = planner::HoldingChunksName(piece.chunks);
  return out;
}

json OperationsJson(const planner::OperationList& list) {
  json classes = json::array();
  for (const planner::StageOperations& equal : list.classes) {
    json operations = json::array(), memory = json::array();
    for (const planner::Operation& o : equal.operations) operations.push_back(OperationJson(o));
    for (const planner::Holding& piece : equal.memory) memory.push_back(HoldingJson(piece));
    classes.push_back({{"stages", equal.stages},
                       {"operations", operations},
                       {"memory", memory},
                       {"fragmentation", equal.fragmentation}});
  }
  return {{"version", planner::OperationList::kVersion},
          {"schedule", planner::ScheduleName(list.schedule)},
          {"stages", list.stages},
          {"chunks", list.chunks},
          {"micro_batches", list.micro_batches},
          {"ranks_per_stage", list.ranks_per_stage},
          {"classes", classes}};
}

json CommunicatorsJson(const std::vector<planner::CommunicatorUse>& uses) {
  json out = json::array();
  for (const planner::CommunicatorUse& use : uses) {
    out.push_back({{"kind", planner::CommunicatorKindName(use.kind)},
                   {"size", use.size},
                   {"count", use.count},
                   {"bytes", use.bytes.count()},
                   {"algorithm", use.algorithm},
                   {"crosses", use.crosses},
                   {"seconds", use.seconds.count()},
                   {"exposed_s", use.exposed.count()}});
  }
  return out;
}

/// Rank r runs on node r / gpus_per_node of these.
json PlacementJson(const planner::ClusterSpec& cluster, const planner::JobPlan& plan) {
  json out = {{"gpus_per_node", cluster.gpus_per_node}, {"rank_order", planner::RankOrderName(plan.strategy.rank_order)}};
  if (!cluster.node_names.empty()) {
    const auto used = static_cast<size_t>((GpuCount(plan.strategy) + cluster.gpus_per_node - 1) / cluster.gpus_per_node);
    out["nodes"] = std::vector(cluster.node_names.begin(), cluster.node_names.begin() + static_cast<int64_t>(std::min(used, cluster.node_names.size())));
  }
  return out;
}

json PlanJson(const planner::JobPlan& plan, const planner::JobSpec& job, const planner::ClusterSpec& cluster) {
  const planner::Prediction& p = plan.predicted;
  json out = {{"framework", planner::FrameworkName(plan.framework)},
          {"program", planner::FrameworkTitle(plan.framework)},
          {"fits", p.fits},
          {"strategy", StrategyJson(plan.strategy)},
          {"predicted",
           {{"iteration_s", p.iteration.count()},
            {"tokens_per_s", p.tokens_per_s},
            {"tflops_per_gpu", p.tflops_per_gpu},
            {"mfu", p.mfu},
            {"exposed_communication_s", p.exposed_communication.count()},
            {"bubble_s", p.bubble.count()},
            {"parts_s",
             {{"compute", p.parts.compute.count()},
              {"tensor", p.parts.tensor.count()},
              {"context", p.parts.context.count()},
              {"expert", p.parts.expert.count()},
              {"data", p.parts.data.count()},
              {"pipeline", p.parts.pipeline.count()},
              {"optimizer", p.parts.optimizer.count()},
              {"overhead", p.parts.overhead.count()}}},
            {"memory_bytes",
             {{"parameters", p.memory.parameters.count()},
              {"gradients", p.memory.gradients.count()},
              {"optimizer", p.memory.optimizer.count()},
              {"activations", p.memory.activations.count()},
              {"buffers", p.memory.transient.count()},
              {"fragmentation", p.memory.fragmentation.count()},
              {"context", p.memory.context.count()},
              {"allocated", p.memory.allocated().count()},
              {"total", p.memory.total().count()}}}}},
          {"interval", IntervalJson(job, p, 0.9)},
          {"interval_50", IntervalJson(job, p, 0.5)},
          {"lower_bound_s", plan.lower_bound.count()},
          {"gap", plan.gap},
          {"why", plan.why}};
  out["communicators"] = CommunicatorsJson(plan.communicators);
  if (!plan.operations.classes.empty()) out["operations"] = OperationsJson(plan.operations);
  if (plan.groups.empty()) out["placement"] = PlacementJson(cluster, plan);
  if (!plan.operators.empty()) out["operators"] = OperatorsJson(plan.operators);
  if (!plan.groups.empty()) out["groups"] = GroupsJson(plan.groups);
  return out;
}

std::string RecomputeText(const planner::Strategy& s) {
  if (s.recompute != planner::Recompute::kFull || s.recompute_layers < 0) {
    return std::string(planner::RecomputeName(s.recompute));
  }
  return fmt::format("{} layers", s.recompute_layers);
}

/// "1", "3 of 8", "3 kept", "0 fp8 /16" (on the wire, and every so many steps): the ZeRO stage, over how many GPUs where not all, whether parameters stay after the forward pass.
std::string ZeroText(const planner::JobPlan& plan) {
  const planner::Strategy& s = plan.strategy;
  const std::string group = s.shard_group > 0 ? fmt::format(" of {}", s.shard_group) : std::string();
  if (!plan.operators.empty()) return "per operator" + group;
  std::string text = fmt::format("{}{}{}", s.zero_stage, group, s.keep_after_forward ? " kept" : "");
  if (s.gradient_wire != planner::GradientWire::kWhole) text += fmt::format(" {}", planner::GradientWireName(s.gradient_wire));
  if (s.data_sync == planner::DataSync::kSwitch || s.data_sync == planner::DataSync::kGossip) {
    text += fmt::format(" {}", planner::DataSyncName(s.data_sync));
  }
  if (s.local_steps > 1) text += fmt::format(" /{}", s.local_steps);
  return text;
}

std::string ScheduleText(const planner::Strategy& s) {
  if (s.pp == 1) return "-";
  return s.vpp > 1 ? fmt::format("{} x{}", planner::ScheduleName(s.schedule), s.vpp)
                   : std::string(planner::ScheduleName(s.schedule));
}

std::string TensorText(const planner::Strategy& s) {
  std::string text = fmt::format("{}", s.tp);
  if (s.sequence_parallel) text += "+sp";
  if (s.tensor_mode != planner::TensorMode::k1D) text += fmt::format(" {}", planner::TensorModeName(s.tensor_mode));
  return text;
}

using Row = std::vector<std::string>;

/// Columns as wide as they must be, right-aligned.
std::string Aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += fmt::format("{}{:>{}}", i == 0 ? "  " : "   ", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

/// "62.1 GiB (78 %)", marked where little is left.
std::string MemoryText(const PlanReport& report, const planner::MemoryUse& memory) {
  if (memory.total().count() == 0) return "fits";
  const double share = memory.total() / report.cluster.device.memory;
  return fmt::format("{:.1f} GiB ({:.0f} %{})", Gibibytes(memory.total()), 100 * share, share > planner::kMarkedShare ? " !" : "");
}

std::vector<Row> Rows(const PlanReport& report) {
  const bool moe = report.job.model.IsMoe();
  std::vector<Row> rows = {{"#", "dp", "tp", "pp", "cp"}};
  if (moe) rows[0].push_back("ep");
  for (const char* name : {"micro", "zero", "recompute", "schedule", "iteration", "tokens/s", "MFU", "exposed",
                           "bubble", "memory", "fits", "gap"}) {
    rows[0].push_back(name);
  }
  for (const planner::JobPlan& plan : report.answer.plans) {
    const planner::Strategy& s = plan.strategy;
    const planner::Prediction& p = plan.predicted;
    Row row = {fmt::format("{}{}", rows.size(), plan.groups.empty() ? "" : "*"), fmt::format("{}", s.dp), TensorText(s),
               fmt::format("{}", s.pp), fmt::format("{}", s.cp)};
    if (moe) row.push_back(s.etp > 1 ? fmt::format("{}x{}", s.ep, s.etp) : fmt::format("{}", s.ep));
    for (std::string& cell :
         Row{fmt::format("{}", s.micro_batch), ZeroText(plan), RecomputeText(s), ScheduleText(s),
             DurationText(report.job.model, p.iteration), fmt::format("{:.0f}", p.tokens_per_s), fmt::format("{:.1f} %", 100 * p.mfu),
             fmt::format("{:.1f} %", 100 * (p.exposed_communication / p.iteration)),
             fmt::format("{:.1f} %", 100 * (p.bubble / p.iteration)),
             MemoryText(report, p.memory), p.fits >= 1 ? "> 98 %" : fmt::format("{:.0f} %", 100 * p.fits),
             fmt::format("{:.1f} %", 100 * plan.gap)}) {
      row.push_back(std::move(cell));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string FrontText(const planner::PlanAnswer& answer) {
  std::string text = "\nfaster or smaller, never both (each line needs less memory than the one above):\n";
  std::vector<Row> rows = {{"iteration", "memory"}};
  for (const planner::FrontPoint& point : answer.front) {
    rows.push_back({FormatDuration(point.iteration), fmt::format("{:.1f} GiB", Gibibytes(point.memory)),
                    planner::DescribeStrategy(point.strategy)});
  }
  return text + Aligned(rows);
}

/// " (8.03 B parameters)", active ones beside where experts make a difference.
std::string ModelSize(const planner::ModelSpec& model) {
  const auto billions = [](int64_t count) {
    const auto value = static_cast<double>(count);
    return value >= 1e9 ? fmt::format("{:.4g} B", value / 1e9) : fmt::format("{:.4g} M", value / 1e6);
  };
  std::string text = fmt::format(" ({} parameters", billions(planner::ParameterCount(model)));
  if (model.IsMoe()) text += fmt::format(", {} active", billions(planner::ActiveParameterCount(model)));
  return text + ")";
}

/// ", for Megatron-LM core_v0.19.0".
std::string ProgramText(const planner::JobPlan& plan) {
  return planner::Describe(plan.framework).runs() ? ", for " + planner::FrameworkTitle(plan.framework) : ", for any program";
}

}  // namespace

std::string PlanJsonText(const PlanReport& report) {
  const planner::PlanAnswer& answer = report.answer;
  json plans = json::array(), front = json::array();
  for (const auto& plan : answer.plans) plans.push_back(PlanJson(plan, report.job, report.cluster));
  for (const auto& point : answer.front) {
    front.push_back({{"strategy", StrategyJson(point.strategy)},
                     {"iteration_s", point.iteration.count()},
                     {"memory_bytes", point.memory.count()}});
  }
  json out = {{"gpus", report.job.gpus > 0 ? report.job.gpus : report.cluster.TotalGpus()},
              {"device", report.cluster.device.name},
              {"model", {{"name", report.job.model.name}, {"parameters", planner::ParameterCount(report.job.model)}}},
              {"plans", plans},
              {"infeasible", answer.infeasible},
              {"complete", answer.complete},
              {"search",
               {{"strategies", answer.strategies},
                {"evaluated", answer.evaluated},
                {"pruned", answer.pruned},
                {"simulated", answer.simulated},
                {"seconds", report.time.count()},
                {"threads", report.threads},
                {"strategies_per_second", static_cast<double>(answer.strategies) / report.time.count()}}}};
  if (!front.empty()) out["front"] = front;
  if (answer.layers) out["layers"] = LayersJson(*answer.layers);
  for (const auto& [target, text] : report.emitted) out["emitted"][target] = text;
  if (!report.emitted_files.empty()) out["emitted_files"] = report.emitted_files;
  return out.dump(2) + "\n";
}

std::string PlanTableText(const PlanReport& report) {
  if (report.answer.plans.empty()) return "";
  const planner::JobSpec& job = report.job;
  const std::string size = job.model.IsCnn() ? std::string() : ModelSize(job.model);
  std::string text = fmt::format("{}{} on {}: {} {}, {} sequences of {} tokens per step, {}{}\n\n", job.model.name, size,
                                 report.cluster.name, job.gpus > 0 ? job.gpus : report.cluster.TotalGpus(),
                                 report.cluster.device.name, job.global_batch, job.sequence,
                                 planner::PrecisionName(job.precision), ProgramText(report.answer.plans.front()));
  text += Aligned(Rows(report));
  text +=
      "\n  dp, tp, pp, cp: degrees of data, tensor (+sp: with sequence parallelism), pipeline and context parallelism\n";
  if (job.model.IsMoe()) text += "  ep: degree of expert parallelism (x: times expert-tensor parallelism)\n";
  text +=
      "  micro: sequences per micro-batch; zero: ZeRO stage (of N: sharded over N GPUs, not all; kept: parameters stay whole after\n"
      "  the forward pass; per operator: each is replicated, kept or sharded, see below)\n"
      "  iteration: predicted, and how much less or more is measured in nine of ten cases on machines and programs that were not\n"
      "  calibrated on\n"
      "  exposed, bubble: share of the iteration that waits for communication, for the pipeline\n"
      "  memory: of the fullest GPU, all that its process holds (!: more than 90 % of the device); fits: probability that it does not\n"
      "  run out, by how far such predictions were off; gap: how much slower than the least that is possible in the model\n";
  if (!report.answer.plans.front().groups.empty())
    text += "  *: of the first group of machines; each has its own, below\n";
  text += "\nwhy the first:\n";
  for (const std::string& reason : report.answer.plans.front().why) text += "  " + reason + "\n";
  if (!report.answer.front.empty()) text += FrontText(report.answer);
  return text;
}

std::string EmittedText(const PlanReport& report) {
  if (report.emitted.size() == 1) return report.emitted.front().second;
  std::string text;
  for (const auto& [target, content] : report.emitted) {
    text += fmt::format("{}# --- {} ---\n{}", text.empty() ? "" : "\n", target, content);
  }
  return text;
}

std::string SearchLine(const PlanReport& report) {
  const planner::PlanAnswer& answer = report.answer;
  return fmt::format("{} strategies, {} priced, {} ruled out by bounds, the {} best simulated in {} on {} thread{} ({:.3g} per second){}\n",
                     answer.strategies, answer.evaluated, answer.pruned, answer.simulated, FormatDuration(report.time), report.threads,
                     report.threads == 1 ? "" : "s", static_cast<double>(answer.strategies) / report.time.count(),
                     answer.complete ? "" : "; stopped at the budget, not proved optimal");
}

}  // namespace weft::cli
