#include "controller/testing/fake_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace weft::controller::testing {
namespace {

constexpr int kBasePort = 41000;
constexpr int kPorts = 8;
constexpr double kStep = 0.01;
constexpr int kSampleSteps = 20;
constexpr double kSegment = 1500;
constexpr double kHostZero = 5000;  // hosts' clocks begin elsewhere
constexpr size_t kMedianOf = 16;    // distances of bursts, that an agent's period is the median of

uint64_t Nanoseconds(double seconds) { return static_cast<uint64_t>(std::llround(seconds * 1e9)); }

}  // namespace

FakeCluster::FakeCluster(Core& core, int leaves, int spines, int hosts_per_leaf, double rate_bps)
    : core_(&core), spines_(spines), hosts_per_leaf_(hosts_per_leaf), rate_(rate_bps) {
  for (int i = 1; i <= leaves * hosts_per_leaf; ++i) hosts_.push_back(fmt::format("h{}", i));
}

void FakeCluster::Send(Event event) {
  event.time = Seconds(now_);
  if (on_event) on_event(event);
  std::vector<JobsPlanned> ready;
  std::vector<PathsPlanned> paths;
  const auto began = std::chrono::steady_clock::now();
  std::vector<Action> answered = core_->Handle(event);
  double& longest = longest_s[event.body.index()];
  longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  for (Action& action : answered) {
    Apply(action);
    if (const auto* question = std::get_if<PlanJobs>(&action); question != nullptr && answers) {
      ready.push_back({question->digest, std::make_shared<const planner::MultiJobPlan>(planner::PlanMultiJob(*question->problem))});
    }
    if (const auto* question = std::get_if<PlanPaths>(&action); question != nullptr && answers_paths && (answers_whole_paths || question->problem->quick)) {
      paths.push_back({question->number, std::make_shared<const planner::FlowPlan>(plan_paths(*question->problem))});
    }
    actions.push_back(std::move(action));
  }
  for (PathsPlanned& answer : paths) Send({.body = std::move(answer)});
  for (JobsPlanned& answer : ready) Send({.body = std::move(answer)});
}

void FakeCluster::Apply(const Action& action) {
  const auto* push = std::get_if<PushPolicy>(&action);
  if (push == nullptr) return;
  int64_t& epoch = epochs[push->policy.job_id() + " " + push->host];
  epoch = std::max(epoch, push->policy.epoch());
  if (!applies) return;
  applied_[push->host][push->policy.job_id()] = push->policy.epoch();
  for (const v1::FlowPolicy& policy : push->policy.flows()) {
    const auto flow = flows_.find(policy.flow());
    if (flow == flows_.end() || flow->second.from != push->host) continue;
    flow->second.tos = policy.lease_s() > 0 ? policy.traffic_class() : 0;
    abi::FlowPolicy entry{};
    entry.window_period_ns = Nanoseconds(policy.window_period_s());
    entry.window_offset_ns = Nanoseconds(policy.window_offset_s());
    entry.window_length_ns = Nanoseconds(policy.window_length_s());
    flow->second.gate.Set(entry, ClockNs(push->host));
    if (policy.lanes_size() == 0) continue;  // it keeps those that it has
    flow->second.weights.clear();
    for (const v1::LanePolicy& lane : policy.lanes()) flow->second.weights[lane.source_port()] = lane.weight();
  }
}

void FakeCluster::Register(const std::string& host, std::vector<std::pair<std::string, int64_t>> held) {
  v1::Register message;
  message.set_host(host), message.set_policy_flows(4096);
  message.set_incarnation(1 + registered_[host]);
  message.add_interfaces()->add_addresses("addr-" + host);
  for (const auto& [job, epoch] : held) {
    v1::JobEpoch* policy = message.add_policies();
    policy->set_job_id(job);
    policy->set_epoch(epoch);
  }
  registered_[host] = true;
  for (auto& [id, flow] : flows_) {
    if (flow.from == host) flow.announced = false;
  }
  Send({.body = HostRegistered{message}});
}

void FakeCluster::RegisterAll() {
  for (const std::string& host : hosts_) Register(host);
}

int FakeCluster::LeafOf(const std::string& host) const {
  return (std::stoi(host.substr(1)) - 1) / hosts_per_leaf_ + 1;   // "h7"
}

