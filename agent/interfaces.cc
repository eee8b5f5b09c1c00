#include "agent/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

namespace weft::agent {
namespace {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string FirstLine(const std::string& path) {
  const std::string text = ReadText(path).value_or("");
  return text.substr(0, text.find('\n'));
}

/// 0 if the file is not there, cannot be read (a link that is down has no speed) or holds no positive number.
int64_t PositiveNumber(const std::string& path) {
  std::istringstream in(FirstLine(path));
  int64_t value = 0;
  return in >> value && value > 0 ? value : 0;
}

std::string FormatMac(const sockaddr_ll& link) {
  if (link.sll_halen != 6) return "";
  const unsigned char* b = link.sll_addr;
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4], b[5]);
}

Result<std::vector<LinkAddress>> SystemAddresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return Fail(ErrnoError("list interface addresses", errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, ::freeifaddrs);
  std::vector<LinkAddress> found;
  for (const ifaddrs* entry = list.get(); entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    LinkAddress link{.interface = entry->ifa_name,
                     .running = (entry->ifa_flags & IFF_UP) && (entry->ifa_flags & IFF_RUNNING),
                     .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};
    char text[INET6_ADDRSTRLEN] = "";
    if (entry->ifa_addr->sa_family == AF_PACKET) {
      link.mac = FormatMac(*reinterpret_cast<const sockaddr_ll*>(entry->ifa_addr));
    } else if (entry->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      inet_ntop(AF_INET6, &address, text, sizeof text);
    } else {
      continue;
    }
    link.address = text;
    found.push_back(std::move(link));
  }
  return found;
}

struct Link {
  InterfaceInfo info;
  std::string mac;
  bool loopback = false;
};

void ReadSysfs(const std::string& root, const std::string& mac, InterfaceInfo* info) {
  const std::string folder = root + "/class/net/" + info->name + "/";
  if (mac.empty() || FirstLine(folder + "address") != mac) return;
  info->speed_bps = PositiveNumber(folder + "speed") * 1'000'000;
  info->mtu = PositiveNumber(folder + "mtu");
}

}  // namespace

Result<std::vector<InterfaceInfo>> DiscoverInterfaces(const std::vector<std::string>& only,
                                                      const InterfaceSources& sources) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<LinkAddress> addresses,
                        sources.addresses ? sources.addresses() : SystemAddresses());
  std::map<std::string, Link> links;
  for (const LinkAddress& entry : addresses) {
    Link& link = links[entry.interface];
    link.info.name = entry.interface;
    link.info.up = entry.running;
    link.loopback = entry.loopback;
    if (!entry.mac.empty()) link.mac = entry.mac;
    if (!entry.address.empty()) link.info.addresses.push_back(entry.address);
  }
  for (const std::string& name : only) {
    if (!links.contains(name)) {
      return Fail(Code::kNotFound, fmt::format("interface \"{}\" does not exist on this host", name));
    }
  }
  std::vector<InterfaceInfo> found;
  for (auto& [name, link] : links) {
    const bool wanted = only.empty() ? !link.loopback : std::find(only.begin(), only.end(), name) != only.end();
    if (!wanted) continue;
    ReadSysfs(sources.sysfs, link.mac, &link.info);
    std::stable_partition(link.info.addresses.begin(), link.info.addresses.end(),
                          [](const std::string& text) { return text.find(':') == std::string::npos; });
    found.push_back(std::move(link.info));
  }
  return found;
}

Result<std::vector<InterfaceBytes>> ReadInterfaceBytes(const std::vector<std::string>& names,
                                                       const InterfaceSources& sources) {
  const std::string path = sources.procfs + "/net/dev";
  const std::optional<std::string> text = ReadText(path);
  if (!text) return Fail(Code::kNotFound, fmt::format("read interface counters \"{}\"", path));
  std::vector<InterfaceBytes> counters = ParseNetDev(*text);
  std::erase_if(counters, [&](const InterfaceBytes& entry) {
    return std::find(names.begin(), names.end(), entry.name) == names.end();
  });
  return counters;
}

bool HasRdmaDevices(const std::string& folder) {
  std::error_code error;
  return std::filesystem::directory_iterator(folder, error) != std::filesystem::directory_iterator();
}

std::vector<InterfaceBytes> ParseNetDev(const std::string& text) {
  std::vector<InterfaceBytes> counters;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;  // the two heading lines have none
    const size_t start = line.find_first_not_of(' ');
    InterfaceBytes entry{.name = line.substr(start, colon - start)};
    // Columns: 8 of reception, 8 of transmission, each beginning with bytes.
    std::istringstream numbers(line.substr(colon + 1));
    int64_t columns[9] = {};
    int read = 0;
    while (read < 9 && numbers >> columns[read]) ++read;
    if (read < 9) continue;
    entry.received = columns[0];
    entry.sent = columns[8];
    counters.push_back(std::move(entry));
  }
  return counters;
}

}  // namespace weft::agent
