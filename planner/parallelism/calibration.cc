#include "planner/parallelism/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace weft::planner::inline parallelism {
namespace {

std::vector<CalibrationConstant> Defaults() {
  return {
#include "planner/parallelism/calibration_defaults.inc"
  };
}

bool ByName(const CalibrationConstant& a, const CalibrationConstant& b) { return a.name < b.name; }

}  // namespace

Calibration::Calibration() : Calibration(Defaults()) {}

Calibration::Calibration(std::vector<CalibrationConstant> constants) : constants_(std::move(constants)) {
  std::sort(constants_.begin(), constants_.end(), ByName);
}

const CalibrationConstant* Calibration::Find(std::string_view name) const {
  const auto at = std::lower_bound(constants_.begin(), constants_.end(), name,
                                   [](const CalibrationConstant& c, std::string_view n) { return c.name < n; });
  return at != constants_.end() && at->name == name ? &*at : nullptr;
}

double Calibration::Get(std::string_view prefix, std::string_view name) const {
  for (;;) {
    if (const auto* found = Find(fmt::format("{}.{}", prefix, name))) return found->value;
    const size_t dot = prefix.rfind('.');
    if (dot == std::string_view::npos) return std::numeric_limits<double>::quiet_NaN();
    prefix = prefix.substr(0, dot);
  }
}

}  // namespace weft::planner::parallelism
