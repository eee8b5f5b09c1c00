// Attention's core, scores to weighted values, and the communication that context parallelism adds to it.
#pragma once

#include "planner/parallelism/layer_time.h"

namespace weft::planner::inline parallelism {

/// Fused attention's core, forward, as it was traced or is priced.
struct FusedShape {
  double batch = 1, heads = 1, tokens = 1, keys = 1;
  double query_width = 1, value_width = 1;  ///< of a head
  double key_values = 1;                    ///< width of all keys and values of a token
  double share = 1;                         ///< of all pairs that are attended
};
Seconds FusedForwardTime(const CalibratedHardware& hardware, const FusedShape& shape);

/// Adds forward, backward and `core` of attention's core. A model that keeps scores under a stack without fused attention
/// pays for scores, softmax and dropout as separate kernels; fused attention repeats the scores in its backward pass,
/// 2.5 times the forward's work. Ring steps hide behind the block that is computed meanwhile.
/// Source: arXiv 2205.05198 appendix A; arXiv 2205.14135 (fused attention); arXiv 2310.01889 (ring).
void AddAttentionCore(LayerTime& layer, const JobSpec& job, const CalibratedHardware& hardware, const SoftwareStack& stack,
                      const LayerKey& key);

}  // namespace weft::planner::parallelism
