#include "tests/real/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace weft::real {
namespace {

constexpr double kWhole = 16;  // weight of a lane that carries all
constexpr Seconds kPoll{0.02};
constexpr Seconds kRenewEvery{1};
constexpr Seconds kPatience{60};        // eight ranks that load LibTorch on two cores
constexpr Seconds kLease{10};
constexpr Seconds kTraceInterval{0.025};
constexpr int kHighClass = 0x68;        // the one that the fabric's ports put first
constexpr int kFirstRendezvous = 29800;
constexpr Seconds kCalibration{4};
constexpr Seconds kFirstStep{5};        // until replayed jobs have made one
constexpr double kPoliciesPerDraw = 2;  // one to place the jobs, one to measure under
constexpr double kContention = 2;       // times an iteration alone

void Sleep(Seconds time) { std::this_thread::sleep_for(time); }

}  // namespace

Result<std::unique_ptr<Experiment>> Experiment::Start(const ExperimentOptions& options) {
  std::unique_ptr<Experiment> made(new Experiment(options));
  WEFT_ASSIGN_OR_RETURN(made->fabric_, testbed::Fabric::Create(options.fabric));
  for (const testbed::FabricHost& host : made->fabric_->hosts()) {
    WEFT_ASSIGN_OR_RETURN(made->hosts_[host.name], Host::Start(options.installation.RunDirOf(host.name)));
  }
  made->goodput_ = options.goodput;
  if (Status status = options.goodput.value() > 0 ? Ok() : made->Calibrate(); !status) return Fail(status.error().WithContext("measure goodput"));
  made->model_ = MakeModel(options.fabric, options.jobs, made->goodput_, options.divided);
  return made;
}

/// One flow per direction of the first job's hosts, nothing but communication, nobody else there.
Status Experiment::Calibrate() {
  JobSpec spec = options_.jobs.front();
  spec.name = "calibration";
  spec.compute = Seconds(0);
  spec.bursts.clear();
  WEFT_ASSIGN_OR_RETURN(FabricJob job,
                        FabricJob::Start(*fabric_, options_.installation, spec, kFirstRendezvous, kCalibration));
  WEFT_RETURN_IF_ERROR(job.Finish(kCalibration + kPatience));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Step> steps, job.Steps());
  const Iterations found = WholeIterations(steps, steps.front().end_s, steps.back().end_s);
  if (found.count < 3) return Fail(Code::kInternal, fmt::format("{} iterations within {} s", found.count, kCalibration.count()));
  const auto ranks = static_cast<int64_t>(spec.hosts.size());
  goodput_ = Bytes(spec.bytes.count() * 2 * (ranks - 1) / ranks) / found.mean;
  return Ok();
}

Status Experiment::Launch() {
  WEFT_ASSIGN_OR_RETURN(sent_before_, PortBytes(true));
  WEFT_ASSIGN_OR_RETURN(arrived_before_, PortBytes(false));
  int port = kFirstRendezvous;
  std::vector<TraceSampler::Port> ports;
  for (const JobSpec& spec : options_.jobs) {
    WEFT_ASSIGN_OR_RETURN(FabricJob job,
                          FabricJob::Start(*fabric_, options_.installation, spec, ++port, Length() + kFirstStep));
    jobs_.push_back(std::move(job));
    // Behind the spines: what a job has got, and not what it has offered.
    const auto& hosts = fabric_->hosts();
    const auto to = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const auto& host) { return host.name == spec.hosts[1]; });
    ports.push_back({spec.name, to->leaf, to->name});
  }
  WEFT_ASSIGN_OR_RETURN(sampler_, TraceSampler::Start(*fabric_, ports, kTraceInterval));
  return AwaitFlows();
}

