// Fabric's dealings with its cables: counters, rates, up and down, ground truth.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "testbed/bring_up.h"
#include "testbed/fabric.h"
#include "testbed/process.h"

namespace weft::testbed {
namespace {

constexpr uint32_t kPriorityClass = 0x00010010;  // 1:10
constexpr Seconds kCommandTimeout{10};

const FabricHost* FindHost(const FabricPlan& plan, std::string_view name) {
  const auto found =
      std::find_if(plan.hosts.begin(), plan.hosts.end(), [&](const FabricHost& host) { return host.name == name; });
  return found == plan.hosts.end() ? nullptr : &*found;
}

/// The device that `ip -j route get` names.
Result<std::string> ParseRouteDevice(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_array() && !json.empty() && json[0].is_object()) {
    if (const auto device = json[0].find("dev"); device != json[0].end() && device->is_string()) {
      return device->get<std::string>();
    }
  }
  return Fail(Code::kInternal, fmt::format("ip route get: expected [{{\"dev\": ...}}], got \"{}\"", text));
}

}  // namespace

Result<std::vector<LinkCounters>> Fabric::ReadCounters() {
  const std::lock_guard lock(mutex_);
  if (readers_.empty()) {
    std::vector<ClassCounterReader> readers;
    for (const FabricLink& link : plan_.links) {
      WEFT_ASSIGN_OR_RETURN(ClassCounterReader reader, ClassCounterReader::Open(link.netns, link.device));
      readers.push_back(std::move(reader));
    }
    readers_ = std::move(readers);
  }
  std::vector<LinkCounters> counters;
  for (ClassCounterReader& reader : readers_) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<ClassCounters> classes, reader.Read());
    LinkCounters& link = counters.emplace_back();
    for (const ClassCounters& one : classes) {
      link.drops += one.drops;  // of queues, which the last classes have
      if (!IsFabricClass(one.class_id)) continue;
      link.bytes += one.bytes;
      link.packets += one.packets;
      if (one.class_id == kPriorityClass) link.priority_bytes += one.bytes;
    }
  }
  return counters;
}

Result<size_t> Fabric::FindLink(std::string_view from, std::string_view to) const {
  for (size_t i = 0; i < plan_.links.size(); ++i) {
    if (plan_.links[i].from == from && plan_.links[i].to == to) return i;
  }
  return Fail(Code::kNotFound, fmt::format("fabric \"{}\" has no cable from \"{}\" to \"{}\"", id(), from, to));
}

Status Fabric::ApplyRate(size_t link, BitsPerSecond rate) {
  FabricLink& port = plan_.links[link];
  if (rate < BitsPerSecond(8e3)) {
    return Fail(Code::kInvalidArgument, fmt::format("rate of {} to {}: {:.6g} bit/s, must be 8 kbit/s or more",
                                                    port.from, port.to, rate.value()));
  }
  WEFT_RETURN_IF_ERROR(
      RunBatches(std::vector<Batch>{{"tc", port.netns, ClassScript("change", port.device, rate, plan_)}}));
  port.rate = rate;
  return Ok();
}

Status Fabric::SetLinkRate(std::string_view from, std::string_view to, BitsPerSecond rate) {
  const std::lock_guard lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const size_t link, FindLink(from, to));
  return ApplyRate(link, rate);
}

Status Fabric::SetCableRate(std::string_view a, std::string_view b, BitsPerSecond rate) {
  const std::lock_guard lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const size_t link, FindLink(a, b));
  WEFT_RETURN_IF_ERROR(ApplyRate(link, rate));
  return ApplyRate(link ^ 1, rate);  // the two directions of a cable are neighbours
}

Status Fabric::SetCableDevices(size_t cable, bool up) {
  const Cable& wanted = plan_.cables[cable];
  std::vector<Batch> batches;
  for (const CableEnd* end : {&wanted.a, &wanted.b}) {
    batches.push_back({"ip", end->netns, fmt::format("link set {} {}\n", end->device, up ? "up" : "down")});
  }
  WEFT_RETURN_IF_ERROR(RunBatches(batches));
  if (!up) return Ok();
  for (const CableEnd* end : {&wanted.a, &wanted.b}) {
    WEFT_RETURN_IF_ERROR(SettleCarrier(end->netns, std::vector<std::string>{end->device}));
  }
  return Ok();
}

Status Fabric::ApplyRoutes(std::span<const std::string> nodes) {
  std::vector<Batch> batches;
  for (const std::string& node : nodes) {
    WEFT_ASSIGN_OR_RETURN(std::string netns, NamespaceOf(node));
    batches.push_back({"ip", std::move(netns), RouteScript(plan_, node, cable_states_)});
  }
  return RunBatches(batches);
}

Status Fabric::SetLinkDown(std::string_view a, std::string_view b, Rerouting rerouting) {
  const std::lock_guard lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const size_t link, FindLink(a, b));
  WEFT_RETURN_IF_ERROR(SetCableDevices(link / 2, /*up=*/false));
  cable_states_[link / 2] = {.up = false, .known = rerouting == Rerouting::kConverged};
  std::vector<std::string> nodes{std::string(a), std::string(b)};
  if (rerouting == Rerouting::kConverged) nodes = AllSwitches();
  return ApplyRoutes(nodes);
}

Status Fabric::SetLinkUp(std::string_view a, std::string_view b) {
  const std::lock_guard lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const size_t link, FindLink(a, b));
  WEFT_RETURN_IF_ERROR(SetCableDevices(link / 2, /*up=*/true));
  cable_states_[link / 2] = {};
  // A device that goes down takes its routes along: the two ends get them again, hosts included.
  std::vector<std::string> nodes = AllSwitches();
  if (const std::string& lower = plan_.cables[link / 2].a.node; FindHost(plan_, lower) != nullptr) {
    nodes.push_back(lower);
  }
  return ApplyRoutes(nodes);
}

std::vector<std::string> Fabric::AllSwitches() const {
  std::vector<std::string> names;
  for (const auto* tier : {&plan_.leaves, &plan_.spines}) {
    for (const FabricSwitch& one : *tier) names.push_back(one.name);
  }
  return names;
}

Result<std::vector<std::string>> Fabric::PathOf(const FlowTuple& flow) const {
  const FabricHost* source = FindHost(plan_, flow.source);
  const FabricHost* destination = FindHost(plan_, flow.destination);
  for (const auto& [host, name] : {std::pair(source, &flow.source), std::pair(destination, &flow.destination)}) {
    if (host == nullptr) {
      return Fail(Code::kNotFound, fmt::format("path in fabric \"{}\": no host \"{}\"", id(), *name));
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::string leaf_netns, NamespaceOf(source->leaf));
  // By number: a minimal system has no /etc/protocols that knows the names.
  const char* protocol = flow.protocol == "udp" ? "17" : "6";
  WEFT_ASSIGN_OR_RETURN(
      const std::string answer,
      CheckCommand({.argv = {"ip", "-json", "route", "get", destination->data_address, "from", source->data_address,
                             "iif", source->name, "ipproto", protocol, "sport", std::to_string(flow.source_port),
                             "dport", std::to_string(flow.destination_port)},
                    .netns = std::move(leaf_netns),
                    .own_sysfs = false},
                   kCommandTimeout));
  WEFT_ASSIGN_OR_RETURN(const std::string next, ParseRouteDevice(answer));  // ports are named after who is at the end
  if (next == destination->name) return std::vector{source->name, source->leaf, next};
  return std::vector{source->name, source->leaf, next, destination->leaf, destination->name};
}

}  // namespace weft::testbed
