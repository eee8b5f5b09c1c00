// The agent's part in QoS settings: who tells the watch what, and whom it tells.
#include <utility>

#include "agent/agent.h"
#include "common/log.h"

namespace weft::agent {
namespace {

v1::QosRewrite ToProto(const DscpRewrite& rewrite) {
  v1::QosRewrite out;
  out.set_source(FormatIpv4(rewrite.way.source));
  out.set_destination(FormatIpv4(rewrite.way.destination));
  out.set_source_port(rewrite.way.source_port);
  out.set_dscp(rewrite.dscp);
  out.set_seen(rewrite.seen);
  out.set_at(FormatIpv4(rewrite.at));
  out.set_after(rewrite.after == 0 ? "" : FormatIpv4(rewrite.after));
  return out;
}

}  // namespace

/// With mutex_ held.
void Agent::StartQos() {
  const auto rewrites = [this] {
    std::vector<v1::QosRewrite> found;
    if (!prober_) return found;
    for (const DscpRewrite& rewrite : prober_->rewrites()) found.push_back(ToProto(rewrite));
    return found;
  };
  const auto ports = [this] {
    const std::lock_guard lock(mutex_);
    std::set<uint16_t> all;
    for (const auto& [flow, lanes] : lane_ports_) all.insert(lanes.begin(), lanes.end());
    return all;
  };
  const auto report = [this](v1::QosReport news) {
    metrics_.SetQos(news);
    client_->Report(std::move(news));
  };
  qos_ = QosWatch::Start({.record_path = config_.run_dir + "/qos-before.json", .may_apply = config_.qos_apply},
                         {.report = report, .rewrites = rewrites, .ports = ports});
  qos_->SetInterfaces(interfaces_);
}

/// Its thread may be waiting for mutex_.
void Agent::StopQos() {
  std::unique_ptr<QosWatch> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = std::move(qos_);
  }
}

void Agent::OnQosDeclared(const v1::QosDeclaration& declared) {
  const std::lock_guard lock(mutex_);
  if (!qos_) return;
  if (const Status status = qos_->Declare(declared); !status) {
    LogWarn("agent", "refused what the controller says of QoS classes", {{"reason", status.error().message()}});
    return;
  }
  std::vector<uint8_t> dscp;
  for (const v1::QosClass& entry : declared.classes()) dscp.push_back(static_cast<uint8_t>(entry.dscp()));
  if (prober_) prober_->SetClasses(std::move(dscp));
}

void Agent::OnQosCommand(const v1::QosCommand& command) {
  const std::lock_guard lock(mutex_);
  if (qos_) qos_->Command(command);
}

}  // namespace weft::agent
