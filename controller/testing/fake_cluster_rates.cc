// How fast the jobs of a FakeCluster send: max-min fair between jobs, strict between priorities; and what links lose.
#include <algorithm>
#include <utility>

#include "controller/testing/fake_cluster.h"

namespace weft::controller::testing {

std::map<FakeCluster::LinkKey, double> FakeCluster::LoadPerRate(const Flow& flow) const {
  double sum = 0;
  for (const auto& [port, weight] : flow.weights) sum += weight;
  std::map<LinkKey, double> load;
  for (const auto& [port, weight] : flow.weights) {
    if (weight == 0) continue;
    for (const LinkKey& link : PathOf(flow, port)) load[link] += weight / sum;
  }
  return load;
}

/// Which of the priorities the job's packets have; all of one job have the same.
size_t FakeCluster::RankOf(const JobRun& run) const {
  const int tos = flows_.at(run.flows.front()).tos;
  return static_cast<size_t>(std::find(priorities.begin(), priorities.end(), tos) - priorities.begin());
}

/// Raises jobs of one priority on what those before them left. Background streams belong to the last.
void FakeCluster::FillRates(std::vector<JobRun*> open, bool last,
                            std::map<JobRun*, std::map<LinkKey, double>>& coefficient,
                            std::map<LinkKey, double>& used, std::map<JobRun*, double>& rates) {
  std::map<LinkKey, int> background;
  if (last) background = background_;
  while (!open.empty()) {
    double raise = 1e300;
    std::map<LinkKey, double> slope;
    for (JobRun* run : open) {
      for (const auto& [link, load] : coefficient[run]) slope[link] += load;
    }
    // One stream gets what one lane gets, so it grows as fast as the fastest lane on its link.
    std::map<LinkKey, double> background_slope;
    for (const auto& [link, count] : background) {
      double fastest = 0;
      for (JobRun* run : open)
        fastest = std::max(fastest, coefficient[run].contains(link) ? coefficient[run][link] : 0);
      background_slope[link] = count * (fastest > 0 ? fastest : 1);
      slope[link] += background_slope[link];
    }
    for (const auto& [link, s] : slope) {
      if (s > 0) raise = std::min(raise, std::max(0.0, CapacityOf(link) - used[link]) / s);
    }
    for (const auto& [link, s] : slope) used[link] += s * raise;
    for (JobRun* run : open) rates[run] += raise;
    const auto full = [&](const LinkKey& link) { return used[link] >= CapacityOf(link) * (1 - 1e-9); };
    std::erase_if(open, [&](JobRun* run) {
      return std::any_of(coefficient[run].begin(), coefficient[run].end(),
                         [&](const auto& entry) { return entry.second > 0 && full(entry.first); });
    });
    std::erase_if(background, [&](const auto& entry) { return full(entry.first); });
  }
}

bool FakeCluster::LosesSegments(const JobRun& run) const {
  return loss_slows && std::any_of(run.flows.begin(), run.flows.end(), [&](uint64_t id) {
    const Flow& flow = flows_.at(id);
    return std::any_of(flow.weights.begin(), flow.weights.end(), [&](const auto& lane) {
      return lane.second > 0 && LossOf(PathOf(flow, lane.first)) > 0;
    });
  });
}

/// Rings are coupled, so a job is one variable: raise all jobs together, freeze those on a full link, go on.
void FakeCluster::SolveRates(const std::vector<JobRun*>& sending) {
  std::map<JobRun*, std::map<LinkKey, double>> coefficient;
  std::map<LinkKey, double> used;
  for (JobRun* run : sending) {
    for (const uint64_t id : run->flows) {
      if (flows_[id].idle) continue;
      for (const auto& [link, load] : LoadPerRate(flows_[id])) coefficient[run][link] += load;
    }
  }
  std::map<JobRun*, double> rates;
  for (size_t rank = 0; rank <= priorities.size(); ++rank) {
    std::vector<JobRun*> open;
    for (JobRun* run : sending) {
      if (RankOf(*run) == rank) open.push_back(run);
    }
    FillRates(std::move(open), rank == priorities.size(), coefficient, used, rates);
  }
  for (JobRun* run : sending) {
    for (const uint64_t id : run->flows) {
      Flow& flow = flows_[id];
      if (flow.idle) continue;
      flow.rate = rates[run] * run->job.efficiency * (LosesSegments(*run) ? 0.5 : 1);
      flow.queued.clear();
      for (const auto& [port, weight] : flow.weights) {
        if (loss_slows && LossOf(PathOf(flow, port)) > 0) continue;  // its congestion control leaves the wire idle
        for (const LinkKey& link : PathOf(flow, port)) {
          if (used[link] >= CapacityOf(link) * (1 - 1e-9)) flow.queued.insert(port);
        }
      }
      flow.room = 1e300;  // what it could send if only it went faster
      for (const auto& [link, load] : LoadPerRate(flow)) {
        flow.room = std::min(flow.room, flow.rate + std::max(0.0, CapacityOf(link) - used[link]) / load);
      }
    }
  }
}

void FakeCluster::SetBlackHole(const std::string& from, const std::string& to, bool on) {
  if (on) black_holes_.insert({from, to});
  else black_holes_.erase({from, to});
}

double FakeCluster::LossOf(const std::vector<LinkKey>& path) const {
  double percent = 0;
  for (const LinkKey& link : path) {
    if (const auto loss = loss_.find(link); loss != loss_.end()) percent += loss->second;
  }
  return percent / 100;
}

/// Lanes whose way has a black hole wait for answers, and with them the ring. One that no longer carries anything still has what it
/// last sent to send again; others have taken that over.
bool FakeCluster::FallsSilent(JobRun& run, double dt) {
  bool waits = false;
  for (const uint64_t id : run.flows) {
    Flow& flow = flows_.at(id);
    for (const auto& [port, weight] : flow.weights) {
      const std::vector<LinkKey> path = PathOf(flow, port);
      const bool lost = std::any_of(path.begin(), path.end(), [&](const LinkKey& link) { return black_holes_.contains(link); });
      const bool carries = weight > 0 && !flow.idle;
      if (!lost) flow.silent_s[port] = 0;
      else if (carries || flow.silent_s[port] > 0) flow.silent_s[port] += dt;
      waits |= lost && carries;
    }
  }
  return waits;
}

/// What the receiver's agent says.
void FakeCluster::FillArrivals(uint64_t id, const Flow& flow, v1::FlowCounters& counters) const {
  counters.set_flow(id);
  counters.set_wait_peer_s(flow.wait_peer);
  for (const auto& [port, seconds] : flow.backlog_s_read) {
    v1::LaneCounters* lane = counters.add_lanes();
    lane->set_source_port(port);
    lane->set_state("active");
    lane->set_backlog_s(seconds);
    lane->set_backlog_bytes(static_cast<int64_t>(flow.backlog_bytes_read.at(port)));
  }
}

std::vector<double> FakeCluster::Shares(const std::string& job_id, const std::string& host) const {
  std::vector<double> shares(static_cast<size_t>(spines_));
  for (const auto& [id, flow] : flows_) {
    if (flow.job != job_id || flow.from != host) continue;
    double sum = 0;
    for (const auto& [port, weight] : flow.weights) sum += weight;
    for (const auto& [port, weight] : flow.weights) shares[static_cast<size_t>(port % spines_)] += weight / sum;
  }
  return shares;
}

}  // namespace weft::controller::testing
