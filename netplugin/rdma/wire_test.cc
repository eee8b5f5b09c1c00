// What the peer says is checked before it is used: messages, handles, credits and immediate values, and mutants of
// them. WEFT_FUZZ_ROUNDS asks for more mutants.
#include "netplugin/rdma/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "netplugin/testing/fuzz.h"

namespace weft::net::rdma {
namespace {

using net::testing::FuzzRounds;
using net::testing::Spoil;
using ::testing::HasSubstr;

ControlMessage GoodMessage(ControlType type = ControlType::kHello) {
  ControlMessage message{};
  message.magic = kControlMagic;
  message.version = kRdmaWireVersion;
  message.type = type;
  message.lanes = 4;
  message.port.link = 2;
  message.port.mtu = 3;
  message.memory_address = 0x1000;
  for (QueuePairInfo& pair : message.queue_pairs) pair = {17, 0xFFFFFF};
  for (uint32_t i = 0; i < kSlots; ++i) message.slots[i] = {i + 3 * kSlots, 1, 0, 0xFF, 0};
  return message;
}

TEST(RdmaControlMessage, WhatBothEndsSayIsTaken) {
  for (int type = 1; type <= 6; ++type) {
    EXPECT_EQ(CheckControlMessage(GoodMessage(static_cast<ControlType>(type))), nullptr) << type;
  }
}

TEST(RdmaControlMessage, EachFieldThatCannotBeIsNamed) {
  const std::pair<void (*)(ControlMessage*), const char*> cases[] = {
      {[](ControlMessage* m) { m->magic = 1; }, "magic"},
      {[](ControlMessage* m) { m->version = 9; }, "version"},
      {[](ControlMessage* m) { m->type = static_cast<ControlType>(7); }, "type"},
      {[](ControlMessage* m) { m->type = static_cast<ControlType>(0); }, "type"},
      {[](ControlMessage* m) { m->lanes = 0; }, "number of queue pairs"},
      {[](ControlMessage* m) { m->lanes = 9; }, "number of queue pairs"},
      {[](ControlMessage* m) { m->port.link = 3; }, "link"},
      {[](ControlMessage* m) { m->port.mtu = 6; }, "MTU"},
      {[](ControlMessage* m) { m->port.mtu = 0; }, "MTU"},
      {[](ControlMessage* m) { m->port.service_level = 16; }, "service level"},
      {[](ControlMessage* m) { m->queue_pairs[3].number = 0; }, "queue pair number"},
      {[](ControlMessage* m) { m->queue_pairs[kControlLane].number = 1 << 24; }, "queue pair number"},
      {[](ControlMessage* m) { m->queue_pairs[0].packet_number = 1 << 24; }, "packet number"},
      {[](ControlMessage* m) { m->memory_address = 0; }, "memory address"},
  };
  for (const auto& [spoil, text] : cases) {
    ControlMessage message = GoodMessage();
    spoil(&message);
    const char* wrong = CheckControlMessage(message);
    ASSERT_NE(wrong, nullptr) << text;
    EXPECT_THAT(wrong, HasSubstr(text));
  }
}

TEST(RdmaControlMessage, ASlotReportMustBelongToItsSlot) {
  ControlMessage message = GoodMessage(ControlType::kResetDone);
  message.slots[5].sequence += 1;
  ASSERT_NE(CheckControlMessage(message), nullptr);
  EXPECT_THAT(CheckControlMessage(message), HasSubstr("slot"));
  message.slots[5].used = 0;  // then its sequence says nothing
  EXPECT_EQ(CheckControlMessage(message), nullptr);
  message.slots[6].complete = 2;
  EXPECT_THAT(CheckControlMessage(message), HasSubstr("flag"));
}

/// Flips up to eight bits or bytes of a valid message. Whatever passes must be within the bounds that its user relies
/// on.
TEST(RdmaControlMessage, MutantsAreRefusedOrHarmless) {
  std::mt19937_64 random(7);
  int passed = 0;
  const int rounds = FuzzRounds(200'000);
  for (int round = 0; round < rounds; ++round) {
    ControlMessage message = GoodMessage(static_cast<ControlType>(1 + round % 6));
    Spoil(&message, random, 8);
    if (CheckControlMessage(message)) continue;
    ++passed;
    if (message.type == ControlType::kReady || message.type == ControlType::kPleaseReset) continue;
    ASSERT_GE(message.lanes, 1);
    ASSERT_LE(message.lanes, kMaxParts);
    ASSERT_LE(message.port.mtu, 5);
    ASSERT_LE(message.port.service_level, 15);
    for (uint32_t i = 0; i < message.lanes; ++i) ASSERT_LT(message.queue_pairs[i].number, 1u << 24);
    if (message.type != ControlType::kResetDone) continue;
    for (uint32_t i = 0; i < kSlots; ++i) {
      if (message.slots[i].used) { ASSERT_EQ(message.slots[i].sequence % kSlots, i); }
    }
  }
  EXPECT_GT(passed, rounds / 200);  // the mutations are small enough to reach behind the first checks
  EXPECT_LT(passed, rounds - rounds / 200);
}

Handle GoodHandle() {
  Handle handle{};
  handle.magic = kRdmaHandleMagic;
  handle.version = kRdmaWireVersion;
  handle.family = 4;
  handle.port = 4000;
  handle.job_hash = 5;
  return handle;
}

TEST(RdmaHandle, EachFieldThatCannotBeIsNamed) {
  EXPECT_EQ(CheckRdmaHandle(GoodHandle(), 5), nullptr);
  EXPECT_EQ(CheckRdmaHandle(GoodHandle(), 0), nullptr);
  const std::pair<void (*)(Handle*), const char*> cases[] = {
      {[](Handle* h) { h->magic = kHandleMagic; }, "listens for TCP"},
      {[](Handle* h) { h->magic = 3; }, "not a handle"},
      {[](Handle* h) { h->version = kRdmaWireVersion + 1; }, "another version"},
      {[](Handle* h) { h->family = 5; }, "family"},
      {[](Handle* h) { h->port = 0; }, "without a port"},
      {[](Handle* h) { h->job_hash = 6; }, "another job"},
  };
  for (const auto& [spoil, text] : cases) {
    Handle handle = GoodHandle();
    spoil(&handle);
    ASSERT_NE(CheckRdmaHandle(handle, 5), nullptr) << text;
    EXPECT_THAT(CheckRdmaHandle(handle, 5), HasSubstr(text));
  }
}

TEST(RdmaHandle, MutantsThatPassNameAPeerOfThisJob) {
  std::mt19937_64 random(3);
  int passed = 0;
  const int rounds = FuzzRounds(100'000);
  for (int round = 0; round < rounds; ++round) {
    Handle handle = GoodHandle();
    Spoil(&handle, random, 8);
    if (CheckRdmaHandle(handle, 5)) continue;
    ++passed;
    ASSERT_EQ(handle.magic, kRdmaHandleMagic);
    ASSERT_TRUE(handle.family == 4 || handle.family == 6);
    ASSERT_NE(handle.port, 0);
    ASSERT_TRUE(handle.job_hash == 5 || handle.job_hash == 0);
  }
  EXPECT_GT(passed, rounds / 100);
  EXPECT_LT(passed, rounds / 10 * 9);
}

TEST(RdmaCredit, IsReadOnlyWhenAllOfItIsThere) {
  const Credit credit = MakeCredit(77, 0x7F0000001000, 1 << 20, 0xABCD, 3);
  Credit read;
  ASSERT_TRUE(ReadCredit(&credit, 77, &read));
  EXPECT_EQ(read.address, 0x7F0000001000u);
  EXPECT_EQ(read.size, 1u << 20);
  EXPECT_EQ(read.key, 0xABCDu);
  EXPECT_EQ(read.tag, 3);
  EXPECT_FALSE(ReadCredit(&credit, 76, &read));
  EXPECT_FALSE(ReadCredit(&credit, 77 + kSlots, &read));
  const Credit zero{};
  EXPECT_FALSE(ReadCredit(&zero, 0, &read)) << "fresh memory must not pass for the first credit";
}

/// The network may have written a part of the line when the sequence is seen: any prefix or suffix of the old line.
TEST(RdmaCredit, AHalfWrittenLineIsNoCredit) {
  std::mt19937_64 random(3);
  for (int round = FuzzRounds(20'000); round > 0; --round) {
    const auto sequence = static_cast<uint32_t>(random());
    const Credit old = MakeCredit(sequence - kSlots, random(), random() % (1u << 30), 5, 1);
    const Credit now = MakeCredit(sequence, random(), random() % (1u << 30), 6, 2);
    Credit mixed = now;
    const size_t cut = 8 * (1 + random() % 2);  // the words that differ
    std::memcpy(&mixed, &old, cut);
    Credit read;
    EXPECT_FALSE(ReadCredit(&mixed, sequence, &read));
  }
}

TEST(RdmaCredit, MutantsDoNotPass) {
  std::mt19937_64 random(5);
  int passed = 0;
  for (int round = FuzzRounds(100'000); round > 0; --round) {
    Credit credit = MakeCredit(9, random(), 4096, 1, 1);
    auto* bytes = reinterpret_cast<unsigned char*>(&credit);
    const size_t place = random() % 24;  // what the check covers
    bytes[place] ^= static_cast<unsigned char>(1 + random() % 255);
    Credit read;
    if (ReadCredit(&credit, 9, &read)) ++passed;
  }
  EXPECT_LE(passed, 2);  // 2^-31 each
}

TEST(RdmaArrivals, TellOnlyWhatIsWhole) {
  Arrivals arrivals{.sequence = 7, .tick = 123'456, .before = {3, 2, 1, 0}, .parts = 4, .reserved = 0, .late = 0, .check = 0};
  EXPECT_FALSE(Tells(arrivals));
  Seal(&arrivals);
  EXPECT_TRUE(Tells(arrivals));
  EXPECT_FALSE(Tells(Arrivals{})) << "of an older plugin";
  Credit read;
  const Credit credit = MakeCredit(39, 0x7F0000001000, 1 << 20, 0xABCD, 3, arrivals);
  ASSERT_TRUE(ReadCredit(&credit, 39, &read));
  EXPECT_TRUE(Tells(read.arrivals));
  EXPECT_EQ(read.arrivals.tick, 123'456u);
  std::mt19937_64 random(5);
  int passed = 0;
  for (int round = FuzzRounds(100'000); round > 0; --round) {
    Arrivals mutant = arrivals;
    reinterpret_cast<unsigned char*>(&mutant)[random() % sizeof mutant] ^= static_cast<unsigned char>(1 + random() % 255);
    passed += Tells(mutant);
  }
  EXPECT_LE(passed, 2);
  arrivals.parts = kMaxParts + 1;
  Seal(&arrivals);
  EXPECT_FALSE(Tells(arrivals)) << "more parts than there can be";
}

TEST(RdmaImmediate, EveryValueOfASenderComesBack) {
  for (const uint16_t sequence : {0, 1, 77, 65535}) {
    for (uint8_t parts = 1; parts <= kMaxParts; ++parts) {
      for (uint8_t part = 0; part < parts; ++part) {
        for (const bool record : {false, true}) {
          Immediate out;
          ASSERT_TRUE(Decode(Encode({sequence, parts, part, record}), &out));
          EXPECT_EQ(out.sequence, sequence);
          EXPECT_EQ(out.parts, parts);
          EXPECT_EQ(out.part, part);
          EXPECT_EQ(out.has_record, record);
        }
      }
    }
  }
}

TEST(RdmaImmediate, AnyOtherValueIsRefused) {
  std::mt19937 random(1);
  for (int round = FuzzRounds(100'000); round > 0; --round) {
    const uint32_t value = random();
    Immediate out;
    const bool good = Decode(value, &out);
    EXPECT_EQ(good, good && Encode(out) == value) << value;
    if (good) { EXPECT_LT(out.part, out.parts); }
  }
  Immediate out;
  EXPECT_FALSE(Decode(1, &out));            // a bit that is not used
  EXPECT_FALSE(Decode(1u << 10, &out));     // part 1 of 1
}

}  // namespace
}  // namespace weft::net::rdma