Status Experiment::AwaitFlows() {
  const double deadline = MonotonicSeconds() + kPatience.count();
  for (FabricJob& job : jobs_) {
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<Step> steps, job.Steps());
      if (!steps.empty()) break;
      if (MonotonicSeconds() > deadline) {
        return Fail(Code::kDeadlineExceeded, fmt::format("job {} made no step in {} s", job.spec().name, kPatience.count()));
      }
      Sleep(kPoll);
    }
  }
  return Ok();
}

/// The host that a flow goes to.
Result<std::string> Experiment::PeerOf(const SendFlow& flow) const {
  for (const testbed::FabricHost& host : fabric_->hosts()) {
    if (host.data_address == flow.identity.peer_address()) return host.name;
  }
  return Fail(Code::kNotFound, fmt::format("a flow goes to {}, which is no host's address", flow.identity.peer_address()));
}

/// A source port whose packets the switches send over `spine`. The fabric itself is asked: finding ports by probes is
/// the agent's business, and has its own tests.
Result<uint16_t> Experiment::PortOver(const SendFlow& flow, const std::string& from, const std::string& to,
                                      const std::string& spine) {
  if (const auto known = ports_.find({flow.identity.flow(), spine}); known != ports_.end()) return known->second;
  for (int tries = 0; tries < 64; ++tries) {
    const uint16_t port = next_port_;
    next_port_ = static_cast<uint16_t>(next_port_ + 2);  // fair ports tell flows apart by all but the lowest bit
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> path,
                          fabric_->PathOf({from, to, port, static_cast<uint16_t>(flow.identity.peer_port())}));
    if (!spine.empty() && std::find(path.begin(), path.end(), spine) == path.end()) continue;
    return ports_[{flow.identity.flow(), spine}] = port;
  }
  return Fail(Code::kNotFound, fmt::format("{} to {}: none of 64 ports leads over {}", from, to, spine));
}

/// One lane per path, open for good: a re-path is a change of weights. What the decision leaves out (a norm's eight bytes)
/// goes over any path.
Status Experiment::AddLanes(const Decision& decision, size_t job, size_t rank, const SendFlow& flow, v1::FlowPolicy* policy) {
  const JobSpec& spec = options_.jobs[job];
  WEFT_ASSIGN_OR_RETURN(const std::string peer, PeerOf(flow));
  const auto add = [&](const std::string& spine, int weight) -> Status {
    WEFT_ASSIGN_OR_RETURN(const uint16_t port, PortOver(flow, spec.hosts[rank], peer, spine));
    v1::LanePolicy* lane = policy->add_lanes();
    lane->set_source_port(port);
    lane->set_weight(weight);
    return Ok();
  };
  const std::vector<JobSpec::Flow> flows = FlowsOf(spec);
  const auto is_it = [&](const JobSpec::Flow& one) { return one.from == rank && spec.hosts[one.to] == peer; };
  const auto mine = std::ranges::find_if(flows, is_it);
  if (mine == flows.end()) return add("", 1);
  const auto f = static_cast<size_t>(mine - flows.begin());
  const std::vector<double> shares = planner::SharesOf(model_.jobs[job].flows[f], decision.paths[job][f]);
  for (size_t path = 0; path < shares.size(); ++path) {
    WEFT_RETURN_IF_ERROR(add(SpineOf(model_, job, f, path), static_cast<int>(std::lround(kWhole * shares[path]))));
  }
  return Ok();
}

Result<v1::FlowPolicy> Experiment::PolicyOf(const Decision& decision, size_t job, size_t rank, const SendFlow& flow,
                                            bool in_place) {
  v1::FlowPolicy policy;
  policy.set_flow(flow.identity.flow());
  WEFT_RETURN_IF_ERROR(AddLanes(decision, job, rank, flow, &policy));
  policy.set_traffic_class(decision.classes[job] == 0 ? kHighClass : 0);
  policy.set_lease_s(kLease.count());
  if (decision.shifts && decision.shifts->gated[job]) {
    const Shifts& shifts = *decision.shifts;
    const Seconds first = FirstBurst(model_, OnPaths(model_, decision.paths)[job], shifts.period);
    policy.set_window_period_s(shifts.period.count());
    policy.set_window_offset_s(base_s_ + (first + shifts.shift[job]).count());
    policy.set_window_length_s((in_place ? shifts.wide : shifts.tight).count());
  }
  return policy;
}

