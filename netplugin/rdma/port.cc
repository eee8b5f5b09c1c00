#include "netplugin/rdma/port.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "netplugin/log.h"
#include "netplugin/rdma/gid.h"

namespace weft::net::rdma {
namespace {

constexpr int kEthernetSpeedUnknownMbps = 10000;

/// rdma_rxe hashed the pair's number into the port before Linux 5.18, which took the common rule.
PortRule RuleOf(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/parent")) return PortRule::kFlowLabel;  // only software devices have it
  utsname name{};
  uname(&name);
  int major = 0, minor = 0;
  if (std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return PortRule::kFlowLabel;
  return major < 5 || (major == 5 && minor < 18) ? PortRule::kPairNumber : PortRule::kFlowLabel;
}

bool IsMlx5(const std::string& folder) {
  std::error_code error;
  const auto driver = std::filesystem::read_symlink(folder + "/device/driver", error);
  return !error && driver.filename() == "mlx5_core";
}

}  // namespace

int SpeedOf(int active_width, int active_speed) {
  int lanes = 0;
  switch (active_width) {
    case 1: lanes = 1; break;
    case 2: lanes = 4; break;
    case 4: lanes = 8; break;
    case 8: lanes = 12; break;
    case 16: lanes = 2; break;
    default: return 0;
  }
  switch (active_speed) {  // Mbit/s of one lane
    case 1: return lanes * 2500;
    case 2: return lanes * 5000;
    case 4: case 8: return lanes * 10000;
    case 16: return lanes * 14000;
    case 32: return lanes * 25000;
    case 64: return lanes * 50000;
    case 128: return lanes * 100000;
    default: return 0;
  }
}

std::shared_ptr<Port> Port::Open(const Verbs& verbs, ibv_device* device, int number,
                                 const RdmaEnvironment& environment, const std::string& sysfs, std::string* why) {
  std::shared_ptr<Port> port(new Port(verbs, environment));
  const std::string name = verbs.get_device_name(device);
  port->name_ = name + ":" + std::to_string(number);
  port->number_ = static_cast<uint8_t>(number);
  port->context_ = verbs.open_device(device);
  if (!port->context_) {
    *why = "open " + name + ": " + std::strerror(errno);
    return nullptr;
  }
  port->pd_ = verbs.alloc_pd(port->context_);
  if (!port->pd_) {
    *why = "protection domain of " + name + ": " + std::strerror(errno);
    return nullptr;
  }
  if (!port->Query(sysfs, name, why)) return nullptr;
  port->FindMemoryKinds();
  const int flags = fcntl(port->context_->async_fd, F_GETFL);
  fcntl(port->context_->async_fd, F_SETFL, flags | O_NONBLOCK);
  return port;
}

Port::~Port() {
  for (auto& [begin, regions] : regions_) {
    for (const auto& region : regions) Release(*region);
  }
  if (pd_) verbs_.dealloc_pd(pd_);
  if (context_) verbs_.close_device(context_);
}

bool Port::Query(const std::string& sysfs, const std::string& device, std::string* why) {
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  if (verbs_.query_device(context_, &attributes) != 0 ||
      // The plain symbol fills the first part of the structure, which is all that is read here.
      verbs_.query_port(context_, number_, reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) {
    *why = "query " + name_ + ": " + std::strerror(errno);
    return false;
  }
  if (port.state != IBV_PORT_ACTIVE) {
    *why = name_ + " is not active";
    return false;
  }
  guid_ = attributes.sys_image_guid;
  // Each write's end is a sign of life: none may take longer than a slow link's patience.
  longest_write_ = std::clamp<uint64_t>(port.max_msg_sz, 1 << 20, 64 << 20);
  most_completions_ = attributes.max_cqe;
  speed_mbps_ = SpeedOf(port.active_width, port.active_speed);
  if (speed_mbps_ == 0) speed_mbps_ = kEthernetSpeedUnknownMbps;
  info_.lid = port.lid;
  info_.link = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 2 : 1;
  info_.mtu = static_cast<uint8_t>(port.active_mtu);
  info_.service_level = static_cast<uint8_t>(environment_.service_level);
  adaptive_routing_ = environment_.adaptive_routing >= 0 ? environment_.adaptive_routing == 1 : !ethernet();
  const std::string folder = sysfs + "/" + device;
  rule_ = ethernet() ? RuleOf(folder) : PortRule::kNone;
  mlx5_ = IsMlx5(folder);
  return ChooseAddress(port, sysfs, device, why);
}

bool Port::ChooseAddress(const ibv_port_attr& attributes, const std::string& sysfs, const std::string& device,
                         std::string* why) {
  const auto table = ReadGids(sysfs, device, number_);
  const auto gid = ChooseGid(table, ethernet(), environment_.family, environment_.gid_index);
  if (!gid) {
    *why = name_ + " has no usable GID among " + std::to_string(table.size()) + " (NCCL_IB_GID_INDEX=" +
           std::to_string(environment_.gid_index) + ")";
    return false;
  }
  if (!ethernet() && attributes.lid == 0) {
    *why = name_ + " has no LID: is there a subnet manager";
    return false;
  }
  gid_index_ = gid->index;
  std::memcpy(info_.gid, gid->gid.data(), sizeof info_.gid);
  return true;
}

void Port::FindMemoryKinds() {
  // Peer memory: a driver of the GPU registers its pages by their address.
  for (const char* sign : {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version"}) {
    if (access(sign, F_OK) == 0) ptr_support_ |= nccl::kPtrCuda;
  }
  if (!verbs_.reg_dmabuf_mr) return;
  // No such descriptor: a device that knows dma-buf says so, another one says that it knows none.
  ibv_mr* mr = verbs_.reg_dmabuf_mr(pd_, 0, 4096, 0, -1, 0);
  if (mr) {
    verbs_.dereg_mr(mr);
  } else if (errno == EBADF) {
    ptr_support_ |= nccl::kPtrDmaBuf;
  }
}

int Port::Access() const {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int wanted = environment_.relaxed_ordering;
  // Without the newer symbol the library refuses the flag instead of ignoring it.
  if (wanted != 0 && verbs_.reg_mr_iova2) access |= IBV_ACCESS_RELAXED_ORDERING;
  return access;
}

ibv_mr* Port::RegisterPages(uint64_t begin, uint64_t end) {
  void* data = reinterpret_cast<void*>(begin);
  const int access = Access();
  if (access & IBV_ACCESS_RELAXED_ORDERING) {
    ibv_mr* mr = verbs_.reg_mr_iova2(pd_, data, end - begin, begin, static_cast<unsigned>(access));
    if (mr) return mr;
  }
  return verbs_.reg_mr(pd_, data, end - begin, access & ~IBV_ACCESS_RELAXED_ORDERING);
}

MemoryRegion* Port::Register(void* data, size_t size) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uint64_t>(data);
  const uint64_t begin = address / page * page;
  const uint64_t end = (address + std::max<size_t>(size, 1) + page - 1) / page * page;
  const std::lock_guard lock(mutex_);
  auto& same_begin = regions_[begin];
  for (const auto& region : same_begin) {
    if (region->end >= end) {
      ++region->users;
      return region.get();
    }
  }
  ibv_mr* mr = RegisterPages(begin, end);
  if (!mr) {
    const int error = errno;
    if (same_begin.empty()) regions_.erase(begin);
    errno = error;
    return nullptr;
  }
  auto region = std::make_unique<MemoryRegion>();
  region->mr = mr;
  region->begin = begin;
  region->end = end;
  region->users = 1;
  same_begin.push_back(std::move(region));
  return same_begin.back().get();
}

MemoryRegion* Port::RegisterDmaBuf(uint64_t offset, size_t size, uint64_t address, int fd) {
  if (!verbs_.reg_dmabuf_mr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_mr* mr = verbs_.reg_dmabuf_mr(pd_, offset, size, address, fd, Access());
  if (!mr) return nullptr;
  auto region = std::make_unique<MemoryRegion>();
  region->mr = mr;
  region->begin = address;  // an end of 0 fits no request of Register(): this memory is the GPU's, not this process's
  region->users = 1;
  region->of_gpu = true;
  // NCCL closes its own when it has registered.
  if (!standbys_.empty()) region->dma_buf = Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));  // without it: on this port only
  region->offset = offset;
  region->size = size;
  const std::lock_guard lock(mutex_);
  auto& all = regions_[address];
  all.push_back(std::move(region));
  return all.back().get();
}

ibv_mr* Port::Copy(MemoryRegion* region, const std::shared_ptr<Port>& other) {
  const MemoryRegion::Copy* last = region->last_copy.load(std::memory_order_acquire);
  if (last && last->port == other) return last->mr;
  const auto known = [&]() -> MemoryRegion::Copy* {
    const auto found = std::ranges::find(region->copies, other, [](const auto& copy) { return copy->port; });
    return found == region->copies.end() ? nullptr : found->get();
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto* copy = known()) {
      region->last_copy.store(copy, std::memory_order_release);
      return copy->mr;
    }
  }
  ibv_mr* mr = nullptr;  // made without the lock: it takes as long as the memory is large
  if (region->end != 0) {
    mr = other->RegisterPages(region->begin, region->end);
  } else if (region->dma_buf.valid() && other->verbs_.reg_dmabuf_mr) {
    mr = other->verbs_.reg_dmabuf_mr(other->pd_, region->offset, region->size, region->begin, region->dma_buf.get(),
                                     other->Access());
  } else {
    errno = EOPNOTSUPP;
  }
  if (!mr) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto* copy = known();
  if (copy) {  // another flow's thread was faster
    verbs_.dereg_mr(mr);
  } else {
    region->copies.push_back(std::make_unique<MemoryRegion::Copy>(MemoryRegion::Copy{other, mr}));
    copy = region->copies.back().get();
  }
  region->last_copy.store(copy, std::memory_order_release);
  return copy->mr;
}

void Port::Release(MemoryRegion& region) {
  for (const auto& copy : region.copies) verbs_.dereg_mr(copy->mr);
  verbs_.dereg_mr(region.mr);
}

void Port::Deregister(MemoryRegion* region) {
  const std::lock_guard lock(mutex_);
  if (--region->users > 0) return;
  const auto entry = regions_.find(region->begin);
  if (entry == regions_.end()) return;
  Release(*region);
  std::erase_if(entry->second, [region](const auto& held) { return held.get() == region; });
  if (entry->second.empty()) regions_.erase(entry);
}

bool Port::WasDown(uint64_t now) const {
  const uint64_t last = last_change_ns_.load(std::memory_order_relaxed);
  return down() || (last != 0 && now < last + PatienceNs() + 1'000'000'000);
}

void Port::Sweep(const Tick& tick) {
  ibv_async_event event;
  errno = 0;
  while (verbs_.get_async_event(context_, &event) == 0) {
    const bool of_port = event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_PORT_ACTIVE;
    if (!of_port || event.element.port_num == number_) {
      const bool calm = event.event_type == IBV_EVENT_COMM_EST || event.event_type == IBV_EVENT_SQ_DRAINED ||
                        event.event_type == IBV_EVENT_GID_CHANGE;
      if (!calm) Log(nccl::kLogWarn, "%s: %s", name_.c_str(), verbs_.event_type_str(event.event_type));
      if (of_port) last_change_ns_.store(tick.now, std::memory_order_relaxed);  // until now, in either case
      if (of_port) down_.store(event.event_type == IBV_EVENT_PORT_ERR, std::memory_order_relaxed);
      if (event.event_type == IBV_EVENT_DEVICE_FATAL) down_.store(true, std::memory_order_relaxed);
    }
    verbs_.ack_async_event(&event);
    errno = 0;
  }
  // A descriptor that is ready for ever and cannot be read would start sweep after sweep.
  if (errno != 0 && errno != EAGAIN && errno != EINTR) events_over_ = true;
}

void Port::Watch(std::vector<pollfd>* fds) {
  if (!events_over_) fds->push_back({context_->async_fd, POLLIN, 0});
}

}  // namespace weft::net::rdma
