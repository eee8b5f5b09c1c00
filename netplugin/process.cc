#include "netplugin/process.h"

#include <unistd.h>

#include <mutex>
#include <string>

#include "netplugin/log.h"
#include "netplugin/rdma/port.h"
#include "netplugin/rdma/transport.h"

namespace weft::net {
namespace {

std::mutex g_mutex;  // guards the counts and the creation
Process* g_process = nullptr;
int g_users = 0;
bool g_permanent = false;
// Release: the process is complete. Read without the mutex by every call.
std::atomic<Process*> g_published{nullptr};

}  // namespace

/// Runs when the library is unloaded, or the program ends.
struct Unload {
  ~Unload() {
    // Whoever holds it is inside Acquire() or Release() while the program ends: then the process is in use.
    const std::unique_lock lock(g_mutex, std::try_to_lock);
    if (!lock || !g_process) return;
    g_process->background_.Stop();
    // Otherwise other threads may be inside a call this very moment or begin one (NCCL's proxy, where an init has failed), or a
    // tuner's or profiler's context is open still: they find all as it was.
    if (g_process->open_comms.load(std::memory_order_relaxed) > 0 || g_users > 0) return;
    g_published.store(nullptr);
    delete g_process;
    g_process = nullptr;
  }
};
static Unload g_unload;

/// The first lines of the log: who speaks, and which settings were refused.
static Environment Announced(Environment environment, int net_version) {
  const std::string face = net_version > 0 ? "net v" + std::to_string(net_version) : "tuner or profiler first";
  const auto known = [](int number) { return number < 0 ? std::string("unknown") : std::to_string(number); };
  Log(nccl::kLogInfo, "version %s, %s, job \"%s\", rank %s of %s, process %d", WEFT_VERSION, face.c_str(),
      environment.job_id.c_str(), known(environment.rank).c_str(), known(environment.world).c_str(), getpid());
  for (const std::string& problem : environment.problems) Log(nccl::kLogWarn, "%s", problem.c_str());
  return environment;
}

Process::Process(int net_version)
    : environment_(Announced(ReadEnvironment(), net_version)),
      devices_(rdma::ChooseDevices(environment_)),
      telemetry_(Telemetry::Create(environment_, net_version)),
      observer_(telemetry_->observations()),
      watchdog_(observer_, environment_.stall),
      profiler_(observer_, policies_, environment_.profile),
      agent_(environment_, *telemetry_, policies_),
      background_(telemetry_->background()),
      services_{environment_, *telemetry_, policies_, background_, &agent_},
      connector_(services_),
      rdma_connector_(std::make_unique<rdma::RdmaConnector>(services_)) {
  background_.Add(&agent_);
  background_.Add(&watchdog_);
  background_.Add(&profiler_);
  for (const Device& device : devices_) {
    if (device.rdma) background_.Add(device.rdma.get());
  }
}

Process& Process::Acquire(int net_version, nccl::Logger logger, bool permanent) {
  const std::lock_guard lock(g_mutex);
  if (logger) SetLogger(logger);
  if (!g_process) {
    g_process = new Process(net_version);
    g_published.store(g_process, std::memory_order_release);
  }
  // The tuner or the profiler may have come first, where the net face is used without them.
  int32_t& version = g_process->telemetry_->process().net_version;
  if (version == 0) version = net_version;
  g_process->background_.Start();
  if (permanent) {
    g_permanent = true;
    g_process->watchdog_.ExpectDroppedErrors();
  } else {
    ++g_users;
  }
  return *g_process;
}

void Process::Release() {
  const std::lock_guard lock(g_mutex);
  if (g_users > 0) --g_users;
  if (g_users > 0 || g_permanent || !g_process) return;
  g_process->background_.Stop();
  SetLogger(nullptr);
}

Process* Process::Get() { return g_published.load(std::memory_order_acquire); }

}  // namespace weft::net
