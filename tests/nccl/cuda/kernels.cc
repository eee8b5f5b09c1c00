// Functions and launches of the stand-in: what the compiler's own calls register, what NCCL asks of its kernels, and the
// launch itself, which goes to the library of kernels on the CPU.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/nccl/cuda/device.h"
#include "tests/nccl/cuda/launch.h"

namespace weft::cuda_stand_in {
namespace {

using RunKernel = void (*)(unsigned, const void*, size_t);

RunKernel LoadKernels() {
  const char* path = std::getenv("WEFT_NCCL_KERNELS");
  if (path == nullptr) {
    std::fprintf(stderr, "stand-in for CUDA: WEFT_NCCL_KERNELS names no library of kernels; a collective can't run\n");
    return nullptr;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, "weft_run_nccl_kernel");
  if (found == nullptr) std::fprintf(stderr, "stand-in for CUDA: %s: %s\n", path, dlerror());
  return reinterpret_cast<RunKernel>(found);
}

}  // namespace

bool Launch(unsigned blocks, const void* arguments, size_t bytes, void* stream) {
  static const RunKernel run = LoadKernels();
  if (run == nullptr) return false;
  const auto* first = static_cast<const char*>(arguments);
  StreamOf(stream).Add([blocks, copy = std::vector<char>(first, first + bytes)] { run(blocks, copy.data(), copy.size()); });
  return true;
}

}  // namespace weft::cuda_stand_in

extern "C" {

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  *function = static_cast<cudaFunction_t>(const_cast<void*>(symbol));
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxThreadsPerBlock = 640;
  attributes->numRegs = 96;
  return cudaSuccess;
}

/// NCCL's collectives are launched by the driver's call; this one starts what one rank alone needs, which no CPU kernel is for.
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) { return cudaErrorNotSupported; }

// What nvcc's host code calls when a library with kernels is loaded. Their signatures stand in no public header.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* symbol) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(symbol));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }

}  // extern "C"
