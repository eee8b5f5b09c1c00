#include "tests/nccl/kernels/primitives.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::nccl_test {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
size_t DivideUp(size_t value, size_t by) { return (value + by - 1) / by; }

/// Data is worked on in pieces of this size, which stay in the cache.
constexpr size_t kTile = 16 << 10;

}  // namespace

char* SimpleBuffer(const ncclConnInfo& connection, uint64_t step) {
  char* buffer = connection.buffs[NCCL_PROTO_SIMPLE];
  const uint64_t slot = step % NCCL_STEPS;
  if (connection.connFifo != nullptr && connection.connFifo[slot].mode == NCCL_MODE_OFFSET) {
    return buffer + __atomic_load_n(&connection.connFifo[slot].offset, __ATOMIC_RELAXED);
  }
  return buffer + slot * static_cast<uint64_t>(connection.stepSize);
}

void SetSize(ncclConnInfo& connection, uint64_t step, size_t bytes) {
  if (connection.connFifo == nullptr) return;
  __atomic_store_n(&connection.connFifo[step % NCCL_STEPS].size, static_cast<ssize_t>(bytes), __ATOMIC_RELEASE);
}

Primitives::Primitives(const Block& block, Route route, uint64_t round)
    : route_(std::move(route)), waits_(block.comm->abortFlag) {
  ncclDevChannelPeer** peers = block.channel->peers;
  for (const int peer : route_.from) {
    ncclConnInfo* connection = &peers[peer]->recv[route_.connection_in];
    in_.push_back({connection, RoundUp(connection->step, round)});
    if (in_.back().step != connection->step) StoreRelease(connection->head, in_.back().step);  // space that was skipped
  }
  for (const int peer : route_.to) {
    ncclConnInfo* connection = &peers[peer]->send[route_.connection_out];
    out_.push_back({connection, RoundUp(connection->step, round)});
  }
}

Primitives::~Primitives() {
  for (const End& end : in_) end.connection->step = end.step;
  for (const End& end : out_) end.connection->step = end.step;
}

const char* Primitives::SourceOf(const Action& action, ptrdiff_t input, ptrdiff_t output) const {
  const auto size = static_cast<ptrdiff_t>(route_.reduction.size());
  switch (action.source) {
    case Action::Source::kNone: return nullptr;
    case Action::Source::kInput: return route_.input + input * size;
    case Action::Source::kOutput: return route_.output + output * size;
  }
  return nullptr;
}

void Primitives::WaitForSpace(uint64_t steps) {
  for (const End& end : out_) {
    waits_.Until([&] { return LoadAcquire(end.connection->head) + NCCL_STEPS >= end.step + steps; });
  }
}

// ---- Simple

Simple::Simple(const Block& block, Route route, SimpleShape shape)
    : Primitives(block, std::move(route), static_cast<uint64_t>(shape.slices * shape.steps)),
      shape_(shape),
      slice_bytes_(static_cast<size_t>(block.comm->buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS * shape.steps)) {}

void Simple::Do(const Action& action, ptrdiff_t input, ptrdiff_t output, ptrdiff_t elements) {
  const size_t size = reduction().size();
  size_t left = static_cast<size_t>(std::max<ptrdiff_t>(elements, 0));
  size_t slice = std::max(DivideUp(left, static_cast<size_t>(16 * shape_.slices)) * 16, slice_bytes_ / size / 32);
  const char* source = SourceOf(action, input, output);
  char* store = action.store ? route_.output + output * static_cast<ptrdiff_t>(size) : nullptr;
  for (int i = 0; i < shape_.slices && !aborted(); ++i) {
    slice = std::min(slice, left);
    DoSlice(action, source, store, slice * size);
    if (source != nullptr) source += slice * size;
    if (store != nullptr) store += slice * size;
    left -= slice;
  }
}

