// The entries of NVML that NCCL asks for: plain devices, no NVLink, no fabric, no confidential computing. Handles are the
// devices' numbers plus one. NVML's own header is not needed: its structures that NCCL passes are left as they came.
#include <cstring>
#include <string>

#include "tests/nccl/cuda/device.h"

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6;  // nvmlReturn_t

int DeviceOf(const void* handle) { return static_cast<int>(reinterpret_cast<uintptr_t>(handle)) - 1; }
void* HandleOf(int device) { return reinterpret_cast<void*>(static_cast<uintptr_t>(device + 1)); }

}  // namespace

extern "C" {

int nvmlInit() { return kSuccess; }
int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "not supported without a GPU"; }

int nvmlDeviceGetCount(unsigned* count) {
  *count = static_cast<unsigned>(weft::cuda_stand_in::DeviceCount());
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) { return nvmlDeviceGetCount(count); }

int nvmlDeviceGetHandleByIndex(unsigned index, void** handle) {
  *handle = HandleOf(static_cast<int>(index));
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId(const char* text, void** handle) {
  const int device = weft::cuda_stand_in::DeviceAt(text);
  *handle = HandleOf(device);
  return device < 0 ? kNotFound : kSuccess;
}

int nvmlDeviceGetIndex(void* handle, unsigned* index) {
  *index = static_cast<unsigned>(DeviceOf(handle));
  return kSuccess;
}

int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}

int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 1;  // the chipset does not support it
  return kSuccess;
}

int nvmlDeviceGetPcieLinkMaxSpeed(void*, unsigned* speed) {
  *speed = 32'000;
  return kSuccess;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return kSuccess;
}

int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* width) {
  *width = 16;
  return kSuccess;
}

int nvmlDeviceGetNvLinkState(void*, unsigned, int*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo(void*, unsigned, void*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
int nvmlDeviceGetNvLinkCapability(void*, unsigned, int, unsigned*) { return kNotSupported; }
int nvmlDeviceGetFieldValues(void*, int, void*) { return kNotSupported; }
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNotSupported; }
int nvmlDeviceGetPlatformInfo(void*, void*) { return kNotSupported; }
int nvmlDeviceGetPciInfo_v3(void*, void*) { return kNotSupported; }
int nvmlDeviceGetPciInfoExt(void*, void*) { return kNotSupported; }
int nvmlSystemGetConfComputeSettings(void*) { return kNotSupported; }

/// Three numbers: CPU capability, GPU capability, whether it is on.
int nvmlSystemGetConfComputeState(void* state) {
  std::memset(state, 0, 3 * sizeof(int));
  return kSuccess;
}

}  // extern "C"
