// Which DSCP the packets of flows carry when they leave: a sample of what the host's interfaces send, IPv4 only. Packets that an
// RDMA device sends past the kernel are not seen; those of rdma_rxe are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"

namespace weft::agent {

/// A sent packet, as the head of its IPv4 header says.
struct SentPacket {
  int dscp = 0;
  uint16_t source_port = 0;
  bool roce = false;  ///< RoCEv2; else TCP
};

/// From an IPv4 packet; nothing for other protocols, fragments and what is cut off.
std::optional<SentPacket> ParseSentPacket(std::span<const uint8_t> packet);

/// Packets by interface and DSCP.
using SentDscp = std::map<std::string, std::map<int32_t, int64_t>>;

/// Not thread-safe. While there is one the kernel copies the head of every packet that leaves: keep it for short.
class SentDscpSampler {
 public:
  /// Errors: kFailedPrecondition without CAP_NET_RAW.
  [[nodiscard]] static Result<SentDscpSampler> Open();
  /// Adds what waits to be read, and all that comes until it has been read, 4,096 packets at most: all RoCEv2, and TCP from
  /// `ports`.
  void Read(const std::set<uint16_t>& ports, SentDscp* sent);

 private:
  SentDscpSampler() = default;
  UniqueFd fd_;
};

}  // namespace weft::agent
