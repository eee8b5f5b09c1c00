#include "planner/jobs/simulate/bounds.h"

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

double BytesPerSecond(const ScenarioCut& cut, std::span<const BitsPerSecond> capacity) {
  double rate = 0;
  for (const LinkId link : cut.links) rate += capacity[link.index()].bytes_per_second();
  return rate;
}

/// Iteration time of a way of job `index` below which no paths take it: every burst at the rate of its worst cut.
Seconds WayBound(std::span<const ScenarioCut> cuts, std::span<const BitsPerSecond> capacity, const RoutableJob& way, size_t index,
                 size_t number) {
  double longest = 0;
  std::vector<double> sending(way.bursts.size(), 0);
  for (const ScenarioCut& cut : cuts) {
    const double bytes = cut.bytes[index][number];
    if (bytes == 0) continue;
    const double rate = BytesPerSecond(cut, capacity);
    longest = std::max(longest, bytes / rate);
    for (size_t b = 0; b < sending.size(); ++b) {
      const double part = cut.bursts[index][number][b];
      if (part > 0) sending[b] = std::max(sending[b], part / rate);
    }
  }
  if (way.bursts.empty()) return std::max(way.compute, way.release + Seconds(longest));
  if (!std::isfinite(longest)) return Seconds(longest);
  return IterationOf(way.compute, way.bursts, sending);
}

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
};

/// Cuts that all jobs at full speed fit through bind nobody and are left out.
EpochProgram MakeProgram(std::span<const ScenarioCut> cuts, const PreparedScenario& prepared, const Epoch& epoch) {
  EpochProgram program{.length = epoch.length.count()};
  for (const size_t j : epoch.present) {
    std::vector<ProgramWay> ways;
    for (size_t w = 0; w < prepared.jobs[j].ways.size(); ++w) {
      const Seconds time = WayBound(cuts, epoch.capacity, prepared.jobs[j].ways[w].routable, j, w);
      if (std::isfinite(time.count())) ways.push_back({w, time, {}});
    }
    if (ways.empty()) continue;
    program.jobs.push_back(j);
    program.ways.push_back(std::move(ways));
  }
  std::set<std::pair<double, std::vector<double>>> known;
  for (const ScenarioCut& cut : cuts) {
    const double rate = BytesPerSecond(cut, epoch.capacity);
    double demand = 0;
    std::vector<double> bytes;
    for (size_t i = 0; i < program.jobs.size(); ++i) {
      double most = 0;
      for (const ProgramWay& way : program.ways[i]) {
        bytes.push_back(cut.bytes[program.jobs[i]][way.way]);
        most = std::max(most, bytes.back() / way.fastest.count());
      }
      demand += most;
    }
    if (demand <= rate || !known.emplace(rate, bytes).second) continue;
    size_t next = 0;
    for (std::vector<ProgramWay>& ways : program.ways) {
      for (ProgramWay& way : ways) {
        if (bytes[next] > 0) way.loads.push_back({program.rate.size(), bytes[next]});
        ++next;
      }
    }
    program.rate.push_back(rate);
  }
  return program;
}

/// GPUs that do what `worth(job, way)` says of an iteration, in GPU seconds, at most.
template <typename Worth>
Result<double> MostGpus(const EpochProgram& program, const PreparedScenario& prepared, const Worth& worth) {
  MasterProblem master{.moves = 0};
  for (const double rate : program.rate) master.cuts.push_back(BitsPerSecond(rate * 8));
  std::vector<std::vector<Configuration>> pools;
  for (size_t i = 0; i < program.jobs.size(); ++i) {
    const size_t j = program.jobs[i];
    const double gpus = prepared.jobs[j].ways[0].routable.gpus;
    master.jobs.push_back({.name = fmt::format("{}", j), .weight = gpus});
    std::vector<Configuration>& pool = pools.emplace_back();
    for (const ProgramWay& way : program.ways[i]) {
      pool.push_back({.name = fmt::format("{}", way.way), .gpus = 1, .compute = std::min(Seconds(worth(j, way.way) / gpus), way.fastest), .iteration = way.fastest,
                      .loads = way.loads});
    }
  }
  if (pools.empty()) return 0.0;
  master.source = FromPools(std::move(pools));
  WEFT_ASSIGN_OR_RETURN(const MasterAnswer answer, SolveMaster(master));
  return answer.bound;
}

/// The dual of min Σ_j c_j / Σ_e λ_je z_je subject to Σ_j a_lj z_je ≤ 1 per epoch and cut, 0 ≤ z ≤ 1.
class SlowdownDual {
 public:
  SlowdownDual(const std::vector<EpochProgram>& epochs, const PreparedScenario& prepared)
      : epochs_(epochs), parts_(prepared.jobs.size()), cost_(prepared.jobs.size(), 0) {
    std::vector<double> present(prepared.jobs.size(), 0);
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
          part.shares.push_back(epochs[e].length / present[j] * prepared.jobs[j].alone() / way.fastest);
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

Seconds CutBound(std::span<const ScenarioCut> cuts, std::span<const BitsPerSecond> capacity, const PreparedJob& job, size_t index) {
  Seconds least(std::numeric_limits<double>::infinity());
  for (size_t w = 0; w < job.ways.size(); ++w) least = std::min(least, WayBound(cuts, capacity, job.ways[w].routable, index, w));
  return least;
}

Result<ScenarioBounds> BoundAll(std::span<const ScenarioCut> cuts, const PreparedScenario& prepared, std::span<const double> work,
                                std::span<const Epoch> epochs) {
  std::vector<EpochProgram> programs;
  double computing = 0, working = 0, present = 0;
  const auto compute = [&](size_t j, size_t w) {
    const RoutableJob& way = prepared.jobs[j].ways[w].routable;
    return way.gpus * way.compute.count();
  };
  const auto useful = [&](size_t j, size_t w) { return work[j] > 0 ? work[j] : compute(j, w); };
  const bool same = std::ranges::all_of(work, [](double one) { return one == 0; });
  for (const Epoch& epoch : epochs) {
    if (!(epoch.length.count() > 0)) continue;
    programs.push_back(MakeProgram(cuts, prepared, epoch));
    WEFT_ASSIGN_OR_RETURN(const double gpus, MostGpus(programs.back(), prepared, compute));
    double good = gpus;
    if (!same) {
      WEFT_ASSIGN_OR_RETURN(good, MostGpus(programs.back(), prepared, useful));
    }
    computing += gpus * epoch.length.count();
    working += good * epoch.length.count();
    for (const size_t j : epoch.present) present += prepared.jobs[j].ways[0].routable.gpus * epoch.length.count();
  }
  ScenarioBounds bounds;
  if (present > 0) bounds.gpu_utilisation = computing / present;
  if (present > 0) bounds.goodput = working / present;
  if (!programs.empty()) bounds.mean_slowdown = SlowdownDual(programs, prepared).Maximise();
  return bounds;
}

}  // namespace weft::planner::jobs
