// The receiving end where tags decide which buffer a message goes to.
#include <algorithm>
#include <new>

#include "netplugin/log.h"
#include "netplugin/tcp/recv_comm.h"

namespace weft::net {

int RecvComm::IrecvGroup(int n, void** data, const uint64_t* sizes, const int* tags, void**, Request** request) {
  *request = nullptr;
  RecvRequest& slot = requests_[next_ % nccl::kMaxRequests];
  if (error_ != nccl::kSuccess && (error_ != nccl::kRemoteError || slot.taken)) return error_;
  if (!slot.taken) {
    if (!matcher_) MatchByTag();
    uint64_t size = 0;
    for (int i = 0; i < n; ++i) {
      slot.parts[static_cast<size_t>(i)].Post(data[i], sizes[i], tags ? tags[i] : 0);
      size += sizes[i];
    }
    slot.count = static_cast<uint8_t>(n);
    Take(slot, size);
    *request = &slot;
  }
  return AfterPost(request);
}

/// A receive whose tag is not all former ones': it is the first, or from now on tags decide.
void RecvComm::NoteTag(int32_t tag) {
  if (matcher_) return;
  if (tag_ == kNoTag) {
    tag_ = tag;
  } else {
    MatchByTag();
  }
}

/// Hands what is known by number over to the matcher.
void RecvComm::MatchByTag() {
  const auto of = [this](uint32_t number) -> RecvRequest* {
    RecvRequest& request = requests_[number % nccl::kMaxRequests];
    return request.taken && request.sequence == number ? &request : nullptr;  // nullptr: complete, and tested
  };
  const auto waits = [&](uint32_t number) { return of(number) && !of(number)->parts[0].started; };
  const uint32_t oldest = next_ - nccl::kMaxRequests;
  uint32_t first = oldest;
  while (first != next_ && !waits(first)) ++first;
  matcher_ = std::make_unique<TagMatcher>(tag_, next_, first);
  for (uint32_t number = oldest; number != next_; ++number) {
    RecvRequest* request = of(number);
    if (waits(number)) {
      matcher_->AdoptWaiting(&request->parts[0]);
    } else {
      const bool open = request && request->parts[0].received < request->parts[0].total;
      matcher_->AdoptMatched(number, open ? &request->parts[0] : nullptr);
    }
  }
  tag_ = kNoTag;
}

void RecvComm::PostByTag(RecvRequest& request) try {
  for (uint8_t i = 0; i < request.count; ++i) {
    switch (matcher_->Post(&request.parts[i])) {
      case TagMatcher::Posted::kWaits:
        break;
      case TagMatcher::Posted::kComplete:
        PartDone(request.parts[i]);
        break;
      case TagMatcher::Posted::kTooLong:
        return TooLong(request.parts[i]);
    }
  }
} catch (const std::bad_alloc&) {
  Fail(nccl::kSystemError, "no memory to match receives by tag");
}

/// As FindPart().
RecvPart* RecvComm::FindByTag(const ChunkHeader& header) try {
  if (!matcher_) {
    if (tag_ == kNoTag || static_cast<int32_t>(header.sequence - next_) >= 0) return nullptr;  // not posted yet
    MatchByTag();
  }
  RecvPart* part = nullptr;
  switch (matcher_->Find(header, &part)) {
    case TagMatcher::Found::kPart:
      return Accept(header, part);
    case TagMatcher::Found::kNotYet:
      return nullptr;
    case TagMatcher::Found::kWrong:
      Fail(nccl::kInternalError, "a chunk belongs to a message that is complete");
      return nullptr;
    case TagMatcher::Found::kTooMuch:
      Fail(nccl::kRemoteError, "more than 1 GiB came before its receives and no word to the sender helped");
      return nullptr;
    case TagMatcher::Found::kNoMemory:
      Fail(nccl::kSystemError, "no memory for a message that came before its receive");
      return nullptr;
  }
  return nullptr;
} catch (const std::bad_alloc&) {
  Fail(nccl::kSystemError, "no memory to match messages by tag");
  return nullptr;
}

}  // namespace weft::net
