#include "planner/baselines/baselines.h"
#include "planner/jobs/simulate/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "common/parse_units.h"
#include "planner/jobs/decide/advice.h"
#include "planner/jobs/simulate/decision_log.h"

namespace weft::planner::inline jobs {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

/// Per job, way and flow: numbers of the paths that the situation shows.
using UsableNumbers = std::vector<std::vector<std::vector<std::vector<size_t>>>>;

class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, const PreparedScenario& prepared, const PreparedScenario& truth, SimulationPolicy policy,
              const SimulationOptions& options, uint64_t seed)
      : scenario_(scenario), open_(scenario, prepared, options.truth != nullptr ? *options.truth : scenario, truth, policy), policy_(policy),
        options_(options), seed_(seed),
        topology_(scenario.topology), fluid_(Capacities(scenario.topology)), slot_(scenario.jobs.size(), kNowhere),
        way_(scenario.jobs.size(), 0), paths_(scenario.jobs.size()), classes_(scenario.jobs.size(), 0),
        gate_periods_(scenario.jobs.size(), Seconds(0)), capacity_(Capacities(scenario.topology)) {
    if (&prepared != &truth) known_.emplace(capacity_);
    for (const ScenarioJob& job : scenario.jobs) times_.push_back(job.arrival);
    for (const ScenarioFault& fault : scenario.faults) {
      if (fault.at < scenario.duration) times_.push_back(fault.at);
    }
    for (const ScenarioRestart& restart : scenario.restarts) times_.push_back(restart.at);
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
      if (!reasons.empty()) {
        WEFT_RETURN_IF_ERROR(BeginJobs(&reasons));
        WEFT_RETURN_IF_ERROR(Decide(reasons));
      }
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
      if (open_.IsOpen(j)) open_.Arrive(j);
      else Begin(j);
      reasons->push_back(fmt::format("{} arrived", job.name));
    }
    for (const ScenarioRestart& restart : scenario_.restarts) {
      if (restart.at != at) continue;
      const auto job = std::ranges::find(scenario_.jobs, restart.job, &ScenarioJob::name);
      const auto j = static_cast<size_t>(job - scenario_.jobs.begin());
      const auto other = std::ranges::find(job->others, restart.way, &ScenarioWay::name);
      Restart(j, restart.way == job->way ? 0 : static_cast<size_t>(other - job->others.begin()) + 1, reasons);
    }
    for (const ScenarioFault& fault : scenario_.faults) {
      if (fault.at != at) continue;
      capacity_[fault.link.index()] = fault.capacity;
      fluid_.SetCapacity(fault.link, fault.capacity);
      if (known_) known_->SetCapacity(fault.link, fault.capacity);
      topology_.SetHealth(fault.link, LinkHealth::kUp);
      topology_.SetCapacity(fault.link, fault.capacity);
      reasons->push_back(fmt::format("{} gives {}", topology_.LinkName(fault.link), FormatRate(fault.capacity)));
    }
  }

  /// Job j begins anew, in another way.
  void Restart(size_t j, size_t way, std::vector<std::string>* reasons) {
    if (slot_[j] == kNowhere || !fluid_.present(slot_[j])) return;
    record_.earlier.push_back({j, way_[j], fluid_.progress(slot_[j])});
    way_[j] = way;
    paths_[j].clear();
    const auto done = static_cast<int64_t>(record_.earlier.back().progress.durations.size());
    const int64_t iterations = fluid_.job(slot_[j]).iterations;  // that were left when this run began
    FluidJob job = JobOf(open_.truth(), j, iterations == 0 ? 0 : std::max<int64_t>(1, iterations - done));
    job.start = scenario_.restart;
    fluid_.Restart(slot_[j], job);
    if (known_) {
      FluidJob known = JobOf(open_.prepared(), j, 0);
      known.start = scenario_.restart;
      known_->Restart(slot_[j], known);
    }
    reasons->push_back(fmt::format("{} restarts as {}", scenario_.jobs[j].name, NameOf(j, way)));
  }

  const std::string& NameOf(size_t j, size_t way) const {
    const ScenarioJob& job = open_.scenario().jobs[j];
    return way == 0 ? job.way : job.others[way - 1].name;
  }

  void Begin(size_t j) {
    way_[j] = policy_ == SimulationPolicy::kLayersApart ? 0 : open_.FirstWay(j);
    slot_[j] = fluid_.Add(JobOf(open_.truth(), j, scenario_.jobs[j].iterations));
    if (known_) known_->Add(JobOf(open_.prepared(), j, 0));
    of_slot_.push_back(j);
  }

  /// Those of the jobs that wait for hosts which begin now.
  Status BeginJobs(std::vector<std::string>* reasons) {
    open_.Plan(fluid_.now(), {.left = [this](size_t j) { return TimeLeft(j); }, .stretch = Stretch()});
    WEFT_ASSIGN_OR_RETURN(const std::vector<size_t> begun, open_.BeginAll());
    for (const size_t j : begun) {
      Begin(j);
      reasons->push_back(fmt::format("{} begins", scenario_.jobs[j].name));
    }
    return Ok();
  }

  /// Until the job leaves, as fast as it has run so far.
  Seconds TimeLeft(size_t j) const {
    const int64_t iterations = slot_[j] == kNowhere ? 0 : fluid_.job(slot_[j]).iterations;
    if (iterations == 0) return Seconds(std::numeric_limits<double>::infinity());
    const FluidProgress& progress = fluid_.progress(slot_[j]);
    const auto done = static_cast<double>(progress.durations.size());
    const double each = done > 0 ? (progress.end - progress.begin) / done : open_.prepared().jobs[j].ways[way_[j]].alone.count() * Stretch();
    return Seconds(std::max(0.0, progress.begin + each * static_cast<double>(iterations) - fluid_.now().count()));
  }

  /// How much longer iterations have taken than alone, in the mean over the jobs that run.
  double Stretch() const {
    double sum = 0, count = 0;
    for (const size_t j : Present()) {
      const FluidProgress& progress = fluid_.progress(slot_[j]);
      if (progress.durations.empty()) continue;
      const double each = (progress.end - progress.begin) / static_cast<double>(progress.durations.size());
      sum += each / open_.prepared().jobs[j].ways[way_[j]].alone.count();
      count += 1;
    }
    return count > 0 ? std::max(1.0, sum / count) : 1;
  }

  FluidJob JobOf(const PreparedScenario& prepared, size_t j, int64_t iterations) const {
    FluidJob job = FluidOf(prepared.jobs[j].ways[way_[j]].routable);
    job.iterations = iterations;
    return job;
  }

  std::vector<size_t> Present() const {
    std::vector<size_t> present;
    for (size_t j = 0; j < slot_.size(); ++j) {
      if (slot_[j] != kNowhere && fluid_.present(slot_[j])) present.push_back(j);
    }
    return present;
  }

  /// Whether the policy may divide a flow between several ways, as Weft's senders do.
  bool Divides() const {
    return policy_ == SimulationPolicy::kWeft || policy_ == SimulationPolicy::kHorizontal || policy_ == SimulationPolicy::kVertical;
  }

  /// The way with the paths that can be used now; their numbers are added to `usable`.
  RoutableJob Usable(const RoutableJob& all, std::vector<std::vector<size_t>>* usable) const {
    RoutableJob job{.gpus = all.gpus, .compute = all.compute, .release = all.release, .flows = {}, .bursts = all.bursts};
    for (const RoutableFlow& known : all.flows) {
      std::vector<size_t>& numbers = usable->emplace_back(UsablePaths(known, capacity_));
      if (!Divides()) std::erase_if(numbers, [&](size_t p) { return p >= known.WholePaths(); });
      RoutableFlow flow{.bytes = known.bytes, .paths = {}, .per_burst = known.per_burst};
      for (const size_t p : numbers) {
        flow.paths.push_back(known.paths[p]);
        if (p < known.shares.size()) flow.shares.push_back(known.shares[p]);
        if (p < known.WholePaths()) continue;
        std::vector<double>& divided = flow.divided.emplace_back();
        for (size_t whole = 0; whole < flow.WholePaths(); ++whole) divided.push_back(known.divided[p - known.WholePaths()][numbers[whole]]);
      }
      job.flows.push_back(std::move(flow));
    }
    return job;
  }

  bool BeginsNow(size_t j) const { return fluid_.progress(slot_[j]).begin == fluid_.now().count(); }

  /// Whether kWeft may run job j in another way, if it is still to begin, or may advise to.
  bool HasWays(size_t j) const {
    return policy_ == SimulationPolicy::kWeft && scenario_.jobs[j].joint && open_.prepared().jobs[j].ways.size() > 1;
  }

  /// With the ways of jobs that begin now; `running`: of those that run in their stead.
  Situation Look(const std::vector<size_t>& present, bool running, UsableNumbers* usable) const {
    const FluidSimulation& state = known_ ? *known_ : fluid_;
    Situation situation{.topology = topology_, .capacity = capacity_, .state = {std::shared_ptr<void>(), &state},
                        .classes = scenario_.classes, .seed = seed_, .objective = options_.objective, .predicted = known_.has_value(), .horizon = scenario_.duration - fluid_.now()};
    if (scenario_.windows != ScenarioWindows::kFree) {
      const bool senders = scenario_.windows == ScenarioWindows::kSenders;
      situation.measured = MeasuredRules{.steady = std::vector<bool>(present.size(), senders)};
    }
    for (const size_t j : present) {
      const PreparedJob& job = open_.prepared().jobs[j];
      const ScenarioJob& spec = open_.scenario().jobs[j];
      std::vector<std::vector<std::vector<size_t>>>& numbers = usable->emplace_back(job.ways.size());
      situation.jobs.push_back(Usable(job.ways[way_[j]].routable, &numbers[way_[j]]));
      std::vector<SituationWay>& ways = situation.ways.emplace_back();
      for (size_t w = 0; HasWays(j) && BeginsNow(j) != running && w < job.ways.size(); ++w) {
        numbers[w].clear();
        ways.push_back({NameOf(j, w), Usable(job.ways[w].routable, &numbers[w]), job.ways[w].alone, open_.PlacesOf(j, w)});
      }
      situation.way.push_back(way_[j]);
      situation.names.push_back(spec.name);
      situation.keys.push_back(job.key);
      situation.alone.push_back(job.ways[way_[j]].alone);
      situation.best_alone.push_back(job.alone());
      situation.useful.push_back(spec.work);
      situation.slots.push_back(slot_[j]);
      std::vector<size_t>& in_use = situation.present.emplace_back();
      for (size_t f = 0; f < paths_[j].size(); ++f) {
        const std::vector<size_t>& of_flow = numbers[way_[j]][f];
        const auto at = std::find(of_flow.begin(), of_flow.end(), paths_[j][f]);
        in_use.push_back(at == of_flow.end() ? 0 : static_cast<size_t>(at - of_flow.begin()));
      }
    }
    return situation;
  }

  DecideBudget Budget() const { return {options_.evaluations, options_.work}; }

  Result<Decision> Ask(const Situation& situation) const {
    switch (policy_) {
      case SimulationPolicy::kEcmp: return DecideEcmp(situation, seed_);
      case SimulationPolicy::kWeft:
      case SimulationPolicy::kHorizontal: return DecideJobs(situation, Budget());
      case SimulationPolicy::kVertical: return DecideVertical(situation);
      case SimulationPolicy::kLayersApart: return DecideEcmp(situation, seed_);
      case SimulationPolicy::kCrux: return DecideCrux(situation);
      case SimulationPolicy::kCassini: return DecideCassini(situation);
      case SimulationPolicy::kSincronia: return DecideSincronia(situation);
      case SimulationPolicy::kOptimal: return DecideOptimal(situation, options_.evaluations);
    }
    return Fail(Code::kInvalidArgument, fmt::format("policy {}, must be a known one", static_cast<int>(policy_)));
  }

  Status Decide(const std::vector<std::string>& reasons) {
    const std::vector<size_t> present = Present();
    std::vector<FluidSetting> settings(fluid_.jobs()), known(settings);
    if (!present.empty()) {
      UsableNumbers usable;
      const Situation situation = Look(present, false, &usable);
      WEFT_ASSIGN_OR_RETURN(const Decision decision, Ask(situation));
      for (size_t i = 0; i < present.size(); ++i) {
        const size_t j = present[i];
        if (!decision.ways.empty()) TakeWay(j, decision.ways[i]);
        paths_[j].clear();
        for (size_t f = 0; f < decision.paths[i].size(); ++f) paths_[j].push_back(usable[i][way_[j]][f][decision.paths[i][f]]);
        classes_[j] = decision.classes[i];
        gate_periods_[j] = decision.gates[i].period;
        settings[slot_[j]] = {LoadsOf(OnPaths(open_.truth().jobs[j].ways[way_[j]].routable, paths_[j])), decision.classes[i], decision.gates[i]};
        if (known_) {
          known[slot_[j]] = settings[slot_[j]];
          known[slot_[j]].loads = LoadsOf(OnPaths(open_.prepared().jobs[j].ways[way_[j]].routable, paths_[j]));
        }
      }
      Report(reasons, decision);
      for (const size_t j : present) {
        if (!open_.IsSettled(j)) SettlePlaces(j);
      }
    }
    // Advice is about jobs that ran before, under what is in force from now on.
    const bool advises = std::ranges::any_of(present, [&](size_t j) { return HasWays(j) && !BeginsNow(j); });
    fluid_.Apply(std::move(settings));
    if (known_) known_->Apply(std::move(known));
    if (advises) Advise(present);
    return Ok();
  }

  void Advise(const std::vector<size_t>& present) {
    UsableNumbers usable;
    const Situation situation = Look(present, true, &usable);
    Decision in_force{.paths = situation.present, .classes = {}, .gates = {}};
    for (const size_t slot : situation.slots) {
      in_force.classes.push_back(situation.state->setting(slot).priority);
      in_force.gates.push_back(situation.state->setting(slot).gate);
    }
    for (RestartAdvice& advice : AdviseRestarts(situation, in_force, scenario_.restart, Budget())) {
      const auto same = [&](const RestartAdvice& before) { return before.job == advice.job; };
      const auto last = std::find_if(record_.advice.rbegin(), record_.advice.rend(), same);
      if (last != record_.advice.rend() && last->way == advice.way) continue;
      if (record_.advice.size() >= kMostDecisionLines) return;
      log_.Add(fmt::format("  {}: restarted as {} an iteration takes {:.4g} s in place of {:.4g} s, goodput {:.4f} in place of {:.4f}; pays "
                           "for itself {:.4g} s after it", advice.job, advice.way, advice.then.count(), advice.now.count(),
                           advice.goodput_then, advice.goodput_now, advice.pays_after.count()));
      record_.advice.push_back(std::move(advice));
    }
  }

  void TakeWay(size_t j, size_t way) {
    if (std::exchange(way_[j], way) == way) return;
    fluid_.Restart(slot_[j], JobOf(open_.truth(), j, scenario_.jobs[j].iterations));
    if (known_) known_->Restart(slot_[j], JobOf(open_.prepared(), j, 0));
  }

  void SettlePlaces(size_t j) {
    way_[j] = open_.Settle(j, way_[j]);
    log_.Add(fmt::format("  {}: on {}", scenario_.jobs[j].name, fmt::join(open_.HostsOf(j), " ")));
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
    if (known_) known_->Run(fluid_.now());
    epoch.length = fluid_.now() - from;
    for (const size_t j : epoch.present) {
      if (fluid_.present(slot_[j])) continue;
      left_.push_back(scenario_.jobs[j].name);
      open_.Leave(j);
      if (known_) known_->Remove(slot_[j]);
    }
    for (size_t l = 0; l < capacity_.size(); ++l) record_.possible[l] += capacity_[l].value() * epoch.length.count();
    record_.epochs.push_back(std::move(epoch));
  }

  void Finish() {
    for (size_t j = 0; j < slot_.size(); ++j) {
      record_.jobs.push_back(slot_[j] == kNowhere ? FluidProgress{} : fluid_.progress(slot_[j]));
      record_.hosts.push_back(open_.HostsOf(j));
    }
    record_.opened = open_.opened();
    record_.classes = classes_;
    record_.gate_periods = gate_periods_;
    record_.ways = way_;
    record_.paths = paths_;
    record_.carried = fluid_.LinkBits();
    record_.events = fluid_.events();
    record_.decisions = std::move(log_).Take();
    for (JobPhase& phase : record_.trace.phases) phase.job = of_slot_[phase.job];
  }

  const Scenario& scenario_;
  OpenJobs open_;
  const SimulationPolicy policy_;
  const SimulationOptions& options_;
  const uint64_t seed_;
  Topology topology_;                     // with the capacities of now
  FluidSimulation fluid_;                 // what happens
  std::optional<FluidSimulation> known_;  // what the policy takes for it, where that is something else
  std::vector<size_t> slot_, of_slot_;    // job to number in fluid_ and back
  std::vector<size_t> way_;               // per job
  std::vector<std::vector<size_t>> paths_;  // in use, per job and flow, among all
  std::vector<int32_t> classes_;          // per job, as decided last
  std::vector<Seconds> gate_periods_;
  std::vector<BitsPerSecond> capacity_;
  std::vector<Seconds> times_;            // of arrivals and faults
  std::vector<std::string> left_;         // jobs, since the last decision
  DecisionLog log_{kMostDecisionLines};
  RunRecord record_;
};

}  // namespace

Result<RunRecord> RunScenario(const Scenario& scenario, const PreparedScenario& prepared, const PreparedScenario& truth,
                              SimulationPolicy policy, const SimulationOptions& options, uint64_t seed) {
  return ScenarioRun(scenario, prepared, truth, policy, options, seed).Run();
}

}  // namespace weft::planner::jobs
