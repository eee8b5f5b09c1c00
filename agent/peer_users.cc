#include "agent/peer_users.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace weft::agent {
namespace {

// 2^32 - 1 numbers: the last one means "no user".
constexpr uint64_t kAllUsers = UINT32_MAX;

std::string ReadText(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

PeerUsers::PeerUsers(std::string_view uid_map, std::string_view overflow_uid) {
  // The kernel lets no two lines overlap, and no line name a user that the namespace above does not have.
  std::istringstream lines{std::string(uid_map)};
  uint64_t inside = 0, outside = 0, count = 0, mapped = 0;
  while (lines >> inside >> outside >> count) mapped += count;
  all_mapped_ = mapped >= kAllUsers;
  std::istringstream number{std::string(overflow_uid)};
  if (uint32_t overflow = 0; number >> overflow) overflow_ = overflow;
}

PeerUsers PeerUsers::Read() {
  return {ReadText("/proc/self/uid_map"), ReadText("/proc/sys/kernel/overflowuid")};
}

}  // namespace weft::agent
