#include "netplugin/devices.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "netplugin/log.h"

namespace weft::net {
namespace {

constexpr int kDefaultSpeedMbps = 10000;

constexpr int kCarrierMs = 2000;
constexpr int kLookMs = 10;

/// All of them, each with an entry per address, and one at least.
std::vector<Interface> ReadInterfaces() {
  std::vector<Interface> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    Log(nccl::kLogWarn, "the host's interfaces cannot be read: %s", std::strerror(errno));
    return result;
  }
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    Interface found{.name = i->ifa_name,
                    .loopback = (i->ifa_flags & IFF_LOOPBACK) != 0,
                    .up = (i->ifa_flags & IFF_UP) != 0,
                    .carrier = (i->ifa_flags & IFF_RUNNING) != 0};
    if (i->ifa_addr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6)) {
      found.address = FromSockaddr(i->ifa_addr);
      found.address.port = 0;
    }
    // A link-local address means nothing without the peer's own interface number.
    if (found.address.family == AF_INET6 && found.address.bytes[0] == 0xFE &&
        (found.address.bytes[1] & 0xC0) == 0x80) {
      found.address = {};
    }
    result.push_back(std::move(found));
  }
  freeifaddrs(list);
  return result;
}

int ReadSpeed(const std::string& folder) {
  std::ifstream file(folder + "/speed");
  int speed = 0;
  return file >> speed && speed > 0 ? speed : kDefaultSpeedMbps;  // virtual NICs say -1 or refuse to be read
}

std::string ReadPciPath(const std::string& folder) {
  char path[PATH_MAX];
  if (!realpath((folder + "/device").c_str(), path)) return {};
  return path;
}

/// FNV-1a: stable from run to run, so that logs of two runs can be compared.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

bool IsBridge(const Interface& i) { return i.name.starts_with("docker"); }

/// Why the interface that all of `entries` are of is not used, in a few words.
const char* WhyNot(const std::vector<Interface>& entries, const Environment& environment) {
  const Interface& any = entries.front();
  const auto reachable = [](const Interface& i) { return i.address.family != 0; };
  const auto of_family = [&](const Interface& i) {
    return reachable(i) && (environment.family == 0 || i.address.family == environment.family);
  };
  if (!any.up) return "down";
  if (!any.carrier) return "no carrier";
  if (std::ranges::none_of(entries, reachable)) return "no address";
  if (std::ranges::none_of(entries, of_family)) return "no address of NCCL_SOCKET_FAMILY";
  if (!MatchesFilter(environment.interfaces, any.name)) return "excluded by NCCL_SOCKET_IFNAME";
  if (any.loopback) return "loopback, taken only where nothing else can be";
  if (IsBridge(any)) return "container bridge, taken only where nothing but loopback can be";
  return "not taken";
}

}  // namespace

bool MatchesFilter(std::string_view filter, std::string_view name, int port) {
  if (filter.empty()) return true;
  const bool exclude = filter.front() == '^';
  if (exclude) filter.remove_prefix(1);
  const bool exact = !filter.empty() && filter.front() == '=';
  if (exact) filter.remove_prefix(1);
  bool listed = false;
  while (!filter.empty()) {
    const size_t comma = std::min(filter.find(','), filter.size());
    const std::string_view item = filter.substr(0, comma);
    filter.remove_prefix(std::min(comma + 1, filter.size()));
    const size_t colon = std::min(item.find(':'), item.size());
    int item_port = 0;  // any
    if (colon < item.size()) std::from_chars(item.data() + colon + 1, item.data() + item.size(), item_port);
    const std::string_view wanted = item.substr(0, colon);
    if (wanted.empty() || (port != 0 && item_port != 0 && item_port != port)) continue;
    listed = listed || (exact ? name == wanted : name.starts_with(wanted));
  }
  return listed != exclude;
}

std::vector<Interface> ChooseInterfaces(const std::vector<Interface>& all, const Environment& environment) {
  enum Rank { kReal, kBridge, kLoopback, kRanks };
  std::vector<Interface> ranked[kRanks];
  for (const Interface& i : all) {
    if (!i.up || !i.carrier || i.address.family == 0) continue;
    if (environment.family != 0 && i.address.family != environment.family) continue;
    if (!MatchesFilter(environment.interfaces, i.name)) continue;
    const bool excluding = environment.interfaces.starts_with('^');
    const bool asked_for = !environment.interfaces.empty() && !excluding;
    const Rank rank = asked_for ? kReal : i.loopback ? kLoopback : IsBridge(i) ? kBridge : kReal;
    auto& chosen = ranked[rank];
    const auto same = std::ranges::find(chosen, i.name, &Interface::name);
    if (same == chosen.end()) {
      chosen.push_back(i);
    } else if (same->address.family == AF_INET6 && i.address.family == AF_INET) {
      same->address = i.address;
    }
  }
  for (auto& chosen : ranked) {
    if (!chosen.empty()) return chosen;
  }
  return {};
}

