// The agent's side of who steers this host: which controller it obeys, what it tells it of itself, and how long what is leased
// holds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "agent/agent.h"
#include "agent/monotonic.h"
#include "common/log.h"

namespace weft::agent {
namespace {

constexpr double kToldDrift = 0.05;  // of an iteration: less is no news
constexpr Seconds kShortestReport{0.05};
constexpr Seconds kLongestReport{10};
// A controller from which nothing has come for so long stands in no other's way.
constexpr uint64_t kControllerKeptNs = 60'000'000'000;

}  // namespace

v1::Register Agent::Registration() {
  const std::lock_guard lock(mutex_);
  return RegistrationLocked();
}

v1::Register Agent::RegistrationLocked() {
  v1::Register message;
  message.set_host(config_.host);
  message.set_agent_version(version_);
  message.set_incarnation(incarnation_);
  message.set_policy_flows(abi::kMaxFlows);
  for (const InterfaceInfo& interface : interfaces_) {
    v1::Interface* out = message.add_interfaces();
    out->set_name(interface.name);
    for (const std::string& address : interface.addresses) out->add_addresses(address);
    out->set_speed_bps(interface.speed_bps);
    out->set_up(interface.up);
    out->set_mtu(interface.mtu);
  }
  if (MonotonicNs() - controller_.heard_ns < kControllerKeptNs) message.set_controller_incarnation(controller_.incarnation);
  // After a restart the segments are new, but the plugins still know how far the controller had come.
  std::map<std::string, int64_t> epochs = policies_.Epochs();
  for (const auto& [connection, process] : processes_) {
    int64_t& epoch = epochs[process.map->job()];
    epoch = std::max(epoch, process.reader->NewestEpoch());
  }
  for (const auto& [job, epoch] : epochs) {
    if (epoch == 0) continue;
    v1::JobEpoch* out = message.add_policies();
    out->set_job_id(job);
    out->set_epoch(epoch);
  }
  return message;
}

bool Agent::OnWelcome(const v1::Welcome& welcome) {
  const std::lock_guard lock(mutex_);
  const uint64_t now_ns = MonotonicNs();
  const int64_t incarnation = welcome.controller_incarnation();
  // Two controllers that both mean to steer: the one that started later is right, and the other gets no half of the fabric.
  if (incarnation < controller_.incarnation && now_ns - controller_.heard_ns < kControllerKeptNs) {
    LogWarn("agent", "refused a controller: a newer one steers this host",
            {{"incarnation", incarnation}, {"newer", controller_.incarnation}});
    return false;
  }
  controller_ = {.incarnation = incarnation, .heard_ns = now_ns, .beats = welcome.heartbeat_interval_s() > 0};
  if (controller_.beats) policies_.Renew();
  if (welcome.sample_interval_s() > 0) {
    report_interval_ = std::clamp(Seconds(welcome.sample_interval_s()), kShortestReport, kLongestReport);
  }
  FullAccount account;
  left_behind_.Clear();  // of flows that this session will never hear of
  strategies_untold_.clear();
  account.sample.set_time_s(static_cast<double>(MonotonicNs()) * 1e-9);
  ReadNics(&account.sample);
  for (const auto& [job, news] : strategies_) *account.sample.add_strategies() = news;
  for (auto& [connection, process] : processes_) process.reader->Snapshot(&account.sample);
  for (const auto& [flow, report] : paths_) account.reports.push_back(report);
  shortages_.clear();  // what was told before the session stood has reached nobody
  client_->StartReporting(std::move(account));
  if (qos_) qos_->ReportAgain();
  return true;
}

/// What is leased follows the controller's own loop, not the stream: that one stands for long when nobody is at its other end.
void Agent::OnHeartbeat(const v1::Heartbeat& heartbeat) {
  const std::lock_guard lock(mutex_);
  controller_.heard_ns = MonotonicNs();
  controller_.beats = true;
  policies_.Renew();
  if (prober_ && heartbeat.probe_rate_per_s() > 0) prober_->SetRate(heartbeat.probe_rate_per_s());
}

Result<std::optional<std::string>> Agent::OnEnvironment(const Peer& peer, const std::string& job, const std::string& host) {
  const std::lock_guard lock(mutex_);
  // Several hosts may share a machine; each answers for itself only.
  const bool ours = host.empty() || host == config_.host;
  if (ours && !policies_.MayAsk(job, peer.uid)) {
    return Fail(Code::kUnauthenticated, fmt::format("job \"{}\" is not one of uid {}", job, peer.uid));
  }
  std::optional<std::string> text = ours ? policies_.Environment(job) : std::nullopt;
  metrics_.AddEnvironmentRequest(text.has_value());
  return text;
}

Result<std::optional<std::string>> Agent::OnStrategy(const Peer& peer, const std::string& job, const std::string& host,
                                                     const StrategyNews& news) {
  const std::lock_guard lock(mutex_);
  if (!host.empty() && host != config_.host) return std::optional<std::string>();
  if (!policies_.IsOwner(job, peer.uid)) {
    return Fail(Code::kUnauthenticated, fmt::format("job \"{}\" is not known to be one of uid {}", job, peer.uid));
  }
  std::optional<std::string> text = policies_.Environment(job);
  if (!text) return text;  // nobody has asked for news of it, and what is kept of jobs is bounded by what is told of them
  v1::StrategyNews told;
  told.set_job_id(job);
  told.set_epoch(static_cast<int64_t>(std::min<uint64_t>(news.epoch, INT64_MAX)));
  told.set_refused(news.refused);
  told.set_digest(news.digest);
  told.set_reason(news.reason);
  told.set_iteration_s(news.iteration_s);
  v1::StrategyNews& known = strategies_[job];
  const bool same = known.epoch() == told.epoch() && known.refused() == told.refused() && known.digest() == told.digest() &&
                    known.reason() == told.reason() && !known.job_id().empty();
  const double drift = std::abs(told.iteration_s() - known.iteration_s());
  if (same && drift <= kToldDrift * known.iteration_s()) return text;
  if (!same && trouble_lines_.Take(job, MonotonicNs())) {
    LogInfo("agent", "strategy",
            {{"job", job}, {"epoch", told.epoch()}, {"refused", told.refused()}, {"reason", told.reason()}});
  }
  known = told;
  strategies_untold_[job] = std::move(told);
  return text;
}

void Agent::OnLaunch(const v1::JobLaunch& launch) {
  const auto refused = policies_.SetLaunch(launch);
  if (!refused) {
    LogWarn("agent", "refused launch environment", {{"reason", refused.error().message()}});
  } else if (!refused->empty()) {
    metrics_.AddRefusedVariables(refused->size());
    LogWarn("agent", "variables that may not come from a controller are left out of a launch environment",
            {{"job", launch.job_id()}, {"names", fmt::format("{}", fmt::join(*refused, ","))}});
  }
}

void Agent::OnProbeAgain(const v1::ProbeAgain& again) {
  const std::lock_guard lock(mutex_);
  if (!prober_) return;
  for (const uint64_t flow : again.flows()) {
    if (paths_.contains(flow)) prober_->ProbeAgain(flow);
  }
}

/// A controller that sends no heartbeats is an older one, whose session has to stand for them.
void Agent::RenewLeases() {
  if (!client_->connected() || controller_.beats) return;
  controller_.heard_ns = MonotonicNs();
  policies_.Renew();
}

/// Addresses come and go while jobs run: a bond that fails over, an address that moves, a container network.
void Agent::FollowInterfaces() {
  Result<std::vector<InterfaceInfo>> found = DiscoverInterfaces(config_.interfaces);
  if (!found) {
    if (!std::exchange(interfaces_missing_, true)) LogWarn("agent", "interfaces as before", {{"reason", found.error().message()}});
    return;
  }
  interfaces_missing_ = false;
  if (*found == interfaces_) return;
  interfaces_ = std::move(*found);
  interface_names_.clear();
  for (const InterfaceInfo& interface : interfaces_) interface_names_.push_back(interface.name);
  LogInfo("agent", "interfaces changed", {{"interfaces", fmt::format("{}", fmt::join(interface_names_, ","))}});
  if (qos_) qos_->SetInterfaces(interfaces_);
  client_->Report(RegistrationLocked());
}

}  // namespace weft::agent
