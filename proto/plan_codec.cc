#include "proto/plan_codec.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace weft::proto {
namespace {

constexpr int kMostVariables = 64;
constexpr size_t kLongestSource = 255;
constexpr size_t kLongestWord = 63;
constexpr size_t kLongestShown = 40;  // of what somebody sent, in a message

bool IsLine(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// What was sent, fit for a message.
std::string Shown(const std::string& text) {
  std::string shown = text.substr(0, kLongestShown);
  for (char& c : shown) c = c >= ' ' && c < 0x7f ? c : '?';
  return "\"" + shown + (text.size() > kLongestShown ? "...\"" : "\"");
}

tl::unexpected<Error> BadGiven(const std::string& what) { return Fail(Code::kInvalidArgument, "given strategy: " + what); }

}  // namespace

v1::Strategy ToProto(const planner::Strategy& strategy) {
  v1::Strategy message;
  message.set_dp(strategy.dp);
  message.set_tp(strategy.tp);
  message.set_pp(strategy.pp);
  message.set_cp(strategy.cp);
  message.set_ep(strategy.ep);
  message.set_vpp(strategy.vpp);
  message.set_micro_batch(strategy.micro_batch);
  message.set_zero_stage(strategy.zero_stage);
  message.set_recompute(std::string(planner::RecomputeName(strategy.recompute)));
  message.set_sequence_parallel(strategy.sequence_parallel);
  message.set_schedule(std::string(planner::ScheduleName(strategy.schedule)));
  message.set_bucket_bytes(strategy.bucket_bytes.count());
  message.set_text(planner::DescribeStrategy(strategy));
  return message;
}

v1::Prediction ToProto(const planner::Prediction& predicted) {
  v1::Prediction message;
  message.set_iteration_s(predicted.iteration.count());
  message.set_tokens_per_s(predicted.tokens_per_s);
  message.set_tflops_per_gpu(predicted.tflops_per_gpu);
  message.set_mfu(predicted.mfu);
  message.set_exposed_communication_s(predicted.exposed_communication.count());
  message.set_bubble_s(predicted.bubble.count());
  message.set_parameter_bytes(predicted.memory.parameters.count());
  message.set_gradient_bytes(predicted.memory.gradients.count());
  message.set_optimizer_bytes(predicted.memory.optimizer.count());
  message.set_activation_bytes(predicted.memory.activations.count());
  message.set_buffer_bytes(predicted.memory.transient.count());
  return message;
}

void ToProto(const planner::JobPlan& plan, v1::JobPlan& out) {
  *out.mutable_strategy() = ToProto(plan.strategy);
  *out.mutable_predicted() = ToProto(plan.predicted);
  out.set_lower_bound_s(plan.lower_bound.count());
  out.set_gap(plan.gap);
  for (const std::string& why : plan.why) out.add_why(why);
}

Result<planner::Strategy> StrategyFromProto(const v1::Strategy& message) {
  const std::pair<const char*, int64_t> degrees[] = {
      {"dp", message.dp()},   {"tp", message.tp()}, {"pp", message.pp()},           {"cp", message.cp()},
      {"ep", message.ep()},   {"vpp", message.vpp()}, {"micro_batch", message.micro_batch()}};
  for (const auto& [name, value] : degrees) {
    if (value < 1) {
      return Fail(Code::kInvalidArgument,
                  std::string("strategy: ") + name + ": " + std::to_string(value) + ", expected 1 or more");
    }
  }
  if (message.zero_stage() < 0 || message.zero_stage() > 3) {
    return Fail(Code::kInvalidArgument,
                "strategy: zero_stage: " + std::to_string(message.zero_stage()) + ", expected 0 to 3");
  }
  if (message.bucket_bytes() < 1) {
    return Fail(Code::kInvalidArgument,
                "strategy: bucket_bytes: " + std::to_string(message.bucket_bytes()) + ", expected 1 or more");
  }
  planner::Strategy strategy;
  strategy.dp = message.dp();
  strategy.tp = message.tp();
  strategy.pp = message.pp();
  strategy.cp = message.cp();
  strategy.ep = message.ep();
  strategy.vpp = message.vpp();
  strategy.micro_batch = message.micro_batch();
  strategy.zero_stage = message.zero_stage();
  strategy.sequence_parallel = message.sequence_parallel();
  strategy.bucket_bytes = Bytes(message.bucket_bytes());
  if (message.recompute() == "full") {
    strategy.recompute = planner::Recompute::kFull;
  } else if (message.recompute() == "selective") {
    strategy.recompute = planner::Recompute::kSelective;
  } else if (message.recompute() != "none") {
    return Fail(Code::kInvalidArgument,
                "strategy: recompute: \"" + message.recompute() + "\", expected none, selective or full");
  }
  auto schedule = planner::ParseSchedule(message.schedule());
  if (!schedule) return Fail(schedule.error().WithContext("strategy"));
  strategy.schedule = *schedule;
  return strategy;
}

v1::GivenStrategy ToGivenProto(const planner::Strategy& strategy, const std::string& source) {
  v1::GivenStrategy message;
  message.set_source(source.substr(0, kLongestSource));
  for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
    v1::StrategyValue* value = message.add_values();
    value->set_name(std::string(variable.name));
    value->set_value(variable.print(variable.get(strategy)));
  }
  return message;
}

Result<planner::Strategy> StrategyFromProto(const v1::GivenStrategy& message) {
  if (message.values_size() > kMostVariables) {
    return BadGiven(std::to_string(message.values_size()) + " variables, expected at most " + std::to_string(kMostVariables));
  }
  if (message.source().size() > kLongestSource || !IsLine(message.source())) {
    return BadGiven("source: " + Shown(message.source()) + ", expected a line of at most " + std::to_string(kLongestSource) +
                    " characters");
  }
  planner::Strategy strategy;
  std::set<std::string> named;
  for (const v1::StrategyValue& given : message.values()) {
    const planner::StrategyVariable* variable = planner::FindStrategyVariable(given.name());
    if (variable == nullptr) {
      return BadGiven(Shown(given.name()) + ": unknown, expected one of " + planner::StrategyVariableNames());
    }
    if (!named.insert(given.name()).second) return BadGiven(given.name() + ": named twice");
    const auto value = given.value().size() > kLongestWord ? std::nullopt : variable->parse(given.value());
    if (!value || *value < variable->least || *value > variable->most) {
      return BadGiven(given.name() + ": " + Shown(given.value()) + ", expected " + std::string(variable->values));
    }
    variable->set(strategy, *value);
  }
  return strategy;
}

Result<planner::JobSpec> JobSpecFromProto(const v1::JobSpec& spec, const planner::ModelSpec& model) {
  planner::JobSpec job;
  job.name = spec.name().empty() ? spec.job_id() : spec.name();
  job.model = model;
  job.global_batch = spec.global_batch();
  job.sequence = spec.sequence();
  job.gpus = spec.gpus();
  if (!spec.precision().empty()) {
    const auto precision = planner::FindPrecision(spec.precision());
    if (!precision) {
      return Fail(Code::kInvalidArgument,
                  "precision: \"" + spec.precision() + "\", expected one of " + planner::PrecisionNames());
    }
    job.precision = *precision;
  }
  if (spec.measured_compute_s() < 0 || !std::isfinite(spec.measured_compute_s())) {
    return Fail(Code::kInvalidArgument, "measured_compute_s: " + std::to_string(spec.measured_compute_s()) +
                                            ", expected 0 (unknown) or a time in seconds");
  }
  if (spec.measured_compute_s() > 0) job.measured_compute = Seconds(spec.measured_compute_s());
  return job;
}

}  // namespace weft::proto
