// Floating-point work of one iteration as published measurements count it, so that a rate compares with theirs.
#pragma once

#include "common/units.h"
#include "planner/workload/layer_cost.h"
#include "planner/workload/model_spec.h"

namespace weft::planner {

/// How much of the score matrix counts: Megatron's papers count all of it, others the half that a causal mask leaves.
enum class ScoreWork : uint8_t { kWhole, kCausalHalf };

struct IterationFlops {
  Flops model;     ///< forward and backward: what the model needs, however it is run; MFU counts these
  Flops hardware;  ///< and what recomputation repeats; HFU, and arXiv 2104.04473's 'achieved TFLOP/s', count these
};

/// Work of `batch` sequences (samples of a CNN). For GPT model = 72 BLsh² (1 + s/6h + V/12hL); hardware with full
/// recomputation 96 BLsh² (1 + s/6h + V/16Lh), with selective 72 BLsh² (1 + s/3h + V/12hL). The last is the source's
/// count: it doubles all work of the attention core, where one more forward pass adds a third. Only models that keep their
/// scores have a core to recompute. Requires: a valid model, sequence and batch ≥ 1.
/// Source: arXiv 2205.05198 appendix A, arXiv 2104.04473 eq. (3); other families by the shapes of their matrices.
IterationFlops CountFlops(const ModelSpec& model, int64_t sequence, int64_t batch, Recompute recompute,
                          ScoreWork scores = ScoreWork::kWhole);

/// Forward work of one sequence's scores and values, of layer `layer`: 4 s² a dh, of latent attention 2 s² (query + value
/// width), with CountedKeys() for one s in a window. 0 for a CNN.
Flops AttentionCoreForward(const ModelSpec& model, int64_t sequence, ScoreWork scores = ScoreWork::kWhole,
                           int64_t layer = 0);

}  // namespace weft::planner
