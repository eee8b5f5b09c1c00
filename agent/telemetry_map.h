// A process's telemetry segment as the agent sees it: mapped read-only, checked once, never believed afterwards.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "netplugin/abi/observations.h"
#include "netplugin/abi/segment.h"

namespace weft::agent {

/// Who is at the other end of a connection, by SO_PEERCRED: as it was when it connected, in the agent's own namespaces.
struct PeerProcess {
  pid_t pid = 0;  ///< 0: the agent cannot see it, from a PID namespace that the peer is not in
  uint32_t uid = 0;
};

/// Two descriptors with the same one share their memory.
struct MemoryId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const MemoryId&) const = default;
};

class TelemetryMap {
 public:
  /// Maps the segment behind `fd` as sent by `peer`. Errors, by what is wrong with it: kUnimplemented (another
  /// version), kFailedPrecondition (not sealed against shrinking and growing), kInvalidArgument (layout, job id),
  /// kUnauthenticated (another user has made it).
  [[nodiscard]] static Result<std::unique_ptr<TelemetryMap>> Attach(UniqueFd fd, const PeerProcess& peer);
  ~TelemetryMap();
  TelemetryMap(const TelemetryMap&) = delete;
  TelemetryMap& operator=(const TelemetryMap&) = delete;

  /// As checked at Attach. Where the launcher gave none, one that no other process has: "unnamed:BOOT:UID:INODE".
  const std::string& job() const { return job_; }
  const std::string& stated_job() const { return stated_job_; }  ///< empty if the launcher gave none
  pid_t pid() const { return pid_; }  ///< the peer's, not what the segment says
  /// What the process calls itself, in its own PID namespace or out of malice: for people to read, and nothing else.
  int32_t stated_pid() const { return stated_pid_; }
  const MemoryId& memory() const { return memory_; }
  size_t bytes() const { return bytes_; }  ///< mapped
  uint32_t segment_version() const { return shape_.version; }  ///< abi::kOldestSegmentVersion to kSegmentVersion
  const abi::ProcessInfo& process() const { return *process_; }
  /// How many slots have been taken so far, as the process says now and within what was checked at Attach; plugins before version 3
  /// do not say, and all of theirs count. Looking at others would take memory for them, which is never touched otherwise.
  uint32_t slots_used() const;
  /// Requires: index is below what slots_used() has said.
  const abi::FlowSlot& slot(uint32_t index) const { return slots_[index]; }
  /// What profiler, tuner and watchdog write; nullptr in the segment of a plugin that has none of them.
  const abi::Observations* observations() const { return observations_; }
  /// How the plugin's background thread is; nullptr in the segment of a plugin that does not say.
  const abi::BackgroundSlot* background() const { return background_; }

 private:
  TelemetryMap(const void* data, size_t bytes) : data_(data), bytes_(bytes) {}

  const void* data_;
  size_t bytes_;
  const abi::ProcessInfo* process_ = nullptr;
  const abi::FlowSlot* slots_ = nullptr;
  const abi::Observations* observations_ = nullptr;
  const abi::BackgroundSlot* background_ = nullptr;
  std::string job_, stated_job_;
  pid_t pid_ = 0;
  int32_t stated_pid_ = 0;
  MemoryId memory_;
  abi::SegmentShape shape_;
};

/// The job id in a NUL-terminated field of `bytes` bytes; nullopt if it is not terminated or holds a byte other than
/// letters, digits and `._:@/+-`: it ends in log lines and metric labels.
std::optional<std::string> CheckedJobId(const char* field, size_t bytes);

/// Why an attach failed, as a metric label: "version", "seals", "layout", "identity", "quota" (the user has too much) or
/// "system" (the host or the agent has).
const char* RejectionLabel(Code code);

}  // namespace weft::agent
