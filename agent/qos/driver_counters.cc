#include "agent/qos/driver_counters.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/unique_fd.h"

namespace weft::agent {
namespace {

constexpr uint32_t kMostOfDriver = 16384;
constexpr size_t kMostKept = 128;
constexpr const char* kPieces[] = {"pause", "discard", "cnp", "ecn", "pfc"};

bool Ask(int fd, const std::string& interface, void* request) {
  ifreq call{};
  std::strncpy(call.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  call.ifr_data = static_cast<char*>(request);
  return ::ioctl(fd, SIOCETHTOOL, &call) == 0;
}

uint32_t CountersOf(int fd, const std::string& interface) {
  // The kernel's structure, which ends in one number for each set that is asked for.
  alignas(ethtool_sset_info) unsigned char bytes[sizeof(ethtool_sset_info) + sizeof(uint32_t)] = {};
  auto* const info = reinterpret_cast<ethtool_sset_info*>(bytes);
  info->cmd = ETHTOOL_GSSET_INFO;
  info->sset_mask = uint64_t{1} << ETH_SS_STATS;
  if (!Ask(fd, interface, info) || info->sset_mask == 0) return 0;
  uint32_t count = 0;
  std::memcpy(&count, bytes + sizeof(ethtool_sset_info), sizeof count);
  return std::min(count, kMostOfDriver);
}

}  // namespace

int PriorityOf(const std::string& name) {
  const size_t at = name.find("prio");
  const size_t digit = at == std::string::npos ? at : at + 4 + (name.compare(at + 4, 1, "_") == 0 ? 1 : 0);
  if (digit == std::string::npos || digit >= name.size() || name[digit] < '0' || name[digit] > '7') return -1;
  return name[digit] - '0';
}

bool IsQosCounter(const std::string& name) {
  return PriorityOf(name) >= 0 || std::ranges::any_of(kPieces,
                                                      [&](const char* piece) { return name.find(piece) != std::string::npos; });
}

std::map<std::string, int64_t> ReadDriverCounters(const std::string& interface) {
  std::map<std::string, int64_t> counters;
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const uint32_t count = fd && interface.size() < IFNAMSIZ ? CountersOf(fd.get(), interface) : 0;
  if (count == 0) return counters;
  // The kernel's structures end in arrays of `count` entries.
  std::vector<uint64_t> names((sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN) / 8 + 1);
  std::vector<uint64_t> values(sizeof(ethtool_stats) / 8 + count);
  auto* const strings = reinterpret_cast<ethtool_gstrings*>(names.data());
  strings->cmd = ETHTOOL_GSTRINGS;
  strings->string_set = ETH_SS_STATS;
  strings->len = count;
  auto* const stats = reinterpret_cast<ethtool_stats*>(values.data());
  stats->cmd = ETHTOOL_GSTATS;
  stats->n_stats = count;
  if (!Ask(fd.get(), interface, strings) || !Ask(fd.get(), interface, stats) || strings->len != count ||
      stats->n_stats != count) return counters;
  for (uint32_t i = 0; i < count && counters.size() < kMostKept; ++i) {
    const char* const text = reinterpret_cast<const char*>(strings->data) + size_t{i} * ETH_GSTRING_LEN;
    const std::string name(text, ::strnlen(text, ETH_GSTRING_LEN));
    if (IsQosCounter(name)) counters[name] = static_cast<int64_t>(stats->data[i]);
  }
  return counters;
}

}  // namespace weft::agent
