// The plan as input of `ip -batch` and `tc -batch`: text only, so that a test can read it. Every route script can be run
// again (`replace`), which is how routes follow cables that go down and come up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "testbed/fabric_plan.h"

namespace weft::testbed {

/// What routing knows of a cable.
struct CableState {
  bool up = true;
  bool known = false;  ///< if down: far switches route around it
};

/// `ip -batch` in the root namespace: makes all namespaces.
std::string NamespaceScript(const FabricPlan& plan);
/// `ip -batch` in the root namespace: bridge, cables and management ports. Run it after Sysctls(): a device copies its
/// namespace's defaults when it is made.
std::string DeviceScript(const FabricPlan& plan);
/// Settings of a node as (path below /proc/sys, value), to be written in this order before any route exists.
std::vector<std::pair<std::string, std::string>> Sysctls(const FabricPlan& plan, std::string_view node);
/// `ip -batch` in the node's namespace: addresses, devices up.
std::string AddressScript(const FabricPlan& plan, std::string_view node);
/// `ip -batch` in the node's namespace: all of its routes. Those of a switch carry `src <identity>`, which is what makes
/// the kernel answer from one address whatever the ingress port. `cables` is indexed as plan.cables.
std::string RouteScript(const FabricPlan& plan, std::string_view node, std::span<const CableState> cables);
/// `tc -batch` in the node's namespace: HTB with the plan's classes on every port of a cable.
std::string ShapingScript(const FabricPlan& plan, std::string_view node);
/// `tc -batch` in the port's namespace: sets (`verb` "change") or makes ("add") the classes of one port: 1:10 is
/// the first of `classes`, 1:20 the second, all below 1:1.
std::string ClassScript(std::string_view verb, const std::string& device, BitsPerSecond rate, const FabricPlan& plan);

}  // namespace weft::testbed
