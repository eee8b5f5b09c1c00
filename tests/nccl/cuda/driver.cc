// The driver's entries, which NCCL finds by name through the runtime.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tests/nccl/cuda/device.h"
#include "tests/nccl/cuda/launch.h"

namespace {

using weft::cuda_stand_in::Allocation;
using weft::cuda_stand_in::BusIdOf;
using weft::cuda_stand_in::CurrentDevice;
using weft::cuda_stand_in::Find;
using weft::cuda_stand_in::Launch;
using weft::cuda_stand_in::MemoryKind;

/// A context that is there and nothing more: one per device.
CUcontext ContextOf(int device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(0x1000 + device)); }

CUresult DeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = weft::cuda_stand_in::AttributeOf(static_cast<int>(attribute));
  return CUDA_SUCCESS;
}

CUresult DeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof *uuid);
  const std::string bus = BusIdOf(device);
  std::memcpy(uuid->bytes, bus.data(), std::min(bus.size(), sizeof uuid->bytes));
  return CUDA_SUCCESS;
}

CUresult Describe(CUresult, const char** text) {
  *text = "not supported without a GPU";
  return CUDA_SUCCESS;
}

CUresult ContextCurrent(CUcontext* context) {
  *context = ContextOf(CurrentDevice());
  return CUDA_SUCCESS;
}

CUresult ContextDevice(CUdevice* device) {
  *device = CurrentDevice();
  return CUDA_SUCCESS;
}

CUresult ContextSet(CUcontext) { return CUDA_SUCCESS; }

CUresult AddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  const Allocation found = Find(reinterpret_cast<const void*>(pointer));
  if (found.kind == MemoryKind::kNone) return CUDA_ERROR_INVALID_VALUE;
  *base = reinterpret_cast<CUdeviceptr>(found.base);
  *bytes = found.bytes;
  return CUDA_SUCCESS;
}

CUresult DriverVersion(int* version) {
  *version = CUDART_VERSION;
  return CUDA_SUCCESS;
}

/// A launch with its arguments packed, the form that NCCL uses.
CUresult LaunchPacked(unsigned blocks, CUstream stream, void** extra) {
  const void* arguments = nullptr;
  size_t bytes = 0;
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) arguments = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const size_t*>(extra[1]);
  }
  if (arguments == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return Launch(blocks, arguments, bytes, stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void** extra) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      weft::cuda_stand_in::RecordOn(attribute.value.launchCompletionEvent.event, config->hStream);
    }
  }
  return LaunchPacked(config->gridDimX, config->hStream, extra);
}

CUresult LaunchKernel(CUfunction, unsigned grid_x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream stream,
                      void**, void** extra) {
  return LaunchPacked(grid_x, stream, extra);
}

CUresult Unsupported() { return CUDA_ERROR_NOT_SUPPORTED; }

void* EntryOf(std::string_view name) {
  static constexpr std::pair<std::string_view, void* (*)()> kEntries[] = {
      {"cuDeviceGet", [] { return reinterpret_cast<void*>(DeviceGet); }},
      {"cuDeviceGetAttribute", [] { return reinterpret_cast<void*>(DeviceGetAttribute); }},
      {"cuDeviceGetUuid", [] { return reinterpret_cast<void*>(DeviceGetUuid); }},
      {"cuGetErrorString", [] { return reinterpret_cast<void*>(Describe); }},
      {"cuGetErrorName", [] { return reinterpret_cast<void*>(Describe); }},
      {"cuCtxGetCurrent", [] { return reinterpret_cast<void*>(ContextCurrent); }},
      {"cuCtxGetDevice", [] { return reinterpret_cast<void*>(ContextDevice); }},
      {"cuCtxSetCurrent", [] { return reinterpret_cast<void*>(ContextSet); }},
      {"cuCtxDestroy", [] { return reinterpret_cast<void*>(ContextSet); }},
      {"cuCtxCreate", [] { return reinterpret_cast<void*>(ContextCurrent); }},
      {"cuMemGetAddressRange", [] { return reinterpret_cast<void*>(AddressRange); }},
      {"cuDriverGetVersion", [] { return reinterpret_cast<void*>(DriverVersion); }},
      {"cuLaunchKernelEx", [] { return reinterpret_cast<void*>(LaunchKernelEx); }},
      {"cuLaunchKernel", [] { return reinterpret_cast<void*>(LaunchKernel); }},
  };
  for (const auto& [known, entry] : kEntries) {
    if (known == name) return entry();
  }
  return reinterpret_cast<void*>(Unsupported);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *entry = EntryOf(name);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** entry, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, entry, CUDART_VERSION, flags, result);
}

}  // extern "C"
