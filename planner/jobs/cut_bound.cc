#include "planner/jobs/cut_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "planner/jobs/master.h"

namespace weft::planner::inline jobs {
namespace {

constexpr int kAscentSteps = 400;
constexpr double kFirstStep = 0.5;
constexpr double kSettling = 40;   // steps after which they are half as long

/// What a job can run in an epoch.
struct ProgramWay {
  size_t way = 0;
  Seconds fastest{0};
  std::vector<CutLoad> loads;                // binding cuts, bytes
};

/// One epoch as a programme: which share of a cut each way of each job takes at full speed.
struct EpochProgram {
  double length = 0;
  std::vector<size_t> jobs;                  // that can run at all
  std::vector<std::vector<ProgramWay>> ways; // per job of `jobs`
  std::vector<double> rate;                  // per binding cut, bytes per second
  std::vector<size_t> cut;                   // per binding cut, which it is
};

/// A way's bytes over one cut.
struct CutUse {
  size_t job = 0, way = 0;                   // places in EpochProgram
  double bytes = 0;
  friend auto operator<=>(const CutUse&, const CutUse&) = default;
};

/// Per cut, who sends over it.
std::vector<std::vector<CutUse>> UsesOf(const EpochProgram& program, std::span<const BoundJob> jobs, size_t cuts) {
  std::vector<std::vector<CutUse>> uses(cuts);
  for (size_t i = 0; i < program.jobs.size(); ++i) {
    for (size_t w = 0; w < program.ways[i].size(); ++w) {
      for (const CutLoad& load : jobs[program.jobs[i]].ways[program.ways[i][w].way].loads) uses[load.cut].push_back({i, w, load.bytes});
    }
  }
  return uses;
}

/// Bytes per second if each job runs the way that sends most over the cut, at full speed. `uses`: job by job.
double MostDemand(const EpochProgram& program, const std::vector<CutUse>& uses) {
  double demand = 0, most = 0;
  for (size_t u = 0; u < uses.size(); ++u) {
    most = std::max(most, uses[u].bytes / program.ways[uses[u].job][uses[u].way].fastest.count());
    if (u + 1 < uses.size() && uses[u + 1].job == uses[u].job) continue;
    demand += most;
    most = 0;
  }
  return demand;
}

/// Cuts that all jobs at full speed fit through bind nobody and are left out, and so are those that say what another one says.
EpochProgram MakeProgram(std::span<const BoundJob> jobs, const BoundEpoch& epoch) {
  EpochProgram program{.length = epoch.length.count()};
  for (const size_t j : epoch.present) {
    std::vector<ProgramWay> ways;
    for (size_t w = 0; w < jobs[j].ways.size(); ++w) {
      const Seconds time = LeastIteration(jobs[j].ways[w], epoch.cuts);
      if (std::isfinite(time.count())) ways.push_back({w, time, {}});
    }
    if (ways.empty()) continue;
    program.jobs.push_back(j);
    program.ways.push_back(std::move(ways));
  }
  std::set<std::pair<double, std::vector<CutUse>>> known;
  std::vector<std::vector<CutUse>> uses = UsesOf(program, jobs, epoch.cuts.size());
  for (size_t c = 0; c < uses.size(); ++c) {
    const double rate = epoch.cuts[c].bytes_per_second();
    if (MostDemand(program, uses[c]) <= rate || !known.emplace(rate, uses[c]).second) continue;
    for (const CutUse& use : uses[c]) program.ways[use.job][use.way].loads.push_back({program.rate.size(), use.bytes});
    program.rate.push_back(rate);
    program.cut.push_back(c);
  }
  return program;
}

/// GPUs that do what `worth(job, way)` says of an iteration, in GPU seconds, at most, and what a byte per second over each binding cut
/// would add.
struct MostGpus {
  double gpus = 0;
  std::vector<double> price;
};

template <typename Worth>
Result<MostGpus> SolveFor(const EpochProgram& program, std::span<const BoundJob> jobs, const Worth& worth) {
  MasterProblem master{.moves = 0};
  for (const double rate : program.rate) master.cuts.push_back(BitsPerSecond(rate * 8));
  std::vector<std::vector<Configuration>> pools;
  for (size_t i = 0; i < program.jobs.size(); ++i) {
    const size_t j = program.jobs[i];
    const double gpus = jobs[j].gpus;
    master.jobs.push_back({.name = fmt::format("{}", j), .weight = gpus});
    std::vector<Configuration>& pool = pools.emplace_back();
    for (const ProgramWay& way : program.ways[i]) {
      pool.push_back({.name = fmt::format("{}", way.way), .gpus = 1, .compute = std::min(Seconds(worth(j, way.way) / gpus), way.fastest),
                      .iteration = way.fastest, .loads = way.loads});
    }
  }
  if (pools.empty()) return MostGpus{};
  master.source = FromPools(std::move(pools));
  WEFT_ASSIGN_OR_RETURN(MasterAnswer answer, SolveMaster(master));
  return MostGpus{answer.bound, std::move(answer.cut_price)};
}

/// The dual of min Σ_j c_j / Σ_e λ_je z_je subject to Σ_j a_lj z_je ≤ 1 per epoch and cut, 0 ≤ z ≤ 1.
class SlowdownDual {
 public:
  SlowdownDual(const std::vector<EpochProgram>& epochs, std::span<const BoundJob> jobs)
      : epochs_(epochs), parts_(jobs.size()), cost_(jobs.size(), 0) {
    std::vector<double> present(jobs.size(), 0);
    double total = 0;
    for (const EpochProgram& epoch : epochs) {
      for (const size_t j : epoch.jobs) present[j] += epoch.length;
      total += epoch.length;
    }
    for (size_t e = 0; e < epochs.size(); ++e) {
      weight_.push_back(epochs[e].length / total);
      price_.emplace_back(epochs[e].rate.size(), 0);
      for (size_t i = 0; i < epochs[e].jobs.size(); ++i) {
        const size_t j = epochs[e].jobs[i];
        if (!(present[j] > 0)) continue;
        // In units of the time alone, so that the sum of shares is what 1 / slow-down can be.
        Part part{.epoch = e, .place = i};
        for (const ProgramWay& way : epochs[e].ways[i]) {
          part.shares.push_back(epochs[e].length / present[j] * jobs[j].alone / way.fastest);
        }
        part.most = *std::max_element(part.shares.begin(), part.shares.end());
        parts_[j].push_back(std::move(part));
        cost_[j] = 1;
      }
    }
  }

