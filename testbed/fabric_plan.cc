#include "testbed/fabric_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace weft::testbed {
namespace {

constexpr int kMaxPerTier = 64;
constexpr int kMaxHosts = 240;
// Management addresses of hosts start at .11, so that h1 is .11 and .2 to .10 are free for what a person attaches.
constexpr int kMgmtOffset = 10;

Status CheckClasses(const std::vector<FabricClass>& classes) {
  if (classes.empty() || classes.size() > 8) return Fail(Code::kInvalidArgument,
                                                         fmt::format("{} classes, expected 1 to 8", classes.size()));
  std::set<int> seen;
  int shares = 0;
  for (const FabricClass& one : classes) {
    if (one.dscp < 0 || one.dscp > 63 || !seen.insert(one.dscp).second) {
      return Fail(Code::kInvalidArgument, fmt::format("class with DSCP {}, expected 0 to 63, each once", one.dscp));
    }
    if (one.share < 0 || one.share > 100) return Fail(Code::kInvalidArgument,
                                                      fmt::format("share {} %, expected 0 to 100", one.share));
    shares += one.share;
  }
  if (shares > 100) return Fail(Code::kInvalidArgument, fmt::format("shares of all classes {} %, expected at most 100", shares));
  return Ok();
}

Status CheckCount(std::string_view name, int value) {
  if (value >= 1 && value <= kMaxPerTier) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("{} {}, must be 1 to {}", name, value, kMaxPerTier));
}

Status CheckRate(std::string_view name, BitsPerSecond rate) {
  // HTB counts whole bytes per second; below 8 kbit/s its timer wheel is the only thing that one would measure.
  if (rate >= BitsPerSecond(8e3) && rate <= GigabitsPerSecond(400)) return Ok();
  return Fail(Code::kInvalidArgument,
              fmt::format("{} {:.6g} bit/s, must be 8 kbit/s to 400 Gbit/s", name, rate.value()));
}

Status CheckOptions(const FabricOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckFabricId(options.id));
  WEFT_RETURN_IF_ERROR(CheckCount("leaves", options.leaves));
  WEFT_RETURN_IF_ERROR(CheckCount("spines", options.spines));
  WEFT_RETURN_IF_ERROR(CheckCount("hosts per leaf", options.hosts_per_leaf));
  WEFT_RETURN_IF_ERROR(CheckClasses(options.classes));
  if (const int hosts = options.leaves * options.hosts_per_leaf; hosts > kMaxHosts) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{} leaves of {} hosts are {} hosts, must be at most {} (one management subnet)",
                            options.leaves, options.hosts_per_leaf, hosts, kMaxHosts));
  }
  WEFT_RETURN_IF_ERROR(CheckRate("link rate", options.link_rate));
  WEFT_RETURN_IF_ERROR(CheckRate("host link rate", options.host_link_rate.value_or(options.link_rate)));
  if (options.grain && !(*options.grain >= Seconds(10e-6) && *options.grain <= Seconds(10e-3))) {
    return Fail(Code::kInvalidArgument, fmt::format("grain {:.6g} s, must be 10 us to 10 ms", options.grain->count()));
  }
  if (options.queue && (*options.queue < Bytes(4 << 10) || *options.queue > Bytes(64 << 20))) {
    return Fail(Code::kInvalidArgument, fmt::format("queue of {} bytes, must be 4 KiB to 64 MiB", options.queue->count()));
  }
  return CheckRate("spine link rate", options.spine_link_rate.value_or(options.link_rate));
}

