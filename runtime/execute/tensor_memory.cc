#include "runtime/execute/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace weft::runtime {
namespace {

std::atomic<int64_t> g_now{0}, g_peak{0};

/// The size stands in front of the tensor's memory, which stays aligned as LibTorch's own is.
constexpr size_t kHeader = 64;

void Free(void* block) {
  g_now -= static_cast<int64_t>(*static_cast<size_t*>(block));
  std::free(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, cpu};
    void* const block = std::aligned_alloc(kHeader, (kHeader + bytes + kHeader - 1) / kHeader * kHeader);
    if (block == nullptr) throw std::bad_alloc();
    *static_cast<size_t*>(block) = bytes;
    const int64_t now = g_now += static_cast<int64_t>(bytes);
    for (int64_t peak = g_peak; now > peak && !g_peak.compare_exchange_weak(peak, now);) {
    }
    return {static_cast<char*>(block) + kHeader, block, &Free, cpu};
  }
};

}  // namespace

void CountTensorMemory() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

TensorMemory MemoryOfTensors() { return {Bytes(g_now), Bytes(g_peak)}; }
void ResetTensorPeak() { g_peak = g_now.load(); }

}  // namespace weft::runtime