  double Maximise() {
    double best = 0;
    for (int step = 0; step < kAscentSteps; ++step) {
      best = std::max(best, Value());
      const double length = kFirstStep / (1 + step / kSettling);
      for (size_t e = 0; e < epochs_.size(); ++e) {
        for (double& slope : slope_[e]) slope = std::clamp(slope, -1.0, 1.0);
        for (size_t l = 0; l < price_[e].size(); ++l) {
          price_[e][l] = std::max(0.0, price_[e][l] + length * slope_[e][l]);
        }
      }
    }
    const auto jobs = static_cast<double>(std::count(cost_.begin(), cost_.end(), 1.0));
    return jobs > 0 ? best / jobs : 1;
  }

 private:
  /// What job j can do in epoch e. Its ways count as one that is as fast as the fastest and as cheap as the cheapest: no mix
  /// of them does better.
  struct Part {
    size_t epoch, place;
    std::vector<double> shares;    // of speed, per way at z = 1
    double most = 0;               // the largest of these
    size_t way = 0;                // the cheapest at the present prices
    double each = 0, bought = 0;   // price of speed, and how much of it
  };

  /// The dual function at the present prices, and its slopes.
  double Value() {
    double value = 0;
    slope_.clear();
    for (size_t e = 0; e < epochs_.size(); ++e) {
      slope_.emplace_back(price_[e].size(), -1);
      for (const double price : price_[e]) value -= price * weight_[e];
    }
    for (size_t j = 0; j < parts_.size(); ++j) {
      if (parts_[j].empty()) continue;
      value += Cheapest(j);
      for (const Part& part : parts_[j]) {
        const ProgramWay& way = epochs_[part.epoch].ways[part.place][part.way];
        for (const CutLoad& load : way.loads) slope_[part.epoch][load.cut] += part.bought / part.shares[part.way] * Use(part.epoch, way, load);
      }
    }
    return value;
  }

  double Use(size_t epoch, const ProgramWay& way, const CutLoad& load) const {
    return load.bytes / way.fastest.count() / epochs_[epoch].rate[load.cut];
  }

