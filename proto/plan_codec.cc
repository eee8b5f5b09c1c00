#include "proto/plan_codec.h"

#include <cmath>
#include <string>
#include <utility>

namespace weft::proto {

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
