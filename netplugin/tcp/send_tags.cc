// The sending end where a receiver groups buffers: how far it may run ahead of one tag.
#include <cerrno>
#include <cstring>
#include <utility>

#include "netplugin/tcp/send_comm.h"

namespace weft::net {

/// Counts a message of another tag than all former ones'; false: it must wait until the receiver has posted for it.
bool SendComm::CountTag(int32_t tag) {
  if (!tags_ && tag_ == kNoTag) {
    tag_ = tag;  // the first message
    return true;
  }
  Tags& tags = AllTags();
  const auto used_up = [&] { return static_cast<int32_t>(tags.posted[tag] - tags.sent[tag]) <= 0; };
  if (tags.limited && used_up()) {
    ReadNotices();
    if (used_up()) return false;
  }
  ++tags.sent[tag];
  return true;
}

SendComm::Tags& SendComm::AllTags() {
  if (!tags_) {
    tags_ = std::make_unique<Tags>();
    if (tag_ != kNoTag) tags_->sent[static_cast<int32_t>(tag_)] = next_;
    tag_ = kNoTag;
    tagged_.store(true, std::memory_order_relaxed);
  }
  return *tags_;
}

void SendComm::ReadNotices() {
  constexpr size_t kMostTags = 1 << 16;
  Tags& tags = *tags_;
  if (lanes_[0].state.load(std::memory_order_acquire) != abi::LaneState::kActive) return;
  const bool parked = (Enter() & 1) != 0;
  if (parked) return Leave();
  if (std::exchange(tags.moves, lanes_[0].moves) != lanes_[0].moves) tags.filled = 0;  // all is said again (TagMatcher::TellAgain)
  auto* bytes = reinterpret_cast<char*>(tags.notices.data());
  const size_t room = sizeof tags.notices - tags.filled;
  const ssize_t got = recv(lanes_[0].fd, bytes + tags.filled, room, MSG_DONTWAIT);
  const int error = errno;
  Leave();
  if (got < 0 && (error == EAGAIN || error == EINTR)) return;
  if (got <= 0) return Fail(lanes_[0], got == 0 ? ECONNRESET : error);
  tags.filled += static_cast<uint32_t>(got);
  const size_t whole = tags.filled / sizeof(PostedNotice);
  for (size_t i = 0; i < whole; ++i) {
    const PostedNotice& notice = tags.notices[i];
    if (notice.magic != kPostedMagic || tags.posted.size() > kMostTags) return Fail(lanes_[0], EPROTO);
    tags.posted[notice.tag] = notice.count;
  }
  tags.filled -= static_cast<uint32_t>(whole * sizeof(PostedNotice));
  std::memmove(bytes, bytes + whole * sizeof(PostedNotice), tags.filled);
}

}  // namespace weft::net
