// What a port's driver says of Data Center Bridging, and how it is told otherwise: the kernel's dcbnl over rtnetlink, as
// iproute2's `dcb` speaks it. Untested on hardware: no device of the testbed has DCB. Messages are compared with those of `dcb`.
#pragma once

#include <linux/dcbnl.h>

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace weft::agent {

inline constexpr int kPriorities = 8;

/// An entry of the table that gives packets their priority; selector 5 is DSCP.
struct DcbApp {
  uint8_t selector = 0;
  uint8_t priority = 0;
  uint16_t protocol = 0;  ///< the DSCP, where the selector is

  friend auto operator<=>(const DcbApp&, const DcbApp&) = default;
};

/// Parts that the driver does not have are absent. Structures are the kernel's (linux/dcbnl.h).
struct DcbState {
  std::set<DcbApp> apps;
  std::optional<ieee_ets> ets;
  std::optional<ieee_pfc> pfc;
  std::optional<dcbnl_buffer> buffers;
  std::optional<std::vector<uint8_t>> trust;  ///< selectors, most trusted first

  /// Whether packets get their priority from their DSCP. Drivers without a trust table do so where there is a DSCP entry.
  bool TrustsDscp() const;
};

/// What one call to the kernel changes; parts that are absent stay.
struct DcbChange {
  std::set<DcbApp> add, remove;
  std::optional<ieee_ets> ets;
  std::optional<ieee_pfc> pfc;
  std::optional<std::vector<uint8_t>> trust;

  bool empty() const { return add.empty() && remove.empty() && !ets && !pfc && !trust; }
};

/// The change that leads from `now` back to `before`.
DcbChange ChangeTo(const DcbState& before, const DcbState& now);

// Netlink messages.
std::vector<char> DcbGetMessage(const std::string& interface, uint32_t sequence);
/// Requires: `change` adds or sets something.
std::vector<char> DcbSetMessage(const std::string& interface, const DcbChange& change, uint32_t sequence);
/// Requires: `remove` is not empty.
std::vector<char> DcbDeleteMessage(const std::string& interface, const std::set<DcbApp>& remove, uint32_t sequence);
/// An answer to DcbGetMessage. Errors: kUnimplemented where the driver has no DCB; kUnavailable with the kernel's reason;
/// kDataLoss for what is no such answer.
[[nodiscard]] Result<DcbState> ParseDcbState(std::span<const char> message);
/// An answer to one of the others. Errors: as above.
[[nodiscard]] Status ParseDcbDone(std::span<const char> message);

/// Not thread-safe. Ports are those of the network namespace in which it was opened.
class DcbSocket {
 public:
  /// Errors: kFailedPrecondition.
  [[nodiscard]] static Result<DcbSocket> Open();
  /// Errors: as ParseDcbState.
  [[nodiscard]] Result<DcbState> Read(const std::string& interface);
  /// Sets in one message, then removes. What an error leaves half done is the caller's to undo. Errors: as ParseDcbDone;
  /// CAP_NET_ADMIN is needed.
  [[nodiscard]] Status Write(const std::string& interface, const DcbChange& change);

 private:
  Result<std::vector<char>> Ask(const std::vector<char>& message, const std::string& what);

  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

}  // namespace weft::agent