void Simple::DoSlice(const Action& action, const char* source, char* store, size_t bytes) {
  const auto steps = static_cast<uint64_t>(shape_.steps);
  if (action.receive) {
    for (const End& end : in_) {
      waits_.Until([&] { return LoadAcquire(end.connection->tail) >= end.step + steps; });
    }
  }
  if (action.send) WaitForSpace(steps);
  if (aborted()) return;
  std::array<char, kTile> tile;
  for (size_t at = 0; at < bytes; at += kTile) {
    const size_t length = std::min(kTile, bytes - at);
    size_t first = 0;  // of the receivers' data that is still to be reduced
    if (source != nullptr) {
      std::memcpy(tile.data(), source + at, length);
      if (action.source == Action::Source::kInput) reduction().Prepare(tile.data(), length);
    } else {
      std::memcpy(tile.data(), SimpleBuffer(*in_[0].connection, in_[0].step) + at, length);
      first = 1;
    }
    for (size_t i = action.receive ? first : in_.size(); i < in_.size(); ++i) {
      reduction().Combine(tile.data(), SimpleBuffer(*in_[i].connection, in_[i].step) + at, length);
    }
    if (action.finish) reduction().Finish(tile.data(), length);
    if (store != nullptr) std::memcpy(store + at, tile.data(), length);
    if (!action.send) continue;
    for (const End& end : out_) std::memcpy(SimpleBuffer(*end.connection, end.step) + at, tile.data(), length);
  }
  if (action.receive) {
    for (End& end : in_) StoreRelease(end.connection->head, end.step += steps);
  }
  if (action.send) {
    for (End& end : out_) {
      SetSize(*end.connection, end.step, bytes);
      StoreRelease(end.connection->tail, end.step += steps);
    }
  }
}

// ---- LL

LowLatency::LowLatency(const Block& block, Route route, SimpleShape)
    : Primitives(block, std::move(route), 1),
      step_lines_(static_cast<size_t>(block.comm->buffSizes[NCCL_PROTO_LL]) / NCCL_STEPS / sizeof(ncclLLFifoLine)) {}

ncclLLFifoLine* LowLatency::LinesOf(const End& end) const {
  return reinterpret_cast<ncclLLFifoLine*>(end.connection->buffs[NCCL_PROTO_LL]) + end.step % NCCL_STEPS * step_lines_;
}

void LowLatency::Do(const Action& action, ptrdiff_t input, ptrdiff_t output, ptrdiff_t elements) {
  constexpr size_t kData = 8;
  constexpr size_t kTileLines = 256;
  const size_t size = reduction().size();
  const size_t bytes = static_cast<size_t>(std::max<ptrdiff_t>(elements, 0)) * size;
  const size_t lines = DivideUp(bytes, kData);
  const char* source = SourceOf(action, input, output);
  char* store = action.store ? route_.output + output * static_cast<ptrdiff_t>(size) : nullptr;
  const auto cleans = [](const End& end) { return (end.step & NCCL_LL_CLEAN_MASK) == NCCL_LL_CLEAN_MASK; };
  if (action.send) {
    WaitForSpace(1);
    for (const End& end : out_) {
      SetSize(*end.connection, end.step, (cleans(end) ? step_lines_ : lines) * sizeof(ncclLLFifoLine));
    }
  }
  std::array<char, kTileLines * kData> tile, heard;
  // Waits for the lines' flags and copies their data.
  const auto read = [&](const End& end, size_t from, size_t count, char* into) {
    const uint32_t flag = NCCL_LL_FLAG(end.step + 1);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t* line = LinesOf(end)[from + i].v;
      uint64_t low = 0, high = 0;
      waits_.Until([&] {
        low = LoadAcquire(line), high = LoadAcquire(line + 1);
        return (low >> 32) == flag && (high >> 32) == flag;
      });
      const uint64_t data = (low & 0xffffffff) | high << 32;
      std::memcpy(into + i * kData, &data, kData);
    }
  };
  const auto write = [&](const End& end, size_t line, uint64_t data) {
    const uint64_t flag = uint64_t{NCCL_LL_FLAG(end.step + 1)} << 32;
    uint64_t* to = LinesOf(end)[line].v;
    StoreRelease(to, (data & 0xffffffff) | flag);
    StoreRelease(to + 1, data >> 32 | flag);
  };
  for (size_t line = 0; line < lines && !aborted(); line += kTileLines) {
    const size_t count = std::min(kTileLines, lines - line);
    const size_t length = std::min(count * kData, bytes - line * kData);
    size_t first = 0;
    if (source != nullptr) {
      std::memset(tile.data() + length, 0, count * kData - length);
      std::memcpy(tile.data(), source + line * kData, length);
      if (action.source == Action::Source::kInput) reduction().Prepare(tile.data(), length);
    } else {
      read(in_[0], line, count, tile.data());
      first = 1;
    }
    for (size_t i = action.receive ? first : in_.size(); i < in_.size(); ++i) {
      read(in_[i], line, count, heard.data());
      reduction().Combine(tile.data(), heard.data(), length);
    }
    if (aborted()) return;
    if (action.finish) reduction().Finish(tile.data(), length);
    if (action.send) {
      for (size_t i = 0; i < count; ++i) {
        uint64_t data;
        std::memcpy(&data, tile.data() + i * kData, kData);
        for (const End& end : out_) write(end, line + i, data);
      }
    }
    if (store != nullptr) std::memcpy(store + line * kData, tile.data(), length);
  }
  if (aborted()) return;
  if (action.receive) {
    for (End& end : in_) StoreRelease(end.connection->head, ++end.step);
  }
  if (action.send) {
    for (End& end : out_) {
      // Flags come round again: once in a while all lines of a step get one, so that none is mistaken for a later one.
      for (size_t line = lines; cleans(end) && line < step_lines_; ++line) write(end, line, 0);
      ++end.step;
    }
  }
}

