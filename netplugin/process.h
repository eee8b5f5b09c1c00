// All that the plugin holds for this process, and how long: from the first init until the library is unloaded.
//
// From v11 on NCCL calls finalize when its last communicator is gone, and may unmap the library right after; with v7 to
// v10 it just unmaps it. So the thread is joined in the last finalize, and in any case in the library's destructor.
// What communicators use is freed in the destructor too, unless some are still open (a process that simply exits while
// other threads send, or has a tuner or profiler context open): then it is left to the kernel.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "netplugin/background.h"
#include "netplugin/comm.h"
#include "netplugin/devices.h"
#include "netplugin/environment.h"
#include "netplugin/interfaces/profiler.h"
#include "netplugin/policy/agent_link.h"
#include "netplugin/policy/policy.h"
#include "netplugin/tcp/connector.h"
#include "netplugin/telemetry/observer.h"
#include "netplugin/telemetry/telemetry.h"
#include "netplugin/telemetry/watchdog.h"

namespace weft::net {

namespace rdma {
class RdmaConnector;
}

class Process {
 public:
  /// The first call creates it. `permanent`: no finalize will follow (v7 to v10). `net_version` is 0 for the tuner and
  /// the profiler face. Threads: any.
  static Process& Acquire(int net_version, nccl::Logger logger, bool permanent);
  /// For each Acquire() that was not permanent. The last one joins the thread.
  static void Release();
  /// nullptr before the first init.
  static Process* Get();

  const Environment& environment() const { return environment_; }
  const std::vector<Device>& devices() const { return devices_; }
  const Services& services() const { return services_; }
  Connector& connector() { return connector_; }
  Observer& observer() { return observer_; }
  Profiler& profiler() { return profiler_; }
  Watchdog& watchdog() { return watchdog_; }
  rdma::RdmaConnector& rdma_connector() { return *rdma_connector_; }

  /// Communicators and listeners that are open. Relaxed: only read when no other thread is left.
  std::atomic<int64_t> open_comms{0};

 private:
  friend struct Unload;
  explicit Process(int net_version);

  Environment environment_;
  std::vector<Device> devices_;
  std::unique_ptr<Telemetry> telemetry_;
  PolicyStore policies_;
  Observer observer_;
  Watchdog watchdog_;
  Profiler profiler_;
  AgentLink agent_;
  Background background_;  // ends before what it looks after
  Services services_;
  Connector connector_;
  std::unique_ptr<rdma::RdmaConnector> rdma_connector_;
};

}  // namespace weft::net
