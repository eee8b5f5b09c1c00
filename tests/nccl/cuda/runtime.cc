// The entries of the CUDA runtime that NCCL's host side calls, on host memory. Built as the shared library that NCCL loads in
// place of the real runtime. Streams run in order and asynchronously, events are reached when their stream gets there, a launch
// runs NCCL's kernels on CPU threads (tests/nccl/kernels). What is not here is answered with "not supported", which NCCL takes
// for a device that lacks it: no graphs, no peer access, no shared handles, no multicast.
#include <cuda_runtime_api.h>

#include <cstring>
#include <algorithm>
#include <string>
#include <memory>

#include "tests/nccl/cuda/device.h"
#include "tests/nccl/cuda/launch.h"

using weft::cuda_stand_in::Allocate;
using weft::cuda_stand_in::Allocation;
using weft::cuda_stand_in::BusIdOf;
using weft::cuda_stand_in::CurrentDevice;
using weft::cuda_stand_in::DeviceAt;
using weft::cuda_stand_in::DeviceCount;
using weft::cuda_stand_in::Event;
using weft::cuda_stand_in::Find;
using weft::cuda_stand_in::Free;
using weft::cuda_stand_in::MemoryKind;
using weft::cuda_stand_in::SetCurrentDevice;
using weft::cuda_stand_in::Stream;
using weft::cuda_stand_in::StreamOf;

namespace {

constexpr int kVersion = CUDART_VERSION;
constexpr int kMajor = 9, kMinor = 0;  // compute capability
constexpr int kProcessors = 132, kSharedPerBlock = 232448, kSharedPerBlockPlain = 48 << 10;
constexpr size_t kMemory = size_t{80} << 30;

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::shared_ptr<Event>& EventOf(cudaEvent_t event) { return *reinterpret_cast<std::shared_ptr<Event>*>(event); }

cudaError_t AllocateInto(void** pointer, size_t bytes, MemoryKind kind) {
  *pointer = Allocate(bytes, kind);
  return Report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

}  // namespace

namespace weft::cuda_stand_in {

void RecordOn(void* event, void* stream) {
  const std::shared_ptr<Event> target = EventOf(static_cast<cudaEvent_t>(event));
  StreamOf(stream).Add([target, record = target->Record()] { target->Reach(record); });
}

int AttributeOf(int attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: return kMajor;
    case cudaDevAttrComputeCapabilityMinor: return kMinor;
    case cudaDevAttrMultiProcessorCount: return kProcessors;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return kSharedPerBlock;
    case cudaDevAttrMaxSharedMemoryPerBlock: return kSharedPerBlockPlain;
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrClockRate: return 1'755'000;
    default: return 0;
  }
}

}  // namespace weft::cuda_stand_in

extern "C" {

// ---- devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = DeviceCount();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= DeviceCount()) return Report(cudaErrorInvalidDevice);
  SetCurrentDevice(device);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = weft::cuda_stand_in::AttributeOf(attribute);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "host memory");
  properties->major = kMajor;
  properties->minor = kMinor;
  properties->multiProcessorCount = kProcessors;
  properties->totalGlobalMem = kMemory;
  properties->warpSize = 32;
  const std::string bus = BusIdOf(device);
  properties->pciBusID = static_cast<int>(std::stoul(bus.substr(5, 2), nullptr, 16));
  std::memcpy(properties->uuid.bytes, bus.data(), std::min(bus.size(), sizeof properties->uuid.bytes));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const std::string bus = BusIdOf(device);
  if (length <= static_cast<int>(bus.size())) return Report(cudaErrorInvalidValue);
  std::memcpy(text, bus.c_str(), bus.size() + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  *device = DeviceAt(text);
  return Report(*device < 0 ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return Report(cudaErrorPeerAccessUnsupported); }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
  StreamOf(nullptr).Synchronize();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorNotReady: return "not ready";
    case cudaErrorNotSupported: return "not supported without a GPU";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidDevice: return "invalid device";
    default: return "error of the stand-in for the CUDA runtime";
  }
}

const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

// ---- memory

cudaError_t cudaMalloc(void** pointer, size_t bytes) { return AllocateInto(pointer, bytes, MemoryKind::kDevice); }

cudaError_t cudaFree(void* pointer) {
  return pointer == nullptr || Free(pointer) ? cudaSuccess : Report(cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return AllocateInto(pointer, bytes, MemoryKind::kDevice);
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return AllocateInto(pointer, bytes, MemoryKind::kDevice);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  StreamOf(stream).Add([pointer] { Free(pointer); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return AllocateInto(pointer, bytes, MemoryKind::kHost); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return AllocateInto(pointer, bytes, MemoryKind::kHost); }
cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const Allocation found = Find(pointer);
  attributes->type = found.kind == MemoryKind::kDevice ? cudaMemoryTypeDevice
                     : found.kind == MemoryKind::kHost ? cudaMemoryTypeHost
                                                       : cudaMemoryTypeUnregistered;
  attributes->device = found.device;
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  StreamOf(stream).Add([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  // Host memory that is not pinned may be gone when the stream gets there: CUDA copies it at the call.
  if (bytes <= (64 << 10) && Find(from).kind == MemoryKind::kNone) {
    const auto copy = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    StreamOf(stream).Add([=] { std::memcpy(to, copy->data(), bytes); });
  } else {
    StreamOf(stream).Add([=] { std::memmove(to, from, bytes); });
  }
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = reinterpret_cast<cudaMemPool_t>(new char);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete reinterpret_cast<char*>(pool);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return Report(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return Report(cudaErrorNotSupported); }
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }

// ---- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<Stream*>(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  StreamOf(stream).Synchronize();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return StreamOf(stream).idle() ? cudaSuccess : cudaErrorNotReady; }

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = StreamOf(stream).id();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::shared_ptr<Event> target = EventOf(event);
  StreamOf(stream).Add([target, record = target->recorded()] { target->Wait(record); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<Event>(std::make_shared<Event>()));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<std::shared_ptr<Event>*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  weft::cuda_stand_in::RecordOn(event, stream);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return EventOf(event)->reached() ? cudaSuccess : cudaErrorNotReady; }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::shared_ptr<Event> target = EventOf(event);
  target->Wait(target->recorded());
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  StreamOf(stream).Add([=] { function(data); });
  return cudaSuccess;
}

// ---- graphs: no stream ever captures

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*, const cudaGraphEdgeData*, size_t, unsigned) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                     size_t) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaMemcpyBatchAsync(void* const*, const void* const*, const size_t*, size_t, cudaMemcpyAttributes*, size_t*, size_t,
                                 cudaStream_t) {
  return Report(cudaErrorNotSupported);
}
#endif

cudaError_t cudaUserObjectCreate(cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t, cudaEvent_t) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t, cudaEvent_t) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t, const cudaHostNodeParams*) {
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t, const cudaKernelNodeParams*) {
  return Report(cudaErrorNotSupported);
}

}  // extern "C"
