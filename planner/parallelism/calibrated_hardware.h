// A cluster, a precision and a software stack boiled down to the numbers that inner loops need: plain doubles in base
// units (bytes, seconds, FLOP), efficiencies already applied.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/result.h"
#include "planner/collectives/collective_cost.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"
#include "planner/parallelism/software_stack.h"
#include "planner/workload/precision.h"

namespace weft::planner::inline parallelism {

struct CalibratedHardware {
  // One GPU.
  double gemm_rate = 0;        ///< FLOP/s that large matrix products of the job's precision reach
  double gemm16_rate = 0;      ///< the same in 16 bits: attention products, the loss
  double flash_rate = 0;       ///< FLOP/s of fused attention
  double processors = 1;       ///< streaming multiprocessors: what tiles are dealt to
  double ramp_depth = 0;       ///< K that a tile's start and end cost, in 16-bit elements
  double wave = 0;             ///< share of the last wave's idle time that is really lost
  double memory_rate = 1;      ///< byte/s of streaming kernels
  double launch = 0;           ///< s per kernel, on the device
  double element = 2;          ///< bytes of a stored value
  bool narrow = false;         ///< fp8 or fp4: inputs are cast before every product

  GroupNetwork network;

  // The stack.
  double host_per_kernel = 0;    ///< s that the host needs per kernel: the floor of a layer's time
  double moe_host = 0;       ///< s that the host adds per MoE layer and pass: sizes known only on the device
  double elementwise = 1;        ///< traffic of unfused kernels over the least traffic
  double tensor_hidden = 0;      ///< share of tp communication behind GEMMs
  double tensor_jitter = 0;      ///< s per rank that a blocking collective of tp waits for the last one to start
  double expert_hidden = 0;      ///< share of ep communication behind other work
  bool adds_gradients = false;
  double parameter_bucket = 160e6;  ///< bytes
  double buffers = 0;            ///< bytes that the stack keeps beside state and activations
  double interference = 0;       ///< share of overlapped communication that slows computation
  double fragmentation = 1;      ///< of allocated over asked activations
  double context_bytes = 0;      ///< of driver, libraries and communicators, outside the allocator
  double step_host = 0;          ///< s per iteration
  double micro_batch_host = 0;   ///< s per micro-batch

  /// All that the GPU and its host do takes `factor` times as long; the network does not.
  void TakeLonger(double factor);
};

/// Errors: kInvalidArgument for rates or sizes that are not positive, and for a constant that the calibration lacks.
[[nodiscard]] Result<CalibratedHardware> MakeCalibratedHardware(const ClusterSpec& cluster, Precision precision, const SoftwareStack& stack,
                                          const Calibration& calibration);

/// What `communication` seconds behind `compute` seconds cost: what does not fit, and what overlaps slows. Complexity: O(1).
inline double ExposedBehind(const CalibratedHardware& hardware, double communication, double compute) {
  return std::max(0.0, communication - compute) + hardware.interference * std::min(communication, compute);
}

/// Name of the family whose constants a device shares: "a100" for "a100-40", "h100" for "h800", "blackwell" …
std::string_view DeviceFamily(std::string_view device);

/// Time of C[m × n] += A[m × k] · B[k × n], `count` of them at once. `bytes` of one element of A and B, `out_bytes` of C.
/// Tiles go to the multiprocessors in waves; each costs its area × (k + ramp); shapes off the grid of 8 elements use
/// slower instructions. Source: tile and wave quantisation as NVIDIA's matrix multiplication guide describes it; roofline.
struct GemmShape {
  double m = 0, n = 0, k = 0;
  double count = 1;
};
double GemmTime(const CalibratedHardware& hardware, double rate, const GemmShape& shape, double bytes, double out_bytes);

}  // namespace weft::planner::parallelism