std::vector<std::string> PassedOver(const std::vector<Interface>& all, const std::vector<Interface>& chosen,
                                    const Environment& environment) {
  std::vector<std::string> result;
  std::vector<std::string_view> seen;
  for (const Interface& i : all) {
    if (std::ranges::find(seen, i.name) != seen.end()) continue;
    seen.push_back(i.name);
    if (std::ranges::find(chosen, i.name, &Interface::name) != chosen.end()) continue;
    std::vector<Interface> entries;
    std::ranges::copy_if(all, std::back_inserter(entries), [&](const Interface& j) { return j.name == i.name; });
    result.push_back(i.name + " (" + WhyNot(entries, environment) + ")");
  }
  return result;
}

NoInterface WhyNoInterface(const std::vector<Interface>& all, const Environment& environment) {
  std::string settings;
  if (!environment.interfaces.empty()) settings = Setting("NCCL_SOCKET_IFNAME", environment.interfaces);
  if (environment.family != 0) {
    settings += (settings.empty() ? "" : " and ") +
                Setting("NCCL_SOCKET_FAMILY", environment.family == AF_INET ? "AF_INET" : "AF_INET6");
  }
  NoInterface result;
  result.head = "devices: none. " + (settings.empty() ? "Expected an interface that is up and has an address, this host has:"
                                                      : settings + " leaves no interface that is up and has an address:");
  Environment open = environment;
  open.interfaces.clear();
  open.family = 0;
  const std::vector<Interface> usable = ChooseInterfaces(all, open);
  if (settings.empty() || usable.empty()) {
    result.next = "bring an interface up and give it an address";
  } else {
    result.next = "let an interface through that can be used, such as NCCL_SOCKET_IFNAME=" + usable.front().name +
                  ", or unset " + (environment.interfaces.empty() ? "NCCL_SOCKET_FAMILY" : "NCCL_SOCKET_IFNAME");
  }
  return result;
}

namespace {

/// The interfaces to use. One whose cable was plugged in, or whose namespace was made, a moment ago has no carrier yet:
/// where none of those that are wanted has one it is waited for, before bridges or loopback must do.
std::vector<Interface> WaitForInterfaces(const Environment& environment, std::vector<Interface>* all) {
  *all = ReadInterfaces();
  std::vector<Interface> chosen = ChooseInterfaces(*all, environment);
  std::vector<Interface> later = *all;
  for (Interface& i : later) i.carrier = true;
  const std::vector<Interface> wanted = ChooseInterfaces(later, environment);
  const auto is_wanted = [&wanted](const Interface& i) {
    return std::ranges::find(wanted, i.name, &Interface::name) != wanted.end();
  };
  for (int ms = 0; !wanted.empty() && std::ranges::none_of(chosen, is_wanted) && ms < kCarrierMs; ms += kLookMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    *all = ReadInterfaces();
    chosen = ChooseInterfaces(*all, environment);
  }
  return chosen;
}

void Tell(const std::vector<Interface>& all, const std::vector<Interface>& chosen, const Environment& environment) {
  const std::vector<std::string> passed_over = PassedOver(all, chosen, environment);
  if (chosen.empty()) {
    const NoInterface none = WhyNoInterface(all, environment);
    LogList(nccl::kLogWarn, none.head, passed_over);
    Log(nccl::kLogWarn, "%s; until then NCCL uses a transport of its own, or fails where NCCL_NET=Weft", none.next.c_str());
  } else if (!passed_over.empty()) {
    LogList(nccl::kLogInfo, "interfaces not used:", passed_over);
  }
}

}  // namespace

std::vector<Device> FindDevices(const Environment& environment, const std::string& sysfs) {
  std::vector<Interface> all;
  const std::vector<Interface> chosen = WaitForInterfaces(environment, &all);
  Tell(all, chosen, environment);
  std::vector<Device> devices;
  for (const Interface& i : chosen) {
    const std::string folder = sysfs + "/" + i.name;
    Device device{.name = i.name, .pci_path = ReadPciPath(folder), .speed_mbps = ReadSpeed(folder)};
    // NCCL wants each path once: a second port of the same card hangs off the processor instead.
    if (std::ranges::find(devices, device.pci_path, &Device::pci_path) != devices.end()) device.pci_path.clear();
    device.guid = Hash(i.name);
    device.address = i.address;
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace weft::net
