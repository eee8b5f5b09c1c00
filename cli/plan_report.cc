#include "cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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
                      {"mixture", run.mixture},
                      {"attention", DecisionJson(run.attention)},
                      {run.mixture ? "experts" : "mlp", DecisionJson(run.mlp)}});
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

json PlanJson(const planner::JobPlan& plan) {
  const planner::Prediction& p = plan.predicted;
  json out = {{"strategy", StrategyJson(plan.strategy)},
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
              {"total", p.memory.total().count()}}}}},
          {"lower_bound_s", plan.lower_bound.count()},
          {"gap", plan.gap},
          {"why", plan.why}};
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

std::string ZeroText(const planner::JobPlan& plan) {
  const planner::Strategy& s = plan.strategy;
  if (!plan.operators.empty()) {
    const planner::OperatorCount count = planner::CountOperators(plan.operators);
    std::string text = "osdp";
    const auto add = [&](int64_t operators, char what) {
      if (operators > 0) text += fmt::format(" {}{}", operators, what);
    };
    add(count.replicated, 'r');
    add(count.kept, 'k');
    add(count.sharded, 's');
    add(count.split, 'x');
    return text + (s.shard_group > 0 ? fmt::format("/{}", s.shard_group) : std::string());
  }
  return fmt::format("{}{}{}", s.zero_stage, s.keep_after_forward ? "k" : "",
                     s.shard_group > 0 ? fmt::format("/{}", s.shard_group) : std::string());
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

std::vector<Row> Rows(const PlanReport& report) {
  const bool mixture = report.job.model.IsMoe();
  std::vector<Row> rows = {{"#", "dp", "tp", "pp", "cp"}};
  if (mixture) rows[0].push_back("ep");
  for (const char* name : {"micro", "zero", "recompute", "schedule", "iteration", "tokens/s", "MFU", "exposed",
                           "bubble", "memory", "gap"}) {
    rows[0].push_back(name);
  }
  for (const planner::JobPlan& plan : report.answer.plans) {
    const planner::Strategy& s = plan.strategy;
    const planner::Prediction& p = plan.predicted;
    Row row = {fmt::format("{}{}", rows.size(), plan.groups.empty() ? "" : "*"), fmt::format("{}", s.dp), TensorText(s),
               fmt::format("{}", s.pp), fmt::format("{}", s.cp)};
    if (mixture) row.push_back(s.etp > 1 ? fmt::format("{}x{}", s.ep, s.etp) : fmt::format("{}", s.ep));
    for (std::string& cell :
         Row{fmt::format("{}", s.micro_batch), ZeroText(plan), RecomputeText(s), ScheduleText(s),
             FormatDuration(p.iteration), fmt::format("{:.0f}", p.tokens_per_s), fmt::format("{:.1f} %", 100 * p.mfu),
             fmt::format("{:.1f} %", 100 * (p.exposed_communication / p.iteration)),
             fmt::format("{:.1f} %", 100 * (p.bubble / p.iteration)),
             p.memory.total().count() > 0 ? fmt::format("{:.1f} GiB", Gibibytes(p.memory.total())) : "fits",
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

}  // namespace

std::string PlanJsonText(const PlanReport& report) {
  const planner::PlanAnswer& answer = report.answer;
  json plans = json::array(), front = json::array();
  for (const auto& plan : answer.plans) plans.push_back(PlanJson(plan));
  for (const auto& point : answer.front) {
    front.push_back({{"strategy", StrategyJson(point.strategy)},
                     {"iteration_s", point.iteration.count()},
                     {"memory_bytes", point.memory.count()}});
  }
  json out = {{"plans", plans},
              {"infeasible", answer.infeasible},
              {"complete", answer.complete},
              {"search",
               {{"strategies", answer.strategies},
                {"evaluated", answer.evaluated},
                {"pruned", answer.pruned},
                {"seconds", report.time.count()},
                {"threads", report.threads},
                {"strategies_per_second", static_cast<double>(answer.strategies) / report.time.count()}}}};
  if (!front.empty()) out["front"] = front;
  if (answer.layers) out["layers"] = LayersJson(*answer.layers);
  for (const auto& [target, text] : report.emitted) out["emitted"][target] = text;
  return out.dump(2) + "\n";
}

std::string PlanTableText(const PlanReport& report) {
  if (report.answer.plans.empty()) return "";
  const planner::JobSpec& job = report.job;
  std::string text = fmt::format("{} on {}: {} {}, {} sequences of {} tokens per step, {}\n\n", job.model.name,
                                 report.cluster.name, job.gpus > 0 ? job.gpus : report.cluster.TotalGpus(),
                                 report.cluster.device.name, job.global_batch, job.sequence,
                                 planner::PrecisionName(job.precision));
  text += Aligned(Rows(report));
  text +=
      "\n  dp, tp, pp, cp: GPUs that share the batch, each matrix (+sp: and the norms), the layers, each sequence\n";
  if (job.model.IsMoe()) text += "  ep: GPUs that share the experts\n";
  text +=
      "  micro: sequences at a time; zero: how much of the training state is sharded (0 to 3, k: kept after forward)\n"
      "  exposed, bubble: share of the iteration that waits for communication, for the pipeline; memory: fullest GPU\n"
      "  gap: how much slower than what is proved to be the optimum\n";
  const auto per_operator = [](const planner::JobPlan& plan) { return !plan.operators.empty(); };
  if (std::any_of(report.answer.plans.begin(), report.answer.plans.end(), per_operator)) {
    text += "  osdp: operators replicated (r), kept after forward (k), sharded (s), in slices that differ (x)\n";
  }
  if (!report.answer.plans.front().groups.empty())
    text += "  *: of the first group of machines; each has its own, below\n";
  text += "\nwhy the first:\n";
  for (const std::string& reason : report.answer.plans.front().why) text += "  " + reason + "\n";
  if (!report.answer.front.empty()) text += FrontText(report.answer);
  for (const auto& [target, content] : report.emitted) text += fmt::format("\n--- {} ---\n{}", target, content);
  return text;
}

std::string SearchLine(const PlanReport& report) {
  const planner::PlanAnswer& answer = report.answer;
  return fmt::format("{} strategies, {} priced, {} ruled out by bounds in {} on {} thread{} ({:.3g} per second){}\n",
                     answer.strategies, answer.evaluated, answer.pruned, FormatDuration(report.time), report.threads,
                     report.threads == 1 ? "" : "s", static_cast<double>(answer.strategies) / report.time.count(),
                     answer.complete ? "" : "; stopped at the budget, not proved optimal");
}

}  // namespace weft::cli
