// What users of a host say that they sent, against its NICs (nic_claims.h).
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/parse_units.h"
#include "controller/core.h"

namespace weft::controller {

double Core::ClaimedBy(const std::string& name, const v1::FlowCounters& counters) const {
  const auto found = counters.send() ? table_.flows().find(counters.flow()) : table_.flows().end();
  if (found == table_.flows().end() || found->second.host != name) return -1;
  const SendFlow* const flow = &found->second;
  const std::vector<std::string>& own = hosts_.at(name).addresses;
  // A container's addresses are not its host's, nor need its NIC be.
  if (std::ranges::find(own, flow->identity.local_address()) == own.end()) return -1;
  const std::string* const to = fabric_.HostOf(flow->identity.peer_address());
  return to != nullptr && *to == name ? -1 : flow->wire_bytes;
}

void Core::HoldClaims(const std::string& name, const v1::HostSample& sample, const std::map<Owner, double>& claimed) {
  Host& host = hosts_.at(name);
  const double before = std::exchange(host.nic_bytes, sample.nic_counts_all() ? static_cast<double>(sample.nic_tx_bytes()) : -1);
  if (before < 0 || host.nic_bytes < before) return;  // not said, or counted anew
  for (const NicClaims::Verdict& verdict : claims_.Take(name, now_s_, host.nic_bytes - before, claimed)) {
    table_.Doubt(name, verdict.owner, verdict.doubted);
    const std::string whose = verdict.owner == kNoOwner ? "users not known" : fmt::format("uid {}", verdict.owner);
    if (!verdict.doubted) {
      Decide("claims", "", fmt::format("flows of {} on host {} are believed again", whose, name));
      continue;
    }
    Decide("claims", "", fmt::format("flows of {} on host {} say that they sent {} while its NICs sent {}: what they say counts for "
                                     "nobody else until {} after the last such claim",
                                     whose, name, FormatBytes(Bytes(static_cast<int64_t>(verdict.claimed))),
                                     FormatBytes(Bytes(static_cast<int64_t>(verdict.sent))), FormatDuration(Seconds(NicClaims::kDoubted))));
  }
}

}  // namespace weft::controller
