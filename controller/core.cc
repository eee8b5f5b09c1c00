#include "controller/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::controller {
namespace {

constexpr size_t kMaxHosts = 100'000;
constexpr size_t kMaxText = 256;
constexpr size_t kMaxTriggers = 4;
constexpr size_t kDecisionsKept = 1000;
constexpr double kClockJump = 10;          // seconds: a host's clock that is off by more has started anew
constexpr double kPictureSeconds = 1.2;    // that what flows carry is measured over
constexpr double kLongestPicture = 5;      // that hosts which come one after the other can put a plan off
constexpr double kClockDrift = 1e-4;       // seconds per second that a host's clock may lose against ours

}  // namespace

Core::Core(CoreOptions options)
    : options_(std::move(options)),
      mode_(options_.mode == v1::MODE_UNSPECIFIED ? v1::MODE_ENFORCE : options_.mode),
      fabric_(options_.rates),
      table_(options_.monitor.slot.count(), &fabric_),
      monitor_(options_.monitor, &fabric_),
      silent_links_(options_.monitor.recovery_interval),
      lossy_links_(options_.monitor.recovery_interval),
      classes_(options_.joint.shares, options_.monitor.slot.count()),
      stragglers_(std::max(2.0, 3 * options_.sample_interval.count())) {
  if (options_.joint.dscp.empty()) options_.joint.dscp = {0};
  options_.joint.planning.classes = static_cast<int32_t>(options_.joint.dscp.size());
}

std::vector<Action> Core::Handle(const Event& event) {
  actions_.clear();
  if (std::isfinite(event.time.count())) now_s_ = std::max(now_s_, event.time.count());
  std::visit([this](const auto& body) { On(body); }, event.body);
  return std::move(actions_);
}

void Core::Decide(const std::string& kind, const std::string& job_id, const std::string& reason) {
  v1::Decision decision;
  decision.set_time_s(now_s_);
  decision.set_job_id(job_id);
  decision.set_kind(kind);
  decision.set_reason(reason);
  int64_t epoch = jobs_.EpochOf(job_id);
  if (job_id.empty()) {
    for (const auto& [id, job] : jobs_.jobs()) epoch = std::max(epoch, jobs_.EpochOf(id));
  }
  decision.set_epoch(epoch);
  ++counters_.decisions[kind];
  decisions_.push_back(decision);
  if (decisions_.size() > kDecisionsKept) ForgetDecision();
  actions_.push_back(Record{std::move(decision)});
}

/// The oldest; of those that name stragglers and other trouble, which jobs bring about, where they are more than a quarter.
void Core::ForgetDecision() {
  const auto names = [](const v1::Decision& decision) {
    return decision.kind() == "straggler" || decision.kind() == "stall" || decision.kind() == "silent" || decision.kind() == "limit";
  };
  const auto many = std::count_if(decisions_.begin(), decisions_.end(), names) > static_cast<int64_t>(kDecisionsKept) / 4;
  decisions_.erase(many ? std::find_if(decisions_.begin(), decisions_.end(), names) : decisions_.begin());
}

void Core::Touch(Change change, const std::string& trigger) {
  if (change == Change::kNone) return;
  if (multi_job_dirty_since_s_ < 0) multi_job_dirty_since_s_ = now_s_;
  TouchPaths(trigger);
}

void Core::TouchPaths(const std::string& trigger) {
  if (dirty_since_s_ < 0) dirty_since_s_ = now_s_;
  const bool known = std::find(triggers_.begin(), triggers_.end(), trigger) != triggers_.end();
  if (!known && triggers_.size() < kMaxTriggers) triggers_.push_back(trigger);
}

/// After a restart of ours, and while hosts with running jobs join: a plan made of half of them would move what stands well.
void Core::WaitForPicture() {
  // Only after as long without a wait: hosts that never cease to join, or pretend to, must leave time for plans.
  if (now_s_ > picture_s_ + kLongestPicture) picture_since_s_ = now_s_;
  picture_s_ = std::min(now_s_ + kPictureSeconds, picture_since_s_ + kLongestPicture);
}

