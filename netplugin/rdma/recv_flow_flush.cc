// How a receiving RDMA flow makes what arrived visible to a GPU. NCCL's thread alone.
#include <algorithm>

#include "netplugin/log.h"
#include "netplugin/rdma/recv_flow.h"

namespace weft::net::rdma {

int RecvFlow::Iflush(void* data, uint64_t size, void* mhandle, Request** request) {
  *request = nullptr;
  auto* region = static_cast<MemoryRegion*>(mhandle);
  if (!region || !region->of_gpu || size == 0) return nccl::kSuccess;  // nothing to wait for
  if (!flusher_) return nccl::kSystemError;
  const auto free = std::ranges::find(flushes_, false, &Request::taken);
  if (free == flushes_.end()) return nccl::kInternalError;  // more than NCCL ever has
  free->address = reinterpret_cast<uint64_t>(data);
  free->region = region;
  free->posted_ns = NowNs();
  free->taken = true;
  free->done = free->started = false;
  free->size = 0;
  StartFlushes();
  *request = &*free;
  return nccl::kSuccess;
}

/// Starts what could not be started before.
void RecvFlow::StartFlushes() {
  if (!FlusherFollows()) return;
  const uint64_t now = NowNs();
  if (now < start_not_before_) return;
  const std::shared_ptr<Port>& port = ports_.Find(flusher_port_);
  for (FlushRequest& flush : flushes_) {
    if (!flush.taken || flush.done || flush.started) continue;
    const ibv_mr* mr = port == ports_.home() ? flush.region->mr : ports_.home()->Copy(flush.region, port);
    if (!mr) {  // not in every call
      start_not_before_ = now + 10'000'000;
      return;
    }
    flusher_->Start(flush.address, mr->rkey, static_cast<uint32_t>(&flush - flushes_.data()));
    flush.started = true;
  }
}

/// Whether reads go through the NIC that data arrive by, which is another one when the flow has moved: only they follow its
/// writes. Those under way are done again there. What the former NIC had written had all the time in which the flow was set
/// up anew to get into memory.
bool RecvFlow::FlusherFollows() {
  const Port* port = arrives_at_.load(std::memory_order_acquire);
  if (port == flusher_port_) return true;
  const uint64_t now = NowNs();
  if (now < follow_not_before_) return false;
  std::string why;
  auto flusher = Flusher::Make(ports_.Find(port), &why);
  if (!flusher) {
    follow_not_before_ = now + 10'000'000;
    return false;
  }
  flusher_ = std::move(flusher);
  flusher_port_ = port;
  for (FlushRequest& flush : flushes_) flush.started = false;
  return true;
}

int RecvFlow::TestFlush(Request* request, int* done, int* size) {
  StartFlushes();
  const auto& flush = *static_cast<const FlushRequest*>(request);
  const uint64_t patience = static_cast<uint64_t>(services_.environment.rdma.recovery_s) * 1'000'000'000u;
  const bool late = !flush.started && NowNs() > flush.posted_ns + patience;
  if (!request->done &&
      (late || !flusher_->Poll([this](uint32_t slot) { flushes_[slot % Flusher::kDepth].done = true; }))) {
    Log(nccl::kLogWarn, "flush through %s: %s in time (WEFT_RDMA_RECOVERY_S)", flusher_port_->name().c_str(),
        late ? "its queue pair or memory could not be had there" : "the queue pair could not be set up anew");
    return nccl::kSystemError;
  }
  if (!request->done) return nccl::kSuccess;
  *done = 1;
  if (size) *size = 0;
  request->taken = false;
  return nccl::kSuccess;
}

}  // namespace weft::net::rdma
