// The sending end where a receiver groups buffers: how far it may run ahead of one tag.
#include <cerrno>

#include "netplugin/send_comm.h"

namespace weft::net {

/// Counts a message of another tag than all former ones'; false: it must wait until the receiver has posted for it.
bool SendComm::CountTag(int32_t tag) {
  if (!tags_ && tag_ == kNoTag) {
    tag_ = tag;  // the first message
    return true;
  }
  Tags& tags = AllTags();
  if (tags.limited) {
    ReadNotices();
    if (static_cast<int32_t>(tags.posted[tag] - tags.sent[tag]) <= 0) return false;
  }
  ++tags.sent[tag];
  return true;
}

SendComm::Tags& SendComm::AllTags() {
  if (!tags_) {
    tags_ = std::make_unique<Tags>();
    if (tag_ != kNoTag) tags_->sent[static_cast<int32_t>(tag_)] = next_;
    tag_ = kNoTag;
  }
  return *tags_;
}

void SendComm::ReadNotices() {
  Tags& tags = *tags_;
  for (;;) {
    const ssize_t got = recv(lanes_[0].fd, reinterpret_cast<char*>(&tags.notice) + tags.filled,
                             sizeof tags.notice - tags.filled, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return Fail(lanes_[0], got == 0 ? ECONNRESET : errno);
    tags.filled += static_cast<uint32_t>(got);
    if (tags.filled < sizeof tags.notice) continue;
    tags.filled = 0;
    if (tags.notice.magic != kPostedMagic) return Fail(lanes_[0], EPROTO);
    tags.posted[tags.notice.tag] = tags.notice.count;
  }
}

}  // namespace weft::net
