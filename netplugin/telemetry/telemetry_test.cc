// Who may take a slot of the telemetry segment, and what the agent is told of how many there are.
#include "netplugin/telemetry/telemetry.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

namespace weft::net {
namespace {

TEST(Telemetry, ClosedSlotsAreTakenAgainOldestFirstAndTheRestIsCounted) {
  const auto telemetry = Telemetry::Create({}, 11);
  std::vector<abi::FlowSlot*> slots;
  FlowIdentity identity;
  identity.peer.family = AF_INET;
  for (uint32_t i = 0; i < abi::kMaxFlows; ++i) {
    identity.flow = i + 1;
    slots.push_back(telemetry->Open(identity));
    EXPECT_EQ(slots.back()->ordinal, i);
    EXPECT_EQ(slots.back()->generation.load(), 2u);
    EXPECT_EQ(telemetry->process().slots_used.load(), i + 1);
  }
  EXPECT_EQ(slots.size(), 4096u);
  EXPECT_EQ(telemetry->process().slots_used.load(), abi::kMaxFlows);
  EXPECT_EQ(telemetry->process().flows_dropped.load(), 0u);
  abi::FlowSlot* extra = telemetry->Open(identity);
  EXPECT_EQ(telemetry->process().flows_dropped.load(), 1u);
  EXPECT_EQ(std::find(slots.begin(), slots.end(), extra), slots.end());
  telemetry->Close(extra);
  slots[9]->messages.store(3);
  telemetry->Close(slots[9]);
  telemetry->Close(slots[4]);
  EXPECT_EQ(slots[9]->state.load(), static_cast<uint32_t>(abi::SlotState::kClosed));
  EXPECT_EQ(slots[9]->messages.load(), 3u) << "final counters stay until the slot is needed";
  EXPECT_EQ(telemetry->Open(identity), slots[9]);
  EXPECT_EQ(slots[9]->messages.load(), 0u);
  EXPECT_EQ(slots[9]->generation.load(), 4u);
  EXPECT_EQ(telemetry->Open(identity), slots[4]);
}

TEST(Telemetry, WhoOpensAndClosesForEverNeedsNoMoreSlotsForIt) {
  const auto telemetry = Telemetry::Create({}, 11);
  FlowIdentity identity;
  identity.peer.family = AF_INET;
  abi::FlowSlot* const standing = telemetry->Open(identity);
  abi::FlowSlot* const first = telemetry->Open(identity);
  telemetry->Close(first);
  int until_again = 0;
  for (int i = 1; i < 2000; ++i) {
    abi::FlowSlot* const slot = telemetry->Open(identity);
    if (slot == first && until_again == 0) until_again = i;
    telemetry->Close(slot);
  }
  EXPECT_GE(until_again, 256) << "the agent has time to read the final counters";
  EXPECT_LE(telemetry->process().slots_used.load(), 258u);
  EXPECT_EQ(standing->generation.load(), 2u);
  struct stat status{};
  ASSERT_EQ(::fstat(telemetry->fd(), &status), 0);
  EXPECT_LT(static_cast<size_t>(status.st_blocks) * 512, sizeof(abi::TelemetryFile) / 8) << "slots that nobody took have no memory";
}

}  // namespace
}  // namespace weft::net
