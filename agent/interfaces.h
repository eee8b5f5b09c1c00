// The host's network interfaces: names, addresses, state, speed, MTU and byte counters. Everything comes from where the
// calling process's network namespace shows (getifaddrs, /proc/net/dev); only speed and MTU come from sysfs, which may
// show another namespace and is then not believed: its MAC address must be the interface's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"

namespace weft::agent {

struct InterfaceInfo {
  std::string name;
  std::vector<std::string> addresses;  ///< textual, without prefix length; IPv4 before IPv6, no link-local ones
  int64_t speed_bps = 0;               ///< 0 if the driver does not say
  bool up = false;                     ///< has a carrier
  int64_t mtu = 0;                     ///< bytes, 0 if unknown

  friend bool operator==(const InterfaceInfo&, const InterfaceInfo&) = default;
};

/// Bytes since the interface was made.
struct InterfaceBytes {
  std::string name;
  int64_t received = 0;
  int64_t sent = 0;
};

/// One entry of getifaddrs: an address, or (empty address) the link itself.
struct LinkAddress {
  std::string interface;
  std::string address;
  std::string mac;  ///< of the link entry, "02:fc:00:00:00:01"
  bool running = false;
  bool loopback = false;
};

/// Where to look; tests put in their own.
struct InterfaceSources {
  std::string sysfs = "/sys";
  std::string procfs = "/proc";
  std::function<Result<std::vector<LinkAddress>>()> addresses;  ///< empty: getifaddrs
};

/// All interfaces but loopback ones, or those named in `only`, by name.
/// Errors: kNotFound naming an interface of `only` that does not exist.
[[nodiscard]] Result<std::vector<InterfaceInfo>> DiscoverInterfaces(const std::vector<std::string>& only,
                                                                   const InterfaceSources& sources = {});

/// Counters of the named interfaces; one that is gone is left out. Errors: kNotFound without procfs.
[[nodiscard]] Result<std::vector<InterfaceBytes>> ReadInterfaceBytes(const std::vector<std::string>& names,
                                                                    const InterfaceSources& sources = {});

/// Whether the host has RDMA devices, whose bytes interface counters need not have.
bool HasRdmaDevices(const std::string& folder = "/sys/class/infiniband");

/// From the text of /proc/net/dev; lines that do not fit are left out.
std::vector<InterfaceBytes> ParseNetDev(const std::string& text);

}  // namespace weft::agent
