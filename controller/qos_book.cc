#include "controller/qos_book.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "proto/qos_text.h"

namespace weft::controller {
namespace {

using rpc::DriftLine;
using rpc::RewriteLine;

constexpr int kMostPorts = 64, kMostDrifts = 512, kMostRewrites = 64, kMostLines = 512;
constexpr size_t kMostReportBytes = 1 << 18;
constexpr size_t kMostHosts = 65536;
constexpr size_t kMostNamed = 4;  // hosts per value of a difference

template <typename List>
bool CutTo(int most, List* list) {
  if (list->size() <= most) return false;
  list->DeleteSubrange(most, list->size() - most);
  return true;
}

bool Cut(v1::QosReport* report) {
  bool cut = CutTo(kMostPorts, report->mutable_ports());
  cut |= CutTo(kMostDrifts, report->mutable_drifts());
  cut |= CutTo(kMostRewrites, report->mutable_rewrites());
  cut |= report->has_answer() && CutTo(kMostLines, report->mutable_answer()->mutable_done());
  if (report->ByteSizeLong() <= kMostReportBytes) return cut;
  report->clear_ports();
  report->clear_drifts();
  report->clear_rewrites();
  return true;
}

/// Settings in which ports of a cluster are alike as a rule, as text.
std::map<std::string, std::string> SettingsOf(const v1::QosPort& port) {
  std::map<std::string, std::string> settings;
  if (port.mtu() > 0) settings["mtu"] = std::to_string(port.mtu());
  if (!port.trust().empty()) settings["trust"] = port.trust();
  if (port.dcb()) settings["pfc"] = port.pfc_size() == 0 ? "off" : fmt::format("{}", fmt::join(port.pfc(), ","));
  if (port.share_size() > 0) settings["ets shares"] = fmt::format("{}", fmt::join(port.share(), ","));
  if (port.has_roce_tos()) settings["roce-tos"] = std::to_string(port.roce_tos());
  if (port.has_forced_class()) settings["forced-class"] = std::to_string(port.forced_class());
  std::vector<std::string> map;
  const std::map<int32_t, int32_t> sorted(port.dscp_priority().begin(), port.dscp_priority().end());
  for (const auto& [dscp, priority] : sorted) map.push_back(fmt::format("{}:{}", dscp, priority));
  if (!map.empty()) settings["dscp-priority"] = fmt::format("{}", fmt::join(map, " "));
  return settings;
}

}  // namespace

bool QosBook::Take(const std::string& host, v1::QosReport report, double now_s) {
  if (!hosts_.contains(host) && hosts_.size() >= kMostHosts) return false;
  const bool cut = Cut(&report);
  hosts_[host] = {std::move(report), now_s};
  return !cut;
}

int64_t QosBook::NextCommand(int64_t wall_ms) { return newest_command_ = std::max(newest_command_ + 1, wall_ms); }

v1::GetQosResponse QosBook::Answer(const std::set<std::string>& connected) const {
  v1::GetQosResponse response;
  if (declared_) *response.mutable_declared() = *declared_;
  for (const auto& [host, known] : hosts_) {
    v1::QosHost* out = response.add_hosts();
    out->set_host(host);
    out->set_connected(connected.contains(host));
    out->set_reported_s(known.reported_s);
    *out->mutable_report() = known.report;
  }
  for (const std::string& host : connected) {
    if (!hosts_.contains(host)) {
      v1::QosHost* out = response.add_hosts();
      out->set_host(host);
      out->set_connected(true);
    }
  }
  for (std::string& line : Differences()) response.add_differences(std::move(line));
  return response;
}

std::vector<std::string> QosBook::Lines(const std::set<std::string>& hosts) const {
  std::vector<std::string> lines;
  for (const auto& [host, known] : hosts_) {
    if (!hosts.empty() && !hosts.contains(host)) continue;
    for (const v1::QosDrift& drift : known.report.drifts()) lines.push_back(DriftLine(host, drift));
    for (const v1::QosRewrite& rewrite : known.report.rewrites()) lines.push_back(RewriteLine(rewrite));
    if (lines.size() > static_cast<size_t>(kMostLines)) break;
  }
  return lines;
}

std::map<std::string, int64_t> QosBook::Drifts() const {
  std::map<std::string, int64_t> drifts;
  for (const auto& [host, known] : hosts_) drifts[host] = known.report.drifts_size() + known.report.rewrites_size();
  return drifts;
}

/// Interfaces without DCB, an RDMA device or DSCP entries are alike in their MTU only.
std::vector<std::string> QosBook::Differences() const {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> ports;  // by setting and value
  for (const auto& [host, known] : hosts_) {
    for (const v1::QosPort& port : known.report.ports()) {
      for (const auto& [setting, value] : SettingsOf(port)) ports[setting][value].push_back(host + " " + port.interface());
    }
  }
  std::vector<std::string> lines;
  for (auto& [setting, values] : ports) {
    if (values.size() < 2) continue;
    std::vector<std::string> parts;
    for (auto& [value, names] : values) {
      const size_t more = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
      names.resize(std::min(names.size(), kMostNamed));
      parts.push_back(fmt::format("{} on {}{}", value, fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
    }
    lines.push_back(fmt::format("{}: {}", setting, fmt::join(parts, "; ")));
  }
  return lines;
}

}  // namespace weft::controller
