// Layer 1: how a model is split. All degrees of DESIGN's strategy space have their place here; this version of the search
// varies dp, zero_stage 0, micro_batch, recompute and bucket_bytes and keeps the others at 1.
#pragma once

#include <cstdint>
#include <string>

#include "common/units.h"
#include "planner/workload/layer_cost.h"

namespace weft::planner {

struct Strategy {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, vpp = 1;
  int64_t micro_batch = 1;
  int64_t zero_stage = 0;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  Bytes bucket_bytes{25 << 20};

  friend bool operator==(const Strategy&, const Strategy&) = default;
};

struct MemoryUse {
  Bytes parameters, gradients, optimizer, activations;
  Bytes total() const { return parameters + gradients + optimizer + activations; }
};

}  // namespace weft::planner
