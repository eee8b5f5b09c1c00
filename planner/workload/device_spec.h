// A device that computes: peak rates and memory, each with its source in device_spec.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/units.h"

namespace weft::planner {

struct DeviceSpec {
  std::string name;
  FlopsPerSecond peak_bf16;
  FlopsPerSecond peak_fp32;
  Bytes memory;
  double gemm_efficiency = 0.5;  ///< of peak, large matrices
};

/// "v100-32", "a100-40", "a100-80", "h100-80", "cpu"; nullopt if unknown.
std::optional<DeviceSpec> FindDevice(std::string_view name);

}  // namespace weft::planner
