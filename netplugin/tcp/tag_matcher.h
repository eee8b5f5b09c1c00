// Which buffer a message goes to once tags decide that: from when a receiver groups buffers, or posts or gets a second
// tag. Until then the n-th message goes to the n-th receive, which needs no looking up.
//
// A message goes to the oldest buffer of its tag. What is sent before its buffer is posted may stand before other tags'
// messages on its lane, for which the receiver waits; so it is not left unread, but taken in here and copied later. A
// sender that runs ahead of one tag for long is told how many receives of each tag there have been (PostedNotice), and
// from then on sends no more than that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "netplugin/tcp/recv_request.h"
#include "netplugin/tcp/tag_counts.h"
#include "netplugin/tcp/wire.h"

namespace weft::net {

class TagMatcher {
 public:
  /// So much taken in early is chance (what is kept of each message counts too); more, and the sender is told what was
  /// posted. It learns of that within tens of milliseconds; much more is one that does not listen.
  static constexpr uint64_t kEarlyBytes = 1 << 20;
  static constexpr uint64_t kMostEarlyBytes = 1 << 30;

  /// `posted` receives went by number alone: all of `tag`, unless it is kNoTag and there were none. `next` is the first
  /// message that none of them has a byte of.
  TagMatcher(int64_t tag, uint32_t posted, uint32_t next);

  /// Of those: message `sequence` has its buffer, which holds all of it (nullptr) or not yet. In order of sequence.
  void AdoptMatched(uint32_t sequence, RecvPart* open);
  /// Of those: no byte of a message for `part` has come. In order of posting.
  void AdoptWaiting(RecvPart* part) { waiting_.push_back(part); }

  enum class Posted { kWaits, kComplete, kTooLong };
  /// A buffer that was posted now. kComplete: its message was here already.
  Posted Post(RecvPart* part);

  enum class Found { kPart, kNotYet, kWrong, kTooMuch, kNoMemory };
  /// Where a chunk belongs. kNotYet: leave it unread, since an earlier message's tag is not known yet, or nothing is
  /// posted that it could stand before. kWrong: its message is complete.
  Found Find(const ChunkHeader& header, RecvPart** part);

  /// All bytes of `part` have come. Returns the posted buffer that is complete by that, or nullptr.
  RecvPart* Complete(RecvPart* part);

  /// Sends what the sender must know, as much as the socket takes.
  void Notify(int fd);
  /// All of that anew, as the connection that it went over is another one: what was on its way may be lost.
  void TellAgain();

  /// Whether a chunk of message `sequence` that is not read yet may be, without a further receive.
  bool MayTake(uint32_t sequence) const {
    const auto distance = static_cast<int32_t>(sequence - next_);
    return distance < 0 || (distance == 0 && !waiting_.empty());
  }

 private:
  struct Early {
    RecvPart part;
    std::unique_ptr<char[]> bytes;
    RecvPart* target = nullptr;  // posted meanwhile
    bool complete = false;
  };

  Found TakeEarly(const ChunkHeader& header, RecvPart** part);
  void Queue(int32_t tag, uint32_t posted);

  uint32_t next_;                    // first message that has no buffer yet
  std::vector<uint32_t> ahead_;      // messages after it that have
  std::vector<RecvPart*> waiting_;   // posted, in order, without a message
  std::vector<RecvPart*> open_;      // with a message that is not whole
  std::vector<std::unique_ptr<Early>> early_;
  uint64_t early_bytes_ = 0;
  TagCounts posted_;
  bool telling_ = false;
  std::vector<char> unsent_;
};

}  // namespace weft::net
