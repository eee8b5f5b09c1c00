#include "planner/jobs/multi_job_reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/parse_units.h"
#include "planner/flows/priority.h"

namespace weft::planner::inline jobs {
namespace {

constexpr size_t kContendersNamed = 3;
constexpr size_t kContendersKept = 16;

std::string Number(double value) { return std::isfinite(value) ? fmt::format("{:.3g}", value) : std::string("unbounded"); }

std::string ModelText(const MultiJobJob& job, const MultiJobJobPlan& plan) {
  return fmt::format("model: {} of compute per iteration, communication from {} on for {} alone on its paths",
                     FormatDuration(job.compute), FormatDuration(job.release), FormatDuration(plan.communication));
}

std::string IntensityText(const MultiJobJobPlan& plan) {
  return fmt::format("going first is worth {}: {} GPU seconds of compute per second of communication, times {} for what it "
                     "gains", Number(plan.intensity), Number(plan.intensity / plan.correction),
                     Number(plan.correction));
}

std::string MeetsText(const MultiJobProblem& problem, const MultiJobPlan& plan, const MultiJobJobPlan& job) {
  std::string text;
  for (size_t i = 0; i < job.meets.size() && i < kContendersNamed; ++i) {
    const MultiJobContender& other = job.meets[i];
    const MultiJobJobPlan& its = plan.jobs[other.job];
    text += fmt::format("{}{} (intensity {}, class {}) on {}{}", i == 0 ? "meets " : "; ", problem.jobs[other.job].name,
                        Number(its.intensity), its.traffic_class, problem.topology.LinkName(other.links.front()),
                        other.links.size() > 1 ? fmt::format(" and {} more links", other.links.size() - 1) : "");
  }
  if (job.meets.size() > kContendersNamed) text += fmt::format("; and {} more jobs", job.meets.size() - kContendersNamed);
  return text;
}

std::string ClassText(const MultiJobProblem& problem, const MultiJobPlan& plan, const MultiJobJobPlan& job) {
  const int32_t classes = problem.options.classes;
  std::string text = fmt::format("class {} of {}", job.traffic_class, classes);
  if (job.traffic_class == classes - 1) text += " (the default)";
  if (classes < 2) return text + ": the fabric has one class";
  if (job.meets.empty()) return text + ": on its paths it meets no job";
  bool above = false, below = false;
  for (const MultiJobContender& other : job.meets) {
    above |= plan.jobs[other.job].traffic_class < job.traffic_class;
    below |= plan.jobs[other.job].traffic_class > job.traffic_class;
  }
  if (!above && !below) return text + ": as the jobs that it meets; another order gains too little";
  if (!above) return text + ": before the jobs that it meets";
  return text + (below ? ": between the jobs that it meets" : ": after jobs to which going first is worth more");
}

std::string PathsText(const MultiJobJob& job, const MultiJobJobPlan& plan) {
  size_t moved = 0;
  for (size_t f = 0; f < plan.shares.size(); ++f) {
    moved += !std::ranges::equal(plan.shares[f], job.flows[f].shares, [](double a, double b) { return std::abs(a - b) < kSameShare; });
  }
  if (moved == 0) return fmt::format("paths of its {} flows: as they are", job.flows.size());
  return fmt::format("paths: {} of {} flows go other ways than {}", moved, job.flows.size(),
                     job.placed ? "now" : "a hash has put them");
}

std::string ShiftText(const MultiJobJob& job, const MultiJobJobPlan& plan) {
  if (!plan.shifted) {
    return job.stable ? "no time shift" : "no time shift: its period is not measured, or does not hold still";
  }
  return fmt::format("time shift {} against the other jobs' iterations, bursts may begin for {} of every {}", FormatDuration(plan.shift),
                     FormatDuration(plan.window), FormatDuration(plan.period));
}

std::string UseText(const MultiJobProblem& problem, size_t jobs, const GroupReport& report) {
  const double use = 100 * report.outcome.gpu_use;
  if (!report.decision.simulated) {
    return fmt::format("GPU use of the {} jobs that it could meet: {:.1f} % if links slowed all that load them alike, "
                       "{:.1f} % over plain ECMP; not simulated",
                       jobs, use, 100 * report.decision.default_use);
  }
  return fmt::format("GPU use of the jobs that it could meet: {:.1f} % simulated, {:.1f} % over plain ECMP (mean of its hash seeds); with profiles "
                     "{:.0f} % wrong it leads by {:+.1f} % at least", use, 100 * report.decision.default_use,
                     100 * problem.options.profile_error, 100 * report.decision.margin);
}

}  // namespace

void FindContenders(const std::vector<size_t>& members, const std::vector<PeriodicJob>& jobs, MultiJobPlan* plan) {
  std::map<LinkId, std::vector<size_t>> users;  // places in the group
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const LinkLoad& load : jobs[i].loads) {
      if (load.bytes.count() > 0) users[load.link].push_back(i);
    }
  }
  std::vector<std::map<size_t, std::vector<LinkId>>> meets(jobs.size());
  for (const auto& [link, there] : users) {
    for (const size_t a : there) {
      // Where hundreds share a link, the first few of them stand for all: this is text, not the decision.
      size_t named = 0;
      for (const size_t b : there) {
        if (a != b && named++ < 4 * kContendersKept) meets[a][b].push_back(link);
      }
    }
  }
  for (size_t i = 0; i < meets.size(); ++i) {
    std::vector<MultiJobContender>& list = plan->jobs[members[i]].meets;
    for (auto& [other, links] : meets[i]) list.push_back({members[other], std::move(links)});
    std::stable_sort(list.begin(), list.end(), [&](const MultiJobContender& a, const MultiJobContender& b) {
      return a.links.size() > b.links.size();
    });
    if (list.size() > kContendersKept) list.resize(kContendersKept);
  }
}

void WriteReasons(const MultiJobProblem& problem, const std::vector<size_t>& members, const GroupReport& report, MultiJobPlan* plan) {
  for (const size_t j : members) {
    MultiJobJobPlan& job = plan->jobs[j];
    job.why.push_back(ModelText(problem.jobs[j], job));
    if (!job.shares.empty()) job.why.push_back(PathsText(problem.jobs[j], job));
    job.why.push_back(ClassText(problem, *plan, job));
    job.why.push_back(IntensityText(job));
    if (!job.meets.empty()) job.why.push_back(MeetsText(problem, *plan, job));
    job.why.push_back(ShiftText(problem.jobs[j], job));
    job.why.insert(job.why.end(), report.decision.why.begin(), report.decision.why.end());
    job.why.push_back(UseText(problem, members.size(), report));
    job.rejected = report.decision.rejected;
  }
}

void AddBoundReasons(const MultiJobProblem& problem, MultiJobPlan* plan) {
  for (size_t j = 0; j < plan->jobs.size(); ++j) {
    MultiJobJobPlan& job = plan->jobs[j];
    if (!job.modelled || !(job.bound.count() > 0)) continue;
    const MultiJobJob& model = problem.jobs[j];
    const char* why = job.bound <= model.compute ? "its compute alone" : "its bytes over the links with the least capacity that they must cross, from when communication may start";
    job.why.push_back(fmt::format("predicted iteration {}, bound {} ({}): gap {:.1f} %", FormatDuration(job.predicted),
                                  FormatDuration(job.bound), why, 100 * std::max(0.0, job.predicted / job.bound - 1)));
  }
}

std::string TightText(const MultiJobBound& bound) {
  return fmt::format("the bound is set by what fits {}", fmt::join(bound.tight, ", "));
}

}  // namespace weft::planner::jobs
