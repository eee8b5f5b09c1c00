#include "planner/parallelism/memory_risk.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kErrors[] = {
#include "planner/parallelism/memory_errors.inc"
};

bool HasContext(const DeviceSpec& device) { return device.reserved.count() > 0; }

}  // namespace

std::span<const double> MemoryErrors() { return kErrors; }

double MemoryFactor(double risk) {
  const auto count = static_cast<double>(std::size(kErrors));
  const auto rank = static_cast<size_t>(std::clamp(std::ceil((1 - risk) * count - 1e-9), 1.0, count));
  return kErrors[rank - 1];
}

double MemoryAllowance(const DeviceSpec& device, std::optional<double> risk) {
  const auto memory = static_cast<double>(device.memory.count());
  return risk && HasContext(device) ? memory / MemoryFactor(*risk) : memory;
}

double FitProbability(const DeviceSpec& device, Bytes predicted) {
  const double room = static_cast<double>(device.memory.count()) / std::max(1.0, static_cast<double>(predicted.count()));
  if (!HasContext(device)) return room >= 1 ? 1 : 0;
  const auto fitting = std::upper_bound(std::begin(kErrors), std::end(kErrors), room) - std::begin(kErrors);
  return static_cast<double>(fitting) / static_cast<double>(std::size(kErrors));
}

}  // namespace weft::planner::parallelism
