// Puts together the samples that agents send in several messages (HostSample.more).
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "proto/telemetry.pb.h"

namespace weft::controller {

/// Not thread-safe.
class SampleParts {
 public:
  /// `most_bytes`: of one sample; more is handed on as it comes.
  explicit SampleParts(size_t most_bytes = size_t{64} << 20) : most_bytes_(most_bytes) {}

  /// Whether `sample` ends one; then it becomes the whole of it. Else it is kept, and what is in `sample` is no longer of use.
  bool Complete(const std::string& host, v1::HostSample* sample);
  /// The host's session has ended, or another begins.
  void Forget(const std::string& host) { begun_.erase(host); }

 private:
  const size_t most_bytes_;
  std::map<std::string, v1::HostSample> begun_;  // by host, of those whose rest is to come
};

}  // namespace weft::controller
