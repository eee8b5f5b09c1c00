#include "netplugin/rdma/gid.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <tuple>

namespace weft::net::rdma {
namespace {

constexpr int kMostGids = 256;
constexpr std::array<uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // an unused entry cannot be read: an empty line
  return line;
}

}  // namespace

bool GidEntry::ipv4() const { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin()); }

bool GidEntry::link_local() const { return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80; }

std::vector<GidEntry> ReadGids(const std::string& sysfs, const std::string& device, int port) {
  const std::string folder = sysfs + "/" + device + "/ports/" + std::to_string(port);
  std::vector<GidEntry> table;
  for (int i = 0; i < kMostGids; ++i) {
    const std::string number = std::to_string(i);
    std::ifstream probe(folder + "/gids/" + number);
    if (!probe) break;
    const auto gid = ParseGid(FirstLine(folder + "/gids/" + number));
    if (!gid) continue;
    GidEntry entry{.index = i, .gid = *gid};
    if (entry.empty()) continue;
    const std::string type = FirstLine(folder + "/gid_attrs/types/" + number);
    if (type == "RoCE v2") entry.type = GidType::kRoceV2;
    if (type == "IB/RoCE v1" || type == "RoCE v1") entry.type = GidType::kRoceV1;
    table.push_back(entry);
  }
  return table;
}

std::string GidText(const std::array<uint8_t, 16>& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin())) {
    inet_ntop(AF_INET, &gid[12], text, sizeof text);
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

Address AddressOfGid(std::span<const uint8_t, 16> gid) {
  const bool v4 = std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin());
  Address address{.family = v4 ? AF_INET : AF_INET6};
  std::copy(gid.begin() + (v4 ? kMappedPrefix.size() : 0), gid.end(), address.bytes);
  return address;
}

std::optional<std::array<uint8_t, 16>> ParseGid(const std::string& text) {
  std::array<uint8_t, 16> gid;
  if (inet_pton(AF_INET6, text.c_str(), gid.data()) != 1) return std::nullopt;
  return gid;
}

std::optional<GidEntry> ChooseGid(std::span<const GidEntry> table, bool ethernet, int family, int wanted) {
  std::optional<GidEntry> best;
  const auto rank = [&](const GidEntry& entry) {
    if (!ethernet) return std::tuple(false, false, entry.index);
    const bool other_family = entry.ipv4() != (family != AF_INET6);
    return std::tuple(entry.link_local(), other_family, entry.index);
  };
  for (const GidEntry& entry : table) {
    if (wanted >= 0) {
      if (entry.index == wanted) return entry;
      continue;
    }
    if (ethernet && entry.type != GidType::kRoceV2) continue;
    if (!best || rank(entry) < rank(*best)) best = entry;
  }
  return best;
}

}  // namespace weft::net::rdma