void Core::On(const HostRegistered& event) {
  const v1::Register& message = event.message;
  const std::string& name = message.host();
  if (name.empty() || name.size() > kMaxText || (!hosts_.contains(name) && hosts_.size() >= kMaxHosts)) {
    ++ignored_;
    return;
  }
  Host& host = hosts_[name];
  if (host.connected && message.incarnation() < host.incarnation) {
    ++ignored_;
    return;
  }
  const bool again = event.again && host.connected;
  if (!again) host = Host{.connected = true, .incarnation = message.incarnation()};
  host.policy_flows = message.policy_flows() <= 0 ? 256 : std::min(message.policy_flows(), 4096);
  host.addresses.clear();
  for (const v1::Interface& interface : message.interfaces()) {
    for (const std::string& address : interface.addresses()) {
      if (!address.empty() && address.size() <= kMaxText) host.addresses.push_back(address);
    }
  }
  const auto holds = [this](const std::string& owner) { return IsConnected(owner); };
  if (again) {
    if (fabric_.SetHost(name, host.addresses, holds) && table_.ResolvePaths()) Touch(Change::kPaths, "host " + name + " has other addresses");
    return;
  }
  // What the agent does not announce again within `stale_after` ended while it was away.
  table_.HostGone(name, now_s_);
  if (fabric_.SetHost(name, host.addresses, holds) && table_.ResolvePaths()) Touch(Change::kPaths, "host " + name + " joined");
  ResumeHost(name, message);
}

void Core::On(const HostLost& event) {
  const auto host = hosts_.find(event.host);
  if (host == hosts_.end()) return;
  host->second.connected = false;
  table_.HostGone(event.host, now_s_);
  const auto holds = [this](const std::string& owner) { return IsConnected(owner); };
  if (fabric_.LeaveHost(event.host, holds) && table_.ResolvePaths()) {
    Touch(Change::kPaths, "host " + event.host + " has left addresses to others");
  }
}

bool Core::IsConnected(const std::string& name) const {
  const auto found = hosts_.find(name);
  return found != hosts_.end() && found->second.connected;
}

bool Core::Align(Host& host, const v1::HostSample& sample, double& from_s, double& to_s) {
  const double time = sample.time_s();
  if (!std::isfinite(time)) return false;
  if (host.samples == 0 || std::abs(now_s_ - (time + host.offset_s)) > kClockJump) {
    host.offset_s = now_s_ - time;
  } else {
    if (time <= host.host_time_s) return false;  // late or repeated: its counters are history
    // The least delayed sample shows the offset; letting it drift up follows a clock that runs slow.
    host.offset_s = std::min(host.offset_s + kClockDrift * (time - host.host_time_s), now_s_ - time);
  }
  to_s = std::clamp(time + host.offset_s, 0.0, now_s_);
  from_s = host.samples == 0 ? std::max(0.0, to_s - options_.sample_interval.count()) : std::min(host.measured_s, to_s);
  host.host_time_s = time;
  host.measured_s = to_s;
  return true;
}

void Core::On(const SampleReceived& event) {
  const auto found = hosts_.find(event.host);
  if (found == hosts_.end() || !found->second.connected) {
    ++ignored_;
    return;
  }
  Host& host = found->second;
  const v1::HostSample& sample = event.sample;
  ++counters_.samples;
  for (const v1::FlowIdentity& identity : sample.opened()) {
    Touch(table_.Open(event.host, identity, host.samples > 0, now_s_),
          fmt::format("job {} has new flows", identity.job_id()));
    host.unclaimed.erase(identity.job_id());  // of either direction: processes of the job live there
    if (const SendFlow* flow = table_.Find(identity.flow()); flow != nullptr && flow->host == event.host) {
      if (claims_.Doubts(event.host, flow->owner)) table_.Doubt(event.host, flow->owner, true);
      if (flow->resumed && flow->opened_s == now_s_) WaitForPicture();
      JobAppeared(flow->identity.job_id(), event.host);
    }
  }
  LearnEpochs(event.host, sample);
  double from_s = 0;
  double to_s = 0;
  if (Align(host, sample, from_s, to_s)) {
    std::map<Owner, double> claimed;
    for (const v1::FlowCounters& counters : sample.counters()) {
      const double before = ClaimedBy(event.host, counters);
      Touch(table_.Count(event.host, counters, from_s, to_s), "lanes changed on host " + event.host);
      if (before >= 0) claimed[table_.Find(counters.flow())->owner] += ClaimedBy(event.host, counters) - before;
    }
    HoldClaims(event.host, sample, claimed);
    ++host.samples;
  } else {
    ++ignored_;
  }
  TakeApplied(event.host, sample);
  for (const v1::Shortage& shortage : sample.shortages()) TellShortage(event.host, shortage);
  for (const v1::StrategyNews& news : sample.strategies()) TakeStrategy(event.host, news);
  for (const v1::Stall& stall : sample.stalls()) NameStall(event.host, stall);
  for (const uint64_t flow : sample.closed())
    Touch(table_.Close(event.host, flow), "flows ended on host " + event.host);
  for (const v1::CollectiveDelay& delay : sample.delays()) {
    if (jobs_.Find(delay.job_id()) != nullptr) stragglers_.Add(event.host, delay, now_s_);
  }
}

