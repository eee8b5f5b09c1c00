// How many places callers hold at once: each address so many, and all together so many.
//
//   if (seats.Take(address) != Seats::Answer::kTaken) ...  // refused
//   seats.Leave(address);
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace weft::access {

/// Threads: any.
class Seats {
 public:
  enum class Answer {
    kTaken,
    kAddressFull,  ///< the address holds as many as one may
    kAllFull,      ///< all together hold as many as there are
  };

  Seats(size_t of_an_address, size_t in_all) : of_an_address_(of_an_address), in_all_(in_all) {}

  /// One more place for `address`; what is refused takes none. Complexity: O(log addresses with places).
  [[nodiscard]] Answer Take(const std::string& address) {
    const std::lock_guard lock(mutex_);
    const auto held = taken_.find(address);
    if ((held == taken_.end() ? 0 : held->second) >= of_an_address_) return Answer::kAddressFull;
    if (all_ >= in_all_) return Answer::kAllFull;
    ++all_;
    ++taken_[address];
    return Answer::kTaken;
  }

  /// Requires: taken.
  void Leave(const std::string& address) {
    const std::lock_guard lock(mutex_);
    --all_;
    if (--taken_[address] == 0) taken_.erase(address);
  }

  size_t of_an_address() const { return of_an_address_; }
  size_t in_all() const { return in_all_; }

 private:
  const size_t of_an_address_, in_all_;
  std::mutex mutex_;  // guards what follows
  size_t all_ = 0;
  std::map<std::string, size_t> taken_;  // none of them 0
};

}  // namespace weft::access
