// Medians and the like of measured times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::runtime {

/// The value below which about `share` of the others lie, one of `values`; of an even number the median is the lower middle one.
/// Requires: at least one value, 0 <= share <= 1.
inline double Quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace weft::runtime
