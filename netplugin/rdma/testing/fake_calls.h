// What libibverbs' functions do to a FakeFabric. Internal to fake_fabric.cc and fake_calls.cc.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <vector>

#include "netplugin/rdma/testing/fake_fabric.h"

namespace weft::net::rdma::testing {

struct FakeFabric::Device : ibv_device {
  FakeFabric* fabric = nullptr;
  int index = 0;
  bool up = true;
  bool no_pairs = false, no_memory = false;
  std::vector<Context*> contexts;
};

struct FakeFabric::Context : ibv_context {
  FakeFabric* fabric = nullptr;
  Device* device_of = nullptr;
  std::deque<ibv_async_event> events;
};

struct FakeFabric::Queue : ibv_cq {
  std::deque<ibv_wc> entries;
  uint32_t room = 0;
};

struct FakeFabric::Memory : ibv_mr {
  Context* owner = nullptr;
};

struct FakeFabric::Send {
  ibv_send_wr request;
  ibv_sge piece;
  std::vector<char> inlined;
};

struct FakeFabric::Pair : ibv_qp {
  Context* owner = nullptr;
  uint32_t send_room = 0, receive_room = 0;
  uint32_t destination = 0, send_number = 0, receive_number = 0;
  uint8_t host = 0;  // last byte of the GID it sends to
  uint16_t udp_port = 0;
  uint8_t traffic_class = 0;
  bool forgotten = false;
  std::deque<Send> sends;
  std::deque<uint64_t> receives;
};

/// The library's functions. Each takes the fabric's lock.
struct Calls {
  using F = FakeFabric;

  static Verbs Table();

  static const char* Name(ibv_device* device) { return device->name; }

  static ibv_context* Open(ibv_device* device) {
    auto* from = static_cast<F::Device*>(device);
    auto* context = new F::Context{};
    context->fabric = from->fabric;
    context->device = device;
    context->device_of = from;
    context->async_fd = eventfd(0, EFD_CLOEXEC);
    context->ops.poll_cq = &Poll;
    context->ops.post_send = &PostSend;
    context->ops.post_recv = &PostReceive;
    from->contexts.push_back(context);
    return context;
  }
  static int Close(ibv_context* context) {
    auto* mine = static_cast<F::Context*>(context);
    std::erase(mine->device_of->contexts, mine);
    close(mine->async_fd);
    delete mine;
    return 0;
  }
  static int QueryDevice(ibv_context*, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->max_cqe = 32767;
    attributes->sys_image_guid = 99;
    return 0;
  }
  static int QueryPort(ibv_context* context, uint8_t, _compat_ibv_port_attr* compatible) {
    auto* attributes = reinterpret_cast<ibv_port_attr*>(compatible);
    attributes->state = static_cast<F::Context*>(context)->device_of->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attributes->active_mtu = IBV_MTU_1024;
    attributes->max_msg_sz = 1 << 20;
    attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
    attributes->active_width = 2;
    attributes->active_speed = 32;
    return 0;
  }
  static ibv_pd* AllocatePd(ibv_context* context) {
    auto* pd = new ibv_pd{};
    pd->context = context;
    return pd;
  }
  static int FreePd(ibv_pd* pd) {
    delete pd;
    return 0;
  }
  static ibv_mr* Register(ibv_pd* pd, void* data, size_t size, int) {
    auto* owner = static_cast<F::Context*>(pd->context);
    const std::lock_guard lock(owner->fabric->mutex_);
    if (owner->device_of->no_memory && size >= F::kLarge) {
      errno = ENOMEM;
      return nullptr;
    }
    auto* memory = new F::Memory{};
    memory->owner = owner;
    memory->addr = data;
    memory->length = size;
    memory->lkey = memory->rkey = ++owner->fabric->last_key_;
    owner->fabric->memory_[memory->rkey] = memory;
    return memory;
  }
  static ibv_mr* RegisterDmaBuf(ibv_pd* pd, uint64_t, size_t size, uint64_t address, int fd, int access) {
    if (fd < 0) {
      errno = EBADF;
      return nullptr;
    }
    return Register(pd, reinterpret_cast<void*>(address), size, access);
  }
  static int Deregister(ibv_mr* mr) {
    auto* memory = static_cast<F::Memory*>(mr);
    {
      const std::lock_guard lock(memory->owner->fabric->mutex_);
      memory->owner->fabric->memory_.erase(memory->rkey);
    }
    delete memory;
    return 0;
  }
  static ibv_cq* CreateQueue(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
    auto* queue = new F::Queue{};
    queue->context = context;
    queue->room = static_cast<uint32_t>(entries);
    return queue;
  }
  static int DestroyQueue(ibv_cq* queue) {
    delete static_cast<F::Queue*>(queue);
    return 0;
  }
  static ibv_qp* CreatePair(ibv_pd* pd, ibv_qp_init_attr* attributes) {
    auto* owner = static_cast<F::Context*>(pd->context);
    const std::lock_guard lock(owner->fabric->mutex_);
    if (owner->device_of->no_pairs) {
      errno = ENOMEM;
      return nullptr;
    }
    auto* pair = new F::Pair{};
    pair->context = pd->context;
    pair->owner = owner;
    pair->send_cq = attributes->send_cq;
    pair->recv_cq = attributes->recv_cq;
    pair->qp_num = ++owner->fabric->last_number_;
    pair->send_room = attributes->cap.max_send_wr;
    pair->receive_room = attributes->cap.max_recv_wr;
    owner->fabric->pairs_[pair->qp_num] = pair;
    return pair;
  }
  static int DestroyPair(ibv_qp* qp) {
    auto* pair = static_cast<F::Pair*>(qp);
    {
      const std::lock_guard lock(pair->owner->fabric->mutex_);
      pair->owner->fabric->pairs_.erase(pair->qp_num);
    }
    delete pair;
    return 0;
  }
  static int Modify(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  static int PostSend(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** refused);
  static int PostReceive(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** refused);
  static int Poll(ibv_cq* cq, int most, ibv_wc* completions);
  static int NextEvent(ibv_context* context, ibv_async_event* event) {
    auto* mine = static_cast<F::Context*>(context);
    const std::lock_guard lock(mine->fabric->mutex_);
    if (mine->events.empty()) return -1;
    *event = mine->events.front();
    mine->events.pop_front();
    return 0;
  }
  static void Acknowledge(ibv_async_event*) {}
  static const char* StatusText(ibv_wc_status status) {
    return status == IBV_WC_RETRY_EXC_ERR ? "no answer" : "failed";
  }
  static const char* EventText(ibv_event_type) { return "port event"; }
};

}  // namespace weft::net::rdma::testing