std::vector<std::string> FakeCluster::HopsOf(const Flow& flow, int port) const {
  const int a = LeafOf(flow.from);
  const int b = LeafOf(flow.to);
  if (a == b) return {fmt::format("leaf{}", a)};
  return {fmt::format("leaf{}", a), fmt::format("spine{}", (port + route_shift_) % spines_ + 1), fmt::format("leaf{}", b)};
}

std::vector<FakeCluster::LinkKey> FakeCluster::PathOf(const Flow& flow, int port) const {
  std::vector<LinkKey> links;
  std::string at = flow.from;
  for (const std::string& hop : HopsOf(flow, port)) {
    links.emplace_back(at, hop);
    at = hop;
  }
  links.emplace_back(at, flow.to);
  return links;
}

double FakeCluster::CapacityOf(const LinkKey& link) const {
  const auto set = capacity_.find(link);
  const auto taken = constant_.find(link);
  return std::max(1e3, (set == capacity_.end() ? rate_ : set->second) - (taken == constant_.end() ? 0 : taken->second));
}

void FakeCluster::Start(const FakeJob& job, int spine) {
  JobRun& run = jobs_[job.id];
  run = JobRun{.job = job, .flows = {}, .compute_left = job.compute_s, .started = now_, .iterations = {}};
  for (size_t rank = 0; rank < job.ring.size(); ++rank) {
    Open(run, job.ring[rank], job.ring[(rank + 1) % job.ring.size()], spine);
  }
}

FakeCluster::Flow& FakeCluster::Open(JobRun& run, const std::string& from, const std::string& to, int spine) {
  Flow flow;
  flow.id = next_flow_++;
  flow.job = run.job.id;
  flow.from = from;
  flow.to = to;
  const auto rank_on = [&](const std::string& host) { return static_cast<int>(std::ranges::find(run.job.ring, host) - run.job.ring.begin()); };
  flow.rank = rank_on(from), flow.peer_rank = rank_on(to);
  flow.burst_start = now_;  // where the job is sending at this moment
  const int port = 30000 + static_cast<int>(flow.id) * spines_ + spine - 30000 % spines_;
  flow.weights[port] = 1;
  flow.wire[port] = flow.wire_read[port] = 0;
  run.flows.push_back(flow.id);
  return flows_[flow.id] = flow;
}

void FakeCluster::AddFlow(const std::string& job_id, const std::string& from, const std::string& to) {
  Open(jobs_.at(job_id), from, to, 0);
}

void FakeCluster::AddFlow(const std::string& job_id, const std::string& from, const std::string& to, uint64_t comm, int rank, int peer_rank) {
  Flow& flow = Open(jobs_.at(job_id), from, to, 0);
  flow.comm = comm, flow.rank = rank, flow.peer_rank = peer_rank;
}

void FakeCluster::AddIdleFlow(const std::string& job_id, const std::string& from, const std::string& to, int spine) {
  Open(jobs_.at(job_id), from, to, spine).idle = true;
}

void FakeCluster::Restart(Core& core) {
  core_ = &core;
  for (auto& [id, flow] : flows_) flow.announced = false;
}

void FakeCluster::Finish(const std::string& job_id) {
  for (const uint64_t id : jobs_[job_id].flows) {
    closed_[flows_[id].from].push_back(id);
    flows_.erase(id);
  }
  jobs_.erase(job_id);
}

void FakeCluster::Probe(const std::string& job_id) {
  for (const uint64_t id : jobs_[job_id].flows) {
    const Flow& flow = flows_[id];
    v1::PathReport report;
    report.set_flow(id);
    report.set_local_address("addr-" + flow.from);
    report.set_peer_address("addr-" + flow.to);
    report.set_hop_count(static_cast<int>(HopsOf(flow, 0).size()));
    std::vector<int> ports;
    for (const auto& [port, bytes] : flow.wire) ports.push_back(port);
    for (int i = 0; i < kPorts; ++i) ports.push_back(kBasePort + i);
    for (const int port : ports) {
      v1::Path* path = report.add_paths();
      path->set_source_port(port);
      path->set_complete(true);
      for (const std::string& hop : HopsOf(flow, port)) path->add_hops(hop);
    }
    Send({.body = PathsReceived{flow.from, report}});
  }
}

double FakeCluster::Uniform() { return static_cast<double>(random_() >> 8) / static_cast<double>(1u << 24); }

double FakeCluster::ClockOf(const std::string& host) const {
  const auto drifting = clocks_.find(host);
  if (drifting == clocks_.end()) return now_ + kHostZero;
  return now_ + kHostZero + drifting->second.first + now_ * drifting->second.second;
}

