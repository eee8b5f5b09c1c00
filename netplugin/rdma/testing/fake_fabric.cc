#include "netplugin/rdma/testing/fake_fabric.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "netplugin/rdma/testing/fake_calls.h"

namespace weft::net::rdma::testing {
namespace {

/// A credit is read while a NIC may be writing it, and its check tells: no sanitizer sees what a NIC does. Bytes by
/// themselves, or the compiler would call memcpy, which the sanitizer watches.
__attribute__((no_sanitize("thread"))) void WriteUnseen(volatile char* to, const char* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace

FakeFabric::FakeFabric(int devices, uint64_t seed) : random_(seed) {
  char folder[] = "/tmp/weft-fabric-XXXXXX";
  sysfs_ = mkdtemp(folder);
  for (int i = 0; i < devices; ++i) {
    auto device = std::make_unique<Device>();
    device->fabric = this;
    device->index = i;
    std::snprintf(device->name, sizeof device->name, "fake%d", i);
    const std::string port = sysfs_ + "/" + device->name + "/ports/1";
    std::filesystem::create_directories(port + "/gids");
    std::filesystem::create_directories(port + "/gid_attrs/types");
    for (int gid = 0; gid < 4; ++gid) {
      const std::string number = std::to_string(gid);
      std::ofstream(port + "/gids/" + number) << (gid == 3 ? "::ffff:10.0.0." + std::to_string(i + 1) : "::");
      std::ofstream(port + "/gid_attrs/types/" + number) << "RoCE v2";
    }
    devices_.push_back(std::move(device));
  }
  verbs_ = Calls::Table();
}

FakeFabric::~FakeFabric() { std::filesystem::remove_all(sysfs_); }

std::shared_ptr<Port> FakeFabric::OpenPort(int device, const RdmaEnvironment& environment, std::string* why) {
  return Port::Open(verbs_, devices_[static_cast<size_t>(device)].get(), 1, environment, sysfs_, why);
}

void FakeFabric::FailWrites(uint32_t one_in) {
  const std::lock_guard lock(mutex_);
  fail_one_in_ = one_in;
}

void FakeFabric::BreakPath(uint16_t udp_port) {
  const std::lock_guard lock(mutex_);
  broken_port_ = udp_port;
}

void FakeFabric::Cut(int a, int b, bool seen) {
  const std::lock_guard lock(mutex_);
  for (auto* set : {&cut_, &unroutable_}) {
    if (set == &unroutable_ && !seen) continue;
    set->insert({a, b});
    set->insert({b, a});
  }
}

void FakeFabric::Mend() {
  const std::lock_guard lock(mutex_);
  cut_.clear();
  unroutable_.clear();
}

void FakeFabric::RunOut(int device, bool of_pairs, bool of_memory) {
  const std::lock_guard lock(mutex_);
  Device& changed = *devices_[static_cast<size_t>(device)];
  changed.no_pairs = of_pairs;
  changed.no_memory = of_memory;
}

void FakeFabric::ForgetNextPair() {
  const std::lock_guard lock(mutex_);
  forget_ = true;
}

void FakeFabric::SilencePath(uint16_t udp_port) {
  const std::lock_guard lock(mutex_);
  silent_port_ = udp_port;
}

void FakeFabric::Hold(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_ = hold;
}

void FakeFabric::HoldFlushes(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_flushes_ = hold;
  for (const auto& [number, pair] : pairs_) {
    if (pair->state == IBV_QPS_ERR) Flush(*pair);
  }
}

void FakeFabric::SetPort(int device, bool up) {
  const std::lock_guard lock(mutex_);
  Device& changed = *devices_[static_cast<size_t>(device)];
  changed.up = up;
  for (Context* context : changed.contexts) {
    ibv_async_event event{};
    event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
    event.element.port_num = 1;
    context->events.push_back(event);
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(context->async_fd, &one, sizeof one);
  }
}

FakeFabric::Counts FakeFabric::counts() {
  const std::lock_guard lock(mutex_);
  counts_.registered = memory_.size();
  return counts_;
}

/// A few writes of random pairs: each pair's own in order.
void FakeFabric::Pump() {
  if (pairs_.empty() || hold_) return;
  for (int n = static_cast<int>(random_() % 4); n > 0; --n) {
    auto it = pairs_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % pairs_.size()));
    Pair& pair = *it->second;
    if (pair.state != IBV_QPS_RTS || pair.sends.empty() || pair.forgotten) continue;
    if (silent_port_ != 0 && pair.udp_port == silent_port_) continue;
    pair.forgotten = std::exchange(forget_, false);
    if (!pair.forgotten) Deliver(pair);
  }
}

/// The oldest write of `pair`. False: it waits, for the receiver is not ready.
bool FakeFabric::Deliver(Pair& pair) {
  const Send& send = pair.sends.front();
  const auto found = pairs_.find(pair.destination);
  Pair* to = found == pairs_.end() ? nullptr : found->second;
  const bool open = to && (to->state == IBV_QPS_RTR || to->state == IBV_QPS_RTS) && to->destination == pair.qp_num &&
                    to->receive_number == pair.send_number && pair.owner->device_of->up && to->owner->device_of->up &&
                    pair.host == to->owner->device_of->index + 1 && pair.udp_port != broken_port_ &&
                    !cut_.contains({pair.owner->device_of->index, to->owner->device_of->index});
  const bool unlucky = fail_one_in_ > 0 && random_() % fail_one_in_ == 0;
  const bool lost = unlucky && random_() % 2 == 0;
  if (!open || (unlucky && !lost)) {
    Fail(pair, IBV_WC_RETRY_EXC_ERR);
    return true;
  }
  const bool immediate = send.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (immediate && to->receives.empty()) return false;
  const uint64_t length = send.request.num_sge > 0 ? send.piece.length : 0;
  if (length > 0) {
    const uint64_t target = send.request.wr.rdma.remote_addr;
    const char* from = send.inlined.empty() ? reinterpret_cast<const char*>(send.piece.addr) : send.inlined.data();
    if (!Reaches(*to->owner, send.request.wr.rdma.rkey, target, length) ||
        (send.inlined.empty() && !Reaches(*pair.owner, send.piece.lkey, send.piece.addr, length))) {
      ++counts_.access_errors;
      Fail(pair, IBV_WC_REM_ACCESS_ERR);
      return true;
    }
    const bool read = send.request.opcode == IBV_WR_RDMA_READ;
    char* to_byte = reinterpret_cast<char*>(read ? send.piece.addr : target);
    if (send.inlined.size() == sizeof(Credit)) {
      WriteUnseen(to_byte, from, length);
    } else {
      std::memcpy(to_byte, read ? reinterpret_cast<const char*>(target) : from, length);
    }
    counts_.reads += read ? 1 : 0;
  }
  ++counts_.writes;
  ++counts_.writes_by_device[pair.owner->device_of->index];
  counts_.bytes_by_port[pair.udp_port] += length;
  if (immediate) {
    ibv_wc arrived{};
    arrived.wr_id = to->receives.front();
    arrived.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    arrived.byte_len = static_cast<uint32_t>(length);
    arrived.imm_data = send.request.imm_data;
    arrived.qp_num = to->qp_num;
    to->receives.pop_front();
    Complete(to->recv_cq, arrived);
  }
  if (silent_port_ != 0 && to->udp_port == silent_port_) {
    ++counts_.lost_acknowledgements;
    pair.forgotten = true;
    return true;
  }
  if (lost) {
    ++counts_.lost_acknowledgements;
    Fail(pair, IBV_WC_RETRY_EXC_ERR);
    return true;
  }
  ibv_wc done{};
  done.wr_id = send.request.wr_id;
  done.opcode = IBV_WC_RDMA_WRITE;
  done.qp_num = pair.qp_num;
  pair.sends.pop_front();
  Complete(pair.send_cq, done);
  return true;
}

void FakeFabric::Fail(Pair& pair, ibv_wc_status status) {
  ++counts_.failures;
  ibv_wc failed{};
  failed.wr_id = pair.sends.front().request.wr_id;
  failed.status = status;
  failed.qp_num = pair.qp_num;
  pair.sends.pop_front();
  Complete(pair.send_cq, failed);
  pair.state = IBV_QPS_ERR;
  Flush(pair);
}

void FakeFabric::Flush(Pair& pair) {
  if (hold_flushes_) return;
  ibv_wc flushed{};
  flushed.status = IBV_WC_WR_FLUSH_ERR;
  flushed.qp_num = pair.qp_num;
  for (; !pair.sends.empty(); pair.sends.pop_front()) {
    flushed.wr_id = pair.sends.front().request.wr_id;
    Complete(pair.send_cq, flushed);
  }
  for (; !pair.receives.empty(); pair.receives.pop_front()) {
    flushed.wr_id = pair.receives.front();
    Complete(pair.recv_cq, flushed);
  }
}

void FakeFabric::Complete(ibv_cq* cq, const ibv_wc& completion) {
  auto* queue = static_cast<Queue*>(cq);
  if (queue->entries.size() >= queue->room) ++counts_.overruns;
  queue->entries.push_back(completion);
}

bool FakeFabric::Reaches(const Context& context, uint32_t key, uint64_t address, uint64_t length) const {
  const auto found = memory_.find(key);
  if (found == memory_.end() || found->second->owner != &context) return false;
  const auto begin = reinterpret_cast<uint64_t>(found->second->addr);
  return address >= begin && length <= found->second->length && address - begin <= found->second->length - length;
}

}  // namespace weft::net::rdma::testing
