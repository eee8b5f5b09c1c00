// How the ranks of one job find each other before the first connection exists: rank 0 listens on a TCP address, all
// others join it, and small blobs (plugin handles) are exchanged over that star. Not on any hot path.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"
#include "common/unique_fd.h"

namespace weft::collectives {

struct BootstrapOptions {
  RankId rank{0};
  int world = 1;
  std::string address;       ///< "host:port" of rank 0; ignored when world is 1
  Seconds timeout{60};       ///< for all ranks to be there, and for each exchange
  int listener = -1;         ///< rank 0: a socket that OpenRendezvous made (taken over), instead of listening anew
};

/// A listening socket whose port is known before any rank starts: for a parent that forks its ranks.
struct Rendezvous {
  UniqueFd listener;
  std::string address;  ///< with the real port
};

/// Listens on `address`; port 0 lets the kernel choose. Errors: kInvalidArgument for a malformed address,
/// kAlreadyExists when the port is in use.
[[nodiscard]] Result<Rendezvous> OpenRendezvous(const std::string& address);

/// The star of all ranks. Any thread, one after another: calls wait for each other. Its destructor says goodbye: only a rank that
/// vanishes without counts as dead.
class Bootstrap {
 public:
  /// Errors: kInvalidArgument for a malformed address, kAlreadyExists when rank 0's port is in use, kDeadlineExceeded
  /// naming the ranks that did not join.
  [[nodiscard]] static Result<std::unique_ptr<Bootstrap>> Join(const BootstrapOptions& options);
  ~Bootstrap();

  /// Some of the ranks as a bootstrap of their own, for a communicator among them: rank i is `members`[i]. Its AllGather() stays
  /// collective over all ranks: those that are no members call AllGather() of `all` with nothing at the same time.
  /// Requires: `all` outlives it and is none of these itself; members holds this rank, and no rank twice.
  [[nodiscard]] static std::unique_ptr<Bootstrap> Of(Bootstrap& all, std::vector<int> members);

  RankId rank() const;
  int world() const;

  /// Every rank's blob, in order of rank. Collective. Errors: kUnavailable naming the rank that is gone.
  [[nodiscard]] Result<std::vector<std::vector<uint8_t>>> AllGather(std::span<const uint8_t> mine);
  /// Of every rank's numbers, as many on each, the largest at each place. Collective. Errors: as AllGather; kInternal where
  /// a rank has another number of them.
  [[nodiscard]] Result<std::vector<double>> Largest(std::span<const double> mine);

  /// Whether, within `wait`, some rank is known to have died or to have failed; ranks that left in order are no
  /// failure. Not collective, never blocks when `wait` is 0. Errors: kUnavailable naming the rank and, if it said so,
  /// why.
  [[nodiscard]] Status CheckPeers(Seconds wait);

  /// Tells all ranks that this one gives up, so that they can name the cause instead of waiting. Not collective.
  void ReportFailure(const Error& error);

 private:
  class Impl;
  explicit Bootstrap(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::collectives
