#include "runtime/replicas.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/execute/narrow.h"

namespace weft::runtime {
namespace {

void Round(planner::WireType wire, std::vector<double>* values) {
  if (wire == planner::WireType::kWhole) return;
  std::vector<std::byte> narrow(static_cast<size_t>(planner::NarrowBytes(wire, static_cast<int64_t>(values->size()))));
  Narrow<double>(wire, *values, narrow.data());
  Widen<double>(wire, narrow.data(), *values);
}

}  // namespace

Result<Replicas> Replicas::Create(const TrainerOptions& trainer, const ReplicaOptions& o) {
  const int ways = (o.local_steps > 1 ? 1 : 0) + (o.gossip ? 1 : 0) + (o.wire != planner::WireType::kWhole ? 1 : 0);
  if (o.count < 1 || o.local_steps < 1 || trainer.batch % o.count != 0 || ways > 1 || o.wire == planner::WireType::kFloat8) {
    return Fail(
        Code::kInvalidArgument,
        fmt::format(
            "{} replicas of a batch of {}, local steps {}, gossip {}, gradients {}: expected an even share of the batch, and "
            "one of more than one local step, gossip and bf16 at most",
            o.count, trainer.batch, o.local_steps, o.gossip, planner::WireTypeName(o.wire)));
  }
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int64_t i = 0; i < o.count; ++i) {
    TrainerOptions one = trainer;
    one.batch = trainer.batch / o.count;
    WEFT_ASSIGN_OR_RETURN(trainers.emplace_back(), Trainer::Create(one));
  }
  return Replicas(o, std::move(trainers));
}

Result<double> Replicas::Step(std::span<const uint8_t> samples, double learning_rate) {
  const size_t share = samples.size() / trainers_.size();
  double loss = 0;
  for (size_t i = 0; i < trainers_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const double own, trainers_[i]->Forward(samples.subspan(i * share, share)));
    WEFT_RETURN_IF_ERROR(trainers_[i]->Backward());
    loss += own / static_cast<double>(trainers_.size());
  }
  if (options_.gossip) Mix();
  if (!options_.gossip && options_.local_steps == 1 && trainers_.size() > 1) SumGradients();
  for (const std::unique_ptr<Trainer>& trainer : trainers_) WEFT_RETURN_IF_ERROR(trainer->Update(learning_rate));
  if (options_.local_steps > 1 && ++steps_ % options_.local_steps == 0) Average();
  return loss;
}

/// Each replica's share of the mean gradient is rounded, and so is their sum.
void Replicas::SumGradients() {
  std::vector<double> sum;
  for (const std::unique_ptr<Trainer>& trainer : trainers_) {
    std::vector<double> own = trainer->Gradients();
    for (double& value : own) value /= static_cast<double>(trainers_.size());
    Round(options_.wire, &own);
    if (sum.empty()) sum.assign(own.size(), 0);
    for (size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
  }
  Round(options_.wire, &sum);
  for (const std::unique_ptr<Trainer>& trainer : trainers_) trainer->SetGradients(sum);
}

void Replicas::Mix() {
  std::vector<std::vector<double>> before;
  for (const std::unique_ptr<Trainer>& trainer : trainers_) before.push_back(trainer->Parameters());
  const size_t n = trainers_.size();
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> mean = before[i];
    for (size_t k = 0; k < mean.size(); ++k) mean[k] = (mean[k] + before[(i + n - 1) % n][k]) / 2;
    trainers_[i]->SetParameters(mean);
  }
}

void Replicas::Average() {
  std::vector<double> mean = trainers_.front()->Parameters();
  for (size_t i = 1; i < trainers_.size(); ++i) {
    const std::vector<double> own = trainers_[i]->Parameters();
    for (size_t k = 0; k < mean.size(); ++k) mean[k] += own[k];
  }
  for (double& value : mean) value /= static_cast<double>(trainers_.size());
  for (const std::unique_ptr<Trainer>& trainer : trainers_) trainer->SetParameters(mean);
}

}  // namespace weft::runtime
