// The agent's ear for what the plugins' watchdogs and profiler faces say: it logs standing connections and ranks that
// others wait for, and has the job in trouble watched more closely. A job has so many lines a minute; the rest are counted.
#include <algorithm>
#include <optional>
#include <string>

#include "agent/agent.h"
#include "common/log.h"

namespace weft::agent {
namespace {

constexpr double kStraggleS = 10;
constexpr int kMostStalls = 256;  // in one report

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
  for (const auto& [connection, process] : processes_) {
    ObserveStalls(process, now_ns);
    ObserveSilence(process, now_ns);
  }
  for (const auto& [job, lines] : trouble_lines_.TakeLeftOut(now_ns)) {
    LogWarn("agent", "left out lines about a job in trouble", {{"job", job}, {"lines", lines}});
  }
  if (!profile_.Due(now_ns)) return;
  std::map<std::string, int64_t> stalled, silent, behind = FindSlowRanks(now_ns);
  for (const auto& [connection, process] : processes_) {
    stalled[process.map->job()] += process.observations->open_stalls();
    silent[process.map->job()] += process.observations->silent();
  }
  for (const auto& [job, connections] : stalled) {
    metrics_.SetTrouble(job, connections, behind[job], silent[job]);
    policies_.SetProfile(job, profile_.Level(job, now_ns), now_ns + ProfileSwitch::kLeaseNs);
  }
}

void Agent::ObserveStalls(const Process& process, uint64_t now_ns) {
  const std::string& job = process.map->job();
  for (const StallNews& stall : process.observations->TakeStalls()) {
    if (stall.begins) profile_.Trouble(job, now_ns);
    TellStall(job, stall);
    if (!trouble_lines_.Take(job, now_ns)) continue;
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
  }
}

/// To the controller, with the next report. A process has 64 slots for stalls, which it may fill again with every look.
void Agent::TellStall(const std::string& job, const StallNews& news) {
  if (left_behind_.stalls_size() >= kMostStalls) return;
  v1::Stall* stall = left_behind_.add_stalls();
  stall->set_job_id(job);
  stall->set_flow(news.flow);
  stall->set_send(news.send);
  stall->set_rank(news.rank);
  stall->set_peer_rank(news.peer_rank);
  stall->set_begins(news.begins);
  stall->set_cause(news.cause);
  stall->set_stalled_s(news.stalled_s);
}

void Agent::ObserveSilence(const Process& process, uint64_t now_ns) {
  const std::optional<SilenceNews> news = process.observations->TakeSilence(now_ns);
  const std::string& job = process.map->job();
  if (!news || !trouble_lines_.Take(job, now_ns)) return;
  if (!news->begins) {
    LogInfo("agent", "plugin's background thread is back", {{"job", job}, {"pid", process.peer.pid}});
    return;
  }
  LogWarn("agent",
          news->failed ? "plugin's background thread has failed: no policy, no samples and no watchdog there"
                       : "plugin's background thread makes no rounds; its process may be stopped",
          {{"job", job}, {"pid", process.peer.pid}, {"rank", process.map->process().rank},
           {"silent_s", news->silent_s}});
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
      if (straggles_told_.contains(key) || !trouble_lines_.Take(job, now_ns)) continue;
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
