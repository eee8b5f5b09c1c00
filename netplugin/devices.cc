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
#include <thread>

namespace weft::net {
namespace {

constexpr int kDefaultSpeedMbps = 10000;

constexpr int kCarrierMs = 2000;
constexpr int kLookMs = 10;

/// Those that are up; `running`: and have a carrier.
std::vector<Interface> ReadInterfaces(bool running) {
  const unsigned flags = running ? IFF_UP | IFF_RUNNING : IFF_UP;
  std::vector<Interface> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_flags & flags) != flags) continue;
    if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
    Interface found{i->ifa_name, (i->ifa_flags & IFF_LOOPBACK) != 0, FromSockaddr(i->ifa_addr)};
    // A link-local address means nothing without the peer's own interface number.
    if (found.address.family == AF_INET6 && found.address.bytes[0] == 0xFE &&
        (found.address.bytes[1] & 0xC0) == 0x80) {
      continue;
    }
    found.address.port = 0;
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
    if (environment.family != 0 && i.address.family != environment.family) continue;
    if (!MatchesFilter(environment.interfaces, i.name)) continue;
    const bool excluding = environment.interfaces.starts_with('^');
    const bool asked_for = !environment.interfaces.empty() && !excluding;
    const Rank rank = asked_for                      ? kReal
                      : i.loopback                   ? kLoopback
                      : i.name.starts_with("docker") ? kBridge
                                                     : kReal;
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

namespace {

/// The interfaces to use. One whose cable was plugged in, or whose namespace was made, a moment ago has no carrier yet:
/// where none of those that are wanted has one it is waited for, before bridges or loopback must do.
std::vector<Interface> WaitForInterfaces(const Environment& environment) {
  std::vector<Interface> chosen = ChooseInterfaces(ReadInterfaces(true), environment);
  const std::vector<Interface> wanted = ChooseInterfaces(ReadInterfaces(false), environment);
  const auto is_wanted = [&wanted](const Interface& i) {
    return std::ranges::find(wanted, i.name, &Interface::name) != wanted.end();
  };
  for (int ms = 0; !wanted.empty() && std::ranges::none_of(chosen, is_wanted) && ms < kCarrierMs; ms += kLookMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    chosen = ChooseInterfaces(ReadInterfaces(true), environment);
  }
  return chosen;
}

}  // namespace

std::vector<Device> FindDevices(const Environment& environment, const std::string& sysfs) {
  std::vector<Device> devices;
  for (const Interface& i : WaitForInterfaces(environment)) {
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
