#include "agent/policy_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <set>

#include "common/launch_variable.h"
#include "netplugin/abi/agent_socket.h"
#include "netplugin/abi/seqlock.h"

namespace weft::agent {
namespace {

constexpr double kLongestLeaseS = static_cast<double>(abi::kLongestLeaseNs) * 1e-9;
constexpr size_t kMostJobs = 1024;
constexpr size_t kMostRefusedNamed = 16, kMostNameNamed = 64;  // of variables: what a log gets to see

constexpr double kShortestPeriodS = static_cast<double>(abi::kShortestWindowPeriodNs) / 1e9;
constexpr double kLongestPeriodS = static_cast<double>(abi::kLongestWindowPeriodNs) / 1e9;
constexpr double kLatestOffsetS = 1e9;  // thirty years of uptime; well within 64 bits of nanoseconds

/// What is wrong with the window of `flow`, or nothing. Written so that a number that is none is wrong too.
std::string WrongWindow(const v1::FlowPolicy& flow) {
  const double period = flow.window_period_s(), offset = flow.window_offset_s(), length = flow.window_length_s();
  if (!(period >= kShortestPeriodS && period <= kLongestPeriodS)) {
    return fmt::format("window period {} s, expected 0 or {} to {}", period, kShortestPeriodS, kLongestPeriodS);
  }
  if (!(offset >= 0 && offset <= kLatestOffsetS)) {
    return fmt::format("window offset {} s, expected 0 to {}", offset, kLatestOffsetS);
  }
  if (!(length > 0 && length <= period)) {
    return fmt::format("window length {} s, expected above 0 and at most its period of {} s", length, period);
  }
  return "";
}

Result<abi::FlowPolicy> ToFlowPolicy(const v1::FlowPolicy& flow, uint64_t now_ns) {
  const auto refuse = [&](const std::string& what) {
    return Fail(Code::kInvalidArgument, fmt::format("flow {:016x}: {}", flow.flow(), what));
  };
  abi::FlowPolicy out{};
  out.flow = flow.flow();
  if (static_cast<uint32_t>(flow.lanes_size()) > abi::kMaxLanes) {
    return refuse(fmt::format("{} lanes, expected at most {}", flow.lanes_size(), abi::kMaxLanes));
  }
  std::set<int32_t> ports;
  bool carries = flow.lanes_size() == 0;
  for (int i = 0; i < flow.lanes_size(); ++i) {
    const v1::LanePolicy& lane = flow.lanes(i);
    if (lane.source_port() < 1 || lane.source_port() > 65535) {
      return refuse(fmt::format("source port {}, expected 1 to 65535", lane.source_port()));
    }
    if (!ports.insert(lane.source_port()).second) {
      return refuse(fmt::format("source port {} is named twice", lane.source_port()));
    }
    if (lane.weight() < 0 || lane.weight() > static_cast<int64_t>(abi::kLargestWeight)) {
      return refuse(fmt::format("weight {}, expected 0 to {}", lane.weight(), abi::kLargestWeight));
    }
    carries |= lane.weight() > 0;
    out.lanes[i] = {.source_port = static_cast<uint16_t>(lane.source_port()),
                    .weight = static_cast<uint32_t>(lane.weight())};
  }
  if (!carries) return refuse("no lane has a weight above 0");
  if (flow.traffic_class() < 0 || flow.traffic_class() > 255) {
    return refuse(fmt::format("traffic class {}, expected 0 to 255", flow.traffic_class()));
  }
  if (flow.pacing_bps() != 0 && flow.pacing_bps() < static_cast<int64_t>(abi::kLeastPacingBps)) {
    return refuse(fmt::format("pacing {} bit/s, expected 0 or at least {}", flow.pacing_bps(), abi::kLeastPacingBps));
  }
  if (!(flow.lease_s() >= 0 && flow.lease_s() <= kLongestLeaseS)) {
    return refuse(fmt::format("lease {} s, expected 0 to {}", flow.lease_s(), kLongestLeaseS));
  }
  out.traffic_class = static_cast<uint32_t>(flow.traffic_class());
  out.pacing_bps = static_cast<uint64_t>(flow.pacing_bps());
  out.lease_until_ns = flow.lease_s() > 0 ? now_ns + static_cast<uint64_t>(flow.lease_s() * 1e9) : 0;
  if (flow.window_period_s() == 0) return out;
  if (const std::string wrong = WrongWindow(flow); !wrong.empty()) return refuse(wrong);
  out.window_period_ns = static_cast<uint64_t>(flow.window_period_s() * 1e9);
  out.window_offset_ns = static_cast<uint64_t>(flow.window_offset_s() * 1e9);
  const auto length = static_cast<uint64_t>(flow.window_length_s() * 1e9);
  out.window_length_ns = std::clamp<uint64_t>(length, 1, out.window_period_ns);
  return out;
}

/// Calls `act` with the segment at `data`, by its version's type.
template <typename Act>
void WithSegment(void* data, uint32_t version, Act act) {
  switch (version) {
    case abi::kOldestSegmentVersion: return act(static_cast<abi::PolicySegmentV1*>(data));
    case abi::kPreviousSegmentVersion: return act(static_cast<abi::PolicySegmentV2*>(data));
    default: return act(static_cast<abi::PolicySegment*>(data));
  }
}

size_t BytesOf(uint32_t version) {
  size_t bytes = 0;
  WithSegment(nullptr, version, [&](auto* segment) { bytes = sizeof *segment; });
  return bytes;
}

}  // namespace

Result<PolicyMemory> PolicyMemory::Create(const std::string& name, uint32_t version) {
  const size_t bytes = BytesOf(version);
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Fail(ErrnoError("make policy segment", errno));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return Fail(ErrnoError("size policy segment", errno));
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Fail(ErrnoError("map policy segment", errno));
  PolicyMemory memory(std::move(fd), data, version);
  // All of it is zero bits, which is what the kernel's pages hold: room for entries that no policy has takes no memory.
  WithSegment(data, version, [](auto* segment) { abi::InitPolicyHeader(segment); });
  // After this nobody, the agent's own later mappings included, can get a writable view.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, kSeals) != 0) return Fail(ErrnoError("seal policy segment", errno));
  return memory;
}

PolicyMemory::PolicyMemory(PolicyMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), version_(other.version_) {}

void PolicyMemory::SetProfile(abi::ProfileLevel level, uint64_t until_ns) {
  WithTable([&](auto& table) {
    // A reader between the two stores sees a level for another time: for one look, 25 ms.
    table.profile.store(static_cast<uint32_t>(level), std::memory_order_relaxed);
    table.profile_until_ns.store(until_ns, std::memory_order_relaxed);
  });
}

PolicyMemory::~PolicyMemory() {
  if (!data_) return;
  ::munmap(data_, BytesOf(version_));
}

template <typename Act>
void PolicyMemory::WithTable(Act act) {
  WithSegment(data_, version_, [&](auto* segment) { act(segment->table); });
}

void PolicyMemory::Write(const std::vector<abi::FlowPolicy>& flows, uint64_t epoch) {
  WithTable([&](auto& table) {
    abi::WritePolicies(table, flows);
    // WritePolicies counts by one; the controller's epoch may be further on. A reader between the two stores reads the
    // same, whole table twice.
    if (table.epoch.load(std::memory_order_relaxed) != epoch) table.epoch.store(epoch, std::memory_order_release);
  });
}

void PolicyMemory::Renew(uint64_t until_ns) {
  // Relaxed: one number, true by itself.
  WithTable([&](auto& table) { table.renewed_until_ns.store(until_ns, std::memory_order_relaxed); });
}

Result<UniqueFd> PolicyMemory::Share() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return Fail(Code::kUnavailable, ErrnoError("duplicate policy segment", errno).message());
  return copy;
}

