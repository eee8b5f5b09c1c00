// Sends and receives of a batch. A GPU gives each its own warps; here they take turns, each as far as it comes.
#include <algorithm>
#include <cstring>

#include "tests/nccl/kernels/collectives_on_cpu.h"

namespace weft::nccl_test {
namespace {

/// One direction of one work, in chunks.
struct Transfer {
  ncclConnInfo* connection = nullptr;
  uint64_t step = 0;
  char* data = nullptr;
  size_t bytes = 0, chunk = 0, at = 0;
  bool sends = false, low_latency = false;
  bool done = false;  ///< also with no bytes there is one step
};

constexpr size_t kLineData = 8;

ncclLLFifoLine* LinesOf(const Transfer& transfer, size_t step_lines) {
  return reinterpret_cast<ncclLLFifoLine*>(transfer.connection->buffs[NCCL_PROTO_LL]) + transfer.step % NCCL_STEPS * step_lines;
}

class Batch {
 public:
  explicit Batch(const Block& block)
      : block_(block),
        waits_(block.comm->abortFlag),
        step_lines_(static_cast<size_t>(block.comm->buffSizes[NCCL_PROTO_LL]) / NCCL_STEPS / sizeof(ncclLLFifoLine)) {}

  void Add(const ncclDevWorkP2p& work) {
    const int part = (block_.id - work.channelBase) & (work.nP2pChannels - 1);
    char* send = static_cast<char*>(work.sendAddr);
    char* receive = static_cast<char*>(work.recvAddr);
    const auto [send_from, send_bytes] = Bounds(work.nSendChannels, part, work.sendBytes);
    const auto [receive_from, receive_bytes] = Bounds(work.nRecvChannels, part, work.recvBytes);
    if (work.sendRank == block_.comm->rank) {  // to itself
      if (part < work.nSendChannels && send != receive) std::memmove(receive + receive_from, send + send_from, send_bytes);
      return;
    }
    if (part < work.nSendChannels) {
      ncclConnInfo* connection = &block_.channel->peers[work.sendRank]->send[1];
      transfers_.push_back({.connection = connection,
                            .step = connection->step,
                            .data = send + send_from,
                            .bytes = send_bytes,
                            .chunk = u32fp8Decode(work.sendChunkSize_u32fp8),
                            .sends = true,
                            .low_latency = work.sendProtoLL != 0});
    }
    if (part < work.nRecvChannels) {
      ncclConnInfo* connection = &block_.channel->peers[work.recvRank]->recv[1];
      transfers_.push_back({.connection = connection,
                            .step = connection->step,
                            .data = receive + receive_from,
                            .bytes = receive_bytes,
                            .chunk = u32fp8Decode(work.recvChunkSize_u32fp8),
                            .sends = false,
                            .low_latency = work.recvProtoLL != 0});
    }
  }

  void Run() {
    int turn = 0;
    for (;;) {
      bool all = true, moved = false;
      for (Transfer& transfer : transfers_) {
        if (transfer.done) continue;
        const bool advanced = transfer.low_latency ? AdvanceLowLatency(transfer) : AdvanceSimple(transfer);
        moved |= advanced;
        all &= transfer.done;
      }
      if (all || waits_.aborted()) break;
      if (moved) {
        turn = 0;
      } else {
        waits_.Pause(turn++);
      }
    }
    for (const Transfer& transfer : transfers_) transfer.connection->step = transfer.step;
  }

 private:
  static std::pair<size_t, size_t> Bounds(int parts, int part, size_t bytes) {
    if (parts == 0 || part >= parts) return {0, 0};
    size_t from = 0, to = 0;
    ncclP2pPartBounds(parts, part, bytes, &from, &to);
    return {from, to - from};
  }

  static bool HasSpace(const Transfer& transfer) {
    return LoadAcquire(transfer.connection->head) + NCCL_STEPS >= transfer.step + 1;
  }

  void Advance(Transfer& transfer, size_t bytes) {
    ++transfer.step;
    transfer.at += bytes;
    transfer.done = transfer.at >= transfer.bytes;
  }

  /// One chunk; false: it can't go on now.
  bool AdvanceSimple(Transfer& transfer) {
    ncclConnInfo& connection = *transfer.connection;
    const size_t bytes = std::min(transfer.chunk, transfer.bytes - transfer.at);
    if (transfer.sends) {
      if (!HasSpace(transfer)) return false;
      std::memcpy(SimpleBuffer(connection, transfer.step), transfer.data + transfer.at, bytes);
      SetSize(connection, transfer.step, bytes);
      Advance(transfer, bytes);
      StoreRelease(connection.tail, transfer.step);
    } else {
      if (LoadAcquire(connection.tail) < transfer.step + 1) return false;
      std::memcpy(transfer.data + transfer.at, SimpleBuffer(connection, transfer.step), bytes);
      Advance(transfer, bytes);
      StoreRelease(connection.head, transfer.step);
    }
    return true;
  }

  bool AdvanceLowLatency(Transfer& transfer) {
    const size_t bytes = std::min(transfer.chunk, transfer.bytes - transfer.at);
    const size_t lines = (bytes + kLineData - 1) / kLineData;
    ncclLLFifoLine* to = LinesOf(transfer, step_lines_);
    if (transfer.sends) {
      if (!HasSpace(transfer)) return false;
      const bool cleans = (transfer.step & NCCL_LL_CLEAN_MASK) == NCCL_LL_CLEAN_MASK;
      const size_t all = cleans ? step_lines_ : lines;
      SetSize(*transfer.connection, transfer.step, all * sizeof(ncclLLFifoLine));
      const uint64_t flag = uint64_t{NCCL_LL_FLAG(transfer.step + 1)} << 32;
      for (size_t i = 0; i < all; ++i) {
        uint64_t data = 0;
        if (i < lines) std::memcpy(&data, transfer.data + transfer.at + i * kLineData, std::min(kLineData, bytes - i * kLineData));
        StoreRelease(to[i].v, (data & 0xffffffff) | flag);
        StoreRelease(to[i].v + 1, data >> 32 | flag);
      }
      Advance(transfer, bytes);
      return true;
    }
    const uint32_t flag = NCCL_LL_FLAG(transfer.step + 1);
    for (size_t i = lines; i-- > 0;) {  // the last lines come last
      if (LoadAcquire(to[i].v) >> 32 != flag || LoadAcquire(to[i].v + 1) >> 32 != flag) return false;
    }
    for (size_t i = 0; i < lines; ++i) {
      const uint64_t data = (to[i].v[0] & 0xffffffff) | to[i].v[1] << 32;
      std::memcpy(transfer.data + transfer.at + i * kLineData, &data, std::min(kLineData, bytes - i * kLineData));
    }
    Advance(transfer, bytes);
    StoreRelease(transfer.connection->head, transfer.step);
    return true;
  }

  const Block& block_;
  Waits waits_;
  size_t step_lines_;
  std::vector<Transfer> transfers_;
};

}  // namespace

void RunSendReceive(const Block& block, const std::vector<ncclDevWorkP2p>& works) {
  Batch batch(block);
  for (const ncclDevWorkP2p& work : works) batch.Add(work);
  batch.Run();
}

}  // namespace weft::nccl_test
