// What the core tells people and tools.
#include <algorithm>

#include "controller/core.h"
#include "controller/job_reduction.h"
#include "controller/link_load.h"

namespace weft::controller {

namespace {

void AddCommunicators(const std::map<uint64_t, KnownCommunicator>& known, v1::JobStatus* status) {
  for (const auto& [comm, communicator] : known) {
    v1::JobCommunicator* entry = status->add_communicators();
    entry->set_comm(comm);
    entry->set_kind(std::string(planner::CommunicatorKindName(communicator.kind)));
    entry->set_group_ranks(communicator.group.size);
    entry->set_first_rank(communicator.first);
    entry->set_group_stride(communicator.group.stride);
    entry->set_flows(communicator.flows);
    entry->set_planned_bytes(communicator.planned_bytes);
    entry->set_measured_bytes(communicator.measured_bytes);
    entry->set_slack(communicator.slack);
  }
}

}  // namespace

v1::JobStatus Core::StatusOf(const std::string& job_id, const Job& job) const {
  v1::JobStatus status;
  *status.mutable_spec() = job.spec;
  if (job.submitted) {
    *status.mutable_plan() = job.plan;
    status.mutable_plan()->clear_operations();  // longer than all the rest, and this is of all jobs
    status.mutable_plan()->clear_files();
    if (job.plan.has_change()) {
      status.mutable_plan()->mutable_change()->clear_plan();
      status.mutable_plan()->mutable_change()->clear_before();
    }
  }
  status.set_state(JobStateName(job));
  status.set_policy_epoch(jobs_.EpochOf(job_id));
  for (const std::string& error : job.planning_errors) status.add_planning_errors(error);
  if (const auto joint = multi_job_.find(job_id); joint != multi_job_.end() && joint->second.decision.decided_s() > 0) {
    *status.mutable_joint() = joint->second.decision;
  }
  if (const auto known = advice_.find(job_id); known != advice_.end() && known->second.advice) *status.mutable_advice() = *known->second.advice;
  return status;
}

std::vector<v1::JobStatus> Core::Jobs() const {
  struct Sums {
    int64_t flows = 0;
    double bytes = 0;
    std::vector<double> periods;
  };
  const Window window = LastSecond();
  std::map<std::string, Sums> sums;
  for (const auto& [id, flow] : table_.flows()) {
    Sums& sum = sums[flow.identity.job_id()];
    ++sum.flows;
    for (const auto& [port, lane] : flow.lanes) sum.bytes += lane.carried.Sum(window.first, window.last);
    if (flow.period_s > 0) sum.periods.push_back(flow.period_s);
  }
  std::vector<v1::JobStatus> statuses;
  for (const auto& [id, job] : jobs_.jobs()) {
    v1::JobStatus& status = statuses.emplace_back(StatusOf(id, job));
    Sums& sum = sums[id];
    status.set_flows(sum.flows);
    status.set_send_rate_bps(sum.bytes * 8 / window.seconds);
    if (const double said = SaidByRank0(id, job); said > 0) status.set_iteration_s(said);
    if (sum.periods.empty() || status.iteration_s() > 0) continue;
    const auto middle = sum.periods.begin() + static_cast<std::ptrdiff_t>(sum.periods.size() / 2);
    std::nth_element(sum.periods.begin(), middle, sum.periods.end());
    status.set_iteration_s(*middle);
  }
  return statuses;
}

std::optional<v1::JobStatus> Core::FindJob(const std::string& job_id) const {
  const Job* job = jobs_.Find(job_id);
  if (job == nullptr) return std::nullopt;
  for (v1::JobStatus& status : Jobs()) {
    if (status.spec().job_id() != job_id) continue;
    status.mutable_spec()->set_model_config_json(job->model_config_json);
    if (job->submitted && job->plan.has_operations()) *status.mutable_plan()->mutable_operations() = job->plan.operations();
    if (job->submitted) *status.mutable_plan()->mutable_files() = job->plan.files();
    AddCommunicators(CommunicatorsOf(job_id), &status);
    return std::move(status);
  }
  return std::nullopt;
}

std::vector<v1::HostStatus> Core::Hosts() const {
  std::vector<v1::HostStatus> statuses;
  for (const auto& [name, host] : hosts_) {
    v1::HostStatus& status = statuses.emplace_back();
    status.set_host(name);
    status.set_connected(host.connected);
    status.set_incarnation(host.incarnation);
    for (const std::string& address : host.addresses) status.add_addresses(address);
  }
  return statuses;
}

std::vector<v1::LinkStatus> Core::Links() const {
  const Window window = LastSecond();
  const planner::Topology& topology = fabric_.topology();
  std::vector<std::set<std::string>> jobs(topology.links().size());
  for (const auto& [id, flow] : table_.flows()) {
    for (const auto& [port, lane] : flow.lanes) {
      const std::vector<LinkId>* path = flow.PathOf(port);
      if (path == nullptr || lane.carried.Sum(window.first, window.last) <= 0) continue;
      for (const LinkId link : *path) jobs[link.index()].insert(flow.identity.job_id());
    }
  }
  std::vector<v1::LinkStatus> statuses;
  for (size_t i = 0; i < topology.links().size(); ++i) {
    const planner::Link& link = topology.links()[i];
    if (fabric_.IsGone(LinkId(static_cast<int32_t>(i)))) continue;
    v1::LinkStatus& status = statuses.emplace_back();
    status.set_from(topology.node(link.from).name);
    status.set_to(topology.node(link.to).name);
    status.set_line_rate_bps(link.line_rate.value());
    status.set_available_bps(monitor_.Available(LinkId(static_cast<int32_t>(i))).value());
    if (i < table_.links().size()) {
      const LinkUse& use = table_.links()[i];
      status.set_used_bps(use.carried.Sum(window.first, window.last) * 8 / window.seconds);
      status.set_carried_bytes(static_cast<int64_t>(use.carried_bytes));
    }
    status.set_utilisation(status.used_bps() / status.line_rate_bps());
    for (const std::string& job : jobs[i]) status.add_jobs(job);
  }
  return statuses;
}

int64_t Core::IncarnationOf(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? -1 : found->second.incarnation;
}

/// What the link from the host to its switch gives; nothing before a probe has shown it.
std::optional<BitsPerSecond> Core::HostRate(const std::string& host) const {
  const auto from = fabric_.topology().FindNode(host), to = fabric_.topology().FindNode(fabric_.LeafOf(host));
  if (!from || !to) return std::nullopt;
  const auto link = fabric_.topology().FindLink(*from, *to);
  if (!link) return std::nullopt;
  return monitor_.Available(*link);
}

PlacementView Core::Placement(const std::string& job_id) const {
  PlacementView view;
  for (const auto& [name, host] : hosts_) {
    if (host.connected) view.connected.insert(name);
    if (const std::string leaf = fabric_.LeafOf(name); !leaf.empty()) {
      view.leaf[name] = leaf;
    } else if (const auto imported = options_.imported.leaf.find(name); imported != options_.imported.leaf.end()) {
      view.leaf[name] = imported->second.name;
    }
    if (const auto rate = HostRate(name)) view.rate[name] = *rate;
  }
  std::vector<LinkId> ids;
  view.topology = fabric_.Present(&ids);
  const auto job = jobs_.jobs().find(job_id);
  const Owner owner = job != jobs_.jobs().end() && job->second.spec.has_user_id() ? Owner{job->second.spec.user_id()} : kNoOwner;
  const auto carried = LinkLoad(table_, fabric_.topology().links().size(), {job_id}, Seconds(now_s_));
  for (size_t i = 0; i < ids.size(); ++i) {
    view.topology.SetCapacity(LinkId(static_cast<int32_t>(i)), monitor_.Available(ids[i], owner));
    view.carried.push_back(carried[ids[i].index()]);
  }
  view.tree_jobs = TreeJobs();
  return view;
}

/// Where the job runs or is to run. Of one with a plan no flow counts that says it is the job's: anybody can say so.
std::vector<std::string> HostsOf(const Job& job) {
  if (job.plan.rank_hosts_size() > 0) return HostsOf(job.plan);
  return {job.hosts.begin(), job.hosts.end()};
}

std::map<std::string, HostUse> Core::UsedHosts(const std::string& job_id) const {
  std::map<std::string, HostUse> used;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (id == job_id || job.state == JobState::kReleased) continue;
    // One that was never started may have been forgotten by whoever submitted it.
    const bool waits = job.submitted && !job.started;
    if (waits && now_s_ - job.flows_seen_s > options_.submitted_quiet_after.count()) continue;
    const HostUse use{id, LeftOf(id, job)};
    for (const std::string& host : HostsOf(job)) {
      const auto [known, added] = used.try_emplace(host, use);
      if (!added && known->second.left && (!use.left || *use.left > *known->second.left)) known->second = use;
    }
  }
  return used;
}