void Core::NameStragglers() {
  for (const Straggler& straggler : stragglers_.Take(now_s_)) Decide("straggler", straggler.job, straggler.reason);
}

/// For a job whose collectives a profiler tells of, the two say the same in other words.
void Core::NameLateRanks() {
  const Seconds elapsed(now_s_ - std::exchange(waits_s_, now_s_));
  for (const auto& [job_id, waits] : table_.TakeWaits(now_s_)) {
    if (jobs_.Find(job_id) == nullptr) continue;
    const auto rhythm = rhythms_.find(job_id);
    const Seconds period(rhythm == rhythms_.end() ? 0 : rhythm->second.period_s);
    if (auto line = late_ranks_.Look(job_id, waits, elapsed, period, Seconds(now_s_))) DecideTrouble("straggler", job_id, *line);
  }
  late_ranks_.Expire(Seconds(now_s_));
}

void Core::On(const PathsReceived& event) {
  const auto host = hosts_.find(event.host);
  if (host == hosts_.end() || !host->second.connected) {
    ++ignored_;
    return;
  }
  ++counters_.path_reports;
  Touch(table_.AddPaths(event.host, event.report, now_s_), "probes of host " + event.host + " show other paths");
  ProbeAgain(table_.TakeLeftLinks());
}

void Core::On(const ModeSet& event) {
  if (event.mode != v1::MODE_OBSERVE && event.mode != v1::MODE_ENFORCE) {
    ++ignored_;
    return;
  }
  if (event.mode == mode_) return;
  mode_ = event.mode;
  const bool enforce = mode_ == v1::MODE_ENFORCE;
  Decide("mode", "", (enforce ? "mode enforce: flows are planned and policies pushed"
                              : "mode observe: what enforce would do is planned and told, and nothing is pushed; hosts keep the paths and weights they have") +
                         (event.why.empty() ? std::string() : "; " + event.why));
  triggers_.clear();  // what happened while nothing was planned is no longer news
  would_paths_ = would_jobs_ = {};
  planned_digest_ = 0;  // what was only reported is to be carried out, and the other way round
  classes_.Changed(now_s_);
  if (enforce) PushAllJobs();
  else WithdrawWords();
  Touch(Change::kFlows, enforce ? "mode was set to enforce" : "mode was set to observe");
}

void Core::On(const EpochKnown& event) { jobs_.KnowEpoch(event.job_id, event.epoch); }

/// One large thing a tick, so that samples and answers never wait for the sum of them: what a tick leaves out is done in the next.
void Core::On(const Tick&) {
  WatchTrial();
  asked_ = !asked_ && (MaybeReplan() || MaybePlanJobs());
  if (asked_) return;
  Measure();
  if (now_s_ - activity_s_ >= 1) {
    activity_s_ = now_s_;
    return LookAround();
  }
  MaybeAdvise();
}

/// What is looked at once a second.
void Core::LookAround() {
  if (table_.Expire(now_s_ - options_.stale_after.count()) > 0) Touch(Change::kFlows, "flows of lost hosts expired");
  ReleaseQuietJobs();
  EndUnclaimedJobs();
  ForgetEpochs();
  NameStragglers();
  NameLateRanks();
  if (table_.ForgiveSilences(now_s_)) Touch(Change::kPaths, "paths that were silent answer again");
  WatchApplied();
  WatchDemand();
  WatchRhythms();
  WatchClasses();
  WatchCircumstances();
  WatchTopology();
  ChangeStrategies();
}

}  // namespace weft::controller
