// What the core tells in mode observe: everything is planned as ever, and what would have been done is said in place of done.
#include <fmt/format.h>

#include <algorithm>

#include "controller/core.h"
#include "proto/change_text.h"

namespace weft::controller {
namespace {

constexpr size_t kMovesNamed = 8;
constexpr size_t kLinesKept = 64;  // of a job

}  // namespace

/// One decision for each plan that differs from the one before; the lines stay until the next plan.
void Core::Foretell(const FlowDecision& decision, const std::vector<std::string>& triggers, Foretold& told) {
  Foretold now{.weights = {}, .lines = {}, .outcome = decision.outcome};
  std::vector<std::string> texts;
  std::set<std::string> jobs;
  for (const FlowMove& move : decision.moves) {
    if (!move.shares_changed) continue;  // it would get spare lanes, and carry its bytes as it does
    const std::string& job_id = table_.Find(move.flow)->identity.job_id();
    now.weights[move.flow] = move.weights;
    jobs.insert(job_id);
    if (now.lines[job_id].size() < kLinesKept) now.lines[job_id].push_back(move.text);
    if (texts.size() < kMovesNamed) texts.push_back(move.text);
  }
  const bool news = now.weights != told.weights;
  told = std::move(now);
  if (!news || texts.empty()) return;
  const std::string more = told.weights.size() > texts.size() ? fmt::format("; and {} more", told.weights.size() - texts.size()) : "";
  Decide("would", jobs.size() == 1 ? *jobs.begin() : "",
         fmt::format("mode enforce would do this: {}: {}{}; {}", triggers.empty() ? "the flows changed" : fmt::format("{}", fmt::join(triggers, "; ")),
                     fmt::join(texts, "; "), more, decision.outcome));
}

/// Classes and windows, beside the paths that Foretell() has said.
void Core::ForetellJobs(const MultiJobInput& input, const planner::MultiJobPlan& plan) {
  for (const auto& [id, model] : input.models) {
    if (model.source == "none" || !plan.jobs[model.place].modelled) continue;
    const planner::MultiJobJobPlan& job = plan.jobs[model.place];
    std::vector<std::string>& lines = would_jobs_.lines[id];
    const auto add = [&](std::string line) {
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
    };
    const auto& dscp = options_.joint.dscp;
    const auto last = static_cast<int32_t>(dscp.size()) - 1;
    const auto state = multi_job_.find(id);
    const bool has_class = state != multi_job_.end() && state->second.force.traffic_class >= 0;
    const int32_t in_force = has_class ? std::min(state->second.force.traffic_class, last) : last;
    if (job.traffic_class != in_force && dscp.size() > 1) {
      add(fmt::format("class {} of {} (DSCP {}) in place of {}", job.traffic_class, dscp.size(), dscp[static_cast<size_t>(job.traffic_class)],
                      in_force == last ? std::string("the default") : fmt::format("class {}", in_force)));
    }
    const bool has_window = state != multi_job_.end() && state->second.window.period_s > 0;
    if (has_window && !job.shifted) add("no time window in place of the one that it has");
    if (job.shifted && !has_window) {
      add(fmt::format("a time window: bursts may begin for {:.3f} s of every {:.3f} s", job.window.count(), job.period.count()));
    }
    if (lines.empty()) would_jobs_.lines.erase(id);
  }
}

std::vector<std::string> Core::Would(const std::string& job_id) const {
  std::vector<std::string> lines;
  if (mode_ == v1::MODE_ENFORCE) return lines;
  for (const Foretold* told : {&would_paths_, &would_jobs_}) {
    const auto of = told->lines.find(job_id);
    if (of == told->lines.end()) continue;
    lines.insert(lines.end(), of->second.begin(), of->second.end());
    if (!told->outcome.empty()) lines.push_back("comes to: " + told->outcome);
  }
  const auto listener = listeners_.find(job_id);
  if (listener == listeners_.end() || !listener->second.would) return lines;
  const v1::StrategyChange& change = *listener->second.would;
  lines.push_back(fmt::format("its ranks would be told to run as {}: {}", change.strategy(), proto::ChangeFigures(change)));
  return lines;
}

}  // namespace weft::controller
