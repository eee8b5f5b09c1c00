// An agent that changes its mind all the time: the processes that attach get policies at random, new ones every few
// milliseconds, until it is ended. Lanes come and go, weights, classes, pacing and windows change.
//
// usage: weft-nccl-change-policies RUN_DIR SEED MILLISECONDS
//
// Prints one JSON line at SIGTERM or SIGINT: how many policies were written, what the processes had read of them, and how many
// entries they refused (none are wrong).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "agent/monotonic.h"
#include "agent/plugin_socket.h"
#include "agent/policy_store.h"
#include "agent/telemetry_reader.h"
#include "common/exit_code.h"

namespace weft::agent {
namespace {

constexpr uint64_t kPorts = 6;             // from which a flow's lanes are drawn, so that some stay and some come back
constexpr int64_t kLeastPacing = 50'000'000;
constexpr std::array<int32_t, 4> kClasses = {0, 32, 104, 184};

volatile std::sig_atomic_t ended = 0;

class ChangingAgent {
 public:
  explicit ChangingAgent(uint64_t seed) : random_(seed) {}

  Status Run(const std::string& run_dir, std::chrono::milliseconds every) {
    PluginHandlers handlers;
    handlers.attach = [this](const Peer& peer, std::unique_ptr<TelemetryMap> map) { return Attach(peer, std::move(map)); };
    handlers.detach = [this](const Peer& peer) { Detach(peer); };
    handlers.environment = [](const Peer&, const std::string&, const std::string&) { return std::nullopt; };
    handlers.rejected = [](const char*) {};
    WEFT_ASSIGN_OR_RETURN(const auto socket, PluginSocket::Listen(run_dir, std::move(handlers)));
    std::fputs("ready\n", stderr);
    while (ended == 0) {
      std::this_thread::sleep_for(every);
      WEFT_RETURN_IF_ERROR(Change());
    }
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, process] : processes_) Count(process);
    fmt::print("{{\"policies\":{},\"entries\":{},\"processes\":{},\"epoch_read\":{},\"refused\":{}}}\n", epoch_, entries_, attached_,
               epoch_read_, refused_);
    return Ok();
  }

 private:
  struct Process {
    std::unique_ptr<TelemetryMap> map;
    std::unique_ptr<TelemetryReader> reader;
    std::map<uint64_t, uint16_t> flows;  // open send flows, and a port that the flow's lanes are counted from
  };

  Result<UniqueFd> Attach(const Peer& peer, std::unique_ptr<TelemetryMap> map) {
    const std::scoped_lock lock(mutex_);
    WEFT_ASSIGN_OR_RETURN(UniqueFd fd, policies_.Attach(map->job(), peer.uid));
    Process& process = processes_[peer.connection];
    process.reader = std::make_unique<TelemetryReader>(*map);
    process.map = std::move(map);
    ++attached_;
    return fd;
  }

  void Detach(const Peer& peer) {
    const std::scoped_lock lock(mutex_);
    const auto found = processes_.find(peer.connection);
    if (found == processes_.end()) return;
    Count(found->second);
    policies_.Detach(found->second.map->job());
    processes_.erase(found);
  }

  void Count(const Process& process) {
    epoch_read_ = std::max<uint64_t>(epoch_read_, process.map->process().policy_epoch.load());
    refused_ += process.map->process().policy_rejected.load();
  }

  Status Change() {
    const std::scoped_lock lock(mutex_);
    std::map<std::string, v1::JobPolicy> jobs;
    for (auto& [id, process] : processes_) {
      process.reader->Sample();
      for (const SendFlow& flow : process.reader->TakeSendFlows()) process.flows.try_emplace(flow.flow, 20000 + Draw(20000));
      for (const uint64_t flow : process.reader->TakeClosedSendFlows()) process.flows.erase(flow);
      v1::JobPolicy& job = jobs[process.map->job()];
      for (const auto& [flow, port] : process.flows) DrawPolicy(flow, port, job.add_flows());
    }
    if (!jobs.empty()) ++epoch_;
    for (auto& [name, job] : jobs) {
      job.set_job_id(name);
      job.set_epoch(epoch_);
      entries_ += job.flows_size();
      WEFT_RETURN_IF_ERROR(policies_.Apply(job));
    }
    return Ok();
  }

  uint64_t Draw(uint64_t below) { return random_() % below; }

  void DrawPolicy(uint64_t flow, uint16_t port, v1::FlowPolicy* policy) {
    policy->set_flow(flow);
    const uint64_t lanes = Draw(4);  // none: the policy says nothing of paths
    const uint64_t first = Draw(kPorts);
    for (uint64_t i = 0; i < lanes; ++i) {
      v1::LanePolicy* lane = policy->add_lanes();
      lane->set_source_port(static_cast<int32_t>(port + (first + i) % kPorts));
      lane->set_weight(i == 0 ? 1 + static_cast<int32_t>(Draw(8)) : static_cast<int32_t>(Draw(8)));
    }
    policy->set_traffic_class(kClasses[Draw(kClasses.size())]);
    if (Draw(4) == 0) policy->set_pacing_bps(kLeastPacing + static_cast<int64_t>(Draw(1'000'000'000)));
    policy->set_lease_s(Draw(3) == 0 ? 0 : 0.001 * static_cast<double>(1 + Draw(1000)));
    if (Draw(4) != 0) return;
    const double period = 0.001 * static_cast<double>(1 + Draw(10));
    policy->set_window_period_s(period);
    policy->set_window_offset_s(static_cast<double>(MonotonicNs()) * 1e-9 + period * 0.1 * static_cast<double>(Draw(10)));
    policy->set_window_length_s(std::min(period, period * 0.1 * static_cast<double>(1 + Draw(10))));
  }

  std::mutex mutex_;  // guards all: attach and detach come on the socket's thread
  std::mt19937_64 random_;
  PolicyStore policies_{[] { return MonotonicNs(); }};
  std::map<uint64_t, Process> processes_;  // by connection
  int64_t epoch_ = 0, entries_ = 0, attached_ = 0;
  uint64_t epoch_read_ = 0, refused_ = 0;
};

}  // namespace
}  // namespace weft::agent

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s RUN_DIR SEED MILLISECONDS\n", argv[0]);
    return weft::kExitUsage;
  }
  for (const int number : {SIGTERM, SIGINT}) std::signal(number, [](int) { weft::agent::ended = 1; });
  const weft::Status done = weft::agent::ChangingAgent(std::strtoull(argv[2], nullptr, 10))
                                .Run(argv[1], std::chrono::milliseconds(std::strtoll(argv[3], nullptr, 10)));
  if (done) return weft::kExitDone;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return weft::kExitFailed;
}
