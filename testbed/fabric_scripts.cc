#include "testbed/fabric_scripts.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::testbed {
namespace {

const FabricSwitch* FindSwitch(const std::vector<FabricSwitch>& tier, std::string_view name) {
  const auto found = std::find_if(tier.begin(), tier.end(), [&](const FabricSwitch& s) { return s.name == name; });
  return found == tier.end() ? nullptr : &*found;
}

const FabricHost* FindHost(const FabricPlan& plan, std::string_view name) {
  const auto found =
      std::find_if(plan.hosts.begin(), plan.hosts.end(), [&](const FabricHost& h) { return h.name == name; });
  return found == plan.hosts.end() ? nullptr : &*found;
}

std::string PrefixLength(const CableEnd& end) { return end.subnet.substr(end.subnet.find('/')); }

/// "10.2.0.0/16" of the leaf at `index`.
std::string LeafPrefix(size_t index) { return fmt::format("10.{}.0.0/16", index + 1); }

size_t SpineCable(const FabricPlan& plan, size_t leaf, size_t spine) {
  return plan.hosts.size() + leaf * plan.spines.size() + spine;
}

void AppendConnectedRoutes(const FabricPlan& plan, const FabricSwitch& node, std::span<const CableState> cables,
                           std::string& out) {
  for (size_t i = 0; i < plan.cables.size(); ++i) {
    if (!cables[i].up) continue;
    for (const CableEnd* end : {&plan.cables[i].a, &plan.cables[i].b}) {
      if (end->node != node.name) continue;
      out += fmt::format("route replace {} dev {} scope link src {}\n", end->subnet, end->device, node.identity);
    }
  }
}

/// One route over all of `gateways`; none left: unreachable, so that senders hear of it instead of waiting.
void AppendRoute(std::string_view prefix, std::string_view source, std::span<const std::string> gateways,
                 std::string& out) {
  if (gateways.empty()) {
    out += fmt::format("route replace unreachable {}\n", prefix);
    return;
  }
  out += fmt::format("route replace {} src {}", prefix, source);
  for (const std::string& gateway : gateways) out += fmt::format(" nexthop via {}", gateway);
  out += '\n';
}

std::string LeafRoutes(const FabricPlan& plan, size_t leaf, std::span<const CableState> cables) {
  const FabricSwitch& node = plan.leaves[leaf];
  std::string out;
  AppendConnectedRoutes(plan, node, cables, out);
  for (size_t remote = 0; remote < plan.leaves.size(); ++remote) {
    if (remote == leaf) continue;
    std::vector<std::string> gateways;
    for (size_t spine = 0; spine < plan.spines.size(); ++spine) {
      const size_t near = SpineCable(plan, leaf, spine);
      const CableState& far = cables[SpineCable(plan, remote, spine)];
      if (cables[near].up && (far.up || !far.known)) gateways.push_back(plan.cables[near].b.address);
    }
    AppendRoute(LeafPrefix(remote), node.identity, gateways, out);
    AppendRoute(plan.leaves[remote].identity + "/32", node.identity, gateways, out);
  }
  for (size_t spine = 0; spine < plan.spines.size(); ++spine) {
    const size_t near = SpineCable(plan, leaf, spine);
    std::vector<std::string> gateways;
    if (cables[near].up) gateways.push_back(plan.cables[near].b.address);
    AppendRoute(plan.spines[spine].identity + "/32", node.identity, gateways, out);
  }
  return out;
}

std::string SpineRoutes(const FabricPlan& plan, size_t spine, std::span<const CableState> cables) {
  const FabricSwitch& node = plan.spines[spine];
  std::string out;
  AppendConnectedRoutes(plan, node, cables, out);
  for (size_t leaf = 0; leaf < plan.leaves.size(); ++leaf) {
    const size_t cable = SpineCable(plan, leaf, spine);
    std::vector<std::string> gateways;
    if (cables[cable].up) gateways.push_back(plan.cables[cable].a.address);
    AppendRoute(LeafPrefix(leaf), node.identity, gateways, out);
    AppendRoute(plan.leaves[leaf].identity + "/32", node.identity, gateways, out);
  }
  return out;
}

/// The largest super-packet, in bytes, that a host may hand to its port. A namespace's ports store and forward it whole,
/// where a NIC would have cut it: 64 KiB over four hops of 25 Mbit/s arrive after 84 ms, which no fabric does to a chunk,
/// and look like a queue. So no more than the slowest port sends in four milliseconds (each packet costs the processors
/// as much as a super-packet), and never less than two segments.
int64_t SuperPacket(const FabricPlan& plan) {
  const double longest = plan.options.grain.value_or(Seconds(4e-3)).count();
  constexpr int64_t kHeaders = 512;  // the kernel sets aside room for the longest headers first
  int64_t bytes = 65536;
  for (const FabricLink& link : plan.links) {
    const auto sent = static_cast<int64_t>(link.rate.bytes_per_second() * longest);
    bytes = std::min(bytes, std::max<int64_t>(sent, 2 * 1500) + kHeaders);
  }
  return bytes;
}

}  // namespace

