// The loop's part in QoS settings: tells agents what the site declares, keeps what they say, hands on commands.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "controller/control_loop.h"

namespace weft::controller {

/// With mutex_ held.
void ControlLoop::TellQos(AgentOutbox* outbox) {
  if (!qos_.declared()) return;
  v1::ControllerMessage message;
  *message.mutable_qos_declared() = *qos_.declared();
  outbox->Send(std::move(message));
}

/// With mutex_ held.
void ControlLoop::TakeQos(const std::string& host, v1::QosReport report) {
  const auto before = qos_.Lines({host});
  if (!qos_.Take(host, std::move(report), Now().count())) LogWarn("controller", "cut a QoS report that was too long",
                                                                  {{"host", host}});
  for (const std::string& line : qos_.Lines({host})) {
    if (std::ranges::find(before, line) == before.end()) LogWarn("controller", "QoS is not as declared", {{"what", line}});
  }
}

/// With mutex_ held: for the hosts of a job that names them, else all.
std::vector<std::string> ControlLoop::QosLines(const v1::JobStatus& job) const {
  std::set<std::string> hosts(job.spec().hosts().begin(), job.spec().hosts().end());
  hosts.insert(job.plan().rank_hosts().begin(), job.plan().rank_hosts().end());
  return qos_.Lines(hosts);
}

v1::GetQosResponse ControlLoop::Qos() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> connected;
  for (const auto& [host, session] : sessions_) connected.insert(host);
  return qos_.Answer(connected);
}

Result<v1::ChangeQosResponse> ControlLoop::ChangeQos(const v1::ChangeQosRequest& request) {
  const bool known = request.action() == v1::QOS_ACTION_DRY_RUN || request.action() == v1::QOS_ACTION_APPLY ||
      request.action() == v1::QOS_ACTION_REVERT;
  if (!known) return Fail(Code::kInvalidArgument, fmt::format("action {}: expected dry run, apply or revert",
                                                              static_cast<int>(request.action())));
  const std::lock_guard lock(mutex_);
  if (!qos_.declared()) {
    return Fail(Code::kFailedPrecondition,
                "nothing is declared: expected entries of classes with priority, or qos, in the controller's configuration");
  }
  std::set<std::string> hosts(request.hosts().begin(), request.hosts().end());
  for (const std::string& host : hosts) {
    if (!sessions_.contains(host)) return Fail(Code::kNotFound, fmt::format("host \"{}\" has no session", host));
  }
  if (hosts.empty()) {
    for (const auto& [host, session] : sessions_) hosts.insert(host);
  }
  v1::ChangeQosResponse response;
  response.set_id(qos_.NextCommand(WallClockIncarnation()));
  for (const std::string& host : hosts) {
    v1::ControllerMessage message;
    message.mutable_qos_command()->set_id(response.id());
    message.mutable_qos_command()->set_action(request.action());
    SendTo(host, std::move(message));
    response.add_hosts(host);
  }
  LogInfo("controller", "QoS command", {{"action", v1::QosAction_Name(request.action())}, {"id", response.id()},
                                        {"hosts", response.hosts_size()}});
  return response;
}

}  // namespace weft::controller
