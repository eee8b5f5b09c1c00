// The built library under fire on loopback: two processes, every byte of every message checked, while policies change,
// connections end suddenly, sockets are shut and processes stop. WEFT_FIRE_MESSAGES asks for more than the usual few,
// WEFT_FIRE_SEED for another run.
#include <gtest/gtest.h>

#include "tests/fire/run.h"

namespace weft::net::fire {
namespace {

TEST(Fire, EveryMessageArrivesOnceWholeAndInOrder) {
  RunSettings settings;
  settings.traffic.seed = SeedWanted();
  settings.traffic.messages = MessagesWanted(WEFT_FIRE_USUAL_MESSAGES);
  settings.traffic.mean_life = MeanLife(settings.traffic.messages);
  settings.chaos.restart_agent_ms = 500;  // the plugin looks for the next one every half second too
  const RunResult result = RunFire(settings);
  const ChaosCounts& chaos = result.chaos;
  EXPECT_GE(result.messages, settings.traffic.messages);
  EXPECT_GT(result.lives, 8u);
  EXPECT_GT(result.refused, 0u) << "of " << chaos.nonsense << " entries that make no sense";
  EXPECT_GT(chaos.lanes_used, 0u) << "no byte left from a port that a policy names";
  EXPECT_GT(chaos.agents, 2u);
  EXPECT_GT(chaos.stops, 0u);
  if (chaos.sockets_shut == 0 && chaos.shut_refused) {
    GTEST_SKIP() << "pidfd_getfd: not permitted: no socket was shut; all else was done";
  }
  EXPECT_GT(chaos.sockets_shut, 0u);
}

TEST(Fire, AMessageIsKnownByEveryByte) {
  Life life = MakeLife(7, 0, 1, 50);
  life.messages = 200;
  Traffic one(life, 8), other(life, 8);
  std::vector<char> data(kLargestMessage);
  Group a, b;
  uint64_t number = 0;
  while (one.Next(&a)) {
    ASSERT_TRUE(other.Next(&b));
    ASSERT_EQ(a.count, b.count);
    for (uint32_t i = 0; i < a.count; ++i, ++number) {
      const Message& message = a.messages[i];
      EXPECT_EQ(message.number, number);
      EXPECT_EQ(message.size, b.messages[i].size);
      FillMessage(data.data(), life.seed, message);
      EXPECT_EQ(FirstWrongByte(data.data(), life.seed, message), message.size);
      if (message.size == 0) continue;
      const size_t place = number * 7919 % message.size;
      data[place] = static_cast<char>(data[place] ^ 1);
      EXPECT_EQ(FirstWrongByte(data.data(), life.seed, message), place);
      data[place] = static_cast<char>(data[place] ^ 1);
      const Message next{message.number + 1, message.size, message.tag};
      if (message.size < 8) continue;
      EXPECT_LT(FirstWrongByte(data.data(), life.seed, next), 8u) << "another message's bytes";
    }
  }
  EXPECT_EQ(number, 200u);
  EXPECT_FALSE(other.Next(&b));
}

}  // namespace
}  // namespace weft::net::fire
