#include "cli/plan.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/cluster_yaml.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"

namespace weft::cli {
namespace {

using nlohmann::ordered_json;
using planner::JobPlan;
using planner::PlanAnswer;
using planner::Strategy;

Result<int64_t> ParseFixValue(const std::string& name, const std::string& text) {
  if (name == "recompute" && text == "none") return 0;
  if (name == "recompute" && text == "full") return 1;
  if (name == "bucket_bytes") {
    WEFT_ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
    return bytes.count();
  }
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (name == "recompute" || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return Fail(Code::kInvalidArgument, fmt::format("value \"{}\", expected {}", text,
                                                    name == "recompute" ? "none or full" : "an integer"));
  }
  return value;
}

ordered_json StrategyJson(const Strategy& s) {
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
          {"schedule", s.schedule},
          {"bucket_bytes", s.bucket_bytes.count()}};
}

ordered_json JobPlanJson(const JobPlan& plan) {
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

double PerSecond(const PlanAnswer& answer, Seconds taken) {
  return taken.count() > 0 ? static_cast<double>(answer.evaluated + answer.pruned) / taken.count() : 0;
}

Result<PlanAnswer> Answer(const PlanArguments& arguments, Seconds* taken) {
  if (arguments.output != "table" && arguments.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\", expected table or json", arguments.output));
  }
  if (arguments.top < 1) return Fail(Code::kInvalidArgument, fmt::format("--top {}, expected at least 1", arguments.top));
  planner::JobSpec job{.global_batch = arguments.global_batch, .sequence = arguments.sequence, .gpus = arguments.gpus};
  WEFT_ASSIGN_OR_RETURN(job.model, formats::ResolveModel(arguments.model));
  WEFT_ASSIGN_OR_RETURN(job.precision, formats::ParsePrecision(arguments.precision));
  job.name = job.model.name;
  WEFT_ASSIGN_OR_RETURN(const planner::ClusterSpec cluster, formats::ResolveCluster(arguments.cluster));
  planner::PlanOptions options{.top = arguments.top};
  WEFT_ASSIGN_OR_RETURN(options.fix, ParseFix(arguments.fix));
  const SystemClock clock;
  const Seconds start = clock.Now();
  WEFT_ASSIGN_OR_RETURN(PlanAnswer answer, planner::Plan(job, cluster, options));
  *taken = clock.Now() - start;
  return answer;
}

}  // namespace

Result<std::map<std::string, int64_t>> ParseFix(const std::string& text) {
  std::map<std::string, int64_t> fix;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    if (equals == part.npos || equals == 0) {
      return Fail(Code::kInvalidArgument, fmt::format("--fix \"{}\": expected NAME=VALUE, as in dp=8", part));
    }
    const std::string name = part.substr(0, equals);
    const Result<int64_t> value = ParseFixValue(name, part.substr(equals + 1));
    if (!value) return Fail(value.error().WithContext(fmt::format("--fix {}", name)));
    if (!fix.emplace(name, *value).second) {
      return Fail(Code::kInvalidArgument, fmt::format("--fix {}: stands twice", name));
    }
  }
  return fix;
}

std::string PlanJson(const PlanAnswer& answer, Seconds taken) {
  ordered_json plans = ordered_json::array();
  for (const JobPlan& plan : answer.plans) plans.push_back(JobPlanJson(plan));
  ordered_json root = {{"plans", plans},
                       {"search",
                        {{"strategies", answer.strategies},
                         {"evaluated", answer.evaluated},
                         {"pruned", answer.pruned},
                         {"seconds", taken.count()},
                         {"threads", 1},
                         {"strategies_per_second", PerSecond(answer, taken)},
                         {"complete", answer.complete}}}};
  if (!answer.infeasible.empty()) root["infeasible"] = answer.infeasible;
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string PlanTable(const PlanAnswer& answer, Seconds taken) {
  std::string text = fmt::format("{:>4} {:>6} {:>11} {:>9} {:>9} {:>11} {:>12} {:>6} {:>11} {:>10} {:>8}\n", "rank", "dp",
                                 "micro_batch", "recompute", "bucket", "iteration", "tokens/s", "MFU", "exposed", "memory",
                                 "gap");
  int rank = 0;
  for (const JobPlan& plan : answer.plans) {
    const Strategy& s = plan.strategy;
    const planner::Prediction& p = plan.predicted;
    text += fmt::format("{:>4} {:>6} {:>11} {:>9} {:>9} {:>11} {:>12.0f} {:>5.1f}% {:>11} {:>6.1f} GiB {:>7.1f}%\n", ++rank,
                        s.dp, s.micro_batch, planner::RecomputeName(s.recompute), FormatBytes(s.bucket_bytes),
                        FormatDuration(p.iteration), p.tokens_per_s, 100 * p.mfu, FormatDuration(p.exposed_communication),
                        static_cast<double>(p.memory.total().count()) / static_cast<double>(int64_t{1} << 30),
                        100 * plan.gap);
  }
  if (!answer.plans.empty()) {
    text += "\nwhy the first:\n";
    for (const std::string& line : answer.plans.front().why) text += "  " + line + "\n";
  }
  text += fmt::format("\n{} strategies, {} evaluated, {} pruned, {}\n", answer.strategies, answer.evaluated, answer.pruned,
                      FormatDuration(taken));
  return text;
}

int RunPlan(const PlanArguments& arguments) {
  Seconds taken{0};
  const Result<PlanAnswer> answer = Answer(arguments, &taken);
  if (!answer) {
    fmt::print(stderr, "weft plan: {}\n", answer.error().message());
    return ExitCodeOf(answer.error());
  }
  const bool json = arguments.output == "json";
  if (json || !answer->plans.empty()) fmt::print("{}", json ? PlanJson(*answer, taken) : PlanTable(*answer, taken));
  if (!answer->complete) fmt::print(stderr, "weft plan: the search ended at its budget, a better strategy may exist\n");
  if (!answer->plans.empty()) return kExitDone;
  fmt::print(stderr, "weft plan: no strategy fits\n");
  for (const std::string& reason : answer->infeasible) fmt::print(stderr, "  {}\n", reason);
  return kExitInfeasible;
}

}  // namespace weft::cli
