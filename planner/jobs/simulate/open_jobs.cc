#include "planner/jobs/simulate/open_jobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "planner/jobs/starts/start_plan.h"

namespace weft::planner::inline jobs {
namespace {

constexpr size_t kMostNamed = 4;       // hosts in the name of a way

std::string NameOf(const Scenario& scenario, const std::vector<size_t>& set) {
  std::vector<std::string> names;
  for (const size_t p : set) names.push_back(scenario.places[p].name);
  if (names.size() <= kMostNamed) return fmt::format("{}", fmt::join(names, " "));
  return fmt::format("{} … {}", names.front(), names.back());
}

/// The job on these places: the ways of all sets, one set after another.
ScenarioJob OnPlaces(const Scenario& scenario, const ScenarioJob& open, size_t index, const std::vector<std::vector<size_t>>& sets) {
  const ScenarioSize& size = open.sizes[index];
  std::unordered_map<int32_t, std::pair<size_t, size_t>> stands_for;
  for (size_t p = 0; p < static_cast<size_t>(size.hosts); ++p) {
    for (size_t i = 0; i < scenario.places[p].senders.size(); ++i) stands_for[scenario.places[p].senders[i].value()] = {p, i};
  }
  std::vector<ScenarioWay> ways;
  for (const std::vector<size_t>& set : sets) {
    const auto there = [&](NodeId node) {
      const auto [p, i] = stands_for.at(node.value());
      return scenario.places[set[p]].senders[i];
    };
    for (ScenarioWay way : size.ways) {
      for (ScenarioFlow& flow : way.flows) flow.from = there(flow.from), flow.to = there(flow.to);
      if (sets.size() > 1) way.name += (way.name.empty() ? "on " : " on ") + NameOf(scenario, set);
      ways.push_back(std::move(way));
    }
  }
  ScenarioJob job{.name = open.name, .gpus = size.gpus, .compute = ways[0].compute, .release = ways[0].release, .arrival = open.arrival,
                  .iterations = open.iterations, .flows = std::move(ways[0].flows), .bursts = std::move(ways[0].bursts), .work = open.work,
                  .others = {}, .joint = open.joint, .way = std::move(ways[0].name), .sizes = {}, .deadline = open.deadline};
  job.others.assign(std::make_move_iterator(ways.begin() + 1), std::make_move_iterator(ways.end()));
  return job;
}

/// The fastest of the sizes alone.
size_t FastestSize(const std::vector<Seconds>& alone) {
  return static_cast<size_t>(std::min_element(alone.begin(), alone.end()) - alone.begin());
}

}  // namespace

OpenJobs::OpenJobs(const Scenario& scenario, const PreparedScenario& prepared, const Scenario& truth, const PreparedScenario& prepared_truth,
                   SimulationPolicy policy)
    : scenario_(scenario), prepared_(prepared), truth_(prepared_truth), policy_(policy), size_(scenario.jobs.size(), 0), sets_(scenario.jobs.size()),
      held_(scenario.jobs.size()) {
  if (std::ranges::none_of(scenario.jobs, [](const ScenarioJob& job) { return !job.sizes.empty(); })) return;
  opened_ = std::make_shared<OpenedScenario>(OpenedScenario{.scenario = scenario, .truth = {}, .prepared = prepared, .prepared_truth = {},
                                                            .apart = &prepared != &prepared_truth});
  if (opened_->apart) opened_->truth = truth, opened_->prepared_truth = prepared_truth;
  std::vector<std::vector<NodeId>> senders;
  for (const ScenarioPlace& place : scenario.places) senders.push_back(place.senders);
  map_.emplace(scenario.topology, senders);
  preparer_.emplace(scenario_);
  holders_.assign(scenario.places.size(), 0);
  for (size_t j = 0; j < scenario.jobs.size(); ++j) {
    Hold(j, scenario.jobs[j].places);
  }
}

int32_t OpenJobs::Free() const { return static_cast<int32_t>(std::ranges::count(holders_, 0)); }

void OpenJobs::Hold(size_t j, std::vector<size_t> places) {
  Leave(j);
  held_[j] = std::move(places);
  for (const size_t p : held_[j]) ++holders_[p];
}

void OpenJobs::Leave(size_t j) {
  for (const size_t p : held_[j]) --holders_[p];
  held_[j].clear();
}

void OpenJobs::Plan(Seconds now, const Running& running) {
  if (!opened_) return;
  busy_ += (now - before_).count() * (static_cast<double>(holders_.size()) - Free());
  before_ = now;
  if (waiting_.empty()) return;
  if (policy_ == SimulationPolicy::kWeft) PlanMultiJob(now, running);
  else PlanInOrder(policy_ == SimulationPolicy::kVertical || policy_ == SimulationPolicy::kHorizontal);
}

void OpenJobs::PlanMultiJob(Seconds now, const Running& running) {
  StartState state{.hosts = static_cast<int32_t>(holders_.size()), .free = Free()};
  if (now.count() > 0) state.load = busy_ / (now.count() * static_cast<double>(holders_.size()));
  for (size_t j = 0; j < held_.size(); ++j) {
    if (held_[j].empty()) continue;
    const Seconds left = running.left(j);
    if (left.count() < std::numeric_limits<double>::infinity()) state.freed.push_back({left, static_cast<int32_t>(held_[j].size())});
  }
  for (const size_t j : waiting_) {
    const ScenarioJob& job = scenario_.jobs[j];
    WaitingJob waits{.waited = now - job.arrival, .deadline = {}, .weight = 0, .sizes = {}};
    if (job.deadline.count() > 0) waits.deadline = job.arrival + job.deadline - now;
    for (size_t s = 0; s < job.sizes.size(); ++s) {
      const double iterations = job.iterations > 0 ? static_cast<double>(job.iterations) : std::numeric_limits<double>::infinity();
      const Seconds runtime = prepared_.jobs[j].size_alone[s] * iterations * running.stretch;
      waits.sizes.push_back({job.sizes[s].hosts, runtime});
      if (job.iterations == 0) continue;
      const double seconds = runtime.count() * job.sizes[s].gpus;
      waits.weight = s == 0 ? seconds : std::min(waits.weight, seconds);
    }
    state.waiting.push_back(std::move(waits));
  }
  for (const PlannedStart& start : PlanStarts(state).starts) {
    if (start.begin.count() == 0) next_.push_back({waiting_[start.job], start.size});
  }
  // Who sends most is placed first, while there is most to choose from.
  std::ranges::stable_sort(next_, std::ranges::greater{}, [&](const Start& start) {
    double bytes = 0;
    for (const ScenarioFlow& flow : scenario_.jobs[start.job].sizes[start.size].ways[0].flows) bytes += static_cast<double>(flow.bytes.count());
    return bytes / prepared_.jobs[start.job].size_alone[start.size].count();
  });
}

/// In order of arrival, each in its largest size, until one does not fit; or, with `backfill`, each that fits in the size that is
/// fastest alone.
void OpenJobs::PlanInOrder(bool backfill) {
  int32_t free = Free();
  for (const size_t j : waiting_) {
    const ScenarioJob& job = scenario_.jobs[j];
    const size_t size = backfill ? FastestSize(prepared_.jobs[j].size_alone) : job.sizes.size() - 1;
    if (job.sizes[size].hosts <= free) {
      next_.push_back({j, size});
      free -= job.sizes[size].hosts;
    } else if (!backfill) {
      return;
    }
  }
}

/// Per start, sets of places, the first ones apart from each other: what sequences of starts would get that differ in how a job is put
/// below leaves, and, for jobs to change places with each other, the first sets of others of the same size.
std::vector<std::vector<std::vector<size_t>>> OpenJobs::SetsFor(const std::vector<Start>& starts) const {
  std::vector<std::vector<std::vector<size_t>>> sets(starts.size());
  const auto add = [&](size_t i, const std::vector<size_t>& set) {
    if (std::ranges::find(sets[i], set) == sets[i].end()) sets[i].push_back(set);
  };
  for (size_t style = 0; style < (policy_ == SimulationPolicy::kWeft ? kMostPlacements : 1); ++style) {
    std::vector<bool> free;
    for (const int32_t holders : holders_) free.push_back(holders == 0);
    for (size_t i = 0; i < starts.size(); ++i) {
      const auto found = map_->Sets(free, scenario_.jobs[starts[i].job].sizes[starts[i].size].hosts);
      const std::vector<size_t>& set = found[std::min(style, found.size() - 1)];
      for (const size_t p : set) free[p] = false;
      add(i, set);
    }
  }
  if (policy_ != SimulationPolicy::kWeft) return sets;
  const std::vector<std::vector<std::vector<size_t>>> own = sets;
  for (size_t i = 0; i < starts.size(); ++i) {
    for (size_t other = 0; other < starts.size(); ++other) {
      if (own[other].front().size() == own[i].front().size()) add(i, own[other].front());
    }
    const ScenarioJob& job = scenario_.jobs[starts[i].job];
    const size_t most = job.joint ? std::max<size_t>(1, kMostWays / job.sizes[starts[i].size].ways.size()) : 1;
    sets[i].resize(std::min({sets[i].size(), 2 * kMostPlacements, most}));
  }
  return sets;
}

Result<std::vector<size_t>> OpenJobs::BeginAll() {
  std::vector<size_t> begun;
  if (next_.empty()) return begun;
  std::vector<std::vector<std::vector<size_t>>> sets = SetsFor(next_);
  for (size_t i = 0; i < next_.size(); ++i) {
    sets_[next_[i].job] = std::move(sets[i]);
    std::erase(waiting_, next_[i].job);
    WEFT_RETURN_IF_ERROR(Open(next_[i]));
    begun.push_back(next_[i].job);
  }
  next_.clear();
  return begun;
}

Status OpenJobs::Open(const Start& start) {
  const size_t j = start.job;
  size_[j] = start.size;
  Hold(j, sets_[j].front());
  const auto open = [&](const ScenarioJob& job, ScenarioJob* on, PreparedJob* prepared) -> Status {
    *on = OnPlaces(scenario_, job, start.size, sets_[j]);
    WEFT_ASSIGN_OR_RETURN(PreparedJob made, preparer_->Prepare(*on));
    made.size_alone = prepared->size_alone;
    *prepared = std::move(made);
    return Ok();
  };
  const ScenarioJob known = scenario_.jobs[j];
  WEFT_RETURN_IF_ERROR(open(known, &opened_->scenario.jobs[j], &opened_->prepared.jobs[j]));
  if (!opened_->apart) return Ok();
  const ScenarioJob truth = opened_->truth.jobs[j];
  return open(truth, &opened_->truth.jobs[j], &opened_->prepared_truth.jobs[j]);
}

size_t OpenJobs::FirstWay(size_t j) const {
  const PreparedJob& job = prepared().jobs[j];
  if (IsSettled(j)) return job.best;
  size_t best = 0;
  for (size_t w = 1; w < scenario_.jobs[j].sizes[size_[j]].ways.size(); ++w) {
    if (job.ways[w].alone < job.ways[best].alone) best = w;
  }
  return best;
}

std::vector<size_t> OpenJobs::PlacesOf(size_t j, size_t way) const {
  if (IsSettled(j)) return {};
  return sets_[j][way / scenario_.jobs[j].sizes[size_[j]].ways.size()];
}

size_t OpenJobs::Settle(size_t j, size_t way) {
  const size_t each = scenario_.jobs[j].sizes[size_[j]].ways.size(), set = way / each;
  const std::vector<size_t> taken = sets_[j][set];
  Hold(j, {taken});
  const auto settle = [&](const ScenarioSize& size, ScenarioJob* job, PreparedJob* prepared) {
    std::vector<ScenarioWay> ways{{job->way, job->compute, job->release, std::move(job->flows), std::move(job->bursts)}};
    ways.insert(ways.end(), std::make_move_iterator(job->others.begin()), std::make_move_iterator(job->others.end()));
    const auto first = static_cast<std::ptrdiff_t>(set * each), last = first + static_cast<std::ptrdiff_t>(each);
    std::vector<ScenarioWay> kept(std::make_move_iterator(ways.begin() + first), std::make_move_iterator(ways.begin() + last));
    for (size_t w = 0; w < each; ++w) kept[w].name = size.ways[w].name;
    job->way = kept[0].name, job->compute = kept[0].compute, job->release = kept[0].release;
    job->flows = std::move(kept[0].flows), job->bursts = std::move(kept[0].bursts);
    job->others.assign(std::make_move_iterator(kept.begin() + 1), std::make_move_iterator(kept.end()));
    prepared->ways = std::vector<PreparedWay>(std::make_move_iterator(prepared->ways.begin() + first), std::make_move_iterator(prepared->ways.begin() + last));
    prepared->best = 0;
    for (size_t w = 1; w < each; ++w) {
      if (prepared->ways[w].alone < prepared->alone()) prepared->best = w;
    }
  };
  settle(scenario_.jobs[j].sizes[size_[j]], &opened_->scenario.jobs[j], &opened_->prepared.jobs[j]);
  if (opened_->apart) settle(scenario_.jobs[j].sizes[size_[j]], &opened_->truth.jobs[j], &opened_->prepared_truth.jobs[j]);
  return way - set * each;
}

std::vector<std::string> OpenJobs::HostsOf(size_t j) const {
  std::vector<std::string> names;
  if (!IsOpen(j) || sets_[j].empty()) return names;
  for (const size_t p : sets_[j].front()) names.push_back(scenario_.places[p].name);
  return names;
}

}  // namespace weft::planner::jobs