// ---- LL128

namespace {

constexpr size_t kLine = NCCL_LL128_LINESIZE;
constexpr size_t kLineData = kLine - sizeof(uint64_t);
constexpr size_t kSliceLines = WARP_SIZE * NCCL_LL128_SHMEM_ELEMS_PER_THREAD / NCCL_LL128_LINEELEMS;  // sent as one

}  // namespace

LowLatency128::LowLatency128(const Block& block, Route route, SimpleShape)
    : Primitives(block, std::move(route), 1),
      step_bytes_(static_cast<size_t>(block.comm->buffSizes[NCCL_PROTO_LL128]) / NCCL_STEPS) {}

char* LowLatency128::BytesOf(const End& end) const {
  return end.connection->buffs[NCCL_PROTO_LL128] + end.step % NCCL_STEPS * step_bytes_;
}

void LowLatency128::Do(const Action& action, ptrdiff_t input, ptrdiff_t output, ptrdiff_t elements) {
  constexpr size_t kSliceData = kSliceLines * kLineData;
  const size_t size = reduction().size();
  const size_t bytes = static_cast<size_t>(std::max<ptrdiff_t>(elements, 0)) * size;
  const size_t slices = DivideUp(bytes, kSliceData);
  const char* source = SourceOf(action, input, output);
  char* store = action.store ? route_.output + output * static_cast<ptrdiff_t>(size) : nullptr;
  if (action.send) {
    WaitForSpace(1);
    for (const End& end : out_) SetSize(*end.connection, end.step, slices * kSliceLines * kLine);
  }
  std::array<char, kSliceData> tile, heard;
  const auto read = [&](const End& end, size_t slice, char* into) {
    for (size_t i = 0; i < kSliceLines; ++i) {
      const char* line = BytesOf(end) + (slice * kSliceLines + i) * kLine;
      const auto* flag = reinterpret_cast<const uint64_t*>(line + kLineData);
      waits_.Until([&] { return LoadAcquire(flag) == end.step + 1; });
      std::memcpy(into + i * kLineData, line, kLineData);
    }
  };
  const auto write = [&](const End& end, size_t slice) {
    for (size_t i = 0; i < kSliceLines; ++i) {
      char* line = BytesOf(end) + (slice * kSliceLines + i) * kLine;
      std::memcpy(line, tile.data() + i * kLineData, kLineData);
      StoreRelease(reinterpret_cast<uint64_t*>(line + kLineData), end.step + 1);
    }
  };
  for (size_t slice = 0; slice < slices && !aborted(); ++slice) {
    const size_t length = std::min(kSliceData, bytes - slice * kSliceData);
    size_t first = 0;
    if (source != nullptr) {
      std::memset(tile.data() + length, 0, kSliceData - length);
      std::memcpy(tile.data(), source + slice * kSliceData, length);
      if (action.source == Action::Source::kInput) reduction().Prepare(tile.data(), length);
    } else {
      read(in_[0], slice, tile.data());
      first = 1;
    }
    for (size_t i = action.receive ? first : in_.size(); i < in_.size(); ++i) {
      read(in_[i], slice, heard.data());
      reduction().Combine(tile.data(), heard.data(), length);
    }
    if (aborted()) return;
    if (action.finish) reduction().Finish(tile.data(), length);
    for (size_t i = action.send ? 0 : out_.size(); i < out_.size(); ++i) write(out_[i], slice);
    if (store != nullptr) std::memcpy(store + slice * kSliceData, tile.data(), length);
  }
  if (aborted()) return;
  if (action.receive) {
    for (End& end : in_) StoreRelease(end.connection->head, ++end.step);
  }
  if (action.send) {
    for (End& end : out_) {
      ++end.step;
      if (end.connection->connFifo != nullptr) StoreRelease(end.connection->tail, end.step);
    }
  }
}

}  // namespace weft::nccl_test
