// What the controller has decided for the jobs of this host, and how it reaches their processes: one sealed policy
// segment per job, written by a seqlock, and the launch environment that hooks ask for. Knows no socket and no gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "netplugin/abi/segment.h"
#include "proto/controller.pb.h"

namespace weft::agent {

/// How long what is leased holds after the last Renew().
inline constexpr uint64_t kRenewedLeaseNs = 10'000'000'000;

/// A policy segment in the making: the agent's writable mapping and the descriptor that processes get.
class PolicyMemory {
 public:
  /// A memfd whose size and seals are fixed; nobody but this mapping can write to it. `version` is kOldestSegmentVersion to
  /// kSegmentVersion. Memory is taken as entries are written. Errors: kResourceExhausted, kFailedPrecondition from the kernel.
  [[nodiscard]] static Result<PolicyMemory> Create(const std::string& name, uint32_t version = abi::kSegmentVersion);
  PolicyMemory(PolicyMemory&& other) noexcept;
  PolicyMemory& operator=(PolicyMemory&&) = delete;
  ~PolicyMemory();

  /// Replaces all entries, as many as the version has room for, first ones first; the readers' epoch becomes `epoch`.
  void Write(const std::vector<abi::FlowPolicy>& flows, uint64_t epoch);
  /// What is leased holds until then at least. Plugins of version 1 do not look.
  void Renew(uint64_t until_ns);
  void SetProfile(abi::ProfileLevel level, uint64_t until_ns);
  /// A descriptor of its own for a process. Errors: kUnavailable.
  [[nodiscard]] Result<UniqueFd> Share() const;

 private:
  PolicyMemory(UniqueFd fd, void* data, uint32_t version) : fd_(std::move(fd)), data_(data), version_(version) {}
  template <typename Act>
  void WithTable(Act act);

  UniqueFd fd_;
  void* data_;
  uint32_t version_;
};

/// The entries of `policy` as the plugin reads them; leases end `lease_s` after `now_ns`.
/// Errors: kInvalidArgument naming job, flow, value and what was expected. All or nothing.
[[nodiscard]] Result<std::vector<abi::FlowPolicy>> ToFlowPolicies(const v1::JobPolicy& policy, uint64_t now_ns);

/// Not thread-safe.
class PolicyStore {
 public:
  /// `now_ns` is the host's CLOCK_MONOTONIC, which leases are written in.
  explicit PolicyStore(std::function<uint64_t()> now_ns) : now_ns_(std::move(now_ns)) {}

  /// A process of `job` has come: the segment for it, in the version that it reads (kOldestSegmentVersion or later). A job belongs to
  /// the user that the controller names, else to that of its first process, until the job has ended. Errors: kUnauthenticated for
  /// another user's; kUnavailable for too many jobs on the host, or when the kernel gives nothing more.
  [[nodiscard]] Result<UniqueFd> Attach(const std::string& job, uint32_t uid,
                                        uint32_t version = abi::kSegmentVersion);
  /// It has gone.
  void Detach(const std::string& job);

  /// Writes a job's policy into its segment. Errors: kInvalidArgument as ToFlowPolicies, kAborted for an epoch that is
  /// not above the present one; the present policy then stays.
  [[nodiscard]] Status Apply(const v1::JobPolicy& policy);
  /// What the profiler faces of `job` record until `until_ns` (CLOCK_MONOTONIC); nullopt: their own level at once. It
  /// reaches them once the controller has given the job a policy. Does nothing for a job without a segment.
  void SetProfile(const std::string& job, std::optional<abi::ProfileLevel> level, uint64_t until_ns);
  /// The controller lives: leases of all jobs go on for kRenewedLeaseNs from now.
  void Renew();
  /// Returns the names of variables that may not come from a controller (common/launch_variable.h), which are left out.
  /// Errors: kInvalidArgument for more than fits a reply, kResourceExhausted for too many jobs.
  [[nodiscard]] Result<std::vector<std::string>> SetLaunch(const v1::JobLaunch& launch);
  /// Forgets the job, at once or when its last process goes.
  void Ended(const std::string& job);

  /// `KEY=VALUE` lines; nullopt if the controller has said nothing about the job.
  std::optional<std::string> Environment(const std::string& job) const;
  /// Whether `uid` may ask for the job's environment: root, for hooks, and the job's user, if he is known.
  bool MayAsk(const std::string& job, uint32_t uid) const;

  /// Whether the job is known to be `uid`'s: by the controller's word, or by its first process; root is everybody.
  bool IsOwner(const std::string& job, uint32_t uid) const;

  /// The processes of `job` have all read `epoch`: what has been applied by that, if it is news.
  std::optional<v1::PolicyApplied> Observe(const std::string& job, int64_t epoch);
  /// Whether an epoch not older than `age_ns` waits to be read by attached processes.
  bool Pending(uint64_t age_ns) const;

  /// Entries of the job's newest policy that plugins of older versions, which have come to it, get nothing of: their segments have room
  /// for the first kMaxFlowsV2. 0 for a job without such plugins.
  int64_t CutOff(const std::string& job) const;

  /// Epoch in each job's segment.
  std::map<std::string, int64_t> Epochs() const;
  int64_t jobs() const { return static_cast<int64_t>(jobs_.size()); }

 private:
  struct Job {
    explicit Job(PolicyMemory made) : memory(std::move(made)) {}
    PolicyMemory memory;
    std::map<uint32_t, PolicyMemory> older;  // by version, once a process of it has come
    std::vector<abi::FlowPolicy> flows;    // in force, for a segment that is made later
    std::optional<uint32_t> uid;           // of the first process
    int processes = 0;
    bool ended = false;
    int64_t epoch = 0;
    int64_t applied = 0;       // newest epoch that has been reported as applied
    uint64_t received_ns = 0;  // of `epoch`
  };

  static Result<UniqueFd> ShareVersion(Job& job, uint32_t version);
  Result<Job*> FindOrMake(const std::string& job);
  void DropIfDone(const std::string& job);

  const std::function<uint64_t()> now_ns_;
  std::map<std::string, Job> jobs_;
  std::map<std::string, std::string> environments_;
  std::map<std::string, uint32_t> owners_;  // of jobs whose user the controller knows, from the batch system
};

}  // namespace weft::agent
