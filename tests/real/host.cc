#include "tests/real/host.h"

#include <time.h>

#include <utility>

namespace weft::real {
namespace {

uint64_t MonotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

double MonotonicSeconds() { return static_cast<double>(MonotonicNs()) * 1e-9; }

Host::Host() : policies_(MonotonicNs) {}

agent::PluginHandlers Host::Handlers() {
  return {.attach = [this](const agent::Peer& peer, std::unique_ptr<agent::TelemetryMap> map) -> Result<UniqueFd> {
            const std::lock_guard lock(mutex_);
            WEFT_ASSIGN_OR_RETURN(UniqueFd policy, policies_.Attach(map->job(), peer.uid, map->segment_version()));
            auto reader = std::make_unique<agent::TelemetryReader>(*map);
            processes_[peer.connection] = {std::move(map), std::move(reader)};
            return policy;
          },
          .detach =
              [this](const agent::Peer& peer) {
                const std::lock_guard lock(mutex_);
                const auto found = processes_.find(peer.connection);
                if (found == processes_.end()) return;
                policies_.Detach(found->second.map->job());
                processes_.erase(found);
              },
          .environment = [](const agent::Peer&, const std::string&, const std::string&) { return std::nullopt; },
          .rejected = [](const char*) {}};
}

Result<std::unique_ptr<Host>> Host::Start(const std::string& run_dir) {
  std::unique_ptr<Host> host(new Host);
  WEFT_ASSIGN_OR_RETURN(host->socket_, agent::PluginSocket::Listen(run_dir, host->Handlers()));
  return host;
}

std::vector<SendFlow> Host::SendFlows(const std::string& job) {
  const std::lock_guard lock(mutex_);
  std::vector<SendFlow> flows;
  for (auto& [connection, process] : processes_) {
    if (process.map->job() != job) continue;
    v1::HostSample sample;
    process.reader->Sample();
    process.reader->Snapshot(&sample);
    for (int i = 0; i < sample.opened_size(); ++i) {  // Snapshot writes both lists in one order
      if (sample.opened(i).send()) flows.push_back({sample.opened(i), sample.counters(i)});
    }
  }
  return flows;
}

int64_t Host::rejected() {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [connection, process] : processes_) sum += process.map->process().policy_rejected.load();
  return static_cast<int64_t>(sum);
}

Status Host::Apply(const v1::JobPolicy& policy) {
  const std::lock_guard lock(mutex_);
  return policies_.Apply(policy);
}

void Host::Renew() {
  const std::lock_guard lock(mutex_);
  policies_.Renew();
}

}  // namespace weft::real
