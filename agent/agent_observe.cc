// The agent's ear for what the plugins' watchdogs and profiler faces say: it logs standing connections and ranks that others
// wait for, and has the job in trouble watched more closely.
#include <algorithm>
#include <string>

#include "agent/agent.h"
#include "common/log.h"

namespace weft::agent {
namespace {

constexpr double kStraggleS = 10;

template <typename Numbers>
std::string Join(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) {
    if (!text.empty()) text += ',';
    text += std::to_string(number);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

void Agent::Observe(uint64_t now_ns) {
  for (auto& [connection, process] : processes_) {
    const std::string& job = process.map->job();
    for (const StallNews& stall : process.observations->TakeStalls()) {
      if (!stall.begins) {
        LogInfo("agent", "connection moves again or was closed",
                {{"job", job}, {"rank", stall.rank}, {"peer_rank", stall.peer_rank}, {"stalled_s", stall.stalled_s}});
        continue;
      }
      LogWarn("agent", "connection stands still",
              {{"job", job}, {"rank", stall.rank}, {"peer_rank", stall.peer_rank}, {"peer", stall.peer},
               {"direction", stall.send ? "send" : "receive"}, {"ports", Join(stall.ports)},
               {"in_flight_bytes", stall.bytes}, {"requests", stall.requests}, {"cause", stall.cause},
               {"stalled_s", stall.stalled_s}});
      profile_.Trouble(job, now_ns);
    }
  }
  if (!profile_.Due(now_ns)) return;
  std::map<std::string, int64_t> stalled, behind = FindSlowRanks(now_ns);
  for (const auto& [connection, process] : processes_) {
    stalled[process.map->job()] += process.observations->open_stalls();
  }
  for (const auto& [job, connections] : stalled) {
    metrics_.SetTrouble(job, connections, behind[job]);
    policies_.SetProfile(job, profile_.Level(job, now_ns), now_ns + ProfileSwitch::kLeaseNs);
  }
}

std::map<std::string, int64_t> Agent::FindSlowRanks(uint64_t now_ns) {
  std::map<std::string, std::vector<RankProgress>> jobs;
  for (const auto& [connection, process] : processes_) {
    process.observations->AppendProgress(&jobs[process.map->job()]);
  }
  std::set<std::string> standing;
  std::map<std::string, int64_t> behind;
  for (const auto& [job, progress] : jobs) {
    for (const Straggle& straggle : FindStraggles(progress, now_ns, kStraggleS)) {
      const std::string key = job + "/" + std::to_string(straggle.comm) + "/" + straggle.operation + "/" +
                              std::to_string(straggle.sequence);
      standing.insert(key);
      behind[job] += static_cast<int64_t>(straggle.behind.size());
      profile_.Trouble(job, now_ns);
      if (straggles_told_.contains(key)) continue;
      LogWarn("agent", straggle.behind.empty() ? "collective does not end; every rank of this host is in it"
                                               : "ranks have not come to a collective that others are in",
              {{"job", job}, {"communicator", straggle.comm}, {"ranks", straggle.ranks},
               {"operation", straggle.operation}, {"sequence", straggle.sequence}, {"waiting", Join(straggle.waiting)},
               {"behind", Join(straggle.behind)}, {"waited_s", straggle.waited_s}});
    }
  }
  straggles_told_ = std::move(standing);
  return behind;
}

}  // namespace weft::agent
