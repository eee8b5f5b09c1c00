// Devices and memory of the stand-in: several devices per process, "device" memory is host memory.
#pragma once

#include <cstddef>
#include <string>

#include "tests/nccl/cuda/stream.h"

namespace weft::cuda_stand_in {

/// WEFT_CUDA_DEVICES of them (default 1, at most 16).
int DeviceCount();
/// The calling thread's.
int CurrentDevice();
void SetCurrentDevice(int device);

/// "0000:41:00.0": WEFT_CUDA_BUS (hexadecimal, default 1) and the device's number, so that ranks that are processes of one
/// machine can differ.
std::string BusIdOf(int device);
/// The device with this address; -1: none.
int DeviceAt(const std::string& bus_id);

/// The stream behind a handle; CUDA's default streams are one stream per device.
Stream& StreamOf(void* handle);

enum class MemoryKind { kNone, kDevice, kHost };
struct Allocation {
  char* base = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kNone;
  int device = 0;
};

/// Page-aligned, zeroed; nullptr: there is no more. Thread-safe, as are the next two.
void* Allocate(size_t bytes, MemoryKind kind);
/// False: `base` is none of ours.
bool Free(void* base);
/// What an address lies in; kind kNone: none of ours.
Allocation Find(const void* address);

}  // namespace weft::cuda_stand_in
