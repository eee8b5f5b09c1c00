#include "planner/jobs/simulate/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "planner/jobs/master.h"

namespace weft::planner::inline jobs {
namespace {

constexpr int kAscentSteps = 400;
constexpr double kFirstStep = 0.5;
constexpr double kSettling = 40;   // steps after which they are half as long

/// Hops of every node from the nearest host or GPU.
std::vector<int> Levels(const Topology& topology) {
  std::vector<int> level(topology.nodes().size(), -1);
  for (size_t n = 0; n < level.size(); ++n) {
    const NodeKind kind = topology.nodes()[n].kind;
    if (kind == NodeKind::kHost || kind == NodeKind::kGpu) level[n] = 0;
  }
  for (int round = 0;; ++round) {
    bool reached = false;
    for (const Link& link : topology.links()) {
      if (level[link.from.index()] != round || level[link.to.index()] >= 0) continue;
      level[link.to.index()] = round + 1;
      reached = true;
    }
    if (!reached) return level;
  }
}

/// The component of every node when only nodes up to `highest` are left; -1 for the others.
std::vector<int32_t> Components(const Topology& topology, const std::vector<int>& level, int highest) {
  std::vector<int32_t> parent(level.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t n) {
    while (parent[static_cast<size_t>(n)] != n) n = parent[static_cast<size_t>(n)];
    return n;
  };
  const auto inside = [&](NodeId n) { return level[n.index()] >= 0 && level[n.index()] <= highest; };
  for (const Link& link : topology.links()) {
    if (highest == 0 || !inside(link.from) || !inside(link.to)) continue;  // hosts by themselves first
    const int32_t a = root(link.from.value()), b = root(link.to.value());
    parent[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }
  std::vector<int32_t> component(level.size(), -1);
  for (size_t n = 0; n < level.size(); ++n) {
    const NodeId node(static_cast<int32_t>(n));
    if (inside(node)) component[n] = root(node.value());
  }
  return component;
}

/// The cuts around every component, outwards and inwards.
void AddTier(const Scenario& scenario, const std::vector<int32_t>& component, std::vector<ScenarioCut>* cuts) {
  std::map<std::pair<int32_t, bool>, ScenarioCut> made;
  const auto each = [&](NodeId from, NodeId to, const auto& add) {
    const int32_t a = component[from.index()], b = component[to.index()];
    if (a == b) return;
    for (const auto& [part, out] : {std::pair{a, true}, std::pair{b, false}}) {
      if (part < 0) continue;
      ScenarioCut& cut = made[{part, out}];
      cut.bytes.resize(scenario.jobs.size(), 0);
      add(&cut);
    }
  };
  for (size_t l = 0; l < scenario.topology.links().size(); ++l) {
    const Link& link = scenario.topology.links()[l];
    each(link.from, link.to, [&](ScenarioCut* cut) { cut->links.push_back(LinkId(static_cast<int32_t>(l))); });
  }
  for (size_t j = 0; j < scenario.jobs.size(); ++j) {
    for (const ScenarioFlow& flow : scenario.jobs[j].flows) {
      const auto bytes = static_cast<double>(flow.bytes.count());
      each(flow.from, flow.to, [&](ScenarioCut* cut) { cut->bytes[j] += bytes; });
    }
  }
  for (auto& [part, cut] : made) cuts->push_back(std::move(cut));
}

/// Links that all paths of a flow cross.
void AddForcedLinks(const PreparedScenario& prepared, std::vector<ScenarioCut>* cuts) {
  std::map<int32_t, ScenarioCut> made;
  for (size_t j = 0; j < prepared.jobs.size(); ++j) {
    for (const RoutableFlow& flow : prepared.jobs[j].routable.flows) {
      for (const LinkId link : flow.paths[0].links) {
        const bool forced = std::all_of(flow.paths.begin(), flow.paths.end(), [&](const CandidatePath& path) {
          return std::find(path.links.begin(), path.links.end(), link) != path.links.end();
        });
        if (!forced) continue;
        ScenarioCut& cut = made[link.value()];
        cut.links = {link};
        cut.bytes.resize(prepared.jobs.size(), 0);
        cut.bytes[j] += static_cast<double>(flow.bytes.count());
      }
    }
  }
  for (auto& [link, cut] : made) cuts->push_back(std::move(cut));
}

double BytesPerSecond(const ScenarioCut& cut, std::span<const BitsPerSecond> capacity) {
  double rate = 0;
  for (const LinkId link : cut.links) rate += capacity[link.index()].bytes_per_second();
  return rate;
}

/// One epoch as a programme: which share of a cut each job takes at full speed.
struct EpochProgram {
  double length = 0;
  std::vector<size_t> jobs;                  // that can run at all
  std::vector<Seconds> fastest;              // per job of `jobs`
  std::vector<std::vector<CutLoad>> loads;   // per job of `jobs`: binding cuts, bytes
  std::vector<double> rate;                  // per binding cut, bytes per second
};

/// Cuts that all jobs at full speed fit through bind nobody and are left out.
EpochProgram MakeProgram(std::span<const ScenarioCut> cuts, const PreparedScenario& prepared, const Epoch& epoch) {
  EpochProgram program{.length = epoch.length.count()};
  std::vector<Seconds> fastest;
  for (const size_t j : epoch.present) {
    const Seconds time = CutBound(cuts, epoch.capacity, prepared.jobs[j].routable, j);
    if (!std::isfinite(time.count())) continue;
    program.jobs.push_back(j);
    program.fastest.push_back(time);
  }
  program.loads.resize(program.jobs.size());
  std::set<std::pair<double, std::vector<double>>> known;
  for (const ScenarioCut& cut : cuts) {
    const double rate = BytesPerSecond(cut, epoch.capacity);
    double demand = 0;
    std::vector<double> bytes;
    for (size_t i = 0; i < program.jobs.size(); ++i) {
      bytes.push_back(cut.bytes[program.jobs[i]]);
      demand += bytes[i] / program.fastest[i].count();
    }
    if (demand <= rate || !known.emplace(rate, bytes).second) continue;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] > 0) program.loads[i].push_back({program.rate.size(), bytes[i]});
    }
    program.rate.push_back(rate);
  }
  return program;
}

