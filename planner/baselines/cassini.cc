#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

#include "planner/baselines/baselines.h"
#include "planner/flows/circle.h"
#include "planner/flows/time_shift.h"

namespace weft::planner::inline baselines {
namespace {

constexpr size_t kAngles = 72;       // steps of 5 degrees
constexpr size_t kCandidates = 10;
constexpr size_t kExhaustive = 3;    // jobs of a link whose rotations are all tried

double Modulo(double value, double period) { return value - period * std::floor(value / period); }

/// One link's jobs on its unified circle, demand sampled at every angle.
struct SharedCircle {
  std::vector<size_t> jobs;
  LinkCircle circle;
  std::vector<std::vector<double>> demand;   // per job and angle, bits per second
  std::vector<size_t> turns;                 // per job: rotations that differ
  std::vector<size_t> rotation;              // per job: in angles
  double score = 1;
};

std::vector<double> Sample(const CircleJob& job, double perimeter) {
  std::vector<double> demand(kAngles, 0);
  for (size_t a = 0; a < kAngles; ++a) {
    const double at = Modulo((static_cast<double>(a) + 0.5) / kAngles * perimeter, job.period.count());
    for (const Burst& burst : job.bursts) {
      if (at >= burst.begin.count() && at < burst.end.count()) demand[a] = burst.rate.value();
    }
  }
  return demand;
}

double Score(const SharedCircle& shared) {
  double excess = 0;
  for (size_t a = 0; a < kAngles; ++a) {
    double demand = 0;
    for (size_t i = 0; i < shared.jobs.size(); ++i) {
      demand += shared.demand[i][(a + kAngles - shared.rotation[i]) % kAngles];
    }
    excess += std::max(0.0, demand - shared.circle.capacity.value());
  }
  return 1 - excess / (kAngles * shared.circle.capacity.value());
}

/// Job i to its best rotation, all others as they are. Returns whether the score is higher than any before, be it with
/// i where it was: others may have turned since.
bool Turn(SharedCircle* shared, size_t i) {
  size_t best = shared->rotation[i];
  bool better = false;
  for (size_t turn = 0; turn < shared->turns[i]; ++turn) {
    shared->rotation[i] = turn;
    const double score = Score(*shared);
    if (score <= shared->score + 1e-12) continue;
    shared->score = score;
    best = turn;
    better = true;
  }
  shared->rotation[i] = best;
  return better;
}

void Fit(SharedCircle* shared) {
  shared->rotation.assign(shared->jobs.size(), 0);
  shared->score = Score(*shared);
  if (shared->jobs.size() == kExhaustive) {
    std::vector<size_t> best = shared->rotation;
    for (size_t turn = 0; turn < shared->turns[1]; ++turn) {
      shared->rotation[1] = turn;
      if (Turn(shared, 2)) best = shared->rotation;
    }
    shared->rotation = best;
    return;
  }
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t i = 1; i < shared->jobs.size(); ++i) improved |= Turn(shared, i);
  }
}

/// Links on which jobs can collide; of links with the same jobs the one that they overload most.
std::vector<SharedCircle> SharedCircles(const Situation& situation, const std::vector<PeriodicJob>& jobs) {
  std::vector<ShiftJob> patterns;
  std::map<int32_t, std::vector<std::pair<size_t, size_t>>> users;  // link: (job, use)
  for (size_t j = 0; j < jobs.size(); ++j) {
    patterns.push_back(PatternOf(situation.capacity, jobs[j]));
    for (size_t u = 0; u < patterns[j].uses.size(); ++u) users[patterns[j].uses[u].link.value()].emplace_back(j, u);
  }
  std::map<std::vector<size_t>, std::pair<double, int32_t>> worst;  // jobs: overload, link
  for (const auto& [link, uses] : users) {
    double peak = 0;
    std::vector<size_t> who;
    for (const auto& [j, u] : uses) {
      peak += patterns[j].uses[u].bursts[0].rate.value();
      who.push_back(j);
    }
    const double overload = peak / situation.capacity[static_cast<size_t>(link)].value();
    if (uses.size() < 2 || overload <= 1 + 1e-9) continue;
    const auto [at, added] = worst.try_emplace(who, overload, link);
    if (!added && overload > at->second.first) at->second = {overload, link};
  }
  std::vector<SharedCircle> circles;
  for (const auto& [who, overload] : worst) {
    SharedCircle shared{.jobs = who};
    std::vector<CommunicationPattern> on_link;
    for (const auto& [j, u] : users[overload.second]) {
      on_link.push_back({patterns[j].period, patterns[j].uses[u].bursts});
    }
    shared.circle = MakeCircle(situation.capacity[static_cast<size_t>(overload.second)], on_link);
    for (const CircleJob& job : shared.circle.jobs) {
      shared.demand.push_back(Sample(job, shared.circle.perimeter.count()));
      shared.turns.push_back((kAngles + static_cast<size_t>(job.repeats) - 1) / static_cast<size_t>(job.repeats));
    }
    Fit(&shared);
    circles.push_back(std::move(shared));
  }
  return circles;
}