Result<std::vector<abi::FlowPolicy>> ToFlowPolicies(const v1::JobPolicy& policy, uint64_t now_ns) {
  const std::string where = fmt::format("policy of job \"{}\", epoch {}", policy.job_id(), policy.epoch());
  if (static_cast<uint32_t>(policy.flows_size()) > abi::kMaxFlows) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {} flows, expected at most {}", where, policy.flows_size(), abi::kMaxFlows));
  }
  if (policy.epoch() < 1) return Fail(Code::kInvalidArgument, where + ": expected an epoch above 0");
  std::vector<abi::FlowPolicy> flows;
  std::set<uint64_t> seen;
  for (const v1::FlowPolicy& flow : policy.flows()) {
    Result<abi::FlowPolicy> entry = ToFlowPolicy(flow, now_ns);
    if (!entry) return Fail(entry.error().WithContext(where));
    if (!seen.insert(flow.flow()).second) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: flow {:016x} is named twice", where, flow.flow()));
    }
    flows.push_back(*entry);
  }
  return flows;
}

Result<PolicyStore::Job*> PolicyStore::FindOrMake(const std::string& job) {
  if (const auto it = jobs_.find(job); it != jobs_.end()) return &it->second;
  if (jobs_.size() >= kMostJobs) {
    return Fail(Code::kUnavailable, fmt::format("{} jobs on this host already, expected at most that: try again when one has ended",
                                               kMostJobs));
  }
  Result<PolicyMemory> memory = PolicyMemory::Create("weft-policy");
  if (!memory) return Fail(Code::kUnavailable, memory.error().message());
  return &jobs_.try_emplace(job, *std::move(memory)).first->second;
}

