#include "planner/parallelism/calibrated_hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/parallelism/group_network.h"

namespace weft::planner::inline parallelism {
namespace {

// Multiprocessors by device. Source: NVIDIA's architecture papers of Volta, Ampere, Hopper, Ada and Blackwell; of parts
// with fewer enabled than the chip has, the enabled ones.
struct Processors {
  std::string_view device;
  std::string_view family;
  double count;
};
constexpr std::array kProcessors = {
    Processors{"v100", "v100", 80},      Processors{"a100", "a100", 108},       Processors{"h100-pcie", "h100", 114},
    Processors{"h100-96", "h100.96", 132}, Processors{"h100", "h100", 132},     Processors{"h800", "h100", 132},       Processors{"h200", "h100", 132},
    Processors{"gb200", "blackwell", 148}, Processors{"b200", "blackwell", 148}, Processors{"gb300", "blackwell.ultra", 148},
    Processors{"b300", "blackwell.ultra", 148}, Processors{"l40s", "l40s", 142},      Processors{"p40", "p40", 30},
    Processors{"cpu", "cpu", 1},
};

const Processors* FindProcessors(std::string_view device) {
  for (const Processors& entry : kProcessors) {
    if (device.substr(0, entry.device.size()) == entry.device) return &entry;
  }
  return nullptr;
}

struct Tile {
  double m, n, efficiency;  // efficiency: of the largest tile's rate per multiprocessor
};
constexpr std::array kTiles = {Tile{256, 128, 1.0}, Tile{128, 256, 1.0}, Tile{128, 128, 0.88}, Tile{256, 64, 0.75},
                               Tile{64, 256, 0.75}, Tile{128, 64, 0.62}, Tile{64, 128, 0.62},  Tile{64, 64, 0.45}};

/// std::ceil() of what is at least 0 and less than 2^53; a search asks a hundred million times, and the library's is a call.
double RoundUp(double x) {
  const auto whole = static_cast<double>(static_cast<int64_t>(x));
  return whole < x ? whole + 1 : whole;
}

/// Instructions want operands in steps of 16 bytes; off that grid they load element by element.
double Alignment(double extent) {
  const auto whole = static_cast<int64_t>(extent);
  if (whole % 64 == 0) return 1;
  if (whole % 8 == 0) return 0.93;
  return 0.12;
}

/// Of the peak in 16 bits. Where a GPU has no constant of its own for FlashAttention 2, that is what its libraries have.
double FlashShare(const std::string& gpu, AttentionKernel kernel, const Calibration& calibration) {
  const double device = calibration.Get(gpu, "flash");
  if (kernel == AttentionKernel::kDevice) return device;
  const double second = calibration.Get(gpu, "flash2");
  const double flash2 = std::isnan(second) ? device : second;
  return kernel == AttentionKernel::kFlash2 ? flash2 : flash2 * calibration.Get("gpu", "triton_flash");
}

}  // namespace

std::string_view DeviceFamily(std::string_view device) {
  const Processors* entry = FindProcessors(device);
  return entry == nullptr ? "other" : entry->family;
}

bool IsDeviceFamily(std::string_view name) {
  return std::ranges::any_of(kProcessors, [&](const Processors& entry) { return entry.family == name; });
}

Seconds GemmTime(const CalibratedHardware& hardware, FlopsPerSecond rate, const GemmShape& shape, FractionalBytes element,
                 FractionalBytes out) {
  const double aligned = Alignment(shape.k) * Alignment(shape.n);
  double least = 1e300;  // FLOPs of one multiprocessor
  for (const Tile& tile : kTiles) {
    const double tiles = RoundUp(shape.m / tile.m) * RoundUp(shape.n / tile.n) * shape.count;
    const double waves = tiles / hardware.processors;
    const double lost = (RoundUp(waves) - waves) * hardware.wave;
    const double work = 2 * tile.m * tile.n * (shape.k + hardware.ramp_depth) / tile.efficiency;
    least = std::min(least, (waves + lost) * work);
  }
  const Seconds compute = Flops(least * hardware.processors) / (rate * aligned);
  const FractionalBytes traffic = shape.count * (element * (shape.m * shape.k + shape.k * shape.n) + out * shape.m * shape.n);
  return std::max(compute, traffic / hardware.memory_rate) + hardware.launch;
}

void CalibratedHardware::TakeLonger(double factor) {
  for (FlopsPerSecond* rate : {&gemm_rate, &gemm16_rate, &flash_rate}) *rate = FlopsPerSecond(rate->value() / factor);
  memory_rate = memory_rate / factor;
  for (Seconds* time : {&launch, &host_per_kernel, &moe_host, &step_host}) *time *= factor;
}

Result<CalibratedHardware> MakeCalibratedHardware(const ClusterSpec& cluster, Precision precision, const SoftwareStack& stack,
                            const Calibration& calibration) {
  if (!cluster.measured.empty()) {
    ClusterSpec plain = cluster;
    plain.measured.clear();
    return MakeCalibratedHardware(plain, precision, stack, calibration.With(cluster.measured));
  }
  const DeviceSpec& device = cluster.device;
  const std::string gpu = fmt::format("gpu.{}", DeviceFamily(device.name));
  const Processors* processors = FindProcessors(device.name);
  const FlopsPerSecond peak16 = device.Peak(Precision::kBf16);
  const bool narrow = precision == Precision::kFp8 || precision == Precision::kFp4;
  const char* gemm = precision == Precision::kFp4 ? "gemm4" : precision == Precision::kFp8 ? "gemm8" : "gemm16";
  const double straggling = calibration.Get("gpu", "straggling");
  const auto get = [&](const std::string& prefix, const char* name) { return calibration.Get(prefix, name); };
  CalibratedHardware m;
  m.gemm_rate = device.Peak(precision) * get(gpu, gemm);
  m.gemm16_rate = (precision == Precision::kFp32 ? device.Peak(precision) : peak16) * get(gpu, "gemm16");
  m.flash_rate = peak16 * FlashShare(gpu, stack.attention, calibration);
  m.flash_ramp = get(gpu, "flash_ramp");
  m.processors = processors == nullptr ? 100 : processors->count;
  m.ramp_depth = get(gpu, "ramp_depth") * (precision == Precision::kFp4 ? 4 : narrow ? 2 : 1);
  m.wave = get(gpu, "wave");
  m.memory_rate = device.memory_rate * get(gpu, "memory");
  m.launch = Seconds(get(gpu, "launch"));
  m.element = FractionalBytes(StorageBytes(precision));
  m.narrow = narrow;
  m.network = MakeGroupNetwork(cluster, stack.name == "weft-train" ? CollectiveLibrary::kWeft : CollectiveLibrary::kNccl, calibration);
  m.host_per_kernel = Seconds(stack.graphs ? 0 : get("host", "kernel"));
  m.moe_host = Seconds(stack.graphs ? 0 : get("host", "moe"));
  m.kernels = stack.kernels;
  m.tensor_hidden = stack.overlaps_tensor ? get("overlap", "tensor") : 0;
  m.expert_hidden = stack.overlaps_experts ? get("overlap", "experts") : 0;
  m.adds_gradients = stack.adds_gradients;
  m.fused_dispatch = stack.fused_dispatch;
  m.parameter_bucket = FractionalBytes(stack.parameter_bucket);
  m.interference = get("overlap", "interference");
  m.fragmentation = get("memory", "fragmentation");
  m.activations = get("memory", "activations");
  // A device that reserves nothing is a host's processor: no driver, no communicators.
  const bool has_context = device.reserved.count() > 0;
  if (has_context) m.context_bytes = std::max(FractionalBytes(get("memory", "context")), FractionalBytes(device.reserved));
  if (!has_context) m.fragmentation = m.activations = 1;
  m.step_host = Seconds(stack.input_in_memory ? 0 : get("host", "step"));
  const double needed[] = {m.gemm_rate.value(), m.gemm16_rate.value(), m.flash_rate.value(), m.memory_rate.bytes_per_second(),
                           m.network.intra_rate, m.network.direct_intra_rate, m.network.nic_rate};
  for (const double rate : needed) {
    if (!(rate > 0) || !std::isfinite(rate)) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("cluster {}: device {}, stack {}: a rate is {}, expected a positive number", cluster.name,
                              device.name, stack.name, rate));
    }
  }
  const double others[] = {m.ramp_depth, m.wave, m.launch.count(), m.flash_ramp, m.fragmentation, m.activations, m.context_bytes.count(),
                           m.network.intra_latency, m.network.nic_latency, m.network.switch_rate, m.host_per_kernel.count(),
                           m.moe_host.count(), m.tensor_hidden, m.expert_hidden, m.interference, m.step_host.count(), straggling};
  for (const double value : others) {
    if (!(value >= 0)) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("calibration: a constant of {}, link.{}, host, overlap or memory is missing", gpu, LinkKindOf(cluster)));
    }
  }
  // The slowest of all nodes sets the pace: what it takes longer grows with the logarithm of their number.
  const double spread = has_context ? straggling * std::log2(std::max(1.0, static_cast<double>(cluster.TotalGpus()) / 8)) : 0;
  m.TakeLonger(get(gpu, "time") * (1 + spread));
  return m;
}

}  // namespace weft::planner::parallelism
