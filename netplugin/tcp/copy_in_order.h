// Copying to memory that somebody else polls while it is written.
//
// With protocols LL and LL128 the reader does not wait for a receive to be done: it polls a flag behind each 4 or 120 bytes of
// data, and takes the data when it sees the flag. So bytes must become visible in the order of their addresses. The kernel's
// copy out of a socket does not promise that, and neither does memcpy: both may write the second half of a 128-byte line before
// the first (Intel's manual, volume 1, 7.3.9.3, on fast strings).
#pragma once

#include <cstdint>
#include <cstring>

namespace weft::net {

/// Copies so that who sees a byte of `to` (with acquire) sees all before it.
inline void CopyInOrder(char* to, const char* from, uint64_t bytes) {
  using Word [[gnu::may_alias]] = uint64_t;
  constexpr uint64_t kWord = sizeof(Word);
  for (; bytes > 0 && reinterpret_cast<uintptr_t>(to) % kWord != 0; --bytes) __atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
  for (; bytes >= kWord; bytes -= kWord, to += kWord, from += kWord) {
    Word word;
    std::memcpy(&word, from, kWord);
    __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELEASE);
  }
  for (; bytes > 0; --bytes) __atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
}

}  // namespace weft::net
