#include "controller/rank_order.h"

#include <algorithm>

namespace weft::controller {
namespace {

int Crossings(const std::vector<std::string>& hosts, const std::map<std::string, std::string>& leaf) {
  int crossings = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    crossings += leaf.at(hosts[i]) != leaf.at(hosts[(i + 1) % hosts.size()]);
  }
  return crossings;
}

}  // namespace

std::vector<std::string> OrderHosts(const std::vector<std::string>& hosts, const PlacementView& view) {
  std::map<std::string, std::string> leaf;
  for (const std::string& host : hosts) {
    const auto known = view.leaf.find(host);
    leaf[host] = known == view.leaf.end() ? "host " + host : known->second;
  }
  std::vector<std::string> grouped;
  std::set<std::string> done;
  for (const std::string& first : hosts) {
    if (!done.insert(leaf[first]).second) continue;
    std::copy_if(hosts.begin(), hosts.end(), std::back_inserter(grouped),
                 [&](const std::string& host) { return leaf[host] == leaf[first]; });
  }
  return hosts.size() > 1 && Crossings(grouped, leaf) < Crossings(hosts, leaf) ? grouped : hosts;
}

}  // namespace weft::controller
