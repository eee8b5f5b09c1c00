// Makes what the network has written into a GPU's memory visible to the GPU: a read through the NIC follows the writes
// on their way over PCIe, so that when it is back they are there. One byte, over a queue pair connected to itself.
//
// Not thread-safe: it belongs to NCCL's thread alone, and takes no part in what happens when a flow is set up anew.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

  /// Reads a byte at `address`; Poll() names `slot` when it is back. False (errno set) when the device refuses.
  bool Start(uint64_t address, uint32_t key, uint32_t slot);
  /// Calls `done(slot)` for each read that is back. False when one failed. Never blocks.
  template <typename Done>
  bool Poll(const Done& done) {
    ibv_wc completions[8];
    const int count = ibv_poll_cq(cq_, 8, completions);
    for (int i = 0; i < count; ++i) {
      if (completions[i].status != IBV_WC_SUCCESS) return false;
      done(static_cast<uint32_t>(completions[i].wr_id));
    }
    return count >= 0;
  }

 private:
  explicit Flusher(std::shared_ptr<Port> port) : port_(std::move(port)) {}
  bool Connect(std::string* why);

  const std::shared_ptr<Port> port_;
  ibv_cq* cq_ = nullptr;
  ibv_qp* pair_ = nullptr;
  ibv_mr* mr_ = nullptr;
  char byte_ = 0;  // where reads land; nobody looks at it
};

}  // namespace weft::net::rdma
