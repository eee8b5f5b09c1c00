#include "netplugin/telemetry/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <set>

#include "netplugin/abi/observations.h"

namespace weft::net {
namespace {

TEST(Observer, ATunerJoinsTheProfilersSlotAndTheLastOneClosesIt) {
  auto observations = std::make_unique<abi::Observations>();
  Observer observer(observations.get());
  abi::CommunicatorSlot* slot = observer.Open({.comm = 5, .rank = 3, .ranks = 8, .nodes = 2, .name = "a name"});
  EXPECT_STREQ(slot->name, "a name");
  EXPECT_EQ(observer.Open({.comm = 5, .ranks = 8, .nodes = 2}), slot);
  abi::CommunicatorSlot* other = observer.Open({.comm = 5, .rank = 4, .ranks = 8, .nodes = 2});
  EXPECT_NE(other, slot) << "another rank of this process";
  EXPECT_NE(observer.Open({.comm = 6, .ranks = 8, .nodes = 2}), slot);
  observer.Close(slot);
  EXPECT_EQ(slot->state.load(), static_cast<uint32_t>(abi::SlotState::kOpen));
  observer.Close(slot);
  EXPECT_EQ(slot->state.load(), static_cast<uint32_t>(abi::SlotState::kClosed));
  std::set<abi::CommunicatorSlot*> all;
  for (int i = 0; i < 70; ++i) all.insert(observer.Open({.comm = 9, .rank = i, .ranks = 70, .nodes = 1}));
  EXPECT_TRUE(all.contains(nullptr)) << "there are 64";
  EXPECT_TRUE(all.contains(slot)) << "a closed one is taken again";
  EXPECT_EQ(slot->generation.load(), 4u);
  EXPECT_EQ(slot->comm, 9u);
}

TEST(Observations, AreFoundByTheDirectoryOrNotAtAll) {
  auto file = std::make_unique<abi::TelemetryFile>();
  abi::InitTelemetryHeader(&file->telemetry);
  EXPECT_EQ(abi::FindObservations(file.get(), sizeof *file), nullptr) << "a plugin without them";
  EXPECT_EQ(abi::FindBackground(file.get(), sizeof *file), nullptr);
  abi::AddObservationSections(file.get());
  EXPECT_EQ(abi::ValidateSegment(file.get(), sizeof *file, abi::kTelemetryMagic), nullptr);
  EXPECT_EQ(abi::FindObservations(file.get(), sizeof *file), &file->observations);
  EXPECT_EQ(abi::FindBackground(file.get(), sizeof *file), &file->background);
  constexpr uint64_t kBehind = offsetof(abi::TelemetryFile, background);
  EXPECT_EQ(abi::FindObservations(file.get(), kBehind), &file->observations) << "of a plugin that has no more";
  EXPECT_EQ(abi::FindObservations(file.get(), kBehind - 1), nullptr) << "not wholly mapped";
  EXPECT_EQ(abi::FindBackground(file.get(), sizeof *file - 1), nullptr);
  const abi::SegmentHeader good = file->telemetry.header;
  for (const auto spoil : {+[](abi::SegmentHeader& h) { h.sections[2].offset += 8; },
                           +[](abi::SegmentHeader& h) { h.sections[2].offset = ~0ull - 63; },
                           +[](abi::SegmentHeader& h) { h.sections[3].entry_count = 1; },
                           +[](abi::SegmentHeader& h) { h.sections[3].kind = 99; },
                           +[](abi::SegmentHeader& h) { h.section_count = 99; }}) {
    spoil(file->telemetry.header);
    EXPECT_EQ(abi::FindObservations(file.get(), sizeof *file), nullptr);
    file->telemetry.header = good;
  }
  for (const auto spoil : {+[](abi::SegmentHeader& h) { h.sections[4].offset += 8; },
                           +[](abi::SegmentHeader& h) { h.sections[4].entry_bytes = 16; },
                           +[](abi::SegmentHeader& h) { h.sections[4].version = 2; },
                           +[](abi::SegmentHeader& h) { h.section_count = 99; }}) {
    spoil(file->telemetry.header);
    EXPECT_EQ(abi::FindBackground(file.get(), sizeof *file), nullptr);
    file->telemetry.header = good;
  }
}

TEST(Observations, AMutatedDirectoryLeadsNowhereElse) {
  std::mt19937_64 random(11);
  auto file = std::make_unique<abi::TelemetryFile>();
  abi::InitTelemetryHeader(&file->telemetry);
  abi::AddObservationSections(file.get());
  const abi::SegmentHeader good = file->telemetry.header;
  const auto* begin = reinterpret_cast<const char*>(file.get());
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    auto* bytes = reinterpret_cast<unsigned char*>(&file->telemetry.header);
    for (uint32_t i = 0; i <= random() % 3; ++i) bytes[random() % sizeof good] = static_cast<unsigned char>(random());
    const uint64_t mapped = random() % 2 == 0 ? sizeof *file : random() % sizeof *file;
    const abi::Observations* found = abi::FindObservations(file.get(), std::max(mapped, uint64_t{sizeof good}));
    if (found) {
      const auto offset = static_cast<uint64_t>(reinterpret_cast<const char*>(found) - begin);
      EXPECT_LE(offset + sizeof *found, mapped);
      EXPECT_EQ(offset % alignof(abi::Observations), 0u);
    } else {
      ++refused;
    }
    const abi::BackgroundSlot* background = abi::FindBackground(file.get(), std::max(mapped, uint64_t{sizeof good}));
    if (background) {
      EXPECT_LE(static_cast<uint64_t>(reinterpret_cast<const char*>(background + 1) - begin), mapped);
    }
    file->telemetry.header = good;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 20000) << "some bytes do not matter";
}

}  // namespace
}  // namespace weft::net
