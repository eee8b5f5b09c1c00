// What travels in a fire run: both ends draw the same sequence of messages from the same seed, so that the receiver
// knows the size, tag and every byte of each message without being told.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::net::fire {

/// A small generator with the same answers everywhere (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// 0 to `bound` - 1. Requires: bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

/// How the life of a connection ends.
enum class End : uint8_t {
  kBothDone,        ///< all messages have arrived
  kSenderCloses,    ///< with sends that were never tested
  kReceiverCloses,  ///< with receives that are posted
};

/// One life of a connection: what both ends know before it begins.
struct Life {
  uint64_t seed = 0;
  uint64_t messages = 0;
  End end = End::kBothDone;
  uint64_t end_at = 0;  ///< the messages after which the end that closes closes
};
/// The `generation`-th life of connection `index`; `mean` messages on average.
Life MakeLife(uint64_t seed, uint32_t index, uint32_t generation, uint64_t mean);

inline constexpr uint32_t kMostGroup = 8;
inline constexpr size_t kLargestMessage = 4 << 20;

struct Message {
  uint64_t number = 0;  ///< within the life, in the order of the receives
  size_t size = 0;
  int tag = 0;
};

/// Messages that are received by one irecv: different tags, sent in an order of the sender's.
struct Group {
  uint32_t count = 0;
  std::array<Message, kMostGroup> messages{};
  std::array<uint8_t, kMostGroup> send_order{};
};

/// The groups of a life, in order.
class Traffic {
 public:
  /// `most_grouped`: what both ends' plugins take in one irecv.
  Traffic(const Life& life, uint32_t most_grouped);
  /// False after the last group.
  bool Next(Group* group);

 private:
  size_t Size();

  Random random_;
  uint64_t left_;
  uint64_t number_ = 0;
  const uint32_t most_grouped_;
};

/// Writes the bytes of a message.
void FillMessage(char* data, uint64_t life_seed, const Message& message);
/// The first byte that is not the message's own; `message.size` if all are.
size_t FirstWrongByte(const char* data, uint64_t life_seed, const Message& message);

}  // namespace weft::net::fire