/// When an iteration of the cycle begins: so that the first gated job stays where its bursts are now.
double Experiment::WindowBase(const Decision& decision) {
  if (!decision.shifts) return 0;
  const Shifts& shifts = *decision.shifts;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (!shifts.gated[j]) continue;
    const JobSpec& spec = options_.jobs[j];
    for (const SendFlow& flow : hosts_[spec.hosts[0]]->SendFlows(spec.name)) {
      const double burst_s = flow.counters.iteration_start_s();
      const Seconds first = FirstBurst(model_, OnPaths(model_, decision.paths)[j], shifts.period);
      if (burst_s > 0) return burst_s - (first + shifts.shift[j]).count();
    }
  }
  return MonotonicSeconds();
}

Status Experiment::Apply(const Decision& decision, bool in_place) {
  ++epoch_;
  if (!in_place) base_s_ = WindowBase(decision);
  for (size_t j = 0; j < options_.jobs.size(); ++j) {
    const JobSpec& spec = options_.jobs[j];
    for (size_t rank = 0; rank < spec.hosts.size(); ++rank) {
      Host& host = *hosts_[spec.hosts[rank]];
      v1::JobPolicy policy;
      policy.set_job_id(spec.name);
      policy.set_epoch(epoch_);
      for (const SendFlow& flow : host.SendFlows(spec.name)) {
        WEFT_ASSIGN_OR_RETURN(*policy.add_flows(), PolicyOf(decision, j, rank, flow, in_place));
      }
      WEFT_RETURN_IF_ERROR(host.Apply(policy));
    }
  }
  return AwaitInForce(epoch_);
}

/// Until every flow that has sent something runs the epoch on the lane that it names.
Status Experiment::AwaitInForce(int64_t epoch) {
  const double deadline = MonotonicSeconds() + kPatience.count();
  for (const JobSpec& spec : options_.jobs) {
    for (const std::string& name : spec.hosts) {
      const auto in_force = [&](const SendFlow& flow) {
        if (flow.counters.bytes() == 0) return true;  // a connection that the job never uses never asks for its policy
        if (flow.counters.policy_epoch() < epoch) return false;
        for (const auto& lane : flow.counters.lanes()) {
          if (lane.weight() > 0 && ports_.end() != std::find_if(ports_.begin(), ports_.end(), [&](const auto& known) {
                return known.second == lane.source_port();
              })) return true;
        }
        return false;
      };
      while (true) {
        const std::vector<SendFlow> flows = hosts_[name]->SendFlows(spec.name);
        if (!flows.empty() && std::all_of(flows.begin(), flows.end(), in_force)) break;
        if (MonotonicSeconds() > deadline) {
          return Fail(Code::kDeadlineExceeded, fmt::format("epoch {} of job {} does not come into force on {}", epoch,
                                                           spec.name, name));
        }
        Sleep(kPoll);
      }
    }
  }
  return Ok();
}

Status Experiment::Wait(Seconds time) {
  const double end = MonotonicSeconds() + time.count();
  for (double left = time.count(); left > 0; left = end - MonotonicSeconds()) {
    for (auto& [name, host] : hosts_) host->Renew();
    Sleep(std::min(kRenewEvery, Seconds(left)));
    for (FabricJob& job : jobs_) {
      WEFT_RETURN_IF_ERROR(job.Steps());
      if (job.Running()) continue;
      return Fail(Code::kDeadlineExceeded, fmt::format("job {} ended before all was measured", job.spec().name));
    }
  }
  return Ok();
}

