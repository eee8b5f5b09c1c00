// The job `weft-replay`: timed sleep for the computation, real bytes for the gradients. For tests and demos of many
// jobs on few cores; every sum is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::collectives {

/// One of several bursts of an iteration: sent once so much has been computed, and the computation goes no further than
/// `needed` before it is through. With it come its gradients.
struct ReplayBurst {
  Seconds release{0}, needed{0};
  Bytes bytes;
};
inline constexpr size_t kMostReplayBursts = 64;

/// "RELEASE:BYTES" or "RELEASE:BYTES:NEEDED", such as "40ms:1MiB:60ms"; NEEDED is `compute` unless given. Errors: kInvalidArgument
/// names the text and what was expected.
[[nodiscard]] Result<ReplayBurst> ParseReplayBurst(std::string_view text, Seconds compute);

struct ReplayOptions {
  RankId rank{0};
  int world = 1;
  std::string rendezvous;            ///< "host:port" of rank 0
  std::string plugin;                ///< empty: DefaultPluginPath()
  Seconds compute{0.2};              ///< of each iteration
  Bytes bytes{4 << 20};              ///< gradients of each iteration, cut into buckets
  Bytes bucket{1 << 20};
  std::vector<ReplayBurst> bursts;   ///< in place of `bytes`; by rising release and need, within `compute`
  std::optional<int64_t> steps;      ///< one of the two
  std::optional<Seconds> duration;   ///< rank 0 ends the job at the first iteration boundary past it
  Seconds timeout{60};
  std::string table;                 ///< as CommunicatorOptions::table
  int listener = -1;                 ///< as in BootstrapOptions
  int idle_communicators = 0;        ///< so many more are connected and then left idle, as NCCL's trees are; at most 64
};

/// Runs this process's rank to the end. Rank 0 prints one JSON line per step and a summary to stdout.
/// Errors: kInvalidArgument, kNotFound for wrong options; kDataLoss for a wrong sum; those of Communicator.
[[nodiscard]] Status RunReplay(const ReplayOptions& options);

}  // namespace weft::collectives
