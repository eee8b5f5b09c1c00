// What this machine's processor takes for the kinds of work that training is made of, each by itself, in fp32.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::runtime {

/// C[m × n] = A[m × k] · B[k × n], `count` at once.
struct ProductTime {
  double m = 0, n = 0, k = 0, count = 1;
  Seconds time{0};
};

/// A causal core of attention: scores, mask, softmax, weighted values. Forward.
struct AttentionTime {
  double batch = 0, heads = 0, sequence = 0, width = 0;
  Seconds time{0};
};

/// An operator that does little but read and write.
struct StreamTime {
  std::string name;
  double bytes = 0;  ///< read and written
  Seconds time{0};
};

struct MachineTimes {
  std::vector<ProductTime> products;
  std::vector<AttentionTime> attention;
  std::vector<StreamTime> streams;  ///< element-wise operators and copies
  Seconds least{0};                 ///< of an operator on one element
};

/// Each time is the median of several; where a person looks, stderr says how far it is. About `budget` in all. Requires:
/// threads > 0. Errors: kResourceExhausted when memory runs out; kInternal for anything else that LibTorch throws.
[[nodiscard]] Result<MachineTimes> MeasureMachine(int threads, Seconds budget);

}  // namespace weft::runtime
