#include "cli/simulate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/aligned_rows.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr size_t kMostLinks = 12;      // of a table; JSON has all
constexpr size_t kMostDecisions = 24;

/// Whether jobs wait for hosts or have deadlines.
bool HasStarts(const planner::Scenario& scenario) {
  return std::ranges::any_of(scenario.jobs, [](const planner::ScenarioJob& job) { return !job.sizes.empty() || job.deadline.count() > 0; });
}

void AddStart(const planner::ScenarioJob& asked, const planner::SimulatedJob& job, json* item) {
  (*item)["arrival_s"] = asked.arrival.count();
  (*item)["begin_s"] = job.begin ? json(job.begin->count()) : json();
  (*item)["end_s"] = job.end ? json(job.end->count()) : json();
  if (!job.hosts.empty()) (*item)["hosts"] = job.hosts;
  if (asked.deadline.count() > 0) (*item)["deadline_s"] = (asked.arrival + asked.deadline).count(), (*item)["late"] = job.late;
}

json RunJson(const SimulateReport& report, const PolicyRun& run) {
  const planner::SimulationReport& r = run.report;
  const bool waits = HasStarts(report.scenario);
  json jobs = json::array(), links = json::array();
  for (const planner::SimulatedJob& job : r.jobs) {
    // nlohmann writes infinity, a job that came to no end, as null.
    json& item = jobs.emplace_back(json{{"name", job.name},
                    {"iteration_s", job.iteration.count()},
                    {"alone_s", job.alone.count()},
                    {"bound_s", job.bound.count()},
                    {"p99_iteration_s", job.p99_iteration.count()},
                    {"iterations", job.iterations_done},
                    {"slowdown", job.slowdown},
                    {"class", job.traffic_class}});
    if (!job.way.empty()) item["strategy"] = job.way;
    if (waits) AddStart(report.scenario.jobs[jobs.size() - 1], job, &item);
  }
  for (const planner::SimulatedLink& link : r.links) {
    links.push_back({{"name", report.scenario.topology.LinkName(link.link)}, {"utilisation", link.utilisation}});
  }
  json advice = json::array();
  for (const planner::RestartAdvice& one : r.advice) {
    advice.push_back({{"at_s", one.at.count()}, {"job", one.job}, {"strategy", one.way}, {"iteration_s", one.then.count()},
                      {"iteration_now_s", one.now.count()}, {"goodput", one.goodput_then}, {"goodput_now", one.goodput_now},
                      {"pays_after_s", one.pays_after.count()}});
  }
  json summary = {{"mean_slowdown", r.mean_slowdown},
                  {"p99_slowdown", r.p99_slowdown},
                  {"gpu_utilisation", r.gpu_utilisation},
                  {"goodput", r.goodput},
                  {"bound_goodput", r.bound_goodput},
                  {"bound_gap", r.bound_gap},
                  {"bound_gpu_utilisation", r.bound_gpu_utilisation},
                  {"bound_mean_slowdown", r.bound_mean_slowdown}};
  if (waits) {
    summary["throughput"] = r.throughput;
    summary["mean_wait_s"] = r.mean_wait.count();
    summary["never_began"] = r.never_began;
    summary["late"] = r.late;
    summary["bound_late"] = r.bound_late;
  }
  return {
      {"policy", planner::PolicyName(run.policy)},
      {"advice", std::move(advice)},
      {"jobs", jobs},
      {"links", links},
      {"summary", std::move(summary)},
      {"solver",
       {{"events", r.events}, {"seconds", run.time.count()}, {"evaluations", r.evaluations}, {"complete", r.complete}}},
      {"decisions", r.decisions}};
}

std::string Time(Seconds time) { return std::isfinite(time.count()) ? FormatDuration(time) : "no end"; }
std::string Factor(double factor) { return std::isfinite(factor) ? fmt::format("{:.3f}", factor) : "no end"; }
std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string WholeSeconds(Seconds time) { return fmt::format("{:.0f} s", time.count()); }

/// Who waited for hosts, where, and how long.
std::string StartsText(const SimulateReport& report, const PolicyRun& run) {
  std::vector<AlignedRow> rows = {{"job", "arrival", "begin", "end", "deadline", "", "hosts"}};
  for (size_t j = 0; j < run.report.jobs.size(); ++j) {
    const planner::ScenarioJob& asked = report.scenario.jobs[j];
    const planner::SimulatedJob& job = run.report.jobs[j];
    const auto at = [](std::optional<Seconds> time) { return time ? WholeSeconds(*time) : std::string("never"); };
    const bool due = asked.deadline.count() > 0;
    rows.push_back({job.name, WholeSeconds(asked.arrival), at(job.begin), at(job.end), due ? WholeSeconds(asked.arrival + asked.deadline) : "",
                    due ? job.late ? "late" : "met" : "", fmt::format("{}", fmt::join(job.hosts, " "))});
  }
  return AlignedText(rows);
}

std::string JobsText(const PolicyRun& run) {
  std::vector<AlignedRow> rows = {{"job", "iteration", "alone", "bound", "slow-down", "p99 iteration", "iterations", "strategy"}};
  for (const planner::SimulatedJob& job : run.report.jobs) {
    rows.push_back({job.name, Time(job.iteration), Time(job.alone), Time(job.bound), Factor(job.slowdown),
                    Time(job.p99_iteration), fmt::format("{}", job.iterations_done), job.way});
  }
  return AlignedText(rows);
}

std::string LinksText(const SimulateReport& report, const PolicyRun& run) {
  std::vector<AlignedRow> rows = {{"busiest links", "used", "rate"}};
  for (const planner::SimulatedLink& link : BusiestLinks(report.scenario, run.report, kMostLinks)) {
    rows.push_back({report.scenario.topology.LinkName(link.link), Percent(link.utilisation),
                    FormatRate(report.scenario.topology.link(link.link).line_rate)});
  }
  return AlignedText(rows);
}

