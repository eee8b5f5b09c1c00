#include "planner/jobs/multi_job_bound.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/fabric/fabric_cuts.h"
#include "planner/jobs/master.h"

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
  MasterProblem master;
  master.cuts = cuts.Capacities();
  std::vector<std::vector<Configuration>> pools;
  MultiJobBound bound;
  bound.alone.assign(problem.jobs.size(), Seconds(0));
  double gpus = 0;
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    if (!modelled[j]) continue;
    const MultiJobJob& job = problem.jobs[j];
    Configuration configuration{.name = "as it runs", .gpus = std::max<int64_t>(1, job.gpus), .compute = job.compute,
                                .loads = LoadsOf(cuts, job)};
    double longest = 0;
    for (const CutLoad& load : configuration.loads) {
      if (!(master.cuts[load.cut].value() > 0)) {
        return Fail(Code::kFailedPrecondition, fmt::format("bound: job \"{}\" sends {:.0f} bytes {}, which has no capacity",
                                                           job.name, load.bytes, NameOf(cuts, load.cut)));
      }
      longest = std::max(longest, load.bytes / master.cuts[load.cut].bytes_per_second());
    }
    configuration.iteration = std::max(job.compute, job.release + Seconds(longest));
    bound.alone[j] = configuration.iteration;
    gpus += static_cast<double>(configuration.gpus);
    master.jobs.push_back({.name = job.name});
    pools.push_back({std::move(configuration)});
  }
  if (pools.empty()) return bound;
  master.source = FromPools(std::move(pools));
  master.moves = 0;  // one configuration each: there is nothing to round
  WEFT_ASSIGN_OR_RETURN(const MasterAnswer answer, SolveMaster(master));
  bound.gpu_use = answer.bound / gpus;
  bound.tight = Tight(cuts, master.cuts, answer.cut_price);
  return bound;
}

}  // namespace weft::planner::jobs
