// A cluster, a precision and a software stack boiled down to the numbers that inner loops need, efficiencies already applied.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/fractional_bytes.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/collective_cost.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"
#include "planner/parallelism/software_stack.h"
#include "planner/workload/precision.h"

namespace weft::planner::inline parallelism {

struct CalibratedHardware {
  // One GPU.
  FlopsPerSecond gemm_rate;    ///< that large matrix products of the job's precision reach
  FlopsPerSecond gemm16_rate;  ///< the same in 16 bits: attention products, the loss
  FlopsPerSecond flash_rate;   ///< of fused attention of long sequences
  double flash_ramp = 0;       ///< keys at which fused attention reaches half of that
  double processors = 1;       ///< streaming multiprocessors: what tiles are dealt to
  double ramp_depth = 0;       ///< K that a tile's start and end cost, in 16-bit elements
  double wave = 0;             ///< share of the last wave's idle time that is really lost
  BitsPerSecond memory_rate{8};  ///< of streaming kernels
  Seconds launch{0};           ///< per kernel, on the device
  FractionalBytes element{2};  ///< of a stored value
  bool narrow = false;         ///< fp8 or fp4: inputs are cast before every product

  GroupNetwork network;

  // The stack.
  Seconds host_per_kernel{0};  ///< that the host needs per kernel: the floor of a layer's time
  Seconds moe_host{0};         ///< that the host adds per MoE layer and pass: sizes known only on the device
  ElementwiseKernels kernels;
  double tensor_hidden = 0;      ///< share of tp communication behind GEMMs
  double expert_hidden = 0;      ///< share of ep communication behind other work
  bool adds_gradients = false;
  FractionalBytes parameter_bucket;  ///< of one parameter gather after the step; 0: see SoftwareStack
  bool fused_dispatch = false;
  double interference = 0;       ///< share of overlapped communication that slows computation
  double fragmentation = 1;      ///< of allocated over asked activations
  double activations = 1;        ///< of what is kept of a layer, over what is counted
  FractionalBytes context_bytes;  ///< of driver, libraries and communicators, outside the allocator
  Seconds step_host{0};        ///< per iteration

  /// All that the GPU and its host do takes `factor` times as long; the network does not.
  void TakeLonger(double factor);
};

/// Errors: kInvalidArgument for rates or sizes that are not positive, and for a constant that the calibration lacks.
[[nodiscard]] Result<CalibratedHardware> MakeCalibratedHardware(const ClusterSpec& cluster, Precision precision, const SoftwareStack& stack,
                                          const Calibration& calibration);

/// What `communication` behind `compute` costs: what does not fit, and what overlaps slows. Complexity: O(1).
inline Seconds ExposedBehind(const CalibratedHardware& hardware, Seconds communication, Seconds compute) {
  return std::max(Seconds(0), communication - compute) + hardware.interference * std::min(communication, compute);
}

/// Name of the family whose constants a device shares: "a100" for "a100-40", "h100" for "h800", "blackwell" …
std::string_view DeviceFamily(std::string_view device);

/// Whether some device's constants have that family's name.
bool IsDeviceFamily(std::string_view name);

/// Time of C[m × n] += A[m × k] · B[k × n], `count` of them at once. `element`: of one element of A and B, `out` of C.
/// Tiles go to the multiprocessors in waves; each costs its area × (k + ramp); shapes off the grid of 8 elements use
/// slower instructions. Source: tile and wave quantisation as NVIDIA's matrix multiplication guide describes it; roofline.
struct GemmShape {
  double m = 0, n = 0, k = 0;
  double count = 1;
};
Seconds GemmTime(const CalibratedHardware& hardware, FlopsPerSecond rate, const GemmShape& shape, FractionalBytes element,
                 FractionalBytes out);

}  // namespace weft::planner::parallelism