  /// min over speeds of 1 / Σ speed + Σ price · speed: speed is bought where it is cheapest until it costs more than it is
  /// worth.
  double Cheapest(size_t j) {
    std::vector<Part>& parts = parts_[j];
    for (Part& part : parts) {
      part.bought = 0;
      part.each = std::numeric_limits<double>::infinity();
      const std::vector<ProgramWay>& ways = epochs_[part.epoch].ways[part.place];
      for (size_t w = 0; w < ways.size(); ++w) {
        double price = 0;
        for (const CutLoad& load : ways[w].loads) {
          price += price_[part.epoch][load.cut] * weight_[part.epoch] * Use(part.epoch, ways[w], load);
        }
        if (price / part.shares[w] < part.each) part.each = price / part.shares[w], part.way = w;
      }
    }
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.each < b.each; });
    double speed = 0, paid = 0;
    for (Part& part : parts) {
      const double wanted = part.each > 0 ? 1 / std::sqrt(part.each) : std::numeric_limits<double>::infinity();
      part.bought = std::min(part.most, wanted - speed);
      if (part.bought <= 0) {
        part.bought = 0;
        break;
      }
      speed += part.bought;
      paid += part.bought * part.each;
    }
    return 1 / speed + paid;
  }

  const std::vector<EpochProgram>& epochs_;
  std::vector<std::vector<Part>> parts_;   // per job
  std::vector<double> cost_;               // 1: the job counts
  std::vector<double> weight_;             // per epoch
  std::vector<std::vector<double>> price_, slope_;
};

}  // namespace

Seconds LeastIteration(const BoundWay& way, std::span<const BitsPerSecond> cuts) {
  double longest = 0;
  for (const CutLoad& load : way.loads) longest = std::max(longest, load.bytes / cuts[load.cut].bytes_per_second());
  if (way.bursts.empty()) return std::max(way.compute, way.release + Seconds(longest));
  if (!std::isfinite(longest)) return Seconds(longest);
  std::vector<double> sending(way.bursts.size(), 0);
  for (size_t b = 0; b < sending.size(); ++b) {
    for (const CutLoad& load : way.burst_loads[b]) sending[b] = std::max(sending[b], load.bytes / cuts[load.cut].bytes_per_second());
  }
  return IterationOf(way.compute, way.bursts, sending);
}

Seconds LeastIteration(const BoundJob& job, std::span<const BitsPerSecond> cuts) {
  Seconds least(std::numeric_limits<double>::infinity());
  for (const BoundWay& way : job.ways) least = std::min(least, LeastIteration(way, cuts));
  return least;
}

Result<JobsBound> BoundJobs(std::span<const BoundJob> jobs, std::span<const BoundEpoch> epochs, SlowdownBound slowdown) {
  std::vector<EpochProgram> programs;
  double computing = 0, working = 0, present = 0;
  const auto compute = [&](size_t j, size_t w) { return jobs[j].gpus * jobs[j].ways[w].compute.count(); };
  const auto useful = [&](size_t j, size_t w) { return jobs[j].work > 0 ? jobs[j].work : compute(j, w); };
  const bool same = std::ranges::all_of(jobs, [](const BoundJob& job) { return job.work == 0; });
  JobsBound bound;
  for (const BoundEpoch& epoch : epochs) {
    if (!(epoch.length.count() > 0)) continue;
    programs.push_back(MakeProgram(jobs, epoch));
    WEFT_ASSIGN_OR_RETURN(const MostGpus most, SolveFor(programs.back(), jobs, compute));
    double good = most.gpus;
    if (!same) {
      WEFT_ASSIGN_OR_RETURN(const MostGpus best, SolveFor(programs.back(), jobs, useful));
      good = best.gpus;
    }
    if (programs.size() == 1) {
      bound.price.assign(epoch.cuts.size(), 0);
      for (size_t c = 0; c < most.price.size(); ++c) bound.price[programs.back().cut[c]] = most.price[c];
    }
    computing += most.gpus * epoch.length.count();
    working += good * epoch.length.count();
    for (const size_t j : epoch.present) present += jobs[j].gpus * epoch.length.count();
  }
  if (present > 0) bound.gpu_utilisation = computing / present;
  if (present > 0) bound.goodput = working / present;
  if (slowdown == SlowdownBound::kWanted && !programs.empty()) bound.mean_slowdown = SlowdownDual(programs, jobs).Maximise();
  return bound;
}

}  // namespace weft::planner::jobs
