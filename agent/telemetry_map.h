// A process's telemetry segment as the agent sees it: mapped read-only, checked once, never believed afterwards.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "netplugin/abi/observations.h"
#include "netplugin/abi/segment.h"

namespace weft::agent {

class TelemetryMap {
 public:
  /// Maps the segment behind `fd` as sent by process `peer`. Errors, by what is wrong with it: kUnimplemented (another
  /// version), kFailedPrecondition (not sealed against shrinking and growing), kInvalidArgument (layout, job id),
  /// kUnauthenticated (it says that it belongs to another process).
  [[nodiscard]] static Result<std::unique_ptr<TelemetryMap>> Attach(UniqueFd fd, pid_t peer);
  ~TelemetryMap();
  TelemetryMap(const TelemetryMap&) = delete;
  TelemetryMap& operator=(const TelemetryMap&) = delete;

  const std::string& job() const { return job_; }  ///< as checked at Attach; empty if the launcher gave none
  pid_t pid() const { return pid_; }
  uint32_t segment_version() const { return version_; }  ///< abi::kSegmentVersion or kPreviousSegmentVersion
  const abi::ProcessInfo& process() const { return *process_; }
  /// Requires: index < abi::kMaxFlows.
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
  std::string job_;
  pid_t pid_ = 0;
  uint32_t version_ = 0;
};

/// The job id in a NUL-terminated field of `bytes` bytes; nullopt if it is not terminated or holds a byte other than
/// letters, digits and `._:@/+-`: it ends in log lines and metric labels.
std::optional<std::string> CheckedJobId(const char* field, size_t bytes);

/// Why an attach failed, as a metric label: "version", "seals", "layout", "identity" or "system".
const char* RejectionLabel(Code code);

}  // namespace weft::agent
