#include "testbed/bring_up.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "testbed/net_namespace.h"

namespace weft::testbed {
namespace {

constexpr Seconds kBatchTimeout{30};

Status WriteSetting(const std::string& path, const std::string& value) {
  UniqueFd fd(::open(("/proc/sys/" + path).c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) {
    // A kernel without IPv6 has nothing to switch off.
    if (errno == ENOENT && path.starts_with("net/ipv6/")) return Ok();
    return Fail(ErrnoError(fmt::format("open \"/proc/sys/{}\"", path), errno));
  }
  if (::write(fd.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return Fail(ErrnoError(fmt::format("set \"/proc/sys/{}\" to {}", path, value), errno));
  }
  return Ok();
}

Status ApplySettings(const FabricPlan& plan, std::string_view node, const std::string& netns) {
  return InNamespace(netns, [&]() -> Status {
    for (const auto& [path, value] : Sysctls(plan, node)) WEFT_RETURN_IF_ERROR(WriteSetting(path, value));
    return Ok();
  });
}

struct Node {
  std::string name;
  std::string netns;
};

std::vector<Node> NodesOf(const FabricPlan& plan) {
  std::vector<Node> nodes;
  for (const FabricHost& host : plan.hosts) nodes.push_back({host.name, host.netns});
  for (const FabricSwitch& leaf : plan.leaves) nodes.push_back({leaf.name, leaf.netns});
  for (const FabricSwitch& spine : plan.spines) nodes.push_back({spine.name, spine.netns});
  return nodes;
}

}  // namespace

Status RunBatches(std::span<const Batch> batches) {
  std::vector<Process> running;
  for (const Batch& batch : batches) {
    // On failure of one the destructors end the rest.
    WEFT_ASSIGN_OR_RETURN(Process process, Spawn({.argv = {batch.program, "-batch", "-"},
                                                  .netns = batch.netns,
                                                  .out = Output::Null(),
                                                  .err = Output::Pipe(),
                                                  .input = batch.script,
                                                  .own_sysfs = false}));
    running.push_back(std::move(process));
  }
  for (size_t i = 0; i < running.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const ExitStatus status, running[i].Wait(kBatchTimeout));
    if (status.ok()) continue;
    const auto line = running[i].err_lines()->Next(kBatchTimeout);
    return Fail(Code::kFailedPrecondition,
                fmt::format("{} -batch in \"{}\": {}: {}", batches[i].program,
                            batches[i].netns.empty() ? "root namespace" : batches[i].netns, status.ToString(),
                            line && *line ? **line : "no message"));
  }
  return Ok();
}

Status SettleCarrier(const std::string& netns, std::span<const std::string> devices) {
  return InNamespace(netns, [&]() -> Status {
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return Fail(ErrnoError("open socket", errno));
    for (const std::string& device : devices) {
      // Asking for the link state makes the kernel run the carrier events that it has put off.
      ethtool_value link{ETHTOOL_GLINK, 0};
      ifreq request{};
      std::strncpy(request.ifr_name, device.c_str(), IFNAMSIZ - 1);
      request.ifr_data = reinterpret_cast<char*>(&link);
      if (::ioctl(socket.get(), SIOCETHTOOL, &request) != 0) {
        return Fail(ErrnoError(fmt::format("link state of \"{}\" in \"{}\"", device, netns), errno));
      }
      if (link.data == 0) {
        return Fail(Code::kUnavailable, fmt::format("device \"{}\" in \"{}\" has no carrier", device, netns));
      }
    }
    return Ok();
  });
}

Status BringUp(const FabricPlan& plan) {
  const std::vector<Node> nodes = NodesOf(plan);
  WEFT_RETURN_IF_ERROR(RunBatches(std::vector<Batch>{{"ip", "", NamespaceScript(plan)}}));
  for (const Node& node : nodes) WEFT_RETURN_IF_ERROR(ApplySettings(plan, node.name, node.netns));
  WEFT_RETURN_IF_ERROR(RunBatches(std::vector<Batch>{{"ip", "", DeviceScript(plan)}}));

  const std::vector<CableState> all_up(plan.cables.size());
  std::vector<Batch> batches;
  for (const Node& node : nodes) {
    batches.push_back({"ip", node.netns, AddressScript(plan, node.name) + RouteScript(plan, node.name, all_up)});
  }
  for (const Node& node : nodes) batches.push_back({"tc", node.netns, ShapingScript(plan, node.name)});
  WEFT_RETURN_IF_ERROR(RunBatches(batches));

  for (const Node& node : nodes) {
    std::vector<std::string> devices;
    for (const FabricLink& link : plan.links) {
      if (link.from == node.name) devices.push_back(link.device);
    }
    WEFT_RETURN_IF_ERROR(SettleCarrier(node.netns, devices));
  }
  return Ok();
}

Result<int> PickSlot(std::span<const int> taken) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Fail(ErrnoError("list this machine's addresses", errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  const auto overlaps = [&](uint32_t subnet) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
      if (entry->ifa_addr->sa_family != AF_INET) continue;
      const auto address = ntohl(reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr);
      const auto mask = ntohl(reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr);
      const uint32_t wider = mask & 0xffffff00U;  // the larger of the two subnets decides
      if ((address & wider) == (subnet & wider)) return true;
    }
    return false;
  };
  for (int slot = kFirstSlot; slot <= kLastSlot; ++slot) {
    const uint32_t subnet = (172U << 24) | (31U << 16) | (static_cast<uint32_t>(slot) << 8);
    if (std::find(taken.begin(), taken.end(), slot) == taken.end() && !overlaps(subnet)) return slot;
  }
  return Fail(Code::kResourceExhausted,
              fmt::format("no free management subnet 172.31.{}.0/24 to 172.31.{}.0/24", kFirstSlot, kLastSlot));
}

}  // namespace weft::testbed
