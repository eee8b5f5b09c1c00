// Which users the agent can tell apart. SO_PEERCRED and fstat() give a uid as the agent's own user namespace has it, and one
// number, the overflow uid, for everybody who is not mapped there: two tenants may then look like one.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::agent {

class PeerUsers {
 public:
  /// From the texts of /proc/self/uid_map and /proc/sys/kernel/overflowuid.
  PeerUsers(std::string_view uid_map, std::string_view overflow_uid);
  /// Of this process. What cannot be read counts as nothing mapped.
  static PeerUsers Read();

  /// Every user of the host has a number of his own here.
  bool all_mapped() const { return all_mapped_; }
  /// Whether `uid` stands for one user.
  bool Tells(uint32_t uid) const { return all_mapped_ || uid != overflow_; }

 private:
  bool all_mapped_ = false;
  uint32_t overflow_ = 65534;
};

}  // namespace weft::agent
