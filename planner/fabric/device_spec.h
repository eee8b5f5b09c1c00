// A device that computes: peak rates and memory, each with its source in device_spec.cc.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "common/units.h"
#include "planner/workload/precision.h"

namespace weft::planner::inline fabric {

struct DeviceSpec {
  std::string name;
  /// Dense rates by Precision; 0 where the device has no units for it. fp32 is outside the matrix units.
  std::array<FlopsPerSecond, kPrecisions> peak{};
  Bytes memory;
  Bytes reserved;                ///< of `memory`, held by driver, runtime and communication library
  BitsPerSecond memory_rate;     ///< read or written
  BitsPerSecond slot_rate;       ///< of its PCIe slot, per direction, raw: what comes from a NIC passes it; 0: no such limit
  double gemm_efficiency = 0.5;  ///< of peak, reached over a whole transformer layer of large matrices
  Seconds kernel_launch{0};      ///< least time of one kernel
  std::string source;            ///< where peak, memory and memory rate are from

  /// Whether the device has units for `precision`.
  bool Supports(Precision precision) const { return peak[static_cast<size_t>(precision)].value() > 0; }

  /// The dense rate at which work of `precision` runs: without units of its own fp4 runs as fp8, fp8 as bf16, bf16 and
  /// fp16 as each other and then as fp32 (V100: its fp16 units stand in for bf16), tf32 as fp32.
  FlopsPerSecond Peak(Precision precision) const;
};

/// "v100-16", "v100-32", "a100-40", "a100-80", "h100-80" (SXM), "h100-pcie", "h100-96", "h800", "h200", "b200", "gb200",
/// "b300", "gb300", "l40s", "p40", "cpu" (one core); nullopt if unknown.
std::optional<DeviceSpec> FindDevice(std::string_view name);
/// The names that FindDevice knows, for messages.
std::string DeviceNames();

}  // namespace weft::planner::fabric
