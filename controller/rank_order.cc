#include "controller/rank_order.h"


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
  std::map<std::string, std::vector<std::string>> below;
  std::vector<const std::vector<std::string>*> leaves;  // as their first hosts come
  for (const std::string& host : hosts) {
    std::vector<std::string>& unit = below[leaf[host]];
    if (unit.empty()) leaves.push_back(&unit);
    unit.push_back(host);
  }
  std::vector<std::string> grouped;
  for (const auto* unit : leaves) grouped.insert(grouped.end(), unit->begin(), unit->end());
  return hosts.size() > 1 && Crossings(grouped, leaf) < Crossings(hosts, leaf) ? grouped : hosts;
}

}  // namespace weft::controller