Result<UniqueFd> PolicyStore::Attach(const std::string& job, uint32_t uid, uint32_t version) {
  WEFT_ASSIGN_OR_RETURN(Job* const entry, FindOrMake(job));
  const auto named = owners_.find(job);
  const std::optional<uint32_t> owner = named != owners_.end() ? std::optional(named->second) : entry->uid;
  if (owner && *owner != uid) {
    DropIfDone(job);
    return Fail(Code::kUnauthenticated,
                fmt::format("job \"{}\" belongs to uid {} on this host, not to uid {}", job, *owner, uid));
  }
  Result<UniqueFd> shared = ShareVersion(*entry, version);
  if (!shared) {
    DropIfDone(job);
    return shared;
  }
  entry->uid = uid;
  ++entry->processes;
  return shared;
}

Result<UniqueFd> PolicyStore::ShareVersion(Job& job, uint32_t version) {
  if (version == abi::kSegmentVersion) return job.memory.Share();
  const auto known = job.older.find(version);
  if (known != job.older.end()) return known->second.Share();
  WEFT_ASSIGN_OR_RETURN(PolicyMemory made, PolicyMemory::Create("weft-policy", version));
  PolicyMemory& memory = job.older.try_emplace(version, std::move(made)).first->second;
  if (job.epoch > 0) memory.Write(job.flows, static_cast<uint64_t>(job.epoch));
  return memory.Share();
}

void PolicyStore::Detach(const std::string& job) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  --it->second.processes;
  DropIfDone(job);
}

void PolicyStore::DropIfDone(const std::string& job) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  // A job that the controller has never spoken of leaves nothing worth keeping.
  if (it->second.processes <= 0 && (it->second.ended || it->second.epoch == 0)) jobs_.erase(it);
}

Status PolicyStore::Apply(const v1::JobPolicy& policy) {
  const uint64_t now = now_ns_();
  WEFT_ASSIGN_OR_RETURN(std::vector<abi::FlowPolicy> flows, ToFlowPolicies(policy, now));
  WEFT_ASSIGN_OR_RETURN(Job* const job, FindOrMake(policy.job_id()));
  if (policy.epoch() <= job->epoch) {
    return Fail(Code::kAborted, fmt::format("policy of job \"{}\": epoch {}, expected above {}", policy.job_id(),
                                            policy.epoch(), job->epoch));
  }
  job->epoch = policy.epoch();
  job->flows = std::move(flows);
  job->memory.Write(job->flows, static_cast<uint64_t>(job->epoch));
  for (auto& [version, memory] : job->older) memory.Write(job->flows, static_cast<uint64_t>(job->epoch));
  job->received_ns = now;
  job->ended = false;
  return Ok();
}

