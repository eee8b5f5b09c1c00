#include "controller/state_json.h"

#include <nlohmann/json.hpp>

namespace weft::controller {
namespace {

using Json = nlohmann::json;

template <typename T>
Json List(const T& texts) {
  Json list = Json::array();
  for (const auto& text : texts) list.push_back(text);
  return list;
}

/// Why the job has what it has: what `weft explain` prints, for the page.
Json Advised(const v1::RestartAdvice& advice) {
  return {{"strategy", advice.strategy()},
          {"iteration_now_s", advice.iteration_now_s()},
          {"iteration_then_s", advice.iteration_then_s()},
          {"restart_s", advice.restart_s()},
          {"pays_after_s", advice.pays_after_s()},
          {"decided_s", advice.decided_s()},
          {"fabric", advice.fabric()}};
}

Json Explained(const v1::MultiJobDecision& joint) {
  return {{"model", joint.model()},
          {"traffic_class", joint.traffic_class()},
          {"classes", joint.classes()},
          {"dscp", joint.dscp()},
          {"intensity", joint.intensity()},
          {"shift_s", joint.shift_s()},
          {"window_s", joint.window_s()},
          {"predicted_s", joint.predicted_s()},
          {"bound_s", joint.bound_s()},
          {"gap", joint.gap()},
          {"why", List(joint.why())},
          {"rejected", List(joint.rejected())}};
}

Json ToJson(const v1::JobStatus& job) {
  const v1::Strategy& strategy = job.plan().strategy();
  return {{"job_id", job.spec().job_id()},
          {"name", job.spec().name()},
          {"state", job.state()},
          {"policy_epoch", job.policy_epoch()},
          {"flows", job.flows()},
          {"iteration_s", job.iteration_s()},
          {"predicted_iteration_s", job.plan().predicted().iteration_s()},
          {"lower_bound_s", job.plan().lower_bound_s()},
          {"send_rate_bps", job.send_rate_bps()},
          {"rank_hosts", List(job.plan().rank_hosts())},
          {"strategy", {{"dp", strategy.dp()}, {"micro_batch", strategy.micro_batch()},
                        {"bucket_bytes", strategy.bucket_bytes()}, {"text", strategy.text()}}},
          {"plan_origin", job.plan().origin()},
          {"why", List(job.plan().why())},
          {"joint", job.has_joint() ? Explained(job.joint()) : Json()},
          {"advice", job.has_advice() ? Advised(job.advice()) : Json()},
          {"planning_errors", List(job.planning_errors())}};
}

Json ToJson(const v1::ClusterOutlook& cluster) {
  return {{"jobs", cluster.jobs()},
          {"gpu_use", cluster.gpu_use()},
          {"gpu_use_default", cluster.gpu_use_default()},
          {"gpu_use_bound", cluster.gpu_use_bound()},
          {"gap", cluster.gap()},
          {"decided_s", cluster.decided_s()},
          {"notes", List(cluster.notes())}};
}

Json ToJson(const v1::HostStatus& host) {
  return {{"host", host.host()},
          {"connected", host.connected()},
          {"addresses", List(host.addresses())},
          {"incarnation", host.incarnation()}};
}

Json ToJson(const v1::LinkStatus& link) {
  return {{"from", link.from()},
          {"to", link.to()},
          {"line_rate_bps", link.line_rate_bps()},
          {"available_bps", link.available_bps()},
          {"used_bps", link.used_bps()},
          {"utilisation", link.utilisation()},
          {"carried_bytes", link.carried_bytes()},
          {"jobs", List(link.jobs())}};
}

Json ToJson(const v1::Decision& decision) {
  return {{"time_s", decision.time_s()},
          {"job_id", decision.job_id()},
          {"kind", decision.kind()},
          {"epoch", decision.epoch()},
          {"reason", decision.reason()}};
}

template <typename T>
Json ToJsonList(const T& messages) {
  Json list = Json::array();
  for (const auto& message : messages) list.push_back(ToJson(message));
  return list;
}

}  // namespace

std::string StateJson(const ControlLoop& loop) {
  const v1::GetTopologyResponse topology = loop.Topology();
  const v1::ListDecisionsResponse decisions = loop.Decisions();
  const Json state = {{"cluster", loop.cluster_name()},
                      {"mode", loop.mode() == v1::MODE_OBSERVE ? "observe" : "enforce"},
                      {"uptime_s", loop.Now().count()},
                      {"jobs", ToJsonList(loop.Jobs())},
                      {"hosts", ToJsonList(topology.hosts())},
                      {"links", ToJsonList(topology.links())},
                      {"decisions", ToJsonList(decisions.decisions())},
                      {"outlook", ToJson(decisions.cluster())},
                      {"replans", decisions.replans()},
                      {"policy_epochs", decisions.policy_epochs()}};
  // Names come from agents: bytes that are no UTF-8 are shown as such and never fail the page.
  return state.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft::controller