bool Core::AreFree(const std::vector<std::string>& hosts, const std::string& job_id) const {
  const std::map<std::string, HostUse> used = UsedHosts(job_id);
  return std::ranges::all_of(hosts, [&](const std::string& name) {
    const auto host = hosts_.find(name);
    return host != hosts_.end() && host->second.connected && !used.contains(name);
  });
}

/// Until the job ends: known of one that began in this life of the controller and says how many iterations it makes, until it has taken
/// longer than expected.
std::optional<Seconds> Core::LeftOf(const std::string& job_id, const Job& job) const {
  const auto rhythm = rhythms_.find(job_id);
  const double measured = rhythm == rhythms_.end() ? 0 : rhythm->second.period_s;
  const double iteration = measured > 0 ? measured : job.plan.predicted().iteration_s();
  if (job.began_s < 0 || job.spec.iterations() <= 0 || !(iteration > 0)) return std::nullopt;
  const double left = static_cast<double>(job.spec.iterations()) * iteration - (now_s_ - job.began_s);
  return left > 0 ? std::optional(Seconds(left)) : std::nullopt;
}

std::set<std::string> Core::TreeJobs() const {
  std::set<std::string> holders;
  for (const auto& [id, job] : jobs_.jobs()) {
    const auto tree = job.plan.environment().find(kTreeVariable);
    if (job.state != JobState::kReleased && tree != job.plan.environment().end() && tree->second == "1") holders.insert(id);
  }
  return holders;
}

}  // namespace weft::controller
