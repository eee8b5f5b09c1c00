// One rank's model, its gradients and its optimizer, as plain C++: LibTorch stays behind this header. Gradients live in
// memory that the caller lends, so that they are exchanged where they are made, without a copy.
//
//   WEFT_ASSIGN_OR_RETURN(auto trainer, Trainer::Create({.model = spec, .batch = 2, .sequence = 128}));
//   trainer->BindGradients(memory, [&](size_t i) { exchange.GradientReady(i); });
//   WEFT_ASSIGN_OR_RETURN(const double loss, trainer->Forward(samples));
//   WEFT_RETURN_IF_ERROR(trainer->Backward());   // calls back as gradients become complete
//   WEFT_RETURN_IF_ERROR(trainer->Update(1e-3));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/result.h"
#include "planner/workload/model_spec.h"

namespace weft::runtime {

/// GPT-2, Llama and Mixtral families, no dropout. Bytes are the vocabulary: model.vocab must be 256. Or a 3D CNN.
struct TrainerOptions {
  planner::ModelSpec model;
  int64_t batch = 1;           ///< samples of this rank per step
  int64_t sequence = 128;      ///< tokens per sample, at most model.max_positions; of a 3D CNN 1
  double learning_rate = 1e-3; ///< of AdamW; its other settings are LibTorch's defaults
  bool double_precision = false;  ///< fp64 in place of fp32; gradients then cannot be bound
  double clip = 0;             ///< largest global norm of the gradients; 0: any
  uint64_t seed = 1;           ///< all parameters follow from it
  int threads = 1;             ///< of LibTorch, in each operation
  /// Of an MoE model: which tokens (sample · sequence + position) share the experts' capacity, in order; none: all as one group.
  std::vector<std::vector<int64_t>> capacity_groups = {};
};

/// Same options, same samples and same threads: the same bits. Threads: the one that created it.
class Trainer {
 public:
  /// Errors: kInvalidArgument for a model outside these families, heads that do not divide the width, or a sequence
  /// longer than the positions.
  [[nodiscard]] static Result<std::unique_ptr<Trainer>> Create(const TrainerOptions& options);
  ~Trainer();

  /// Elements of each parameter's gradient, in the order in which backward completes them (last layer first).
  const std::vector<int64_t>& gradient_elements() const;

  /// Lends the memory of the gradients, in the order of gradient_elements(); backward adds to it, so it must be zero
  /// before. `ready(i)` is called on the caller's thread, inside Backward(), when gradient i is complete.
  /// Requires: once, sizes as gradient_elements(), memory that outlives the trainer.
  void BindGradients(std::span<const std::span<float>> memory, std::function<void(size_t)> ready);

  /// Mean loss (nats per byte) of `samples`, [batch × (SampleBytes() + 1)] (text_data.h).
  /// Errors: kResourceExhausted when memory runs out, kInternal for anything else that LibTorch throws.
  [[nodiscard]] Result<double> Forward(std::span<const uint8_t> samples);
  /// Gradients of the last Forward(), into the bound memory if there is one. Errors: as Forward().
  [[nodiscard]] Status Backward();
  /// All parameters, or gradients, one after the other in the order of gradient_elements(); to set them, as many.
  /// Requires, of gradients: Backward() came before.
  std::vector<double> Parameters() const;
  std::vector<double> Gradients() const;
  void SetParameters(std::span<const double> values);
  void SetGradients(std::span<const double> values);

  /// One optimizer step with what the gradients now are; those that are not bound are zero afterwards. Errors: as Forward().
  [[nodiscard]] Status Update(double learning_rate);

 private:
  class Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::runtime