std::string OneRun(const SimulateReport& report, const PolicyRun& run) {
  const planner::SimulationReport& r = run.report;
  std::string text = JobsText(run) + "\n" + LinksText(report, run);
  text += fmt::format("\n  slow-down: mean {}, p99 {} (no policy stays below {} in the mean)\n",
                      Factor(r.mean_slowdown), Factor(r.p99_slowdown), Factor(r.bound_mean_slowdown));
  text += fmt::format("  GPUs compute {} of the time; no policy reaches more than {}: {} to gain\n",
                      Percent(r.gpu_utilisation), Percent(r.bound_gpu_utilisation), Percent(r.bound_gap));
  if (r.goodput != r.gpu_utilisation) {
    text += fmt::format("  goodput: model FLOPs at {} of the GPUs' peak; no policy and no strategy reaches more than {}\n", Percent(r.goodput),
                        Percent(r.bound_goodput));
  }
  if (HasStarts(report.scenario)) {
    text += "\n" + StartsText(report, run);
    text += fmt::format("\n  {} of {} jobs never began, mean wait {}; all GPUs do {} of the work that they could\n", r.never_began, r.jobs.size(),
                        WholeSeconds(r.mean_wait), Percent(r.throughput));
    text += fmt::format("  {} deadlines missed; no policy misses fewer than {}\n", r.late, r.bound_late);
  }
  if (r.decisions.empty()) return text;
  text += fmt::format("\nwhat {} decided:\n", planner::PolicyName(run.policy));
  for (size_t i = 0; i < std::min(r.decisions.size(), kMostDecisions); ++i) text += "  " + r.decisions[i] + "\n";
  if (r.decisions.size() > kMostDecisions) {
    text += fmt::format("  … and {} more (--output json has all)\n", r.decisions.size() - kMostDecisions);
  }
  return text;
}

std::string Comparison(const SimulateReport& report) {
  std::vector<AlignedRow> rows = {{"policy", "mean slow-down", "p99 slow-down", "GPU use", "goodput", "gap to bound", "events",
                                   "plans tried", "simulated in"}};
  std::vector<AlignedRow> starts = {{"policy", "never began", "mean wait", "throughput", "deadlines missed", "at least"}};
  // The bounds say the same for every policy, up to the work they did: the tightest counts. Of jobs that wait they are those of the
  // starts that a policy chose, and say nothing of another one's.
  const bool starts_differ = HasStarts(report.scenario);
  double use = 1, goodput = 1, slowdown = 1;
  for (const PolicyRun& run : report.runs) {
    const planner::SimulationReport& r = run.report;
    use = std::min(use, r.bound_gpu_utilisation);
    goodput = std::min(goodput, r.bound_goodput);
    slowdown = std::max(slowdown, r.bound_mean_slowdown);
    rows.push_back({std::string(planner::PolicyName(run.policy)), Factor(r.mean_slowdown), Factor(r.p99_slowdown),
                    Percent(r.gpu_utilisation), Percent(r.goodput), Percent(r.bound_gap), fmt::format("{}", r.events),
                    fmt::format("{}", r.evaluations), FormatDuration(run.time)});
    starts.push_back({std::string(planner::PolicyName(run.policy)), fmt::format("{}", r.never_began), WholeSeconds(r.mean_wait),
                      Percent(r.throughput), fmt::format("{}", r.late), fmt::format("{}", r.bound_late)});
  }
  if (!starts_differ) rows.push_back({"bound", Factor(slowdown), "", Percent(use), Percent(goodput)});
  return AlignedText(rows) + (HasStarts(report.scenario) ? "\n" + AlignedText(starts) : "");
}

}  // namespace

std::vector<planner::SimulatedLink> BusiestLinks(const planner::Scenario& scenario,
                                                 const planner::SimulationReport& report, size_t most) {
  std::vector<planner::SimulatedLink> links = report.links;
  const auto inside = [&](const planner::SimulatedLink& link) {
    return scenario.topology.link(link.link).kind != planner::LinkKind::kNetwork;
  };
  if (!std::ranges::all_of(links, inside)) std::erase_if(links, inside);
  std::ranges::stable_sort(links, std::ranges::greater{}, &planner::SimulatedLink::utilisation);
  if (links.size() > most) links.resize(most);
  return links;
}

std::string SimulateJsonText(const SimulateReport& report) {
  json out = RunJson(report, report.runs.front());
  out["scenario"] = report.scenario.name;
  out["duration_s"] = report.scenario.duration.count();
  if (report.runs.size() > 1) {
    json runs = json::array();
    for (const PolicyRun& run : report.runs) runs.push_back(RunJson(report, run));
    out["policies"] = std::move(runs);
  }
  for (const ModelPlan& plan : report.plans) {
    json ways = json::array();
    for (const ModelPlan::Way& way : plan.ways) ways.push_back({{"strategy", way.strategy}, {"predicted_s", way.predicted.count()}});
    out["plans"].push_back({{"job", plan.job}, {"strategy", plan.ways.front().strategy},
                            {"predicted_s", plan.ways.front().predicted.count()}, {"ways", std::move(ways)}});
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string SimulateTableText(const SimulateReport& report) {
  const planner::Scenario& scenario = report.scenario;
  std::string text =
      fmt::format("{}: {} jobs for {}", scenario.name, scenario.jobs.size(), FormatDuration(scenario.duration));
  if (report.runs.size() > 1) return text + "\n\n" + Comparison(report);
  return text + fmt::format(" under {}\n\n", planner::PolicyName(report.runs.front().policy)) +
         OneRun(report, report.runs.front());
}

}  // namespace weft::cli
