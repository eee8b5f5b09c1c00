#include "netplugin/abi/segment.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "netplugin/abi/seqlock.h"

namespace weft::abi {
namespace {

TEST(Segment, FreshHeadersAreValid) {
  auto telemetry = std::make_unique<TelemetrySegment>();
  InitTelemetryHeader(telemetry.get());
  EXPECT_EQ(ValidateSegment(telemetry.get(), sizeof *telemetry, kTelemetryMagic), nullptr);
  auto policy = std::make_unique<PolicySegment>();
  InitPolicyHeader(policy.get());
  EXPECT_EQ(ValidateSegment(policy.get(), sizeof *policy, kPolicyMagic), nullptr);
  EXPECT_EQ(ValidateSegment(policy.get(), sizeof *policy + 4096, kPolicyMagic), nullptr) << "a larger mapping is fine";
}

TEST(Segment, UnknownSectionsAreSkipped) {
  auto policy = std::make_unique<PolicySegment>();
  InitPolicyHeader(policy.get());
  policy->header.sections[1] = {77, 1, 216, 8, 2};
  policy->header.section_count = 2;
  EXPECT_EQ(ValidateSegment(policy.get(), sizeof *policy, kPolicyMagic), nullptr);
}

TEST(Segment, TelemetryOfOlderVersionsIsReadableAsFarAsItGoes) {
  auto telemetry = std::make_unique<TelemetrySegmentV2>();
  InitTelemetryHeader(telemetry.get());
  for (const uint32_t version : {2u, 1u}) {
    telemetry->header.version = version;
    SegmentShape shape;
    EXPECT_EQ(ValidateSegment(telemetry.get(), sizeof *telemetry, kTelemetryMagic, &shape), nullptr);
    EXPECT_EQ(shape.version, version);
    EXPECT_EQ(shape.flows, 256u);
  }
  telemetry->header.version = 3;
  EXPECT_STREQ(ValidateSegment(telemetry.get(), sizeof *telemetry, kTelemetryMagic),
               "a section's entry size is not this version's") << "an old segment that says it is a new one";
  telemetry->header.sections[0].entry_bytes = sizeof(ProcessInfo);
  EXPECT_STREQ(ValidateSegment(telemetry.get(), sizeof *telemetry, kTelemetryMagic),
               "a section's entry count is not this version's");
  telemetry->header.sections[1].entry_count = kMaxFlows;
  EXPECT_STREQ(ValidateSegment(telemetry.get(), sizeof *telemetry, kTelemetryMagic), "a section lies outside the segment");
  telemetry->header.version = 0;
  EXPECT_STREQ(ValidateSegment(telemetry.get(), sizeof *telemetry, kTelemetryMagic),
               "the segment version is not supported");
}

TEST(Segment, WhatPluginsOfVersion2WroteIsWhereItWas) {
  // The numbers that version 2 was built with, not this tree's.
  auto telemetry = std::make_unique<TelemetrySegmentV2>();
  InitTelemetryHeader(telemetry.get());
  const SegmentHeader& header = telemetry->header;
  EXPECT_EQ(header.version, 2u);
  EXPECT_EQ(header.total_bytes, 639360u);
  EXPECT_EQ(header.sections[0].offset, 256u);
  EXPECT_EQ(header.sections[0].entry_bytes, 104u);
  EXPECT_EQ(header.sections[1].offset, 384u);
  EXPECT_EQ(header.sections[1].entry_bytes, 2496u);
  EXPECT_EQ(header.sections[1].entry_count, 256u);
  auto policy = std::make_unique<PolicySegmentV2>();
  InitPolicyHeader(policy.get());
  EXPECT_EQ(policy->header.version, 2u);
  EXPECT_EQ(policy->header.total_bytes, 31040u);
  EXPECT_EQ(policy->header.sections[0].offset, 256u);
  EXPECT_EQ(policy->header.sections[0].entry_bytes, 30784u);
}

TEST(Segment, APluginOfVersion1FindsThePolicyWhereItWas) {
  // The numbers that version 1 was built with, not this tree's.
  auto policy = std::make_unique<PolicySegmentV1>();
  InitPolicyHeader(policy.get());
  EXPECT_EQ(policy->header.version, 1u);
  EXPECT_EQ(policy->header.total_bytes, 24896u);
  EXPECT_EQ(policy->header.sections[0].offset, 256u);
  EXPECT_EQ(policy->header.sections[0].entry_bytes, 24640u);
  FlowPolicy entries[2] = {};
  entries[1].flow = 7;
  entries[1].traffic_class = 0x68;
  entries[1].window_period_ns = 1;
  EXPECT_EQ(WritePolicies(policy->table, entries), 2u);
  const auto* bytes = reinterpret_cast<const unsigned char*>(policy.get());
  EXPECT_EQ(bytes[256 + 64 + 96], 7) << "entries of 96 bytes";
  EXPECT_EQ(bytes[256 + 64 + 96 + 88], 0x68);
}

TEST(Segment, EverythingElseIsRefusedByName) {
  const std::pair<std::function<void(SegmentHeader&)>, const char*> cases[] = {
      {[](auto& h) { h.magic = kTelemetryMagic; }, "the magic number is wrong"},
      {[](auto& h) { h.version = 1; }, "the segment version is not supported"},
      {[](auto& h) { h.version = 2; }, "the segment version is not supported"},
      {[](auto& h) { h.version = 4; }, "the segment version is not supported"},
      {[](auto& h) { h.total_bytes += 1; }, "the header claims more bytes than the segment has"},
      {[](auto& h) { h.total_bytes = 10; }, "the header claims fewer bytes than the header has"},
      {[](auto& h) { h.section_count = kMaxSections + 1; }, "the directory has too many sections"},
      {[](auto& h) { h.section_count = 0; }, "a section that this version needs is missing"},
      {[](auto& h) { h.sections[0].offset = 0; }, "a section lies outside the segment"},
      {[](auto& h) { h.sections[0].offset = UINT64_MAX - 7; }, "a section lies outside the segment"},
      {[](auto& h) { h.sections[0].entry_count = UINT32_MAX; }, "a section lies outside the segment"},
      {[](auto& h) { h.sections[0].entry_bytes = UINT32_MAX; }, "a section lies outside the segment"},
      {[](auto& h) { h.sections[0].entry_bytes -= 8; }, "a section's entry size is not this version's"},
      {[](auto& h) { h.sections[0].entry_count = 0; }, "a section's entry count is not this version's"},
      {[](auto& h) { h.sections[0].offset -= 8; }, "a section is not where this version puts it"},
      {[](auto& h) { h.sections[0].offset -= 3; }, "a section is not aligned"},
  };
  for (const auto& [spoil, expected] : cases) {
    auto policy = std::make_unique<PolicySegment>();
    InitPolicyHeader(policy.get());
    spoil(policy->header);
    EXPECT_STREQ(ValidateSegment(policy.get(), sizeof *policy, kPolicyMagic), expected);
  }
  SegmentHeader small{};
  EXPECT_STREQ(ValidateSegment(&small, sizeof small - 1, kPolicyMagic), "the segment is smaller than its header");
}

FlowPolicy Entry(uint64_t flow, uint64_t value) {
  FlowPolicy entry{};
  entry.flow = flow;
  entry.pacing_bps = entry.lease_until_ns = value;
  entry.traffic_class = static_cast<uint32_t>(value);
  for (LanePolicy& lane : entry.lanes) lane.weight = static_cast<uint32_t>(value);
  return entry;
}

TEST(Seqlock, FindsWhatWasWritten) {
  auto table = std::make_unique<PolicyTable>();
  FlowPolicy out{};
  EXPECT_EQ(ReadFlowPolicy(*table, 7, &out), PolicyRead::kAbsent);
  const std::vector<FlowPolicy> flows = {Entry(6, 60), Entry(7, 70)};
  EXPECT_EQ(WritePolicies(*table, flows), 2u);
  EXPECT_EQ(table->epoch.load(), 1u);
  EXPECT_EQ(ReadFlowPolicy(*table, 7, &out), PolicyRead::kFound);
  EXPECT_EQ(out.pacing_bps, 70u);
  EXPECT_EQ(ReadFlowPolicy(*table, 8, &out), PolicyRead::kAbsent);
}

TEST(Seqlock, AReaderGivesUpOnAWriterThatStopped) {
  auto table = std::make_unique<PolicyTable>();
  FlowPolicy out{};
  table->sequence.store(5);
  EXPECT_EQ(ReadFlowPolicy(*table, 7, &out), PolicyRead::kBusy);
  const FlowPolicy entry = Entry(7, 1);
  WritePolicies(*table, {&entry, 1});  // the next writer recovers
  EXPECT_EQ(ReadFlowPolicy(*table, 7, &out), PolicyRead::kFound);
}

TEST(Seqlock, ACountPastTheTableIsCorrupt) {
  auto table = std::make_unique<PolicyTable>();
  table->count.store(kMaxFlows + 1);
  FlowPolicy out{};
  EXPECT_EQ(ReadFlowPolicy(*table, 7, &out), PolicyRead::kCorrupt);
  table->count.store(UINT32_MAX);
  EXPECT_EQ(ReadFlowPolicy(*table, 7, &out), PolicyRead::kCorrupt);
  const std::vector<FlowPolicy> many(kMaxFlows + 5, Entry(1, 1));
  EXPECT_EQ(WritePolicies(*table, many), kMaxFlows) << "the writer keeps within it";
}

TEST(Seqlock, EachOfAFullTableIsFoundAndNothingElse) {
  auto table = std::make_unique<PolicyTable>();
  std::vector<FlowPolicy> flows;
  for (uint64_t i = 0; i < kMaxFlows; ++i) flows.push_back(Entry((i * 0x9E3779B97F4A7C15 | 1) ^ 1, i));  // even, in no order
  ASSERT_EQ(WritePolicies(*table, flows), kMaxFlows);
  for (const FlowPolicy& flow : flows) {
    FlowPolicy out{};
    ASSERT_EQ(ReadFlowPolicy(*table, flow.flow, &out), PolicyRead::kFound);
    ASSERT_EQ(out.flow, flow.flow);
    ASSERT_EQ(out.pacing_bps, flow.pacing_bps);
    ASSERT_EQ(ReadFlowPolicy(*table, flow.flow + 1, &out), PolicyRead::kAbsent);
  }
  FlowPolicy out{};
  EXPECT_EQ(ReadFlowPolicy(*table, UINT64_MAX, &out), PolicyRead::kAbsent);
}

TEST(Seqlock, EntriesInAWrongOrderAreOnlyNotFound) {
  auto table = std::make_unique<PolicyTable>();
  std::vector<FlowPolicy> flows;
  for (uint64_t i = 0; i < 1000; ++i) flows.push_back(Entry(i, i));
  WritePolicies(*table, flows);
  for (uint64_t i = 0; i < 500; ++i) std::swap(table->flows[i], table->flows[999 - i]);  // by a writer gone mad
  int found = 0;
  for (uint64_t i = 0; i < 1100; ++i) {
    FlowPolicy out{};
    const PolicyRead result = ReadFlowPolicy(*table, i, &out);
    ASSERT_TRUE(result == PolicyRead::kAbsent || (result == PolicyRead::kFound && out.flow == i && out.pacing_bps == i));
    found += result == PolicyRead::kFound;
  }
  EXPECT_LT(found, 1000);
}

TEST(Seqlock, ATableOfVersion2HasTheFirstInTheirOrder) {
  auto table = std::make_unique<PolicyTableV2>();
  std::vector<FlowPolicy> flows;
  for (uint64_t i = 0; i < 300; ++i) flows.push_back(Entry(1000 - i, i));
  EXPECT_EQ(WritePolicies(*table, flows), 256u);
  for (uint64_t i = 0; i < 256; ++i) ASSERT_EQ(table->flows[i].flow, 1000 - i);
  FlowPolicy out{};
  EXPECT_EQ(ReadFlowPolicy(*table, 1000 - 255, &out), PolicyRead::kFound);
  EXPECT_EQ(ReadFlowPolicy(*table, 1000 - 256, &out), PolicyRead::kAbsent);
}

TEST(Seqlock, NoReaderSeesHalfAnEntry) {
  auto table = std::make_unique<PolicyTable>();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0}, torn{0};
  std::thread reader([&] {
    while (!stop) {
      FlowPolicy out{};
      if (ReadFlowPolicy(*table, 7, &out) != PolicyRead::kFound) continue;
      ++found;
      const bool whole = out.lease_until_ns == out.pacing_bps && out.traffic_class == out.pacing_bps &&
                         out.lanes[0].weight == out.pacing_bps && out.lanes[kMaxLanes - 1].weight == out.pacing_bps;
      if (!whole) ++torn;
    }
  });
  for (uint64_t value = 1; value < 2000 || found < 100; ++value) {
    const FlowPolicy entry = Entry(7, value);
    WritePolicies(*table, {&entry, 1});
    if (value % 16 == 0) std::this_thread::yield();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace weft::abi
