#include "netplugin/tcp/tag_matcher.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "netplugin/tcp/copy_in_order.h"

namespace weft::net {

TagMatcher::TagMatcher(int64_t tag, uint32_t posted, uint32_t next) : next_(next) {
  // What can throw afterwards changes nothing before it does.
  waiting_.reserve(nccl::kMaxRequests * kMaxRecvs);
  open_.reserve(2 * nccl::kMaxRequests * kMaxRecvs);
  ahead_.reserve(nccl::kMaxRequests);
  if (tag != kNoTag) posted_[static_cast<int32_t>(tag)] = posted;
}

void TagMatcher::AdoptMatched(uint32_t sequence, RecvPart* open) {
  if (static_cast<int32_t>(sequence - next_) > 0) ahead_.push_back(sequence);
  if (open) open_.push_back(open);
}

TagMatcher::Posted TagMatcher::Post(RecvPart* part) {
  const uint32_t count = ++posted_[part->tag];
  if (telling_) Queue(part->tag, count);
  const auto found = std::ranges::find_if(
      early_, [&](const auto& early) { return !early->target && early->part.tag == part->tag; });
  if (found == early_.end()) {
    waiting_.push_back(part);
    return Posted::kWaits;
  }
  Early& early = **found;
  part->started = true;
  part->sequence = early.part.sequence;
  part->total = early.part.total;
  if (part->total > part->size) return Posted::kTooLong;
  early.target = part;
  return early.complete && Complete(&early.part) ? Posted::kComplete : Posted::kWaits;
}

TagMatcher::Found TagMatcher::Find(const ChunkHeader& header, RecvPart** part) {
  const auto open = std::ranges::find(open_, header.sequence, &RecvPart::sequence);
  if (open != open_.end()) {
    *part = *open;
    return Found::kPart;
  }
  if (std::ranges::find(ahead_, header.sequence) != ahead_.end()) return Found::kWrong;
  const auto distance = static_cast<int32_t>(header.sequence - next_);
  if (distance != 0) return distance > 0 ? Found::kNotYet : Found::kWrong;
  const auto waiting = std::ranges::find(waiting_, header.tag, &RecvPart::tag);
  if (waiting != waiting_.end()) {
    *part = *waiting;
    waiting_.erase(waiting);
  } else if (waiting_.empty()) {
    return Found::kNotYet;
  } else if (const Found taken = TakeEarly(header, part); taken != Found::kPart) {
    return taken;
  }
  (*part)->sequence = header.sequence;
  open_.push_back(*part);
  do {
    ++next_;
  } while (std::erase(ahead_, next_) > 0);
  return Found::kPart;
}

TagMatcher::Found TagMatcher::TakeEarly(const ChunkHeader& header, RecvPart** part) {
  if (header.total > kMostEarlyBytes || early_bytes_ + header.total > kMostEarlyBytes) return Found::kTooMuch;
  open_.reserve(open_.size() + 1);
  auto early = std::make_unique<Early>();
  early->bytes.reset(new (std::nothrow) char[std::max<uint64_t>(1, header.total)]);
  if (!early->bytes) return Found::kNoMemory;
  early->part.Post(early->bytes.get(), header.total, header.tag);
  if (early_bytes_ + header.total > kEarlyBytes && !telling_) {
    telling_ = true;
    TellAgain();
  }
  early_.push_back(std::move(early));
  early_bytes_ += header.total + sizeof(Early);
  *part = &early_.back()->part;
  return Found::kPart;
}

RecvPart* TagMatcher::Complete(RecvPart* part) {
  std::erase(open_, part);
  if (part->owner) return part;  // a posted one
  const auto found = std::ranges::find_if(early_, [&](const auto& early) { return &early->part == part; });
  Early& early = **found;
  early.complete = true;
  RecvPart* target = early.target;
  if (!target) return nullptr;
  if (target->polled) {
    CopyInOrder(target->data, part->data, part->total);
  } else if (part->total > 0) {
    std::memcpy(target->data, part->data, part->total);
  }
  target->received = target->assigned = part->total;
  early_bytes_ -= part->total + sizeof(Early);
  early_.erase(found);
  return target;
}

void TagMatcher::Queue(int32_t tag, uint32_t posted) {
  const PostedNotice notice{kPostedMagic, tag, posted};
  const auto* bytes = reinterpret_cast<const char*>(&notice);
  unsent_.insert(unsent_.end(), bytes, bytes + sizeof notice);
}

void TagMatcher::TellAgain() {
  unsent_.clear();
  if (!telling_) return;
  for (const auto& [tag, posted] : posted_) Queue(tag, posted);
}

void TagMatcher::Notify(int fd) {
  if (unsent_.empty() || fd < 0) return;
  const ssize_t sent = send(fd, unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // An error shows again as the end of the stream, behind what has arrived before it.
  if (sent > 0) unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
}

}  // namespace weft::net
