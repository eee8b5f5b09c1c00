// How long one layer takes on one rank for one micro-batch, pass by pass, with the communication that cannot hide: a sum
// over its kernels, each the larger of arithmetic and memory traffic, and over the collectives of tp, cp and ep.
//
// Kernels of a GPT or Llama layer: four matrix products, attention's core (fused, or scores, softmax and values), norms,
// residual sums, activation. An MoE layer has router, dispatch, grouped products and combine in place of the MLP.
#pragma once

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/operations.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// One pass.
struct PassTime {
  Seconds compute{0};  ///< kernels
  Seconds tensor{0};   ///< exposed communication of tp
  Seconds context{0};  ///< of cp
  Seconds expert{0};   ///< of ep and etp
  Flops flops;         ///< of the kernels, as the model has them: what padding adds is not counted

  Seconds total() const { return compute + tensor + context + expert; }
  PassTime& operator+=(const PassTime& o);
  friend PassTime operator+(PassTime a, const PassTime& b) { return a += b; }
  friend PassTime operator*(double f, const PassTime& p) {
    return {f * p.compute, f * p.tensor, f * p.context, f * p.expert, f * p.flops};
  }
};

/// One layer, one micro-batch.
struct LayerTime {
  PassTime forward;
  PassTime backward_data;    ///< data gradients
  PassTime backward_weight;  ///< weight gradients, what a split backward may postpone
  PassTime core;             ///< what selective recomputation repeats: attention's core, or norms and activations
  std::vector<Operation>* communication = nullptr;  ///< where Communicate() writes what it adds, if not null

  /// A part of `operation.pass`, which takes `operation.exposed` longer for it. Requires: no compute, a pass of a micro-batch.
  void Communicate(const Operation& operation);
};

/// All that a layer's time depends on.
struct LayerKey {
  int64_t tp = 1, cp = 1, ep = 1, etp = 1, micro_batch = 1;
  bool sequence_parallel = false;
  TensorMode tensor_mode = TensorMode::k1D;
  int64_t tensor_depth = 1;
  ContextMode context_mode = ContextMode::kRing;

  friend bool operator==(const LayerKey&, const LayerKey&) = default;
};
LayerKey KeyOf(const Strategy& strategy);

/// A dense layer, or an MoE layer of `job.model`. `communication`: where its communication is written, if not null.
/// Requires: a legal key.
/// Source: kernels and FLOPs, arXiv 2205.05198 appendix A; collectives, collectives/collective_cost.h.
LayerTime ComputeLayerTime(const JobSpec& job, const CalibratedHardware& hardware, const SoftwareStack& stack, const LayerKey& key,
                           bool moe, std::vector<Operation>* communication = nullptr);

/// What the first and the last stage do besides.
struct EdgeTime {
  PassTime embedding_forward, embedding_backward;
  PassTime head_forward, head_backward_data, head_backward_weight;  ///< final norm, logits, loss
};
/// `first`, `last`: where the communication of embedding and head is written, if not null.
EdgeTime ComputeEdgeTime(const JobSpec& job, const CalibratedHardware& hardware, const SoftwareStack& stack, const LayerKey& key,
                         std::vector<Operation>* first = nullptr, std::vector<Operation>* last = nullptr);

}  // namespace weft::planner::parallelism
