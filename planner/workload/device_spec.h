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
  Bytes reserved;                ///< of `memory`, held by driver, runtime and communication library
  BitsPerSecond memory_rate;     ///< read or written
  double gemm_efficiency = 0.5;  ///< of peak, reached over a whole transformer layer of large matrices
  Seconds kernel_launch{0};      ///< least time of one kernel
};

/// "v100-32", "a100-40", "a100-80", "h100-80", "cpu" (one core); nullopt if unknown.
std::optional<DeviceSpec> FindDevice(std::string_view name);
/// The names that FindDevice knows, for messages.
std::string DeviceNames();

}  // namespace weft::planner
