#include "planner/fabric/device_spec.h"

#include <vector>

namespace weft::planner::inline fabric {
namespace {

using namespace literals;

/// Dense teraflops per second; 0 where the device has no such units.
struct Teraflops {
  double fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0, fp4 = 0;
};

/// Sixteen lanes of a generation of PCIe in GB/s, one direction: transfers per second, 128b/130b coding. Source: PCI-SIG, base
/// specifications 3.0 to 6.0 (the last by its flits, 242 of 256 bytes). A GB200 reaches its NICs through Grace, over 450 GB/s.
constexpr double kPcie3 = 15.75, kPcie4 = 31.5, kPcie5 = 63, kPcie6 = 121, kNoSlot = 0;

DeviceSpec Device(const char* name, const Teraflops& rates, Bytes memory, double memory_gigabytes, double slot, double efficiency,
                  const char* source) {
  DeviceSpec device;
  device.name = name;
  const double by_precision[kPrecisions] = {rates.fp32, rates.tf32, rates.fp16, rates.bf16, rates.fp8, rates.fp4};
  for (size_t i = 0; i < kPrecisions; ++i) device.peak[i] = FlopsPerSecond(by_precision[i] * 1e12);
  device.memory = memory;
  device.reserved = 2_GiB;  // a CUDA context and the communicators of one library, 1 to 2.5 GiB as commonly seen
  device.memory_rate = GigabytesPerSecond(memory_gigabytes);
  device.slot_rate = GigabytesPerSecond(slot);
  device.gemm_efficiency = efficiency;
  device.kernel_launch = Seconds(5e-6);  // about 5 us between kernels of an eager framework
  device.source = source;
  return device;
}

// Data sheets give rates with 2:4 sparsity where a device has it; here all are dense, half of those. A card's GB is a GiB.
// Efficiency: hardware FLOPs over peak of models that fit one node. V100: 39 of 125 TFLOP/s (arXiv 1909.08053, section
// 5.1). A100: 137 to 163 of 312 (arXiv 2104.04473, table 1, 1.7 B to 530 B). H100: 38 to 43 % (arXiv 2407.21783, table 4).
// Devices without such a figure here take that of their nearest kin: L40S and P40 the V100's, Hopper and Blackwell the
// H100's; a cluster file or a calibration overrides it.
std::vector<DeviceSpec> MakeDevices() {
  const Teraflops v100{.fp32 = 15.7, .fp16 = 125};
  const Teraflops a100{.fp32 = 19.5, .tf32 = 156, .fp16 = 312, .bf16 = 312};
  const Teraflops h100{.fp32 = 66.9, .tf32 = 494.7, .fp16 = 989.4, .bf16 = 989.4, .fp8 = 1978.9};
  const Teraflops h100_pcie{.fp32 = 51.2, .tf32 = 378, .fp16 = 756.5, .bf16 = 756.5, .fp8 = 1513};
  const Teraflops b200{.fp32 = 75, .tf32 = 1125, .fp16 = 2250, .bf16 = 2250, .fp8 = 4500, .fp4 = 9000};
  const Teraflops gb200{.fp32 = 80, .tf32 = 1250, .fp16 = 2500, .bf16 = 2500, .fp8 = 5000, .fp4 = 10000};
  const Teraflops b300{.fp32 = 75, .tf32 = 1125, .fp16 = 2250, .bf16 = 2250, .fp8 = 4500, .fp4 = 13500};
  const Teraflops gb300{.fp32 = 80, .tf32 = 1250, .fp16 = 2500, .bf16 = 2500, .fp8 = 5000, .fp4 = 15000};
  const Teraflops l40s{.fp32 = 91.6, .tf32 = 183, .fp16 = 362, .bf16 = 362, .fp8 = 733};
  std::vector<DeviceSpec> devices = {
      Device("v100-16", v100, 16_GiB, 900, kPcie3, 0.31, "NVIDIA Tesla V100 SXM2 data sheet"),
      Device("v100-32", v100, 32_GiB, 900, kPcie3, 0.31, "NVIDIA Tesla V100 SXM2 data sheet"),
      Device("a100-40", a100, 40_GiB, 1555, kPcie4, 0.47, "NVIDIA A100 SXM4 data sheet"),
      Device("a100-80", a100, 80_GiB, 2039, kPcie4, 0.47, "NVIDIA A100 SXM4 data sheet"),
      Device("h100-80", h100, 80_GiB, 3350, kPcie5, 0.42, "NVIDIA H100 architecture paper, SXM5"),
      Device("h100-pcie", h100_pcie, 80_GiB, 2000, kPcie5, 0.42, "NVIDIA H100 architecture paper, PCIe"),
      Device("h100-96", h100, 96_GiB, 2400, kPcie5, 0.42, "SXM5 rates; 96 GB of HBM2e at 2.4 TB/s as torchtitan's reports name it"),
      Device("h800", h100, 80_GiB, 3350, kPcie5, 0.42, "NVIDIA H100 SXM5 rates; only NVLink differs (arXiv 2412.19437, section 3.1)"),
      Device("h200", h100, 141_GiB, 4800, kPcie5, 0.42, "NVIDIA H200 data sheet, SXM"),
      Device("b200", b200, 180_GiB, 8000, kPcie5, 0.42, "NVIDIA HGX B200 data sheet, per GPU"),
      Device("gb200", gb200, 186_GiB, 8000, kNoSlot, 0.42, "NVIDIA GB200 NVL72 data sheet, per GPU"),
      Device("b300", b300, 270_GiB, 8000, kPcie6, 0.42, "NVIDIA HGX B300 data sheet, per GPU"),
      Device("gb300", gb300, 278_GiB, 8000, kPcie6, 0.42, "NVIDIA GB300 NVL72 data sheet, per GPU"),
      Device("l40s", l40s, 48_GiB, 864, kPcie4, 0.31, "NVIDIA L40S data sheet"),
      Device("p40", {.fp32 = 11.8}, 24_GiB, 346, kPcie3, 0.31, "NVIDIA Tesla P40 data sheet"),
      Device("cpu", {.fp32 = 0.05}, 4_GiB, 10, kNoSlot, 0.5, "one core with 256-bit vectors at about 3 GHz, to plan small runs by"),
  };
  devices.back().reserved = 0_B;
  devices.back().kernel_launch = Seconds(0);
  return devices;
}

const std::vector<DeviceSpec>& Devices() {
  static const auto* const kDevices = new std::vector<DeviceSpec>(MakeDevices());
  return *kDevices;
}

}  // namespace

FlopsPerSecond DeviceSpec::Peak(Precision precision) const {
  const auto rate = [this](Precision p) { return peak[static_cast<size_t>(p)]; };
  if (Supports(precision)) return rate(precision);
  switch (precision) {
    case Precision::kFp4: return Peak(Precision::kFp8);
    case Precision::kFp8: return Peak(Precision::kBf16);
    case Precision::kBf16: return rate(Supports(Precision::kFp16) ? Precision::kFp16 : Precision::kFp32);
    case Precision::kFp16: return rate(Supports(Precision::kBf16) ? Precision::kBf16 : Precision::kFp32);
    case Precision::kTf32:
    case Precision::kFp32: break;
  }
  return rate(Precision::kFp32);
}

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

}  // namespace weft::planner::fabric
