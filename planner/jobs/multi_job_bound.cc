#include "planner/jobs/multi_job_bound.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/fabric/fabric_cuts.h"
#include "planner/jobs/cut_bound.h"

namespace weft::planner::inline jobs {
namespace {

constexpr size_t kCutsNamed = 4;

/// "out of h1", "into all below leaf1": `index` is that of FabricCuts::Capacities().
std::string NameOf(const FabricCuts& cuts, size_t index) {
  const FabricCut& cut = cuts.cuts()[index / 2];
  return fmt::format("{} {}{}", index % 2 == 0 ? "out of" : "into", cut.name.starts_with("below ") ? "all " : "", cut.name);
}

/// What `job` must send over each cut per iteration, whatever path its flows take.
std::vector<CutLoad> LoadsOf(const FabricCuts& cuts, const MultiJobJob& job) {
  std::vector<CutTransfer> transfers;
  for (const MultiJobFlow& flow : job.flows) {
    if (flow.bytes.count() > 0) transfers.push_back({flow.from, flow.to, static_cast<double>(flow.bytes.count())});
  }
  return cuts.Loads(transfers);
}

/// The cuts whose capacity is worth something, the dearest first.
std::vector<std::string> Tight(const FabricCuts& cuts, const std::vector<BitsPerSecond>& capacity,
                               const std::vector<double>& price) {
  std::vector<size_t> order;
  for (size_t c = 0; c < price.size(); ++c) {
    if (price[c] > 0) order.push_back(c);
  }
  const auto worth = [&](size_t c) { return price[c] * capacity[c].bytes_per_second(); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth(a) > worth(b); });
  if (order.size() > kCutsNamed) order.resize(kCutsNamed);
  std::vector<std::string> names;
  for (const size_t c : order) names.push_back(NameOf(cuts, c));
  return names;
}

}  // namespace

Result<MultiJobBound> BoundMultiJob(const MultiJobProblem& problem, const std::vector<bool>& modelled) {
  const FabricCuts cuts(problem.topology);
  BoundEpoch epoch{.length = Seconds(1), .cuts = cuts.Capacities(), .present = {}};
  std::vector<BoundJob> jobs(problem.jobs.size());
  MultiJobBound bound;
  bound.alone.assign(problem.jobs.size(), Seconds(0));
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    if (!modelled[j]) continue;
    const MultiJobJob& job = problem.jobs[j];
    BoundWay way{.compute = job.compute, .release = job.release, .bursts = {}, .loads = LoadsOf(cuts, job), .burst_loads = {}};  // in one burst: turns are a guess
    for (const CutLoad& load : way.loads) {
      if (epoch.cuts[load.cut].value() > 0) continue;
      return Fail(Code::kFailedPrecondition, fmt::format("bound: job \"{}\" sends {:.0f} bytes {}, which has no capacity", job.name,
                                                         load.bytes, NameOf(cuts, load.cut)));
    }
    bound.alone[j] = LeastIteration(way, epoch.cuts);
    jobs[j] = {.gpus = static_cast<double>(std::max<int64_t>(1, job.gpus)), .work = 0, .alone = bound.alone[j], .ways = {std::move(way)}};
    epoch.present.push_back(j);
  }
  if (epoch.present.empty()) return bound;
  WEFT_ASSIGN_OR_RETURN(const JobsBound all, BoundJobs(jobs, {&epoch, 1}, SlowdownBound::kLeaveOut));
  bound.gpu_use = all.gpu_utilisation;
  bound.tight = Tight(cuts, epoch.cuts, all.price);
  return bound;
}

}  // namespace weft::planner::jobs
