#include "planner/workload/device_spec.h"

#include <array>

namespace weft::planner {
namespace {

using namespace literals;

constexpr FlopsPerSecond Teraflops(double rate) { return FlopsPerSecond(rate * 1e12); }

// Peaks, memory and memory rate: NVIDIA data sheets of Tesla V100 SXM2 32 GB (its half-precision tensor rate stands in for
// bf16, which it lacks), A100 SXM4 40 GB and 80 GB, H100 SXM5 80 GB, all without sparsity; fp32 outside the tensor cores.
// Efficiency: hardware FLOPs over peak of models that fit one node. V100: 39 of 125 TFLOP/s (arXiv 1909.08053, section
// 5.1). A100: 137 to 163 of 312 (arXiv 2104.04473, table 1, 1.7 B to 530 B). H100: 38 to 43 % (arXiv 2407.21783, table 4).
// Reserved: a CUDA context and one NCCL communicator, 1 to 2.5 GiB as commonly seen. Launch: about 5 us per kernel.
// cpu: one core with 256-bit vectors at about 3 GHz, to plan small runs by; a measured time replaces it.
std::array<DeviceSpec, 5> Devices() {
  return {
      DeviceSpec{"v100-32", Teraflops(125), Teraflops(15.7), 32_GiB, 2_GiB, GigabytesPerSecond(900), 0.31, Seconds(5e-6)},
      DeviceSpec{"a100-40", Teraflops(312), Teraflops(19.5), 40_GiB, 2_GiB, GigabytesPerSecond(1555), 0.47, Seconds(5e-6)},
      DeviceSpec{"a100-80", Teraflops(312), Teraflops(19.5), 80_GiB, 2_GiB, GigabytesPerSecond(2039), 0.47, Seconds(5e-6)},
      DeviceSpec{"h100-80", Teraflops(989.4), Teraflops(66.9), 80_GiB, 2_GiB, GigabytesPerSecond(3350), 0.42,
                 Seconds(5e-6)},
      DeviceSpec{"cpu", Teraflops(0.05), Teraflops(0.05), 4_GiB, 0_B, GigabytesPerSecond(10), 0.5, Seconds(0)},
  };
}

}  // namespace

std::optional<DeviceSpec> FindDevice(std::string_view name) {
  for (const DeviceSpec& device : Devices()) {
    if (device.name == name) return device;
  }
  return std::nullopt;
}

std::string DeviceNames() {
  std::string names;
  for (const DeviceSpec& device : Devices()) names += (names.empty() ? "" : ", ") + device.name;
  return names;
}

}  // namespace weft::planner
