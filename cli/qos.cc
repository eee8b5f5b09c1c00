#include "cli/qos.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "cli/proto_json.h"
#include "common/exit_code.h"
#include "proto/qos_text.h"

namespace weft::cli {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
constexpr auto kPatience = std::chrono::seconds(10);

int Complain(const Error& error) {
  fmt::print(stderr, "weft: {}\n", error.message());
  return ExitCodeOf(error);
}

std::string ClassText(const v1::QosClass& entry) {
  std::string text = fmt::format("DSCP {}", entry.dscp());
  if (entry.priority() >= 0) text += fmt::format(" priority {}", entry.priority());
  if (entry.share() > 0) text += fmt::format(" share {}%", entry.share());
  return text + (entry.lossless() ? " lossless" : "");
}

/// Sampled packets of flows by DSCP.
std::string SentText(const v1::QosPort& port) {
  const std::map<int32_t, int64_t> sorted(port.sent().begin(), port.sent().end());
  std::vector<std::string> parts;
  for (const auto& [dscp, packets] : sorted) parts.push_back(fmt::format("{}: {}", dscp, packets));
  return parts.empty() ? "none seen" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string PortText(const v1::QosPort& port) {
  std::string text = port.interface();
  if (!port.rdma_device().empty()) text += fmt::format(" ({})", port.rdma_device());
  text += fmt::format(": mtu {}", port.mtu());
  if (port.has_roce_tos()) text += fmt::format(", roce-tos {}", port.roce_tos());
  if (port.has_forced_class()) text += fmt::format(", forced class {}", port.forced_class());
  if (port.dcb()) {
    text += fmt::format(", trust {}, pfc {}", port.trust(),
                        port.pfc_size() == 0 ? "off" : fmt::format("{}", fmt::join(port.pfc(), ",")));
    if (port.share_size() > 0) text += fmt::format(", ets {}", fmt::join(port.share(), ","));
  } else {
    text += ", no DCB";
  }
  return text + fmt::format("; DSCP of sampled packets {}", SentText(port));
}

/// Counters that grew at all, of PFC, ECN and priorities.
std::string CountersText(const v1::QosPort& port) {
  const std::map<std::string, int64_t> sorted(port.counters().begin(), port.counters().end());
  std::vector<std::string> parts;
  for (const auto& [name, value] : sorted) {
    if (value > 0) parts.push_back(fmt::format("{} {}", name, value));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void AddHost(const v1::QosHost& host, std::string* text, bool* good) {
  if (!host.has_report()) {
    *text += fmt::format("{}: has not said anything yet\n", host.host());
    *good = false;
    return;
  }
  *text += fmt::format("{}{}{}\n", host.host(), host.connected() ? "" : ", not connected: as it was last",
                       host.report().kept() ? ", settings are kept as applied" : "");
  for (const v1::QosPort& port : host.report().ports()) {
    *text += "  " + PortText(port) + "\n";
    if (const std::string counters = CountersText(port); !counters.empty()) *text += "    counters: " + counters + "\n";
    for (const std::string& line : port.unreadable()) *text += "    not readable: " + line + "\n";
  }
}

/// Sends the command and waits until every host has answered it.
Result<v1::GetQosResponse> Change(ControllerClient& client, const v1::ChangeQosRequest& request, std::vector<std::string>* silent,
                                  v1::ChangeQosResponse* told) {
  WEFT_ASSIGN_OR_RETURN(*told, client.ChangeQos(request));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    WEFT_ASSIGN_OR_RETURN(v1::GetQosResponse now, client.GetQos());
    silent->clear();
    for (const std::string& name : told->hosts()) {
      const bool answered = std::any_of(now.hosts().begin(), now.hosts().end(), [&](const v1::QosHost& host) {
        return host.host() == name && host.report().answer().id() == told->id();
      });
      if (!answered) silent->push_back(name);
    }
    if (silent->empty() || std::chrono::steady_clock::now() > end) return now;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

int RunChange(const OnlineOptions& options, v1::QosAction action, const char* nothing) {
  auto client = ControllerClient::Connect(options.controller);
  if (!client) return Complain(client.error());
  v1::ChangeQosRequest request;
  request.set_action(action);
  for (const std::string& host : options.hosts) request.add_hosts(host);
  std::vector<std::string> silent;
  v1::ChangeQosResponse told;
  const auto answer = Change(**client, request, &silent, &told);
  if (!answer) return Complain(answer.error());
  bool good = silent.empty();
  if (options.json) fmt::print("{}", ToJsonText(*answer));
  for (const v1::QosHost& host : answer->hosts()) {
    const v1::QosAnswer& said = host.report().answer();
    if (said.id() != told.id()) continue;
    for (const std::string& line : said.done()) {
      if (!options.json) fmt::print("{} {}\n", host.host(), line);
    }
    if (!options.json && said.done_size() == 0 && said.error().empty()) fmt::print("{}: {}\n", host.host(), nothing);
    if (said.error().empty()) continue;
    good = false;
    fmt::print(stderr, "weft: {}: {}\n", host.host(), said.error());
  }
  for (const std::string& host : silent) fmt::print(stderr, "weft: {}: no answer within {} s\n", host, kPatience.count());
  return good ? kExitDone : kExitFailed;
}

}  // namespace

std::string QosText(const v1::GetQosResponse& response, bool* good) {
  *good = true;
  std::string text = "declared, served first first\n";
  for (const v1::QosClass& entry : response.declared().classes()) text += "  " + ClassText(entry) + "\n";
  if (response.declared().roce_tos() >= 0) text += fmt::format("  roce-tos {}\n", response.declared().roce_tos());
  if (response.declared().mtu() > 0) text += fmt::format("  mtu {}\n", response.declared().mtu());
  text += "hosts\n";
  for (const v1::QosHost& host : response.hosts()) AddHost(host, &text, good);
  std::string drifts;
  for (const v1::QosHost& host : response.hosts()) {
    for (const v1::QosDrift& drift : host.report().drifts()) {
      drifts += "  " + rpc::DriftLine(host.host(), drift) + "\n";
      for (const std::string& command : drift.commands()) drifts += "    " + command + "\n";
    }
    for (const v1::QosRewrite& rewrite : host.report().rewrites()) drifts += "  " + rpc::RewriteLine(rewrite) + "\n";
  }
  if (response.differences_size() > 0) text += "different between hosts\n";
  for (const std::string& line : response.differences()) text += "  " + line + "\n";
  if (!drifts.empty()) *good = false;
  return text + (drifts.empty() ? *good ? "all hosts are as declared\n" : "" : "not as declared\n" + drifts);
}

std::string QosCommands(const v1::GetQosResponse& response, const std::string& syntax) {
  std::string text;
  for (const v1::QosHost& host : response.hosts()) {
    std::string commands;
    for (const v1::QosDrift& drift : host.report().drifts()) {
      // What mlnx_qos has no word for is said as without it.
      const auto& list = syntax == "mlnx_qos" && drift.mlnx_commands_size() > 0 ? drift.mlnx_commands() : drift.commands();
      for (const std::string& command : list) commands += command + "\n";
    }
    if (!commands.empty()) text += fmt::format("# {}\n{}", host.host(), commands);
  }
  return text;
}

int RunQosVerify(const OnlineOptions& options) {
  auto client = ControllerClient::Connect(options.controller);
  if (!client) return Complain(client.error());
  const auto response = (*client)->GetQos();
  if (!response) return Complain(response.error());
  if (!response->has_declared()) {
    fmt::print(stderr,
               "weft: controller {} declares nothing: expected entries of classes with priority, or qos, in its configuration\n",
               options.controller.address);
    return kExitFailed;
  }
  bool good = true;
  const std::string text = QosText(*response, &good);
  fmt::print("{}", options.json ? ToJsonText(*response) : options.syntax.empty() ? text : QosCommands(*response, options.syntax));
  return good ? kExitDone : kExitFailed;
}

int RunQosApply(const OnlineOptions& options) {
  return RunChange(options, options.dry_run ? v1::QOS_ACTION_DRY_RUN : v1::QOS_ACTION_APPLY,
                   "is as declared, as far as Weft sets it");
}

int RunQosRevert(const OnlineOptions& options) { return RunChange(options, v1::QOS_ACTION_REVERT, "nothing was set by Weft"); }

}  // namespace weft::cli
