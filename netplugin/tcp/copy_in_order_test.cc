#include "netplugin/tcp/copy_in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace weft::net {
namespace {

/// Lines as protocol LL128 has them: who sees a line's flag must see its data. A plain memcpy fails this on some machines.
TEST(CopyInOrder, WhoSeesAFlagSeesWhatIsBeforeIt) {
  constexpr size_t kLines = 64, kWords = 16, kRounds = 2000;
  alignas(64) static uint64_t line[kLines * kWords];
  std::atomic<uint64_t> wrong{0}, seen{0};
  std::thread reader([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (size_t l = kLines; l-- > 0;) {  // the last first: the others must be there then
        while (__atomic_load_n(&line[l * kWords + kWords - 1], __ATOMIC_ACQUIRE) < round) std::this_thread::yield();
        for (size_t w = 0; w + 1 < kWords; ++w) wrong += line[l * kWords + w] != round * 1000 + w;
      }
      seen = round;
    }
  });
  std::vector<uint64_t> from(kLines * kWords);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    for (size_t i = 0; i < from.size(); ++i) from[i] = i % kWords == kWords - 1 ? round : round * 1000 + i % kWords;
    CopyInOrder(reinterpret_cast<char*>(line), reinterpret_cast<const char*>(from.data()), from.size() * sizeof(uint64_t));
    while (seen != round) std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(CopyInOrder, EveryLengthAndAlignment) {
  std::vector<char> from(64);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i + 1);
  for (size_t at = 0; at < 9; ++at) {
    for (size_t begin = 0; begin < 9; ++begin) {
      for (size_t bytes = 0; bytes < 40; ++bytes) {
        std::vector<char> to(64);
        CopyInOrder(to.data() + at, from.data() + begin, bytes);
        for (size_t i = 0; i < to.size(); ++i) {
          ASSERT_EQ(to[i], i >= at && i < at + bytes ? from[begin + i - at] : 0) << at << " " << begin << " " << bytes;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::net
