// The fabric as probes have shown it: hosts by the addresses that they registered, switches by the address they
// answer probes from, and a directed link wherever a complete probe went from one to the next. No topology file; only
// rates are configured. What no probe has crossed does not exist here.
//
// It takes a switch's answering address for its identity, so switches must answer from one address on all ports (a
// loopback as preferred source, as operators set it for traceroute's sake).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/planner.h"

namespace weft::controller {

/// Configured rates: of every link, and of those that differ, by the names of their ends.
struct LinkRates {
  BitsPerSecond line_rate = MegabitsPerSecond(100);
  std::map<std::pair<std::string, std::string>, BitsPerSecond> overrides;
};

class FabricView {
 public:
  explicit FabricView(LinkRates rates) : rates_(std::move(rates)) {}

  /// Names all addresses of `host`; true if one is new or changed hands, so that paths mean more than before. One that another
  /// host has (a docker0 is the same everywhere) stays with that one while it `holds` it, which is asked by the host's name.
  bool SetHost(const std::string& host, std::span<const std::string> addresses,
               const std::function<bool(const std::string&)>& holds = [](const std::string&) { return false; });

  /// The host is gone: an address of it that another one has claimed, and still `holds`, is that one's. True if one changed hands.
  /// Complexity: O(addresses · log hosts), and each claim once.
  bool LeaveHost(const std::string& host, const std::function<bool(const std::string&)>& holds);

  /// The host that registered `address`, or nullptr.
  const std::string* HostOf(const std::string& address) const;

  /// The links of `from` -> hops -> `to`, added where they are new. Requires: no hop is empty.
  std::vector<LinkId> AddPath(const std::string& from, std::span<const std::string> hops, const std::string& to);

  /// The switch next to `host`, or empty if no probe of it was complete.
  std::string LeafOf(const std::string& host) const;

  const planner::Topology& topology() const { return topology_; }
  /// Without links that are gone, and of each link its id in topology(). Complexity: linear.
  planner::Topology Present(std::vector<LinkId>* ids) const;
  /// Probes that went over the link go elsewhere now, all of them: it is gone until one crosses it again.
  void SetGone(LinkId link) { gone_.insert(link); }
  bool IsGone(LinkId link) const { return gone_.contains(link); }
  BitsPerSecond line_rate() const { return rates_.line_rate; }
  bool IsBetweenSwitches(LinkId link) const;

 private:
  LinkRates rates_;
  planner::Topology topology_;
  bool PassOn(const std::string& address, const std::string& from, const std::function<bool(const std::string&)>& holds);

  std::unordered_map<std::string, std::string> host_by_address_;
  std::map<std::string, std::set<std::string>> claimed_;   // by address: hosts that say it is theirs, and have it not
  std::unordered_map<std::string, std::vector<std::string>> addresses_;  ///< that each host owns
  std::map<std::string, std::string> leaf_by_host_;
  std::set<LinkId> gone_;
};

}  // namespace weft::controller
