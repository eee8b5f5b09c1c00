// What a receiving flow knows of a posted receive: one buffer, or several that were posted as a group.
#pragma once

#include <array>
#include <cstdint>

#include "netplugin/comm.h"

namespace weft::net {

struct RecvRequest;

/// A buffer and the message that goes there.
struct RecvPart {
  char* data = nullptr;
  uint64_t size = 0;
  uint64_t assigned = 0;  ///< bytes of chunks whose headers were accepted
  uint64_t received = 0;
  uint64_t total = 0;     ///< bytes of the message
  uint32_t sequence = 0;  ///< of the message
  int32_t tag = 0;
  bool started = false;   ///< total and sequence are known
  bool polled = false;    ///< its bytes must appear in order (copy_in_order.h)
  RecvRequest* owner = nullptr;

  /// Ready for another message.
  void Post(void* to, uint64_t bytes, int32_t of_tag, bool is_polled = false) {
    data = static_cast<char*>(to);
    size = bytes;
    tag = of_tag;
    polled = is_polled;
    assigned = received = total = 0;
    started = false;
  }
};

struct RecvRequest : Request {
  std::array<RecvPart, kMaxRecvs> parts;
  uint8_t count = 1;  ///< parts in use
  uint8_t left = 0;   ///< of them not complete

  uint64_t Received() const {
    uint64_t sum = parts[0].total;
    for (uint8_t i = 1; i < count; ++i) sum += parts[i].total;
    return sum;
  }
};

}  // namespace weft::net
