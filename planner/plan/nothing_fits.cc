// Why a space has no strategy that fits: the nearest choice that is legal, or what the leanest strategy lacks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "planner/plan/reasons.h"

namespace weft::planner {
namespace {

/// How many roots a space has for `gpus` of the same job with `fixed`.
bool AnyLegal(const CostModel& model, int64_t gpus, const PlanOptions& options, std::set<Strategy>* roots = nullptr) {
  JobSpec job = model.job();
  job.gpus = gpus;
  const Result<CostModel> other =
      CostModel::Make(job, model.cluster(), Calibration(), {.framework = options.framework, .risk = options.risk});
  if (!other) return false;
  const StrategySpace space(*other, {.fixed = options.fix, .framework = options.framework});
  std::vector<StrategySpace::Node> nodes;
  space.Roots(nodes);
  for (const auto& node : nodes) {
    if (roots != nullptr) roots->insert(node.strategy);
  }
  return !nodes.empty();
}

/// "tp=3 is fixed: with the rest as it is, the nearest legal value is 2".
void NearestFixed(const CostModel& model, const PlanOptions& options, std::vector<std::string>& lines) {
  for (const auto& [name, value] : options.fix) {
    PlanOptions freed = options;
    freed.fix.erase(name);
    std::set<Strategy> roots;
    if (!AnyLegal(model, model.job().gpus, freed, &roots)) continue;
    const StrategyVariable* variable = FindStrategyVariable(name);
    std::set<int64_t> values;
    for (const Strategy& root : roots) values.insert(variable->get(root));
    const auto nearest = std::min_element(values.begin(), values.end(), [&, wanted = value](int64_t a, int64_t b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    });
    const bool of_root = values.size() > 1 || *values.begin() != value;
    lines.push_back(of_root && *nearest != value
                        ? fmt::format("{}={} leaves no legal strategy; the nearest legal choice is {}={}", name,
                                      variable->print(value), name, variable->print(*nearest))
                        : fmt::format("{}={} leaves no legal strategy; without it there are some", name,
                                      variable->print(value)));
  }
}

void NearestGpus(const CostModel& model, const PlanOptions& options, std::vector<std::string>& lines) {
  const int64_t gpus = model.job().gpus, all = model.cluster().TotalGpus();
  for (int64_t off = 1; off <= 256; ++off) {
    for (const int64_t other : {gpus - off, gpus + off}) {
      if (other < 1 || other > all || !AnyLegal(model, other, options)) continue;
      lines.push_back(fmt::format("gpus={} with {} sequences leaves no legal strategy; the nearest legal choice is "
                                  "--gpus {}", gpus, model.job().global_batch, other));
      return;
    }
  }
  lines.push_back(
      fmt::format("gpus={} with {} sequences leaves no legal strategy, nor does any number within 256 of it", gpus,
                  model.job().global_batch));
}

/// Whether the program runs anything that leaves a GPU less than the whole model.
bool Shards(Framework framework, const CostModel& model) {
  const auto runs = [&](const Strategy& s) { return Runs(framework, {model.job(), model.cluster(), s}); };
  return runs({.tp = 2}) || runs({.pp = 2}) || runs({.dp = 2, .zero_stage = 1}) || runs({.dp = 2, .zero_stage = 3});
}

}  // namespace

std::vector<std::string> WhyNothingFits(const CostModel& model, const StrategySpace& space, const PlanOptions& options,
                                        CostModel::Scratch& scratch) {
  std::vector<std::string> lines;
  if (auto why = WhyNeverRuns(space.framework(), model.job(), model.cluster())) {
    return {fmt::format("does not run there: {}", *why)};
  }
  const std::optional<Strategy> leanest = space.Leanest(scratch);
  if (!leanest) {
    NearestFixed(model, options, lines);
    if (lines.empty()) NearestGpus(model, options, lines);
    return lines;
  }
  MemoryUse memory;
  model.Fits(*leanest, scratch, &memory);
  lines.push_back(fmt::format("memory: the leanest strategy, {}, is predicted to need {}, and at most {} of {} with {} keep the "
                              "risk of running out of memory: {}",
                              DescribeStrategy(*leanest), Gibibytes(memory.total()), Gibibytes(model.usable_memory()),
                              model.cluster().device.name, Gibibytes(model.cluster().device.memory), MemoryParts(memory)));
  if (!Shards(space.framework(), model)) {
    lines.push_back("every GPU keeps the whole model: more GPUs do not help; a smaller model, a shorter sequence or GPUs with more "
                    "memory do");
    return lines;
  }
  // What more GPUs of the same kind would do, where state is what fills the memory.
  const Bytes state = memory.parameters + memory.gradients + memory.optimizer;
  const Bytes rest = memory.total() - state;
  if (rest < model.usable_memory() && state.count() > 0) {
    const double factor =
        static_cast<double>(state.count()) / static_cast<double>((model.usable_memory() - rest).count());
    const auto needed = static_cast<int64_t>(std::ceil(factor * static_cast<double>(model.job().gpus)));
    lines.push_back(fmt::format("sharded over about {} GPUs in place of {} its state would fit", needed,
                                model.job().gpus));
  } else {
    lines.push_back(
        "activations alone do not fit: a shorter sequence, more tensor or context parallelism, or GPUs with "
        "more memory do");
  }
  return lines;
}

}  // namespace weft::planner
