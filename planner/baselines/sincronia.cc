#include <fmt/format.h>

#include <algorithm>

#include "planner/baselines/baselines.h"

namespace weft::planner::inline baselines {
namespace {

/// BSSI: from the last place to the first, the most loaded link gives the job that is put last among those left.
std::vector<size_t> BssiOrder(const Situation& situation, const std::vector<PeriodicJob>& jobs) {
  std::vector<double> load(situation.capacity.size(), 0), weight(jobs.size(), 1);
  const auto time = [&](const LinkLoad& l) {
    const double rate = situation.capacity[l.link.index()].value();
    return rate > 0 ? static_cast<double>(l.bytes.count()) * 8 / rate : 1e12;
  };
  for (const PeriodicJob& job : jobs) {
    for (const LinkLoad& l : job.loads) load[l.link.index()] += time(l);
  }
  std::vector<bool> placed(jobs.size(), false);
  std::vector<size_t> order(jobs.size());
  for (size_t place = jobs.size(); place-- > 0;) {
    const size_t link = static_cast<size_t>(std::max_element(load.begin(), load.end()) - load.begin());
    std::vector<double> demand(jobs.size(), 0);
    size_t last = jobs.size();
    for (size_t j = 0; j < jobs.size(); ++j) {
      if (placed[j]) continue;
      for (const LinkLoad& l : jobs[j].loads) {
        if (l.link.index() == link) demand[j] = time(l);
      }
      if (last == jobs.size() || weight[j] * demand[last] < weight[last] * demand[j] ||
          (demand[last] == 0 && demand[j] > 0)) {
        last = j;
      }
    }
    for (size_t j = 0; j < jobs.size() && demand[last] > 0; ++j) {
      if (!placed[j] && j != last) weight[j] = std::max(0.0, weight[j] - weight[last] * demand[j] / demand[last]);
    }
    for (const LinkLoad& l : jobs[last].loads) load[l.link.index()] = std::max(0.0, load[l.link.index()] - time(l));
    placed[last] = true;
    order[place] = last;
  }
  return order;
}

}  // namespace

std::vector<int32_t> SincroniaClasses(const Situation& situation, const std::vector<PeriodicJob>& jobs) {
  const std::vector<size_t> order = BssiOrder(situation, jobs);
  std::vector<int32_t> classes(jobs.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    classes[order[i]] = std::min(static_cast<int32_t>(i), situation.classes - 1);
  }
  return classes;
}

Decision DecideSincronia(const Situation& situation) {
  Decision decision = DecideEcmp(situation, situation.seed);
  decision.classes = SincroniaClasses(situation, OnPaths(situation, decision.paths));
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    decision.why.push_back(fmt::format("{}: class {} by the coflow order", situation.names[j], decision.classes[j]));
  }
  return decision;
}

}  // namespace weft::planner::baselines
