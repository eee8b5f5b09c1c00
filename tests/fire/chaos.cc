#include "tests/fire/chaos.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "netplugin/abi/seqlock.h"

namespace weft::net::fire {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kPortsPerFlow = 12;  // more than a flow has lanes: some are given up
constexpr uint32_t kPortBlocks = 1'000;

std::vector<const abi::FlowSlot*> OpenSends(const abi::TelemetrySegment& telemetry) {
  std::vector<const abi::FlowSlot*> open;
  for (const abi::FlowSlot& slot : testing::SlotsOf(telemetry)) {
    if (slot.state.load(std::memory_order_acquire) != static_cast<uint32_t>(abi::SlotState::kOpen)) continue;
    if (slot.direction == static_cast<uint32_t>(abi::Direction::kSend)) open.push_back(&slot);
  }
  return open;
}

/// Shuts the TCP socket of `process` between these ports. False if there is none. Sets `refused` where a process may not
/// have another's sockets.
bool Shut(pid_t process, uint16_t local, uint16_t peer, bool* refused) {
  const auto check = [refused](int fd) { *refused = *refused || (fd < 0 && (errno == EPERM || errno == ENOSYS)); };
  const Fd handle(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  check(handle.get());
  DIR* folder = opendir(("/proc/" + std::to_string(process) + "/fd").c_str());
  bool found = false;
  while (const dirent* entry = folder ? readdir(folder) : nullptr) {
    if (entry->d_name[0] == '.' || found) continue;
    const Fd fd(static_cast<int>(syscall(SYS_pidfd_getfd, handle.get(), std::atoi(entry->d_name), 0)));
    check(fd.get());
    if (!fd.valid() || LocalAddress(fd.get()).port != local || PeerAddress(fd.get()).port != peer) continue;
    found = shutdown(fd.get(), SHUT_RDWR) == 0;
  }
  if (folder) closedir(folder);
  return found;
}

}  // namespace

Chaos::Chaos(const ChaosSettings& settings, uint64_t seed, Control& control, std::array<std::string, 2> run_dirs,
             Cable* cable)
    : settings_(settings), control_(control), run_dirs_(std::move(run_dirs)), cable_(cable), random_(seed) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    agents_[rank] = std::make_unique<testing::Agent>(run_dirs_[rank]);
    policies_[rank] = std::make_unique<testing::PolicyFile>();
  }
}

Chaos::~Chaos() { Calm(); }

bool Chaos::Begin(std::array<pid_t, 2> processes) {
  processes_ = processes;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    if (!Greet(rank)) return false;
  }
  return true;
}

bool Chaos::Greet(uint32_t rank) {
  greeted_[rank] = agents_[rank]->Greet() && agents_[rank]->SendPolicy(policies_[rank]->fd());
  counts_.agents += greeted_[rank] ? 1 : 0;
  return greeted_[rank];
}

bool Chaos::Due(uint64_t now, uint32_t every_ms, uint64_t* next) {
  if (every_ms == 0 || now < *next) return false;
  const bool first = *next == 0;
  *next = now + (every_ms / 2 + random_.Below(every_ms)) * kMs;
  return !first;
}

void Chaos::Step(uint64_t now) {
  if (settings_.repath_ms != 0 && now >= next_repath_) {
    next_repath_ = now + settings_.repath_ms * kMs;
    for (uint32_t rank = 0; rank < 2; ++rank) Repath(rank);
    ++counts_.repaths;
  }
  if (stopped_ != 0 && now >= stopped_until_) {
    kill(stopped_, SIGCONT);
    stopped_ = 0;
  }
  if (down_until_ != 0 && now >= down_until_) {
    cable_->Set(true);
    down_until_ = 0;
  }
  if (down_until_ != 0) control_.cable_down_ns.store(now, std::memory_order_relaxed);
  if (Due(now, settings_.shut_ms, &next_shut_)) ShutSocket(static_cast<uint32_t>(random_.Below(2)));
  if (stopped_ == 0 && Due(now, settings_.stop_ms, &next_stop_)) StopProcess(now);
  // Not after the end: a receiver whose sender never came waits until the cable has been whole for a while.
  const bool pulls = cable_ && down_until_ == 0 && !control_.stop.load(std::memory_order_relaxed);
  if (pulls && Due(now, settings_.cable_ms, &next_pull_)) PullCable(now);
  if (control_.stop.load(std::memory_order_relaxed)) return;  // who has nothing more to do answers no agent
  if (stopped_ != 0 || down_until_ != 0) return;
  GreetNew();
  if (Due(now, settings_.restart_agent_ms, &next_restart_)) RestartAgent(static_cast<uint32_t>(random_.Below(2)));
}

void Chaos::Calm() {
  if (stopped_ != 0) kill(stopped_, SIGCONT);
  if (down_until_ != 0) cable_->Set(true);
  stopped_ = 0;
  down_until_ = 0;
}

uint64_t Chaos::refused() const {
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    sum += greeted_[rank] ? agents_[rank]->telemetry().process.policy_rejected.load(std::memory_order_relaxed)
                          : refused_[rank];
  }
  return sum;
}

bool Chaos::Complete() const {
  const ChaosCounts& c = counts_;
  const bool policies = c.lanes_used > 0 && refused() > 0;
  return (policies || settings_.repath_ms == 0) && (c.agents > 2 || settings_.restart_agent_ms == 0) &&
         (c.sockets_shut > 0 || c.shut_refused || settings_.shut_ms == 0) && (c.stops > 0 || settings_.stop_ms == 0) &&
         (c.pulls > 0 || !cable_ || settings_.cable_ms == 0);
}

