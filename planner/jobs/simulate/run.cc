#include "planner/baselines/baselines.h"
#include "planner/jobs/simulate/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/parse_units.h"
#include "planner/jobs/simulate/decision_log.h"

namespace weft::planner::inline jobs {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, const PreparedScenario& prepared, SimulationPolicy policy,
              const SimulationOptions& options, uint64_t seed)
      : scenario_(scenario), prepared_(prepared), policy_(policy), options_(options), seed_(seed),
        topology_(scenario.topology), fluid_(Capacities(scenario.topology)), slot_(scenario.jobs.size(), kNowhere),
        paths_(scenario.jobs.size()), capacity_(Capacities(scenario.topology)) {
    for (const ScenarioJob& job : scenario.jobs) times_.push_back(job.arrival);
    for (const ScenarioFault& fault : scenario.faults) {
      if (fault.at < scenario.duration) times_.push_back(fault.at);
    }
    std::sort(times_.begin(), times_.end());
    times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
    if (options.trace) fluid_.set_trace(&record_.trace);
  }

  Result<RunRecord> Run() {
    record_.possible.assign(capacity_.size(), 0);
    size_t next = 0;
    while (fluid_.now() < scenario_.duration) {
      std::vector<std::string> reasons;
      for (; next < times_.size() && times_[next] <= fluid_.now(); ++next) Happen(times_[next], &reasons);
      for (std::string& name : left_) reasons.push_back(fmt::format("{} left", name));
      left_.clear();
      if (!reasons.empty()) WEFT_RETURN_IF_ERROR(Decide(reasons));
      const Seconds until = next < times_.size() ? std::min(times_[next], scenario_.duration) : scenario_.duration;
      Go(until);
    }
    Finish();
    return std::move(record_);
  }

 private:
  static std::vector<BitsPerSecond> Capacities(const Topology& topology) {
    std::vector<BitsPerSecond> capacity;
    for (const Link& link : topology.links()) capacity.push_back(link.capacity);
    return capacity;
  }

  /// Arrivals and faults of one instant.
  void Happen(Seconds at, std::vector<std::string>* reasons) {
    for (size_t j = 0; j < scenario_.jobs.size(); ++j) {
      const ScenarioJob& job = scenario_.jobs[j];
      if (job.arrival != at) continue;
      std::vector<BurstTimes> bursts = job.bursts;
      if (bursts.empty()) bursts.push_back({job.release, job.compute});
      slot_[j] = fluid_.Add({.gpus = job.gpus, .compute = job.compute, .bursts = std::move(bursts), .iterations = job.iterations});
      of_slot_.push_back(j);
      reasons->push_back(fmt::format("{} arrived", job.name));
    }
    for (const ScenarioFault& fault : scenario_.faults) {
      if (fault.at != at) continue;
      capacity_[fault.link.index()] = fault.capacity;
      fluid_.SetCapacity(fault.link, fault.capacity);
      topology_.SetHealth(fault.link, LinkHealth::kUp);
      topology_.SetCapacity(fault.link, fault.capacity);
      reasons->push_back(fmt::format("{} gives {}", topology_.LinkName(fault.link), FormatRate(fault.capacity)));
    }
  }

  std::vector<size_t> Present() const {
    std::vector<size_t> present;
    for (size_t j = 0; j < slot_.size(); ++j) {
      if (slot_[j] != kNowhere && fluid_.present(slot_[j])) present.push_back(j);
    }
    return present;
  }

  /// `usable[job][flow]`: the numbers of the paths that the situation shows.
  Situation Look(const std::vector<size_t>& present, std::vector<std::vector<std::vector<size_t>>>* usable) const {
    Situation situation{.topology = topology_, .capacity = capacity_, .state = &fluid_, .classes = scenario_.classes,
                        .seed = seed_, .evaluations = options_.evaluations, .work = options_.work,
                        .objective = options_.objective,
                        .horizon = scenario_.duration - fluid_.now()};
    for (const size_t j : present) {
      const RoutableJob& all = prepared_.jobs[j].routable;
      RoutableJob job{.gpus = all.gpus, .compute = all.compute, .release = all.release, .flows = {}, .bursts = all.bursts};
      std::vector<size_t> in_use;
      usable->emplace_back();
      for (size_t f = 0; f < all.flows.size(); ++f) {
        usable->back().push_back(UsablePaths(all.flows[f], capacity_));
        const std::vector<size_t>& numbers = usable->back().back();
        RoutableFlow flow{.bytes = all.flows[f].bytes, .paths = {}, .per_burst = all.flows[f].per_burst};
        for (const size_t p : numbers) flow.paths.push_back(all.flows[f].paths[p]);
        job.flows.push_back(std::move(flow));
        if (paths_[j].empty()) continue;
        const auto at = std::find(numbers.begin(), numbers.end(), paths_[j][f]);
        in_use.push_back(at == numbers.end() ? 0 : static_cast<size_t>(at - numbers.begin()));
      }
      situation.jobs.push_back(std::move(job));
      situation.names.push_back(scenario_.jobs[j].name);
      situation.keys.push_back(prepared_.jobs[j].key);
      situation.alone.push_back(prepared_.jobs[j].alone);
      situation.slots.push_back(slot_[j]);
      situation.present.push_back(std::move(in_use));
    }
    return situation;
  }

  Result<Decision> Ask(const Situation& situation) const {
    switch (policy_) {
      case SimulationPolicy::kEcmp: return DecideEcmp(situation, seed_);
      case SimulationPolicy::kWeft: return DecideWeft(situation);
      case SimulationPolicy::kCrux: return DecideCrux(situation);
      case SimulationPolicy::kCassini: return DecideCassini(situation);
      case SimulationPolicy::kSincronia: return DecideSincronia(situation);
      case SimulationPolicy::kOptimal: return DecideOptimal(situation);
    }
    return Fail(Code::kInvalidArgument, fmt::format("policy {}, must be a known one", static_cast<int>(policy_)));
  }

  Status Decide(const std::vector<std::string>& reasons) {
    const std::vector<size_t> present = Present();
    std::vector<FluidSetting> settings(fluid_.jobs());
    if (!present.empty()) {
      std::vector<std::vector<std::vector<size_t>>> usable;
      const Situation situation = Look(present, &usable);
      WEFT_ASSIGN_OR_RETURN(const Decision decision, Ask(situation));
      for (size_t i = 0; i < present.size(); ++i) {
        const size_t j = present[i];
        settings[slot_[j]] = {LoadsOf(OnPaths(situation.jobs[i], decision.paths[i])), decision.classes[i],
                              decision.gates[i]};
        paths_[j].clear();
        for (size_t f = 0; f < decision.paths[i].size(); ++f) paths_[j].push_back(usable[i][f][decision.paths[i][f]]);
      }
      Report(reasons, decision);
    }
    fluid_.Apply(std::move(settings));
    return Ok();
  }

  void Report(const std::vector<std::string>& reasons, const Decision& decision) {
    std::string what = fmt::format("at {:.6g} s: {}", fluid_.now().count(), reasons[0]);
    if (reasons.size() > 1) what += fmt::format(" and {} more changes", reasons.size() - 1);
    log_.Add(std::move(what));
    for (const std::string& why : decision.why) log_.Add("  " + why);
    record_.evaluations += decision.evaluations;
    record_.complete &= decision.complete;
  }

  void Go(Seconds until) {
    const Seconds from = fluid_.now();
    Epoch epoch{.capacity = capacity_, .present = Present()};
    fluid_.Run(until);
    epoch.length = fluid_.now() - from;
    for (const size_t j : epoch.present) {
      if (!fluid_.present(slot_[j])) left_.push_back(scenario_.jobs[j].name);
    }
    for (size_t l = 0; l < capacity_.size(); ++l) record_.possible[l] += capacity_[l].value() * epoch.length.count();
    record_.epochs.push_back(std::move(epoch));
  }

  void Finish() {
    for (const size_t slot : slot_) record_.jobs.push_back(fluid_.progress(slot));
    record_.carried = fluid_.LinkBits();
    record_.events = fluid_.events();
    record_.decisions = std::move(log_).Take();
    for (JobPhase& phase : record_.trace.phases) phase.job = of_slot_[phase.job];
  }

  const Scenario& scenario_;
  const PreparedScenario& prepared_;
  const SimulationPolicy policy_;
  const SimulationOptions& options_;
  const uint64_t seed_;
  Topology topology_;                     // with the capacities of now
  FluidSimulation fluid_;
  std::vector<size_t> slot_, of_slot_;    // job to number in fluid_ and back
  std::vector<std::vector<size_t>> paths_;  // in use, per job and flow, among all
  std::vector<BitsPerSecond> capacity_;
  std::vector<Seconds> times_;            // of arrivals and faults
  std::vector<std::string> left_;         // jobs, since the last decision
  DecisionLog log_{kMostDecisionLines};
  RunRecord record_;
};

}  // namespace

Result<RunRecord> RunScenario(const Scenario& scenario, const PreparedScenario& prepared, SimulationPolicy policy,
                              const SimulationOptions& options, uint64_t seed) {
  return ScenarioRun(scenario, prepared, policy, options, seed).Run();
}

}  // namespace weft::planner::jobs