/// GPUs that compute, at most.
Result<double> ComputingGpus(const EpochProgram& program, const PreparedScenario& prepared) {
  MasterProblem master{.moves = 0};
  for (const double rate : program.rate) master.cuts.push_back(BitsPerSecond(rate * 8));
  std::vector<std::vector<Configuration>> pools;
  for (size_t i = 0; i < program.jobs.size(); ++i) {
    const RoutableJob& job = prepared.jobs[program.jobs[i]].routable;
    master.jobs.push_back({.name = fmt::format("{}", program.jobs[i]), .weight = job.gpus});
    pools.push_back({{.name = "as it is", .gpus = 1, .compute = job.compute, .iteration = program.fastest[i],
                      .loads = program.loads[i]}});
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
        const double share = epochs[e].length / present[j] * prepared.jobs[j].alone / epochs[e].fastest[i];
        parts_[j].push_back({e, i, share, 0, 0});
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
  /// What job j can do in epoch e.
  struct Part {
    size_t epoch, place;
    double share;                  // of speed, at z = 1
    double price = 0, z = 0;
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
        for (const CutLoad& load : epochs_[part.epoch].loads[part.place]) {
          slope_[part.epoch][load.cut] += part.z * Use(part, load);
        }
      }
    }
    return value;
  }

  double Use(const Part& part, const CutLoad& load) const {
    const EpochProgram& epoch = epochs_[part.epoch];
    return load.bytes / epoch.fastest[part.place].count() / epoch.rate[load.cut];
  }

  /// min over z of 1 / Σ share z + Σ price z: speed is bought where it is cheapest until it costs more than it is
  /// worth.
  double Cheapest(size_t j) {
    std::vector<Part>& parts = parts_[j];
    for (Part& part : parts) {
      part.price = part.z = 0;
      for (const CutLoad& load : epochs_[part.epoch].loads[part.place]) {
        part.price += price_[part.epoch][load.cut] * weight_[part.epoch] * Use(part, load);
      }
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.price * b.share < b.price * a.share; });
    double speed = 0, paid = 0;
    for (Part& part : parts) {
      const double each = part.price / part.share;
      const double wanted = each > 0 ? 1 / std::sqrt(each) : std::numeric_limits<double>::infinity();
      const double bought = std::min(part.share, wanted - speed);
      if (bought <= 0) break;
      part.z = bought / part.share;
      speed += bought;
      paid += bought * each;
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

std::vector<ScenarioCut> MakeCuts(const Scenario& scenario, const PreparedScenario& prepared) {
  std::vector<ScenarioCut> cuts;
  if (scenario.topology.nodes().empty()) return cuts;
  const std::vector<int> level = Levels(scenario.topology);
  const int highest = *std::max_element(level.begin(), level.end());
  for (int tier = 0; tier < std::max(1, highest); ++tier) {
    AddTier(scenario, Components(scenario.topology, level, tier), &cuts);
  }
  AddForcedLinks(prepared, &cuts);
  std::erase_if(cuts, [](const ScenarioCut& cut) {
    return std::all_of(cut.bytes.begin(), cut.bytes.end(), [](double bytes) { return bytes == 0; });
  });
  return cuts;
}

Seconds CutBound(std::span<const ScenarioCut> cuts, std::span<const BitsPerSecond> capacity, const RoutableJob& job,
                 size_t index) {
  double longest = 0;
  for (const ScenarioCut& cut : cuts) {
    if (cut.bytes[index] > 0) longest = std::max(longest, cut.bytes[index] / BytesPerSecond(cut, capacity));
  }
  const Seconds first = job.bursts.empty() ? job.release : job.bursts.front().release;
  return std::max(job.compute, first + Seconds(longest));
}

Result<ScenarioBounds> BoundAll(std::span<const ScenarioCut> cuts, const PreparedScenario& prepared,
                                std::span<const Epoch> epochs) {
  std::vector<EpochProgram> programs;
  double computing = 0, present = 0;
  for (const Epoch& epoch : epochs) {
    if (!(epoch.length.count() > 0)) continue;
    programs.push_back(MakeProgram(cuts, prepared, epoch));
    WEFT_ASSIGN_OR_RETURN(const double gpus, ComputingGpus(programs.back(), prepared));
    computing += gpus * epoch.length.count();
    for (const size_t j : epoch.present) present += prepared.jobs[j].routable.gpus * epoch.length.count();
  }
  ScenarioBounds bounds;
  if (present > 0) bounds.gpu_utilisation = computing / present;
  if (!programs.empty()) bounds.mean_slowdown = SlowdownDual(programs, prepared).Maximise();
  return bounds;
}

}  // namespace weft::planner::jobs
