#include "planner/parallelism/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/group_network.h"

namespace weft::planner::inline parallelism {
namespace {

std::vector<CalibrationConstant> Defaults() {
  return {
#include "planner/parallelism/calibration_defaults.inc"
  };
}

/// "gpu.l40s", "link.pcie": what constants may be of.
bool IsDeviceOrLink(std::string_view prefix) {
  if (prefix.starts_with("gpu.")) return IsDeviceFamily(prefix.substr(4));
  return prefix.starts_with("link.") && IsLinkKind(prefix.substr(5));
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

const CalibrationConstant* Calibration::FindFor(std::string_view prefix, std::string_view name) const {
  for (;;) {
    if (const auto* found = Find(fmt::format("{}.{}", prefix, name))) return found;
    const size_t dot = prefix.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    prefix = prefix.substr(0, dot);
  }
}

double Calibration::Get(std::string_view prefix, std::string_view name) const {
  const CalibrationConstant* found = FindFor(prefix, name);
  return found == nullptr ? std::numeric_limits<double>::quiet_NaN() : found->value;
}

Calibration Calibration::With(std::span<const MeasuredConstant> measured) const {
  std::vector<CalibrationConstant> all = constants_;
  for (const MeasuredConstant& m : measured) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const CalibrationConstant& c) { return c.name == m.name; });
    if (same != all.end()) same->value = m.value;
    else all.push_back({.name = m.name, .value = m.value, .least = m.value, .most = m.value, .fitted = true, .source = "measured"});
  }
  return Calibration(std::move(all));
}

const CalibrationConstant* Calibration::FindRange(std::string_view name) const {
  if (const CalibrationConstant* own = Find(name)) return own;
  const size_t last = name.rfind('.');
  if (last == name.npos || !IsDeviceOrLink(name.substr(0, last))) return nullptr;
  return FindFor(name.substr(0, last), name.substr(last + 1));
}

CalibrationConstant Calibration::RangeOf(std::string_view name) const {
  const CalibrationConstant* range = FindRange(name);
  return range != nullptr ? *range : CalibrationConstant{.least = 0, .most = 3600};
}

std::optional<std::string> Calibration::WhyNot(const MeasuredConstant& measured) const {
  const std::string_view name = measured.name;
  if (name.starts_with("operation.")) {
    return measured.value >= 0 ? std::nullopt : std::optional(fmt::format("value {}, expected no less than 0", measured.value));
  }
  const CalibrationConstant* range = FindRange(name);
  if (range == nullptr) return "no such constant, expected one that planner/parallelism/calibration.yaml lists";
  if (measured.value >= range->least && measured.value <= range->most) return std::nullopt;
  return fmt::format("value {}, expected {} to {}", measured.value, range->least, range->most);
}

}  // namespace weft::planner::parallelism