void FakeCluster::SetClockDrift(const std::string& host, double drift) {
  const double gained = ClockOf(host) - now_ - kHostZero;
  clocks_[host] = {gained - now_ * drift, drift};
}

/// Lets flows begin whose gates open. True once all have: a ring goes on when its last member does.
bool FakeCluster::OpenGates(JobRun& run) {
  bool all = true;
  for (const uint64_t id : run.flows) {
    Flow& flow = flows_.at(id);
    if (flow.idle) continue;
    if (!flow.open) {
      const uint64_t now_ns = ClockNs(flow.from);
      flow.open = !flow.gate.armed() || flow.gate.Opens(now_ns, flow.progress_ns);
      uint64_t held_ns = 0;
      if (flow.gate.TakeHeld(&held_ns)) flow.held += static_cast<double>(held_ns) * 1e-9;
      if (flow.open) flow.burst_start = now_;
    }
    all = all && flow.open;
  }
  return all;
}

void FakeCluster::EndIteration(JobRun& run) {
  const double end = now_ + kStep;
  run.iterations.emplace_back(end, end - run.started);
  run.started = end;
  run.compute_left = run.job.compute_s * (1 + run.job.noise * (2 * Uniform() - 1));
  run.compute_left += run.late.second;
  if (run.stumble.first > 0 && run.iterations.size() % run.stumble.first == 0) run.compute_left += run.stumble.second;
  for (const uint64_t id : run.flows) {
    Flow& flow = flows_.at(id);
    if (flow.idle) continue;
    flow.busy += end - flow.burst_start;
    if (flow.to != run.late.first) flow.wait_peer += run.late.second;
    flow.starts.push_back(flow.burst_start + ClockOf(flow.from) - now_);
    if (flow.starts.size() > kMedianOf + 1) flow.starts.pop_front();
    flow.progress_ns = ClockNs(flow.from);
  }
}

void FakeCluster::Step(double dt) {
  std::vector<JobRun*> sending;
  for (auto& [id, run] : jobs_) {
    if (run.compute_left > 1e-9) {
      run.compute_left -= dt;
      run.held = run.compute_left <= 1e-9;
      if (!run.held) continue;
      run.bytes_left = run.job.bytes;
      for (const uint64_t flow : run.flows) flows_.at(flow).open = false;
    } else if (!run.held || OpenGates(run)) {
      run.held = false;
      sending.push_back(&run);
    }
  }
  SolveRates(sending);
  for (JobRun* run : sending) {
    if (FallsSilent(*run, dt)) continue;
    double moved = 0;
    for (const uint64_t id : run->flows) {
      Flow& flow = flows_[id];
      if (flow.idle || flow.rate <= 0) continue;  // those before it may leave it nothing
      moved = std::min(run->bytes_left, flow.rate / 8 * dt);
      flow.wait_wire += dt * std::min(1.0, flow.rate / flow.room) * moved / (flow.rate / 8 * dt);
      double sum = 0;
      for (const auto& [port, weight] : flow.weights) sum += weight;
      for (const auto& [port, weight] : flow.weights) {
        flow.wire[port] += moved * weight / sum;
        flow.again[port] += moved * weight / sum / kSegment * LossOf(PathOf(flow, port));
        if (!flow.queued.contains(port)) continue;
        flow.backlog_s[port] += dt * moved / (flow.rate / 8 * dt);
        flow.backlog_bytes[port] += moved * weight / sum;
      }
      for (const auto& [link, load] : LoadPerRate(flow)) carried_[link] += moved * load;
    }
    run->bytes_left -= moved;
    if (run->bytes_left > 1e-6) continue;
    EndIteration(*run);
  }
}

/// What an agent finds out about a flow's iterations, once there were four.
void FakeCluster::FillBurst(const Flow& flow, v1::FlowCounters& counters) const {
  counters.set_burst_busy_s(flow.busy * burst_share);
  counters.set_gate_held_s(flow.held);
  if (flow.starts.size() < 4) return;
  std::vector<double> distances;
  for (size_t i = 1; i < flow.starts.size(); ++i) distances.push_back(flow.starts[i] - flow.starts[i - 1]);
  std::nth_element(distances.begin(), distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2), distances.end());
  counters.set_period_s(distances[distances.size() / 2]);
  counters.set_iteration_start_s(flow.starts.back());
}

