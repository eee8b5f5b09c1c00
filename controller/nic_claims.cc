#include "controller/nic_claims.h"

namespace weft::controller {
namespace {

constexpr double kMargin = 1.25;       // counters of flows and NICs are not read at the same moment
constexpr double kSlack = 1e6;         // bytes
constexpr double kLeastShare = 0.1;    // of all claims, that makes one suspect where nobody's alone is too much
constexpr int kBadWindows = 2;

}  // namespace

std::vector<NicClaims::Verdict> NicClaims::Take(const std::string& name, double now_s, double nic_bytes,
                                                const std::map<Owner, double>& claimed) {
  Host& host = hosts_[name];
  if (host.begin_s < 0) host.begin_s = now_s;
  host.sent += nic_bytes;
  for (const auto& [owner, bytes] : claimed) {
    if (!host.owners.contains(owner) && host.owners.size() >= kMostOwners) continue;
    host.owners[owner].claimed += bytes;
  }
  std::vector<Verdict> verdicts;
  if (now_s - host.begin_s < kWindow) return verdicts;
  Judge(host, now_s, verdicts);
  host.begin_s = now_s;
  host.sent = 0;
  return verdicts;
}

void NicClaims::Judge(Host& host, double now_s, std::vector<Verdict>& verdicts) {
  const double most = kMargin * host.sent + kSlack;
  double all = 0;
  bool one_alone = false;
  for (const auto& [owner, standing] : host.owners) {
    all += standing.claimed;
    one_alone |= standing.claimed > most;
  }
  for (auto& [owner, standing] : host.owners) {
    const bool bad = all > most && (one_alone ? standing.claimed > most : standing.claimed > kLeastShare * all);
    standing.bad = bad ? standing.bad + 1 : 0;
    const bool was = standing.until_s >= 0;
    if (standing.bad >= kBadWindows) standing.until_s = now_s + kDoubted;
    else if (was && now_s >= standing.until_s) standing.until_s = -1;
    if (const bool is = standing.until_s >= 0; is != was) {
      verdicts.push_back({owner, is, is ? standing.claimed : 0, is ? host.sent : 0});
    }
    standing.claimed = 0;
  }
  std::erase_if(host.owners, [](const auto& entry) { return entry.second.until_s < 0 && entry.second.bad == 0; });
}

bool NicClaims::Doubts(const std::string& name, Owner owner) const {
  const auto host = hosts_.find(name);
  if (host == hosts_.end()) return false;
  const auto standing = host->second.owners.find(owner);
  return standing != host->second.owners.end() && standing->second.until_s >= 0;
}

}  // namespace weft::controller