std::pair<int64_t, Seconds> Experiment::HeldSoFar(size_t j) {
  int64_t holds = 0;
  Seconds held{0};
  const JobSpec& spec = options_.jobs[j];
  for (const std::string& host : spec.hosts) {
    for (const SendFlow& flow : hosts_[host]->SendFlows(spec.name)) {
      holds += flow.counters.gate_holds();
      held += Seconds(flow.counters.gate_held_s());
    }
  }
  return {holds, held};
}

Result<Outcome> Experiment::RunDraw(const std::string& policy, const Decision& decision, uint32_t draw) {
  if (options_.placed) {
    Decision placing = decision;
    if (!decision.shifts) placing.shifts = DrawPhases(model_, decision.paths, draw);
    WEFT_RETURN_IF_ERROR(Apply(placing, /*in_place=*/false));
    WEFT_RETURN_IF_ERROR(Wait(options_.settle));
  }
  WEFT_RETURN_IF_ERROR(Apply(decision, /*in_place=*/true));
  if (!options_.placed) WEFT_RETURN_IF_ERROR(Wait(options_.settle));
  const double from_s = MonotonicSeconds();
  WEFT_ASSIGN_OR_RETURN(ports_before_, FirstPorts());
  held_before_.clear();
  for (size_t j = 0; j < jobs_.size(); ++j) held_before_.push_back(HeldSoFar(j));
  WEFT_RETURN_IF_ERROR(Wait(decision.shifts ? options_.phase : options_.phase / options_.draws));
  return Measure(policy, decision, from_s, MonotonicSeconds());
}

Result<Outcome> Experiment::Run(const std::string& policy, const Decision& decision) {
  const int draws = decision.shifts ? 1 : options_.draws;
  Outcome all;
  for (int draw = 0; draw < draws; ++draw) {
    auto outcome = RunDraw(policy, decision, static_cast<uint32_t>(draw));
    if (!outcome) return Fail(outcome.error().WithContext(policy));
    for (size_t j = 0; j < outcome->jobs.size() && draw > 0; ++j) {
      outcome->jobs[j].measured += all.jobs[j].measured;
      outcome->jobs[j].simulated += all.jobs[j].simulated;
      outcome->jobs[j].iterations += all.jobs[j].iterations;
    }
    all = std::move(*outcome);  // the rest is of the last draw
  }
  for (JobOutcome& job : all.jobs) {
    job.measured /= draws;
    job.simulated /= draws;
  }
  return all;
}

/// A policy comes into force when a flow sends next, up to an iteration later, and under contention iterations are longer.
Seconds Experiment::Length() const {
  planner::JobPaths first_ways;
  for (const planner::RoutableJob& job : model_.jobs) first_ways.emplace_back(job.flows.size(), 0);
  Seconds slowest{0};
  for (const planner::PeriodicJob& job : OnPaths(model_, first_ways)) {
    slowest = std::max(slowest, planner::IterationAlone(model_.capacity, job));
  }
  const Seconds into_force = slowest * (kPoliciesPerDraw * kContention);
  const Seconds once = options_.phase + (options_.settle + Seconds(0.5) + into_force) * static_cast<double>(options_.draws);
  return once * static_cast<double>(options_.phases);
}

