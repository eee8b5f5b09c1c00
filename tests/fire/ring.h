// Memory for messages in flight: a ring that is handed out in order and taken back in order, registered once with each
// communicator that uses it.
#pragma once

#include <cstddef>
#include <vector>

namespace weft::net::fire {

class Ring {
 public:
  explicit Ring(size_t bytes) : memory_(bytes) {}

  char* data() { return memory_.data(); }
  size_t size() const { return memory_.size(); }

  /// `bytes` in one piece after the newest, or nullptr: wait until the oldest is given back.
  char* Take(size_t bytes) {
    if (used_ == 0) head_ = tail_ = 0;
    if (used_ == 0 || head_ > tail_) {
      if (memory_.size() - head_ >= bytes) return Give(head_, bytes);
      if (tail_ > bytes) return Give(0, bytes);
      return nullptr;
    }
    return tail_ - head_ > bytes ? Give(head_, bytes) : nullptr;
  }
  /// The oldest piece, which `Take` returned as `data` with `bytes`, is free again.
  void GiveBack(const char* data, size_t bytes) {
    tail_ = static_cast<size_t>(data - memory_.data()) + bytes;
    --used_;
  }
  /// The newest piece was not needed.
  void TakeBack(const char* data) {
    head_ = static_cast<size_t>(data - memory_.data());
    if (--used_ == 0) head_ = tail_ = 0;
  }
  void Clear() { used_ = head_ = tail_ = 0; }

 private:
  char* Give(size_t at, size_t bytes) {
    ++used_;
    head_ = at + bytes;
    return memory_.data() + at;
  }

  std::vector<char> memory_;
  size_t used_ = 0;  // pieces
  size_t head_ = 0;  // end of the newest
  size_t tail_ = 0;  // end of the last one that was given back
};

}  // namespace weft::net::fire