void FakeCluster::Sample(const std::string& host) {
  v1::HostSample sample;
  sample.set_time_s(ClockOf(host) - (most_delay_s > 0 ? most_delay_s * Uniform() : 0));
  for (auto& [id, flow] : flows_) {
    if (flow.from != host) continue;
    for (const auto& [port, bytes] : flow.wire) sample.set_nic_tx_bytes(sample.nic_tx_bytes() + static_cast<int64_t>(bytes));
    if (!flow.announced) {
      v1::FlowIdentity* identity = sample.add_opened();
      identity->set_flow(id);
      identity->set_job_id(flow.job);
      identity->set_send(true);
      identity->set_comm(flow.comm);
      identity->set_rank(flow.rank);
      identity->set_peer_rank(flow.peer_rank);
      identity->set_local_address("addr-" + flow.from);
      identity->set_peer_address("addr-" + flow.to);
      flow.announced = true;
    }
    v1::FlowCounters* counters = sample.add_counters();
    counters->set_flow(id);
    counters->set_send(true);
    counters->set_wait_wire_s(flow.wait_wire);
    if (measures_periods) FillBurst(flow, *counters);
    for (const auto& [port, weight] : flow.weights) flow.wire.try_emplace(port, 0);
    for (const auto& [port, bytes] : flow.wire) {
      v1::LaneCounters* lane = counters->add_lanes();
      lane->set_source_port(port);
      const auto weight = flow.weights.find(port);
      lane->set_weight(weight == flow.weights.end() ? 0 : weight->second);
      lane->set_state("active");
      lane->set_wire_bytes(static_cast<int64_t>(flow.wire_read[port]));
      lane->set_retransmits(static_cast<int64_t>(flow.again[port]));
      if (says_silence) lane->set_silent_s(flow.silent_s[port]);
      lane->set_rtt_s(flow.queued.contains(port) ? 0.02 : 0.002);
    }
  }
  for (auto& [id, flow] : flows_) {
    if (flow.to == host && flow.announced) FillArrivals(id, flow, *sample.add_counters());
  }
  for (const auto& [job, epoch] : applied_[host]) {
    v1::PolicyApplied* applied = sample.add_applied();
    applied->set_job_id(job);
    applied->set_epoch(epoch);
  }
  applied_[host].clear();
  for (const uint64_t id : closed_[host]) sample.add_closed(id);
  closed_[host].clear();
  sample.set_nic_counts_all(true);
  if (retouch) retouch(sample);
  Send({.body = SampleReceived{host, sample}});
}

void FakeCluster::Run(double seconds) {
  const int64_t until = steps_ + std::llround(seconds / kStep);
  while (steps_ < until) {
    Step(kStep);
    now_ = static_cast<double>(++steps_) * kStep;
    if (steps_ % 10 == 0) {
      for (auto& [id, flow] : flows_) {
        flow.wire_read = flow.wire;
        flow.backlog_s_read = flow.backlog_s;
        flow.backlog_bytes_read = flow.backlog_bytes;
      }
    }
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (registered_[hosts_[i]] && (steps_ + static_cast<int64_t>(i) * 3) % kSampleSteps == 0) Sample(hosts_[i]);
    }
    if (steps_ % tick_steps == tick_steps / 2) Send({.body = Tick{}});
  }
}

double FakeCluster::Iteration(const std::string& job_id, double seconds) const {
  double sum = 0;
  int count = 0;
  for (const auto& [end, duration] : jobs_.at(job_id).iterations) {
    if (end < now_ - seconds) continue;
    sum += duration;
    ++count;
  }
  return count == 0 ? 1e300 : sum / count;
}

const std::vector<std::pair<double, double>>& FakeCluster::Iterations(const std::string& job_id) const {
  return jobs_.at(job_id).iterations;
}

double FakeCluster::Carried(const std::string& from, const std::string& to) const {
  const auto found = carried_.find({from, to});
  return found == carried_.end() ? 0 : found->second;
}

int FakeCluster::TosOf(const std::string& job_id, const std::string& host) const {
  for (const auto& [id, flow] : flows_) {
    if (flow.job == job_id && flow.from == host) return flow.tos;
  }
  return -1;
}

bool FakeCluster::HasWindow(const std::string& job_id, const std::string& host) const {
  return std::any_of(flows_.begin(), flows_.end(), [&](const auto& entry) {
    return entry.second.job == job_id && entry.second.from == host && entry.second.gate.armed();
  });
}

}  // namespace weft::controller::testing
