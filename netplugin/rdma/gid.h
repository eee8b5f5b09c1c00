// Which entry of a port's GID table to use: on RoCE the entry decides version, address family and VLAN.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "netplugin/tcp/socket.h"

namespace weft::net::rdma {

enum class GidType : uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

struct GidEntry {
  int index = 0;
  std::array<uint8_t, 16> gid{};
  GidType type = GidType::kInfiniBand;

  bool empty() const { return gid == std::array<uint8_t, 16>{}; }
  bool ipv4() const;        ///< an IPv4 address mapped into IPv6
  bool link_local() const;  ///< fe80::/10
};

/// The non-empty entries of a port's table below `sysfs`/DEVICE/ports/PORT: gids and gid_attrs/types.
std::vector<GidEntry> ReadGids(const std::string& sysfs, const std::string& device, int port);

/// "fe80::1", as text of an IPv6 address, or of the IPv4 address within.
std::string GidText(const std::array<uint8_t, 16>& gid);

/// The IP address that a RoCEv2 GID is, port 0.
Address AddressOfGid(std::span<const uint8_t, 16> gid);

/// Parses "0000:0000:0000:0000:0000:ffff:0a00:0001" as sysfs prints it.
std::optional<std::array<uint8_t, 16>> ParseGid(const std::string& text);

/// The entry to use; nothing if none will do. `ethernet`: RoCE v2 only, an entry of `family` (AF_INET, AF_INET6; 0:
/// IPv4 first) before the other family, routable before link-local, else the lowest index. InfiniBand: the lowest
/// index. A `wanted` index of 0 and more is taken as it is, whatever its type.
std::optional<GidEntry> ChooseGid(std::span<const GidEntry> table, bool ethernet, int family, int wanted);

}  // namespace weft::net::rdma