Result<Outcome> Experiment::Measure(const std::string& policy, const Decision& decision, double from_s, double to_s) {
  Outcome outcome{.policy = policy, .jobs = {}, .trace = Between(sampler_->Read(), from_s, to_s)};
  std::map<std::string, std::vector<size_t>> by_spine;
  if (decision.shifts) outcome.window_period = decision.shifts->period;
  const std::vector<planner::PeriodicJob> on_paths = OnPaths(model_, decision.paths);
  WEFT_ASSIGN_OR_RETURN(const std::vector<testbed::LinkCounters> ports, FirstPorts());
  std::vector<double> begins(jobs_.size(), 0);
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const JobSpec& spec = jobs_[j].spec();
    JobOutcome job{.name = spec.name, .spines = {}, .traffic_class = decision.classes[j]};
    for (size_t f = 0; f < decision.paths[j].size(); ++f) {
      job.spines.push_back(SpineOf(model_, j, f, decision.paths[j][f]));
    }
    job.alone = planner::IterationAlone(model_.capacity, on_paths[j]);
    WEFT_ASSIGN_OR_RETURN(const std::vector<Step> steps, jobs_[j].Steps());
    const Iterations found = WholeIterations(steps, from_s, to_s);
    job.measured = found.mean, job.median = found.median, job.iterations = found.count, begins[j] = found.begin_s;
    if (job.iterations == 0) {
      return Fail(Code::kDeadlineExceeded,
                  fmt::format("job {} made no whole iteration in {:.1f} s", spec.name, to_s - from_s));
    }
    const auto [holds, held] = HeldSoFar(j);
    job.holds = holds - held_before_[j].first;
    job.held = held - held_before_[j].second;
    const auto sent = static_cast<double>(ports[j].bytes - ports_before_[j].bytes);
    job.marked = static_cast<double>(ports[j].priority_bytes - ports_before_[j].priority_bytes) / std::max(1.0, sent);
    by_spine[job.spines.front()].push_back(j);
    outcome.jobs.push_back(std::move(job));
  }
  const double start = *std::min_element(begins.begin(), begins.end());
  std::vector<Seconds> starts;
  for (const double begin : begins) starts.push_back(Seconds(begin - start));
  const std::vector<Seconds> simulated = Predict(model_, decision, starts, Seconds(to_s - start));
  for (size_t j = 0; j < simulated.size(); ++j) outcome.jobs[j].simulated = simulated[j];
  std::vector<std::vector<size_t>> groups;
  for (auto& [spine, members] : by_spine) groups.push_back(std::move(members));
  outcome.shared_bytes = SharedBytes(outcome.trace, groups);
  return outcome;
}

Result<std::vector<testbed::LinkCounters>> Experiment::FirstPorts() {
  WEFT_ASSIGN_OR_RETURN(const auto counters, fabric_->ReadCounters());
  const std::vector<testbed::FabricLink> links = fabric_->links();
  std::vector<testbed::LinkCounters> ports(options_.jobs.size());
  for (size_t j = 0; j < ports.size(); ++j) {
    for (size_t i = 0; i < links.size(); ++i) {
      if (links[i].from == options_.jobs[j].hosts[0]) ports[j] = counters[i];
    }
  }
  return ports;
}

/// Of the first ranks' hosts (sending), or of the ports behind the spines to the second ranks' hosts.
Result<int64_t> Experiment::PortBytes(bool sending) {
  WEFT_ASSIGN_OR_RETURN(const auto counters, fabric_->ReadCounters());
  const std::vector<testbed::FabricLink> links = fabric_->links();
  int64_t sum = 0;
  for (const JobSpec& spec : options_.jobs) {
    for (size_t i = 0; i < links.size(); ++i) {
      if (sending ? links[i].from == spec.hosts[0] : links[i].to == spec.hosts[1]) sum += counters[i].bytes;
    }
  }
  return sum;
}

Result<Ending> Experiment::Finish() {
  Ending ending;
  for (auto& [name, host] : hosts_) ending.rejected += host->rejected();
  for (FabricJob& job : jobs_) {
    WEFT_ASSIGN_OR_RETURN(const JobEnd end, job.Finish(Length() + kPatience));
    ending.jobs.push_back(end);
  }
  WEFT_ASSIGN_OR_RETURN(ending.sent_bytes, PortBytes(true));
  WEFT_ASSIGN_OR_RETURN(ending.arrived_bytes, PortBytes(false));
  ending.sent_bytes -= sent_before_;
  ending.arrived_bytes -= arrived_before_;
  return ending;
}

}  // namespace weft::real