/// Walks the affinity graph from every job that nobody has reached yet. Returns whether it met a loop.
bool Traverse(const std::vector<SharedCircle>& circles, const std::vector<PeriodicJob>& jobs,
              const std::vector<double>& period, std::vector<double>* shift) {
  std::vector<bool> known(jobs.size(), false), used(circles.size(), false);
  bool loops = false;
  const auto on_link = [&](const SharedCircle& shared, size_t i) {  // t_j^l
    const double turn = static_cast<double>(shared.rotation[i]) / kAngles * shared.circle.perimeter.count();
    return Modulo(turn, period[shared.jobs[i]]);
  };
  for (size_t first = 0; first < jobs.size(); ++first) {
    if (known[first]) continue;
    known[first] = true;
    std::queue<size_t> next({first});
    while (!next.empty()) {
      const size_t j = next.front();
      next.pop();
      for (size_t l = 0; l < circles.size(); ++l) {
        const auto at = std::find(circles[l].jobs.begin(), circles[l].jobs.end(), j);
        if (used[l] || at == circles[l].jobs.end()) continue;
        used[l] = true;
        const size_t me = static_cast<size_t>(at - circles[l].jobs.begin());
        for (size_t i = 0; i < circles[l].jobs.size(); ++i) {
          const size_t k = circles[l].jobs[i];
          if (i == me) continue;
          if (known[k]) {
            loops = true;
            continue;
          }
          known[k] = true;
          (*shift)[k] = Modulo((*shift)[j] - on_link(circles[l], me) + on_link(circles[l], i), period[k]);
          next.push(k);
        }
      }
    }
  }
  return loops;
}

}  // namespace

CassiniShifts PlanCassiniShifts(const Situation& situation, const std::vector<PeriodicJob>& jobs) {
  const std::vector<SharedCircle> circles = SharedCircles(situation, jobs);
  std::vector<double> alone, period, shift(jobs.size(), 0);
  for (const PeriodicJob& job : jobs) alone.push_back(IterationAlone(situation.capacity, job).count());
  period = alone;
  CassiniShifts result;
  std::vector<bool> meets(jobs.size(), false);
  double sum = 0;
  for (const SharedCircle& shared : circles) {
    sum += shared.score;
    for (size_t i = 0; i < shared.jobs.size(); ++i) {
      meets[shared.jobs[i]] = true;
      period[shared.jobs[i]] = std::max(period[shared.jobs[i]], shared.circle.jobs[i].period.count());
    }
  }
  if (!circles.empty()) result.score = sum / static_cast<double>(circles.size());
  result.loops = Traverse(circles, jobs, period, &shift);
  for (size_t j = 0; j < jobs.size(); ++j) {
    Gate gate;
    if (meets[j]) {
      gate = {Seconds(period[j]), situation.state->now() + Seconds(shift[j]), Seconds(period[j] - alone[j])};
    }
    result.gates.push_back(gate);
  }
  return result;
}

Decision DecideCassini(const Situation& situation) {
  Decision best;
  double score = 0;
  bool loops = true;
  size_t chosen = 0, dropped = 0;
  for (size_t c = 0; c < kCandidates; ++c) {
    Decision candidate = DecideEcmp(situation, situation.seed + c);
    CassiniShifts shifts = PlanCassiniShifts(situation, OnPaths(situation, candidate.paths));
    dropped += shifts.loops;
    const bool better = shifts.loops != loops ? loops : shifts.score > score;
    if (c > 0 && !better) continue;
    candidate.gates = std::move(shifts.gates);
    best = std::move(candidate);
    score = shifts.score;
    loops = shifts.loops;
    chosen = c;
  }
  best.why.push_back(fmt::format("candidate {} of {}: mean score of its shared links {:.4f}; {} with loops{}",
                                 chosen + 1, kCandidates, score, dropped,
                                 loops ? ", all, so links that close them are left out" : ""));
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    if (!(best.gates[j].period.count() > 0)) continue;
    best.why.push_back(fmt::format("{}: shifted by {:.4f} s of its period {:.4f} s", situation.names[j],
                                   (best.gates[j].first - situation.state->now()).count(),
                                   best.gates[j].period.count()));
  }
  return best;
}

}  // namespace weft::planner::baselines
