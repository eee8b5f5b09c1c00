// Replicas of a model in one process: what data parallelism that changes training learns, worked out without a program,
// communication or ranks. What runs over ranks is held against it.
//
//   WEFT_ASSIGN_OR_RETURN(Replicas replicas, Replicas::Create(options, {.count = 4, .local_steps = 3}));
//   WEFT_ASSIGN_OR_RETURN(const double loss, replicas.Step(samples, learning_rate));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/result.h"
#include "planner/planner.h"
#include "runtime/trainer.h"

namespace weft::runtime {

struct ReplicaOptions {
  int64_t count = 1;
  int64_t local_steps = 1;  ///< above 1: each takes its own steps, and parameters are averaged every so many
  bool gossip = false;      ///< each takes its own step, after averaging with the replica before it in the ring
  planner::WireType wire = planner::WireType::kWhole;  ///< what gradients are rounded to: kWhole or kBfloat16
  friend bool operator==(const ReplicaOptions&, const ReplicaOptions&) = default;
};

class Replicas {
 public:
  /// `trainer`: of all replicas together. Errors: kInvalidArgument for a batch that they do not share evenly, or a choice of more
  /// than one of the ways above; those of Trainer::Create.
  [[nodiscard]] static Result<Replicas> Create(const TrainerOptions& trainer, const ReplicaOptions& options);

  /// One step with the samples of all, the first replica's first; the mean loss before it. Errors: those of Trainer.
  [[nodiscard]] Result<double> Step(std::span<const uint8_t> samples, double learning_rate);

 private:
  Replicas(const ReplicaOptions& options, std::vector<std::unique_ptr<Trainer>> trainers)
      : options_(options), trainers_(std::move(trainers)) {}
  void SumGradients();
  void Mix();
  void Average();

  ReplicaOptions options_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  int64_t steps_ = 0;
};

}  // namespace weft::runtime
