#include "tests/nccl/cuda/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace weft::cuda_stand_in {
namespace {

constexpr int kMostDevices = 16;
constexpr size_t kGrain = 1 << 16;  // of allocations, as NCCL shares them by such addresses
constexpr uintptr_t kLargestDefaultHandle = 2;

thread_local int current_device = 0;

int NumberFrom(const char* variable, int otherwise, int base) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<int>(std::strtol(text, nullptr, base));
}

/// Never destroyed: threads of streams outlive main.
struct Memory {
  std::mutex mutex;
  std::map<char*, Allocation> allocations;
};
Memory& TheMemory() {
  static auto* memory = new Memory;
  return *memory;
}

}  // namespace

int DeviceCount() {
  static const int count = std::clamp(NumberFrom("WEFT_CUDA_DEVICES", 1, 10), 1, kMostDevices);
  return count;
}

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

std::string BusIdOf(int device) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0000:%02x:00.0", (NumberFrom("WEFT_CUDA_BUS", 1, 16) + device) & 0xff);
  return text.data();
}

int DeviceAt(const std::string& bus_id) {
  const auto short_of = [](const std::string& id) { return id.substr(id.size() - std::min<size_t>(id.size(), 12)); };
  for (int device = 0; device < DeviceCount(); ++device) {
    if (short_of(BusIdOf(device)) == short_of(bus_id)) return device;
  }
  return -1;
}

Stream& StreamOf(void* handle) {
  static auto* defaults = new std::array<Stream, kMostDevices>;
  if (reinterpret_cast<uintptr_t>(handle) <= kLargestDefaultHandle) return (*defaults)[static_cast<size_t>(current_device)];
  return *static_cast<Stream*>(handle);
}

void* Allocate(size_t bytes, MemoryKind kind) {
  const size_t size = std::max((bytes + kGrain - 1) / kGrain * kGrain, kGrain);
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  memory.allocations[static_cast<char*>(base)] = {static_cast<char*>(base), size, kind, current_device};
  return base;
}

bool Free(void* base) {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.allocations.find(static_cast<char*>(base));
  if (found == memory.allocations.end()) return false;
  munmap(base, found->second.bytes);
  memory.allocations.erase(found);
  return true;
}

Allocation Find(const void* address) {
  char* at = static_cast<char*>(const_cast<void*>(address));
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  auto after = memory.allocations.upper_bound(at);
  if (after == memory.allocations.begin()) return {};
  const Allocation& found = std::prev(after)->second;
  return at < found.base + found.bytes ? found : Allocation{};
}

}  // namespace weft::cuda_stand_in