void AddNodes(FabricPlan& plan) {
  const std::string prefix = "weft-" + plan.options.id + "-";
  for (int leaf = 1; leaf <= plan.options.leaves; ++leaf) {
    const std::string leaf_name = fmt::format("leaf{}", leaf);
    plan.leaves.push_back({leaf_name, prefix + leaf_name, fmt::format("10.255.1.{}", leaf)});
    for (int i = 1; i <= plan.options.hosts_per_leaf; ++i) {
      const int number = static_cast<int>(plan.hosts.size()) + 1;
      const std::string name = fmt::format("h{}", number);
      plan.hosts.push_back({name, prefix + name, leaf_name, fmt::format("10.{}.{}.2", leaf, i),
                            fmt::format("10.{}.{}.1", leaf, i),
                            fmt::format("172.31.{}.{}", plan.slot, kMgmtOffset + number)});
    }
  }
  for (int spine = 1; spine <= plan.options.spines; ++spine) {
    const std::string name = fmt::format("spine{}", spine);
    plan.spines.push_back({name, prefix + name, fmt::format("10.255.2.{}", spine)});
  }
}

void AddCables(FabricPlan& plan) {
  const FabricOptions& options = plan.options;
  for (size_t h = 0; h < plan.hosts.size(); ++h) {
    const FabricHost& host = plan.hosts[h];
    const FabricSwitch& leaf = plan.leaves[h / static_cast<size_t>(options.hosts_per_leaf)];
    const std::string subnet = host.gateway.substr(0, host.gateway.rfind('.')) + ".0/24";
    plan.cables.push_back({{host.name, host.netns, "eth0", host.data_address, subnet},
                           {leaf.name, leaf.netns, host.name, host.gateway, subnet},
                           options.host_link_rate.value_or(options.link_rate)});
  }
  for (size_t l = 0; l < plan.leaves.size(); ++l) {
    for (size_t s = 0; s < plan.spines.size(); ++s) {
      const FabricSwitch& leaf = plan.leaves[l];
      const FabricSwitch& spine = plan.spines[s];
      const std::string subnet = fmt::format("10.254.{}.{}/31", l + 1, 2 * s);
      plan.cables.push_back({{leaf.name, leaf.netns, spine.name, fmt::format("10.254.{}.{}", l + 1, 2 * s), subnet},
                             {spine.name, spine.netns, leaf.name, fmt::format("10.254.{}.{}", l + 1, 2 * s + 1), subnet},
                             options.spine_link_rate.value_or(options.link_rate)});
    }
  }
  for (const Cable& cable : plan.cables) {
    plan.links.push_back({cable.a.node, cable.b.node, cable.a.netns, cable.a.device, cable.rate});
    plan.links.push_back({cable.b.node, cable.a.node, cable.b.netns, cable.b.device, cable.rate});
  }
}

}  // namespace

Status CheckFabricId(std::string_view id) {
  // Namespace names are weft-<id>-<node>: without dashes in it, no id is the beginning of another one's names.
  const bool good = !id.empty() && id.size() <= 16 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
  if (good) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("fabric id \"{}\", must be 1 to 16 of a-z and 0-9", id));
}

Result<FabricPlan> FabricPlan::Make(const FabricOptions& options, int slot) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  if (slot < kFirstSlot || slot > kLastSlot) {
    return Fail(Code::kInvalidArgument, fmt::format("slot {}, must be {} to {}", slot, kFirstSlot, kLastSlot));
  }
  FabricPlan plan;
  plan.options = options;
  plan.slot = slot;
  plan.bridge = fmt::format("weft{}-br", slot);
  plan.mgmt_gateway = fmt::format("172.31.{}.1", slot);
  AddNodes(plan);
  AddCables(plan);
  return plan;
}

std::vector<std::string> FabricPlan::Namespaces() const {
  std::vector<std::string> names;
  for (const FabricHost& host : hosts) names.push_back(host.netns);
  for (const FabricSwitch& leaf : leaves) names.push_back(leaf.netns);
  for (const FabricSwitch& spine : spines) names.push_back(spine.netns);
  return names;
}

std::string FabricPlan::BridgePort(const FabricHost& host) const { return fmt::format("weft{}-{}", slot, host.name); }

}  // namespace weft::testbed