void PolicyStore::Renew() {
  const uint64_t until = now_ns_() + kRenewedLeaseNs;
  for (auto& [name, job] : jobs_) {
    job.memory.Renew(until);
    for (auto& [version, memory] : job.older) memory.Renew(until);
  }
}

void PolicyStore::SetProfile(const std::string& job, std::optional<abi::ProfileLevel> level, uint64_t until_ns) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  const auto write = [&](PolicyMemory& memory) {
    memory.SetProfile(level.value_or(abi::ProfileLevel::kOff), level ? until_ns : 0);
  };
  write(it->second.memory);
  for (auto& [version, memory] : it->second.older) write(memory);
}

Result<std::vector<std::string>> PolicyStore::SetLaunch(const v1::JobLaunch& launch) {
  std::string text;
  std::vector<std::string> refused;
  for (const auto& [key, value] : std::map<std::string, std::string>(launch.environment().begin(),
                                                                     launch.environment().end())) {
    if (!MayLaunchWith(key, value)) {
      if (refused.size() < kMostRefusedNamed) refused.push_back(key.substr(0, kMostNameNamed));
      continue;
    }
    text += key + "=" + value + "\n";
  }
  if (text.size() > sizeof(abi::EnvironmentReply::text)) {
    return Fail(Code::kInvalidArgument, fmt::format("launch environment of job \"{}\": {} bytes, expected at most {}",
                                                    launch.job_id(), text.size(), sizeof(abi::EnvironmentReply::text)));
  }
  if (!environments_.contains(launch.job_id()) && environments_.size() >= kMostJobs) {
    return Fail(Code::kResourceExhausted, fmt::format("launch environments of {} jobs already, expected at most that", kMostJobs));
  }
  environments_[launch.job_id()] = std::move(text);
  if (launch.has_user_id()) owners_[launch.job_id()] = launch.user_id();
  return refused;
}

void PolicyStore::Ended(const std::string& job) {
  environments_.erase(job);
  owners_.erase(job);
  if (const auto it = jobs_.find(job); it != jobs_.end()) {
    it->second.ended = true;
    DropIfDone(job);
  }
}

bool PolicyStore::MayAsk(const std::string& job, uint32_t uid) const {
  const auto owner = owners_.find(job);
  return uid == 0 || owner == owners_.end() || owner->second == uid;
}

bool PolicyStore::IsOwner(const std::string& job, uint32_t uid) const {
  if (uid == 0) return true;
  if (const auto owner = owners_.find(job); owner != owners_.end()) return owner->second == uid;
  const auto known = jobs_.find(job);
  return known != jobs_.end() && known->second.uid == uid;
}

std::optional<std::string> PolicyStore::Environment(const std::string& job) const {
  const auto it = environments_.find(job);
  if (it == environments_.end()) return std::nullopt;
  return it->second;
}

std::optional<v1::PolicyApplied> PolicyStore::Observe(const std::string& job, int64_t epoch) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return std::nullopt;
  Job& entry = it->second;
  if (entry.epoch == 0 || entry.applied == entry.epoch || epoch < entry.epoch) return std::nullopt;
  entry.applied = entry.epoch;
  v1::PolicyApplied applied;
  applied.set_job_id(job);
  applied.set_epoch(entry.epoch);
  applied.set_delay_s(static_cast<double>(now_ns_() - entry.received_ns) * 1e-9);
  return applied;
}

bool PolicyStore::Pending(uint64_t age_ns) const {
  const uint64_t now = now_ns_();
  for (const auto& [name, job] : jobs_) {
    if (job.processes > 0 && job.applied != job.epoch && now - job.received_ns < age_ns) return true;
  }
  return false;
}

int64_t PolicyStore::CutOff(const std::string& job) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || it->second.older.empty()) return 0;
  return std::max<int64_t>(0, static_cast<int64_t>(it->second.flows.size()) - abi::kMaxFlowsV2);
}

std::map<std::string, int64_t> PolicyStore::Epochs() const {
  std::map<std::string, int64_t> epochs;
  for (const auto& [name, job] : jobs_) {
    if (job.epoch > 0) epochs[name] = job.epoch;
  }
  return epochs;
}

}  // namespace weft::agent