void Chaos::Repath(uint32_t rank) {
  if (!greeted_[rank]) return;
  std::vector<abi::FlowPolicy> entries;
  for (const abi::FlowSlot* flow : OpenSends(agents_[rank]->telemetry())) {
    entries.push_back(Policy(*flow));
    for (const abi::LaneTelemetry& lane : flow->lanes) {
      const uint32_t port = lane.source_port.load(std::memory_order_relaxed);
      const bool named = port >= settings_.first_port && port < settings_.first_port + kPortBlocks * kPortsPerFlow;
      if (named && lane.bytes.load(std::memory_order_relaxed) > 0) ++counts_.lanes_used;
    }
  }
  counts_.entries += entries.size();
  abi::WritePolicies(policies_[rank]->segment().table, entries);
}

abi::FlowPolicy Chaos::Policy(const abi::FlowSlot& flow) {
  abi::FlowPolicy policy{};
  policy.flow = flow.flow;
  const auto block = static_cast<uint32_t>(flow.flow % kPortBlocks) * kPortsPerFlow;
  const uint64_t count = 1 + random_.Below(4);
  const uint64_t first = random_.Below(kPortsPerFlow);
  for (uint64_t i = 0; i < count; ++i) {
    const auto port = settings_.first_port + block + static_cast<uint32_t>((first + i) % kPortsPerFlow);
    policy.lanes[i] = {static_cast<uint16_t>(port), 0, static_cast<uint32_t>(random_.Below(8))};
  }
  // The connection that it began with is one of the paths as often as not.
  if (random_.OneIn(2)) policy.lanes[0].source_port = static_cast<uint16_t>(flow.lanes[0].source_port.load());
  policy.lanes[random_.Below(count)].weight += 1;
  policy.lease_until_ns = NowNs() + (5 + random_.Below(50)) * kMs;
  policy.traffic_class = static_cast<uint32_t>(random_.Below(64)) << 2;
  if (random_.OneIn(8)) policy.pacing_bps = 500'000'000 + random_.Below(4'000'000'000);
  if (random_.OneIn(16)) {
    policy.window_period_ns = (2 + random_.Below(8)) * kMs;
    policy.window_length_ns = policy.window_period_ns / 2;
  }
  if (random_.OneIn(40)) {
    ++counts_.nonsense;
    policy.lanes[0].weight = abi::kLargestWeight + 1;
  }
  return policy;
}

/// The plugin looks for the new agent when it likes: nobody waits for it here.
void Chaos::GreetNew() {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    if (greeted_[rank] || !agents_[rank]->IsCalled()) continue;
    if (!Greet(rank)) ++counts_.bad_greetings;
  }
}

/// The agent that comes after has a segment of its own; the plugin keeps the old one until something is written.
void Chaos::RestartAgent(uint32_t rank) {
  if (!greeted_[rank]) return;  // the one before it has not been found yet
  refused_[rank] = agents_[rank]->telemetry().process.policy_rejected.load(std::memory_order_relaxed);
  greeted_[rank] = false;
  agents_[rank].reset();
  agents_[rank] = std::make_unique<testing::Agent>(run_dirs_[rank]);
  old_policies_[rank] = std::move(policies_[rank]);
  policies_[rank] = std::make_unique<testing::PolicyFile>();
}

void Chaos::ShutSocket(uint32_t rank) {
  if (!greeted_[rank]) return;
  const auto flows = OpenSends(agents_[rank]->telemetry());
  if (flows.empty()) return;
  const abi::FlowSlot& flow = *flows[random_.Below(flows.size())];
  const abi::LaneTelemetry& lane = flow.lanes[random_.Below(abi::kMaxLanes)];
  if (lane.state.load(std::memory_order_acquire) != static_cast<uint32_t>(abi::LaneState::kActive)) return;
  const auto port = static_cast<uint16_t>(lane.source_port.load(std::memory_order_relaxed));
  for (uint32_t i = rank; i < kMostConnections; i += 2) {  // those that this rank sends on
    ConnectionSlot& slot = control_.connections[i];
    const uint32_t life = slot.offered.load(std::memory_order_acquire);
    if (slot.listen_port.load(std::memory_order_relaxed) != flow.peer_port || life == kNoMore) continue;
    slot.hurt.store(life, std::memory_order_release);
    const bool at_sender = random_.OneIn(2);
    const bool shut = at_sender ? Shut(processes_[rank], port, flow.peer_port, &counts_.shut_refused)
                                : Shut(processes_[1 - rank], flow.peer_port, port, &counts_.shut_refused);
    if (shut) ++counts_.sockets_shut;
    return;
  }
}

void Chaos::StopProcess(uint64_t now) {
  stopped_ = processes_[random_.Below(2)];
  stopped_until_ = now + (1 + random_.Below(40)) * kMs;
  kill(stopped_, SIGSTOP);
  ++counts_.stops;
}

void Chaos::PullCable(uint64_t now) {
  control_.cable_down_ns.store(now, std::memory_order_relaxed);
  if (!cable_->Set(false)) return;
  down_until_ = now + (20 + random_.Below(500)) * kMs;
  ++counts_.pulls;
}

}  // namespace weft::net::fire
