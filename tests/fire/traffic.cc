#include "tests/fire/traffic.h"

#include <algorithm>
#include <cstring>

namespace weft::net::fire {
namespace {

constexpr uint64_t kStep = 0xD6E8FEB86659FD93u;

uint64_t FirstWord(uint64_t life_seed, uint64_t number) { return Random(life_seed ^ (number * kStep)).Next(); }

}  // namespace

Life MakeLife(uint64_t seed, uint32_t index, uint32_t generation, uint64_t mean) {
  Random random(seed ^ (uint64_t{index} << 48) ^ (uint64_t{generation} << 16));
  Life life;
  life.seed = random.Next();
  life.messages = 1 + random.Below(2 * mean);
  const uint64_t dice = random.Below(10);
  life.end = dice < 6 ? End::kBothDone : dice < 8 ? End::kSenderCloses : End::kReceiverCloses;
  life.end_at = life.end == End::kBothDone ? life.messages : random.Below(life.messages);
  return life;
}

Traffic::Traffic(const Life& life, uint32_t most_grouped)
    : random_(~life.seed), left_(life.messages), most_grouped_(std::min(most_grouped, kMostGroup)) {}

/// Mostly small: what a flow does often is what it must do right, and each size class meets each state of a lane.
size_t Traffic::Size() {
  const uint64_t dice = random_.Below(10'000);
  if (dice < 300) return 0;
  if (dice < 7'800) return 1 + random_.Below(256);
  if (dice < 9'700) return 1 + random_.Below(2'048);
  if (dice < 9'960) return 1 + random_.Below(16'384);
  if (dice < 9'999) return 1 + random_.Below(262'144);
  return 1 + random_.Below(kLargestMessage);
}

bool Traffic::Next(Group* group) {
  if (left_ == 0) return false;
  const uint64_t wanted = random_.OneIn(2) ? 1 : 1 + random_.Below(most_grouped_);
  group->count = static_cast<uint32_t>(std::min<uint64_t>({wanted, left_, most_grouped_}));
  left_ -= group->count;
  const int first_tag = static_cast<int>(random_.Below(1 << 20));
  for (uint32_t i = 0; i < group->count; ++i) {
    group->messages[i] = {number_++, Size(), first_tag + static_cast<int>(i)};
    group->send_order[i] = static_cast<uint8_t>(i);
  }
  for (uint32_t i = group->count; i > 1; --i) std::swap(group->send_order[i - 1], group->send_order[random_.Below(i)]);
  return true;
}

void FillMessage(char* data, uint64_t life_seed, const Message& message) {
  uint64_t word = FirstWord(life_seed, message.number);
  size_t i = 0;
  for (; i + sizeof word <= message.size; i += sizeof word, word += kStep) std::memcpy(data + i, &word, sizeof word);
  std::memcpy(data + i, &word, message.size - i);
}

size_t FirstWrongByte(const char* data, uint64_t life_seed, const Message& message) {
  uint64_t word = FirstWord(life_seed, message.number);
  for (size_t i = 0; i < message.size; i += sizeof word, word += kStep) {
    const size_t bytes = std::min(sizeof word, message.size - i);
    if (std::memcmp(data + i, &word, bytes) == 0) continue;
    const auto* right = reinterpret_cast<const char*>(&word);
    return i + static_cast<size_t>(std::mismatch(right, right + bytes, data + i).first - right);
  }
  return message.size;
}

}  // namespace weft::net::fire
