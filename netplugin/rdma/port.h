// One port of an RDMA device, opened: what a flow needs to make queue pairs and to register memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "netplugin/background.h"
#include "netplugin/devices.h"
#include "netplugin/environment.h"
#include "netplugin/rdma/path.h"
#include "netplugin/rdma/verbs.h"
#include "netplugin/rdma/wire.h"
#include "netplugin/tcp/socket.h"

namespace weft::net::rdma {

class Port;

/// Registered memory; what NCCL holds as a memory handle. Good for every communicator of the port.
struct MemoryRegion {
  /// The same memory as another port knows it, to which flows have moved.
  struct Copy {
    std::shared_ptr<Port> port;
    ibv_mr* mr = nullptr;
  };

  ibv_mr* mr = nullptr;
  uint64_t begin = 0, end = 0;  // whole pages; a dma-buf's end is 0
  uint32_t users = 0;
  bool of_gpu = false;  // what is written to it must be flushed before the GPU reads it
  Fd dma_buf;           // held for the copies
  uint64_t offset = 0, size = 0;  // in it
  std::vector<std::unique_ptr<Copy>> copies;   // guarded by the port's mutex
  std::atomic<const Copy*> last_copy{nullptr};  // release: one of them, for who needs it with every message
};

class Port final : public BackgroundTask {
 public:
  /// Opens port `number` of `device`. nullptr with the reason in `why`.
  static std::shared_ptr<Port> Open(const Verbs& verbs, ibv_device* device, int number,
                                    const RdmaEnvironment& environment, const std::string& sysfs, std::string* why);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  const Verbs& verbs() const { return verbs_; }
  const RdmaEnvironment& environment() const { return environment_; }
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const std::string& name() const { return name_; }  ///< "mlx5_0:1"
  uint8_t number() const { return number_; }
  int gid_index() const { return gid_index_; }
  const PortInfo& info() const { return info_; }
  PortRule rule() const { return rule_; }
  bool mlx5() const { return mlx5_; }
  bool ethernet() const { return info_.link == 2; }
  bool adaptive_routing() const { return adaptive_routing_; }
  uint64_t longest_write() const { return longest_write_; }
  int speed_mbps() const { return speed_mbps_; }
  uint64_t guid() const { return guid_; }
  int ptr_support() const { return ptr_support_; }
  int completions() const { return most_completions_; }  ///< entries that a completion queue may have

  /// A port that can take this one's flows over.
  struct Standby {
    std::weak_ptr<Port> port;
    int distance = 0;  ///< on the PCI bus; 0: the same device
  };
  /// The nearest first; none by default. Set before the first flow.
  const std::vector<Standby>& standbys() const { return standbys_; }
  void set_standbys(std::vector<Standby> standbys) { standbys_ = std::move(standbys); }

  /// What is known of the paths from this port, asked when a flow is made; nothing by default. Set before the first
  /// flow.
  const PathProbe& path_probe() const { return path_probe_; }
  void set_path_probe(PathProbe probe) { path_probe_ = std::move(probe); }

  /// Relaxed: a hint, set and cleared by the device's own events.
  bool down() const { return down_.load(std::memory_order_relaxed); }
  /// When the device last said that the port went down or came up; 0: never.
  uint64_t last_change_ns() const { return last_change_ns_.load(std::memory_order_relaxed); }
  /// How long a queue pair may wait for an answer until it must fail.
  uint64_t PatienceNs() const {
    return (uint64_t{4096} << environment_.timeout) * (static_cast<uint64_t>(environment_.retry_count) + 1);
  }
  /// Whether it was down at any time that can have failed a queue pair which fails at `now`.
  bool WasDown(uint64_t now) const;

  /// Memory of [data, data + size), registered in whole pages and shared by reference count. nullptr (errno set) on
  /// failure. Threads: any.
  MemoryRegion* Register(void* data, size_t size);
  /// By its dma-buf; not shared. nullptr (errno set) on failure.
  MemoryRegion* RegisterDmaBuf(uint64_t offset, size_t size, uint64_t address, int fd);
  void Deregister(MemoryRegion* region);
  /// This port's `region` as `other` knows it, registered there at the first call. nullptr (errno set) on failure.
  /// Threads: any.
  ibv_mr* Copy(MemoryRegion* region, const std::shared_ptr<Port>& other);

  /// Reads the device's asynchronous events.
  void Sweep(const Tick& tick) override;
  void Watch(std::vector<pollfd>* fds) override;

 private:
  Port(const Verbs& verbs, const RdmaEnvironment& environment) : verbs_(verbs), environment_(environment) {}
  bool Query(const std::string& sysfs, const std::string& device, std::string* why);
  bool ChooseAddress(const ibv_port_attr& attributes, const std::string& sysfs, const std::string& device,
                     std::string* why);
  void FindMemoryKinds();
  int Access() const;
  ibv_mr* RegisterPages(uint64_t begin, uint64_t end);
  void Release(MemoryRegion& region);

  const Verbs& verbs_;
  const RdmaEnvironment environment_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::string name_;
  uint8_t number_ = 1;
  int gid_index_ = 0;
  PortInfo info_{};
  PortRule rule_ = PortRule::kNone;
  bool mlx5_ = false;
  bool adaptive_routing_ = false;
  uint64_t longest_write_ = 0;
  int speed_mbps_ = 0;
  uint64_t guid_ = 0;
  int ptr_support_ = nccl::kPtrHost;
  int most_completions_ = 0;
  PathProbe path_probe_;
  std::vector<Standby> standbys_;
  bool events_over_ = false;  // the background thread alone
  std::atomic<bool> down_{false};
  std::atomic<uint64_t> last_change_ns_{0};  // relaxed, as down_; 0: never

  std::mutex mutex_;  // guards what follows; taken on the data path only when a region is first used on another port
  std::map<uint64_t, std::vector<std::unique_ptr<MemoryRegion>>> regions_;  // by begin
};

/// What there is of RDMA on this host.
struct Ports {
  bool present = false;  ///< an active port that the filter lets through, whether or not it can be used
  std::vector<std::shared_ptr<Port>> usable;
  std::string why;       ///< of what is present and not usable, the last reason
  bool excluded = false;  ///< some active port is kept out by the filter
  std::vector<std::string> passed_over;  ///< what is there and not usable, as "DEVICE:PORT (why not)"
};

/// Looks at `sysfs` first: a host without RDMA pays a folder listing and loads nothing.
Ports FindPorts(const RdmaEnvironment& environment, const std::string& sysfs = "/sys/class/infiniband");

/// Speed of a port in Mbit/s from the verbs' codes of width and speed; 0 for codes that are not known.
int SpeedOf(int active_width, int active_speed);

}  // namespace weft::net::rdma
