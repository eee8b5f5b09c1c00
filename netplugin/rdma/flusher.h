// Makes what the network has written into a GPU's memory visible to the GPU: a read through the NIC follows the writes
// on their way over PCIe, so that when it is back they are there. One byte, over a queue pair connected to itself.
//
// A read that fails breaks the pair: it is set up anew, a try every 10 ms, and the reads that were under way are posted
// again. A read has no effect but to be back, so that it may happen twice.
//
// Not thread-safe: it belongs to NCCL's thread alone, and takes no part in what happens when a flow is set up anew.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "netplugin/rdma/own_pages.h"
#include "netplugin/rdma/port.h"
#include "netplugin/rdma/verbs.h"

namespace weft::net::rdma {

class Flusher {
 public:
  static constexpr uint32_t kDepth = nccl::kMaxRequests;

  /// nullptr with the reason in `why`.
  static std::unique_ptr<Flusher> Make(std::shared_ptr<Port> port, std::string* why);
  ~Flusher();
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;

  /// Reads a byte at `address`; Poll() names `slot` when it is back. Requires: `slot` below kDepth, not under way.
  void Start(uint64_t address, uint32_t key, uint32_t slot);
  /// Calls `done(slot)` for each read that is back. False when the pair is broken and no read has come back since it broke
  /// WEFT_RDMA_RECOVERY_S ago. Never waits.
  template <typename Done>
  bool Poll(const Done& done) {
    ibv_wc completions[8];
    const int count = ibv_poll_cq(cq_, 8, completions);
    for (int i = 0; i < count; ++i) {
      const auto slot = static_cast<uint32_t>(completions[i].wr_id) % kDepth;
      if (completions[i].wr_id >> 32 != generation_) continue;  // of before
      if (completions[i].status != IBV_WC_SUCCESS) {
        Broke();
        continue;
      }
      if (!broken_) broken_since_ = 0;
      if (std::exchange(reads_[slot].under_way, false)) done(slot);
    }
    if (count < 0) Broke();
    return !broken_ || Repair();
  }

 private:
  explicit Flusher(std::shared_ptr<Port> port) : port_(std::move(port)) {}
  struct Read {
    uint64_t address = 0;
    uint32_t key = 0;
    bool under_way = false;
  };
  static constexpr uint64_t kRepairEveryNs = 10'000'000;

  bool Connect(std::string* why);
  bool Post(uint32_t slot);
  void Broke();
  /// False when it is too late.
  bool Repair();

  const std::shared_ptr<Port> port_;
  ibv_cq* cq_ = nullptr;
  ibv_qp* pair_ = nullptr;
  ibv_mr* mr_ = nullptr;
  OwnPages landing_;  // where reads land; nobody looks at it
  std::array<Read, kDepth> reads_;
  uint64_t generation_ = 0;    // of the connection, in the upper half of a request's number
  bool broken_ = false;        // until it is set up anew
  // 0: it is whole. Set up anew is not whole: only a read that comes back shows that, and what can never be read would
  // else be tried for ever.
  uint64_t broken_since_ = 0;
  uint64_t next_repair_ = 0;
};

}  // namespace weft::net::rdma
