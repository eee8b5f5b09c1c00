// Per-layer floating-point work, parameter and activation bytes of a ModelSpec for one micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline workload {

/// What of a layer's forward pass runs again in the backward pass: nothing, attention's core, all of it.
enum class Recompute : uint8_t { kNone, kSelective, kFull };

struct LayerCost {
  std::string name;             ///< "embedding", "layer0" …, "head"
  int64_t parameters = 0;
  Flops forward;                ///< one micro-batch, causal attention counted whole
  Flops backward;               ///< 2 × forward
  Bytes activations;            ///< kept for backward, one micro-batch
};

/// Costs of all layers in order of execution: embedding, layers, head; of a CNN its layers only (sequence is ignored).
/// The head holds the final norm; tied, no other parameters but its own work. An MoE model is dropless and balanced. Windows
/// count by their pairs; what a DiT does once per sample is not counted.
/// GPT-2 counts eager attention with dropout (scores kept: the paper's 34 sbh + 5 as²b), others flash attention without;
/// full recomputation keeps a layer's input only, selective drops the scores. Requires: a valid model, sequence and
/// micro_batch ≥ 1. Source: arXiv 2205.05198, sections 4 (activations, equations 1 and 2) and appendix A (work); with other
/// widths and element sizes its items one by one; latent attention by the shapes of arXiv 2412.19437, section 2.1.
std::vector<LayerCost> LayerCosts(const ModelSpec& model, int64_t sequence, int64_t micro_batch, int bytes_per_element,
                                  Recompute recompute = Recompute::kNone);

}  // namespace weft::planner::workload