std::string NamespaceScript(const FabricPlan& plan) {
  std::string out;
  for (const std::string& name : plan.Namespaces()) out += fmt::format("netns add {}\n", name);
  return out;
}

std::string DeviceScript(const FabricPlan& plan) {
  std::string out = fmt::format("link add {0} type bridge\naddress add {1}/24 dev {0}\nlink set {0} up\n", plan.bridge,
                                plan.mgmt_gateway);
  for (const FabricHost& host : plan.hosts) {
    const std::string port = plan.BridgePort(host);
    out += fmt::format("link add name {} type veth peer name mgmt0 netns {}\nlink set {} master {} up\n", port,
                       host.netns, port, plan.bridge);
  }
  for (const Cable& cable : plan.cables) {
    out += fmt::format("link add name {} netns {} type veth peer name {} netns {}\n", cable.a.device, cable.a.netns,
                       cable.b.device, cable.b.netns);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Sysctls(const FabricPlan& plan, std::string_view node) {
  // rp_filter would drop what comes back over another spine. IPv6 off: its neighbour discovery would show in counters.
  std::vector<std::pair<std::string, std::string>> out{{"net/ipv4/conf/all/rp_filter", "0"},
                                                       {"net/ipv4/conf/default/rp_filter", "0"},
                                                       {"net/ipv6/conf/default/disable_ipv6", "1"}};
  if (FindHost(plan, node) != nullptr) {
    // The same on every machine, whose default may be anything, and the one that a namespace may always choose: it keeps
    // the links that it is given full and shares them as one expects.
    out.emplace_back("net/ipv4/tcp_congestion_control", "reno");
    return out;
  }
  out.emplace_back("net/ipv4/ip_forward", "1");
  // Not policy 1, which takes a packet's ready-made hash where it has one: a TCP segment that was sent on this same kernel
  // still carries its socket's (a random number per connection, drawn anew after a timeout), whatever its ports are, and
  // a probe from a raw socket carries none. Policy 3 always computes from the fields named, as a switch does.
  out.emplace_back("net/ipv4/fib_multipath_hash_fields", "55");  // 0x37: both addresses, protocol, both ports
  out.emplace_back("net/ipv4/fib_multipath_hash_policy", "3");
  if (plan.options.hash_seed) {
    out.emplace_back("net/ipv4/fib_multipath_hash_seed", std::to_string(*plan.options.hash_seed));
  }
  return out;
}

std::string AddressScript(const FabricPlan& plan, std::string_view node) {
  std::string out = "link set lo up\n";
  const FabricHost* host = FindHost(plan, node);
  if (host != nullptr) {
    out += fmt::format("address add {}/24 dev mgmt0\nlink set mgmt0 up\n", host->mgmt_address);
    out += fmt::format("link set eth0 gso_max_size {}\n", SuperPacket(plan));
  }
  for (const auto* tier : {&plan.leaves, &plan.spines}) {
    if (const FabricSwitch* found = FindSwitch(*tier, node)) {
      out += fmt::format("address add {}/32 dev lo\n", found->identity);
    }
  }
  for (const Cable& cable : plan.cables) {
    for (const CableEnd* end : {&cable.a, &cable.b}) {
      if (end->node != node) continue;
      // A switch's own connected routes would carry the port's address as source: RouteScript makes them instead.
      out += fmt::format("address add {}{} dev {}{}\nlink set {} up\n", end->address, PrefixLength(*end), end->device,
                         host == nullptr ? " noprefixroute" : "", end->device);
    }
  }
  return out;
}

std::string RouteScript(const FabricPlan& plan, std::string_view node, std::span<const CableState> cables) {
  for (size_t i = 0; i < plan.leaves.size(); ++i) {
    if (plan.leaves[i].name == node) return LeafRoutes(plan, i, cables);
  }
  for (size_t i = 0; i < plan.spines.size(); ++i) {
    if (plan.spines[i].name == node) return SpineRoutes(plan, i, cables);
  }
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    if (plan.hosts[i].name == node && cables[i].up) {
      return fmt::format("route replace default via {} dev eth0\n", plan.hosts[i].gateway);
    }
  }
  return "";
}

constexpr double kQueueSeconds = 0.06;        // at line rate
constexpr double kLeastQueueBytes = 96 << 10;
// What a port that was idle may send at once. A real one saves up nothing; here it has to last until the kernel's timer comes: 5 ms,
// a little more than one super-packet, within bounds. With 64 KiB at any rate a burst got 17 ms of 30 Mbit/s for nothing.
constexpr double kDepthSeconds = 0.005, kLeastDepth = 8 << 10, kLeastFineDepth = 3 << 10, kMostDepth = 64 << 10;

namespace {

std::string Bits(double value) { return fmt::format("{:.0f}bit", value); }

/// Without a share a class is guaranteed 1/200 of the port, so that it never quite starves.
double GuaranteedTo(const FabricClass& one, BitsPerSecond rate) {
  return std::max(8e3, one.share > 0 ? rate.value() * one.share / 100 : rate.value() / 200);
}

/// Queues of a class at a fair port: a power of two, at most what u32 hashes to.
constexpr size_t kFairQueues = 256;

/// Minor number of a queue of a class at a fair port.
int QueueMinor(size_t traffic_class, size_t queue) { return static_cast<int>((traffic_class + 1) * 0x1000 + queue); }

/// The queues of one class: by flow.
std::string FairScript(std::string_view verb, const std::string& device, size_t traffic_class, double guaranteed, const std::string& rest) {
  std::string out;
  for (size_t queue = 0; queue < kFairQueues; ++queue) {
    out += fmt::format("class {} dev {} parent 1:{}0 classid 1:{:x} htb prio {} rate {} {}\n", verb, device, traffic_class + 1,
                       QueueMinor(traffic_class, queue), traffic_class,
                       Bits(std::max(8e3, guaranteed / static_cast<double>(kFairQueues))), rest);
  }
  return out;
}

/// Which class a packet is of: with any ECN bits, as the mask 0xfc leaves the two out.
std::string DscpMatch(const FabricClass& one) { return fmt::format("match ip dsfield {:#04x} 0xfc", one.dscp << 2); }

/// The rules of one class, of the given preference, at a fair port: its packets go to a table by eight bits of their source port, which
/// tell flows apart. The lowest bit is left out: the kernel prefers even ones for those that connect.
std::string FairFilterScript(const std::string& device, size_t traffic_class, const std::string& match) {
  const std::string filter = fmt::format("filter add dev {} parent 1: protocol ip prio {}", device, traffic_class + 1);
  const size_t table = traffic_class + 1;
  std::string out = fmt::format("{} handle {:x}: u32 divisor {}\n", filter, table, kFairQueues);
  for (size_t queue = 0; queue < kFairQueues; ++queue) {
    out += fmt::format("{} u32 ht {:x}:{:x}: match u32 0 0 classid 1:{:x}\n", filter, table, queue, QueueMinor(traffic_class, queue));
  }
  return out + fmt::format("{} u32 {} hashkey mask 0x01fe0000 at 20 link {:x}:\n", filter, match, table);
}

std::string FilterScript(const FabricPlan& plan, const FabricLink& link) {
  const std::vector<FabricClass>& classes = plan.options.classes;
  std::string out;
  for (size_t i = 0; i < classes.size(); ++i) {
    const bool last = i + 1 == classes.size();
    if (plan.options.fair) {
      out += FairFilterScript(link.device, i, last ? "match u32 0 0" : DscpMatch(classes[i]));
    } else if (!last) {
      out += fmt::format("filter add dev {} parent 1: protocol ip prio 1 u32 {} classid 1:{}0\n", link.device, DscpMatch(classes[i]), i + 1);
    }
  }
  return out;
}

}  // namespace

std::string ClassScript(std::string_view verb, const std::string& device, BitsPerSecond rate, const FabricPlan& plan) {
  const FabricOptions& options = plan.options;
  const double bytes = std::clamp(rate.bytes_per_second() * options.grain.value_or(Seconds(kDepthSeconds)).count(),
                                  options.grain ? kLeastFineDepth : kLeastDepth, kMostDepth);
  const std::string rest = fmt::format("ceil {0} burst {1:.0f} cburst {1:.0f} quantum 3000", Bits(rate.value()), bytes);
  std::string out = fmt::format("class {} dev {} parent 1: classid 1:1 htb rate {} {}\n", verb, device, Bits(rate.value()), rest);
  for (size_t i = 0; i < options.classes.size(); ++i) {
    const double guaranteed = GuaranteedTo(options.classes[i], rate);
    out += fmt::format("class {} dev {} parent 1:1 classid 1:{}0 htb prio {} rate {} {}\n", verb, device, i + 1, i, Bits(guaranteed),
                       rest);
    if (options.fair) out += FairScript(verb, device, i, guaranteed, rest);
  }
  return out;
}

std::string ShapingScript(const FabricPlan& plan, std::string_view node) {
  const size_t classes = plan.options.classes.size();
  const auto queue = [&](const FabricLink& link, int minor, double limit) {
    return fmt::format("qdisc add dev {0} parent 1:{1:x} handle {1:x}: bfifo limit {2:.0f}\n", link.device, minor, limit);
  };
  std::string out;
  for (const FabricLink& link : plan.links) {
    if (link.from != node) continue;
    // A class's number in hexadecimal is its place and a 0: 0x10, 0x20 ...
    const int rest = plan.options.fair ? QueueMinor(classes - 1, 0) : static_cast<int>(classes * 16);
    out += fmt::format("qdisc add dev {} root handle 1: htb default {:x}\n", link.device, rest);
    out += ClassScript("add", link.device, link.rate, plan);
    // The default, a thousand packets of up to 64 KiB each, would be seconds of queue.
    const double limit = plan.options.queue ? static_cast<double>(plan.options.queue->count())
                                            : std::max(kLeastQueueBytes, link.rate.bytes_per_second() * kQueueSeconds);
    for (size_t i = 0; i < classes; ++i) {
      if (!plan.options.fair) out += queue(link, static_cast<int>((i + 1) * 16), limit);
      for (size_t k = 0; plan.options.fair && k < kFairQueues; ++k) out += queue(link, QueueMinor(i, k), limit);
    }
    out += FilterScript(plan, link);
  }
  return out;
}

}  // namespace weft::testbed
