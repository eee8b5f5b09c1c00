#include "proto/plan_codec.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "proto/operation_codec.h"

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

/// Sets variables by name; the first that cannot be what is said is the answer.
class StrategyReader {
 public:
  void Number(const char* name, int64_t value) { Set(name, value, std::to_string(value)); }

  void Word(const char* name, const std::string& text) {
    Set(name, text.size() > kLongestWord ? std::nullopt : planner::FindStrategyVariable(name)->parse(text), Shown(text));
  }

  Result<planner::Strategy> Take() const {
    if (!status_) return Fail(status_.error());
    return strategy_;
  }

 private:
  void Set(const char* name, std::optional<int64_t> value, const std::string& shown) {
    const planner::StrategyVariable& variable = *planner::FindStrategyVariable(name);
    if (value && *value >= variable.least && *value <= variable.most) return variable.set(strategy_, *value);
    if (!status_) return;
    status_ = Fail(Code::kInvalidArgument, std::string("strategy: ") + name + ": " + shown + ", expected " + std::string(variable.values));
  }

  planner::Strategy strategy_;
  Status status_ = Ok();
};

}  // namespace

v1::Strategy ToProto(const planner::Strategy& strategy) {
  v1::Strategy message;
  message.set_dp(strategy.dp);
  message.set_tp(strategy.tp);
  message.set_pp(strategy.pp);
  message.set_cp(strategy.cp);
  message.set_ep(strategy.ep);
  message.set_etp(strategy.etp);
  message.set_vpp(strategy.vpp);
  message.set_micro_batch(strategy.micro_batch);
  message.set_zero_stage(strategy.zero_stage);
  message.set_shard_group(strategy.shard_group);
  message.set_keep_after_forward(strategy.keep_after_forward);
  message.set_recompute(std::string(planner::RecomputeName(strategy.recompute)));
  message.set_recompute_layers(strategy.recompute_layers);
  message.set_sequence_parallel(strategy.sequence_parallel);
  message.set_schedule(std::string(planner::ScheduleName(strategy.schedule)));
  message.set_tensor_mode(std::string(planner::TensorModeName(strategy.tensor_mode)));
  message.set_tensor_depth(strategy.tensor_depth);
  message.set_context_mode(std::string(planner::ContextModeName(strategy.context_mode)));
  message.set_data_sync(std::string(planner::DataSyncName(strategy.data_sync)));
  message.set_rank_order(std::string(planner::RankOrderName(strategy.rank_order)));
  message.set_sharding(std::string(planner::ShardingName(strategy.sharding)));
  message.set_gradient_wire(std::string(planner::GradientWireName(strategy.gradient_wire)));
  message.set_local_steps(strategy.local_steps);
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
  if (!plan.operations.classes.empty()) *out.mutable_operations() = ToProto(plan.operations);
}

Result<planner::Strategy> StrategyFromProto(const v1::Strategy& message) {
  StrategyReader reader;
  reader.Number("dp", message.dp());
  reader.Number("tp", message.tp());
  reader.Number("pp", message.pp());
  reader.Number("cp", message.cp());
  reader.Number("ep", message.ep());
  reader.Number("vpp", message.vpp());
  reader.Number("micro_batch", message.micro_batch());
  reader.Number("zero_stage", message.zero_stage());
  reader.Word("recompute", message.recompute());
  reader.Number("sequence_parallel", message.sequence_parallel() ? 1 : 0);
  reader.Word("schedule", message.schedule());
  reader.Number("bucket_bytes", message.bucket_bytes());
  // What older senders do not know has the default that they mean.
  const planner::Strategy plain;
  reader.Number("etp", message.etp() == 0 ? plain.etp : message.etp());
  reader.Number("shard_group", message.shard_group());
  reader.Number("keep_after_forward", message.keep_after_forward() ? 1 : 0);
  reader.Number("recompute_layers", message.has_recompute_layers() ? message.recompute_layers() : plain.recompute_layers);
  reader.Number("tensor_depth", message.tensor_depth() == 0 ? plain.tensor_depth : message.tensor_depth());
  reader.Number("local_steps", message.local_steps() == 0 ? plain.local_steps : message.local_steps());
  const std::pair<const char*, const std::string*> words[] = {
      {"tensor_mode", &message.tensor_mode()}, {"context_mode", &message.context_mode()}, {"data_sync", &message.data_sync()},
      {"rank_order", &message.rank_order()},   {"sharding", &message.sharding()},         {"gradient_wire", &message.gradient_wire()}};
  for (const auto& [name, text] : words) {
    if (!text->empty()) reader.Word(name, *text);
  }
  return reader.Take();
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
