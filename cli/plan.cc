#include "cli/plan.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/cluster_yaml.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

using nlohmann::json;

Result<std::map<std::string, int64_t>> ParseFix(std::string_view text) {
  std::map<std::string, int64_t> fix;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    int64_t value = 0;
    const std::string_view number = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || status != std::errc() || end != number.data() + number.size()) {
      return Fail(Code::kInvalidArgument, fmt::format("--fix \"{}\": expected NAME=NUMBER, e.g. dp=8", item));
    }
    if (!fix.emplace(item.substr(0, equals), value).second) {
      return Fail(Code::kInvalidArgument, fmt::format("--fix \"{}\": named twice", item));
    }
  }
  return fix;
}

json StrategyJson(const planner::Strategy& s) {
  return {{"dp", s.dp},
          {"tp", s.tp},
          {"pp", s.pp},
          {"cp", s.cp},
          {"ep", s.ep},
          {"vpp", s.vpp},
          {"micro_batch", s.micro_batch},
          {"zero_stage", s.zero_stage},
          {"recompute", planner::RecomputeName(s.recompute)},
          {"sequence_parallel", s.sequence_parallel},
          {"schedule", planner::ScheduleName(s.schedule)},
          {"bucket_bytes", s.bucket_bytes.count()}};
}

json PlanJson(const planner::JobPlan& plan) {
  const planner::Prediction& p = plan.predicted;
  return {{"strategy", StrategyJson(plan.strategy)},
          {"predicted",
           {{"iteration_s", p.iteration.count()},
            {"tokens_per_s", p.tokens_per_s},
            {"tflops_per_gpu", p.tflops_per_gpu},
            {"mfu", p.mfu},
            {"exposed_communication_s", p.exposed_communication.count()},
            {"bubble_s", p.bubble.count()},
            {"memory_bytes",
             {{"parameters", p.memory.parameters.count()},
              {"gradients", p.memory.gradients.count()},
              {"optimizer", p.memory.optimizer.count()},
              {"activations", p.memory.activations.count()},
              {"total", p.memory.total().count()}}}}},
          {"lower_bound_s", plan.lower_bound.count()},
          {"gap", plan.gap},
          {"why", plan.why}};
}

void PrintPlanJson(const planner::PlanAnswer& answer, Seconds time) {
  json plans = json::array();
  for (const auto& plan : answer.plans) plans.push_back(PlanJson(plan));
  const json out = {{"plans", plans},
                    {"infeasible", answer.infeasible},
                    {"complete", answer.complete},
                    {"search",
                     {{"strategies", answer.strategies},
                      {"evaluated", answer.evaluated},
                      {"pruned", answer.pruned},
                      {"seconds", time.count()},
                      {"threads", 1},
                      {"strategies_per_second", static_cast<double>(answer.strategies) / time.count()}}}};
  fmt::print("{}\n", out.dump(2));
}

void PrintPlanTable(const planner::PlanAnswer& answer, Seconds time) {
  if (!answer.plans.empty()) {
    fmt::print("{:>4} {:>4} {:>11} {:>9} {:>10} {:>10} {:>10} {:>7} {:>8} {:>10} {:>6}\n", "#", "dp", "micro-batch",
               "recompute", "bucket", "iteration", "exposed", "MFU", "tokens/s", "memory", "gap");
  }
  int number = 0;
  for (const auto& plan : answer.plans) {
    const auto& p = plan.predicted;
    fmt::print("{:>4} {:>4} {:>11} {:>9} {:>10} {:>10} {:>10} {:>5.1f} % {:>8.0f} {:>6.1f} GiB {:>4.1f} %\n", ++number,
               plan.strategy.dp, plan.strategy.micro_batch, planner::RecomputeName(plan.strategy.recompute),
               FormatBytes(plan.strategy.bucket_bytes), FormatDuration(p.iteration),
               FormatDuration(p.exposed_communication), p.mfu * 100, p.tokens_per_s,
               static_cast<double>(p.memory.total().count()) / 0x1p30, plan.gap * 100);
  }
  for (const auto& plan : answer.plans) {
    for (const auto& reason : plan.why) fmt::print("  {}\n", reason);
    break;  // the reasons of the best one
  }
  fmt::print(stderr, "{} strategies, {} evaluated, {} pruned in {}{}\n", answer.strategies, answer.evaluated,
             answer.pruned, FormatDuration(time), answer.complete ? "" : "; stopped at the budget, not proved optimal");
}

Result<int> Run(const PlanCommandOptions& options) {
  if (options.output != "table" && options.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\": expected table or json", options.output));
  }
  planner::JobSpec job;
  WEFT_ASSIGN_OR_RETURN(job.model, formats::ResolveModel(options.model));
  WEFT_ASSIGN_OR_RETURN(const planner::ClusterSpec cluster, formats::ResolveCluster(options.cluster));
  WEFT_ASSIGN_OR_RETURN(job.precision, formats::ParsePrecision(options.precision));
  job.name = job.model.name;
  job.global_batch = options.global_batch;
  job.sequence = options.sequence;
  job.gpus = options.gpus;
  planner::PlanOptions plan_options;
  plan_options.top = options.top;
  WEFT_ASSIGN_OR_RETURN(plan_options.fix, ParseFix(options.fix));
  const SystemClock clock;
  const Seconds begin = clock.Now();
  WEFT_ASSIGN_OR_RETURN(const planner::PlanAnswer answer, planner::Plan(job, cluster, plan_options));
  const Seconds time = std::max(clock.Now() - begin, Seconds(1e-9));
  if (options.output == "json") {
    PrintPlanJson(answer, time);
  } else {
    PrintPlanTable(answer, time);
  }
  if (!answer.plans.empty()) return kExitDone;
  for (const auto& reason : answer.infeasible) fmt::print(stderr, "weft plan: no feasible plan: {}\n", reason);
  return kExitInfeasible;
}

}  // namespace

int RunPlan(const PlanCommandOptions& options) {
  const auto status = Run(options);
  if (status) return *status;
  fmt::print(stderr, "weft plan: {}\n", status.error().message());
  return ExitCodeOf(status.error());
}

}  // namespace weft::cli
