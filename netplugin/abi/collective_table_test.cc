#include "netplugin/abi/collective_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

namespace weft::abi {
namespace {

struct Parsed {
  CollectiveTable table;
  std::string wrong;  // empty: none
  size_t at = 0;
};

Parsed Parse(std::string_view text) {
  Parsed parsed;
  const char* wrong = ParseCollectiveTable(text.data(), text.size(), &parsed.table, &parsed.at);
  if (wrong != nullptr) parsed.wrong = wrong;
  return parsed;
}

std::string Print(const CollectiveTable& table) {
  std::string text(kMaxCollectiveText + 1, '?');
  text.resize(PrintCollectiveTable(table, text.data(), text.size()));
  return text;
}

TEST(CollectiveTable, EveryFieldIsRead) {
  const Parsed parsed = Parse("1;16x2:allreduce:0-65535:tree:ll:0;#00000000000000ff:alltoall:1-:hierarchical.8:-:64");
  ASSERT_EQ(parsed.wrong, "");
  ASSERT_EQ(parsed.table.count, 2u);
  EXPECT_EQ(parsed.table.entries[0],
            (CollectiveEntry{.most_bytes = 65535, .ranks = 16, .nodes = 2, .members = MembersKind::kRanks,
                             .algorithm = CollectiveAlgorithm::kTree, .protocol = CollectiveProtocol::kLl}));
  EXPECT_EQ(parsed.table.entries[1],
            (CollectiveEntry{.least_bytes = 1, .members_hash = 255, .parameter = 8, .members = MembersKind::kHash,
                             .collective = CollectiveOp::kAllToAll, .algorithm = CollectiveAlgorithm::kHierarchical,
                             .channels = 64}));
}

TEST(CollectiveTable, WhatIsPrintedIsReadBack) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  for (int round = 0; round < 200; ++round) {
    CollectiveTable table;
    table.count = below(kMaxCollectiveEntries / 2);
    for (uint32_t i = 0; i < table.count; ++i) {
      CollectiveEntry& entry = table.entries[i];
      entry.least_bytes = below(1 << 20);
      entry.most_bytes = below(2) ? kNoByteLimit : entry.least_bytes + below(1 << 20);
      entry.members = static_cast<MembersKind>(below(3));
      if (entry.members == MembersKind::kRanks) entry.ranks = 1 + below(1 << 20);
      if (entry.members == MembersKind::kRanks) entry.nodes = below(entry.ranks + 1);
      if (entry.members == MembersKind::kHash) entry.members_hash = uint64_t{random()} << 32 | 1;
      entry.collective = static_cast<CollectiveOp>(below(6));
      entry.algorithm = static_cast<CollectiveAlgorithm>(below(15));
      entry.parameter = below(2) ? 0 : below(1000);
      entry.protocol = static_cast<CollectiveProtocol>(below(4));
      entry.channels = below(65);
    }
    const Parsed back = Parse(Print(table));
    ASSERT_EQ(back.wrong, "") << Print(table);
    ASSERT_EQ(back.table.count, table.count);
    EXPECT_TRUE(std::equal(table.entries, table.entries + table.count, back.table.entries)) << Print(table);
  }
}

TEST(CollectiveTable, AMistakeIsNamedWithItsPlaceAndNothingIsKept) {
  const struct {
    const char* text;
    const char* piece;
    size_t at;
  } kCases[] = {
      {"", "version 1", 0},
      {"2;*:allreduce:0-:ring:-:0", "version 1", 1},
      {"1,", "; and an entry", 1},
      {"1;", "number of ranks", 2},
      {"1;0:allreduce:0-:ring:-:0", "number of ranks", 3},
      {"1;8x9:allreduce:0-:ring:-:0", "number of nodes", 4},
      {"1;#00ff:allreduce:0-:ring:-:0", "16 small hexadecimal", 3},
      {"1;#0000000000000000:allreduce:0-:ring:-:0", "other than 0", 19},
      {"1;*:sum:0-:ring:-:0", "alltoall", 4},
      {"1;*:allreduce:x-:ring:-:0", "least size", 14},
      {"1;*:allreduce:9-8:ring:-:0", "not below the least", 17},
      {"1;*:allreduce:0-99999999999999999999:ring:-:0", ": after the sizes", 16},
      {"1;*:allreduce:0-:rin:-:0", "an algorithm", 17},
      {"1;*:allreduce:0-:ring.0:-:0", "a parameter", 23},
      {"1;*:allreduce:0-:ring:LL:0", "ll128", 22},
      {"1;*:allreduce:0-:ring:-:65", "channels", 24},
      {"1;*:allreduce:0-:ring:-:1;*:allreduce:0-:ring:-:", "channels", 48},
  };
  for (const auto& c : kCases) {
    const Parsed parsed = Parse(c.text);
    EXPECT_NE(parsed.wrong.find(c.piece), std::string::npos) << c.text << ": " << parsed.wrong;
    EXPECT_EQ(parsed.at, c.at) << c.text;
    EXPECT_EQ(parsed.table.count, 0u) << c.text;
  }
}

TEST(CollectiveTable, SizeIsBounded) {
  std::string text = "1";
  for (uint32_t i = 0; i < kMaxCollectiveEntries; ++i) text += ";*:reduce:0-:ring:-:0";
  EXPECT_EQ(Parse(text).table.count, kMaxCollectiveEntries);
  EXPECT_NE(Parse(text + ";*:reduce:0-:ring:-:0").wrong.find("at most 64 entries"), std::string::npos);
  EXPECT_NE(Parse(std::string(kMaxCollectiveText + 1, '1')).wrong.find("at most 4096 bytes"), std::string::npos);
  const CollectiveTable table = Parse("1;*:reduce:0-:ring:-:0").table;
  char small[22];
  EXPECT_EQ(PrintCollectiveTable(table, small, sizeof small), 0u);
  EXPECT_STREQ(small, "");
  char exact[23];
  EXPECT_EQ(PrintCollectiveTable(table, exact, sizeof exact), 22u);
}

TEST(CollectiveTable, WhatCouldNotBeReadBackIsNotPrinted) {
  const auto refused = [](CollectiveEntry entry) {
    CollectiveTable table;
    table.count = 1;
    table.entries[0] = entry;
    return Print(table).empty();
  };
  EXPECT_TRUE(refused({.least_bytes = 2, .most_bytes = 1}));
  EXPECT_TRUE(refused({.ranks = 0, .members = MembersKind::kRanks}));
  EXPECT_TRUE(refused({.members_hash = 0, .members = MembersKind::kHash}));
  EXPECT_TRUE(refused({.algorithm = static_cast<CollectiveAlgorithm>(15)}));
  EXPECT_TRUE(refused({.channels = 65}));
  EXPECT_FALSE(refused({}));
}

TEST(CollectiveTable, TheFirstEntryThatFitsDecides) {
  const CollectiveTable table =
      Parse("1;16x2:allreduce:0-65535:tree:ll:0;16:allreduce:0-:halving-doubling:-:0;*:allreduce:1-:ring:simple:4").table;
  const auto find = [&](CollectiveQuery query) {
    const CollectiveEntry* entry = FindCollective(table, query);
    return entry == nullptr ? std::string("none") : std::string(CollectiveAlgorithmName(entry->algorithm));
  };
  EXPECT_EQ(find({.bytes = 65535, .ranks = 16, .nodes = 2}), "tree");
  EXPECT_EQ(find({.bytes = 65536, .ranks = 16, .nodes = 2}), "ring") << "NCCL has no halving-doubling";
  EXPECT_EQ(find({.bytes = 65536, .ranks = 16, .nodes = 2, .nccl = false}), "halving-doubling");
  EXPECT_EQ(find({.bytes = 100, .ranks = 16, .nodes = 4}), "ring");
  EXPECT_EQ(find({.bytes = 0, .ranks = 8}), "none");
  EXPECT_EQ(find({.collective = CollectiveOp::kAllGather, .bytes = 100, .ranks = 16, .nodes = 2}), "none");
}

TEST(CollectiveTable, AGroupIsKnownByItsMembersInOrder) {
  const int32_t ranks[] = {0, 4, 8};
  const int32_t turned[] = {4, 0, 8};
  const uint64_t hash = MembersHash(ranks, 3);
  EXPECT_NE(hash, MembersHash(turned, 3));
  EXPECT_NE(hash, MembersHash(ranks, 2));
  CollectiveTable table;
  table.count = 1;
  table.entries[0] = {.members_hash = hash, .members = MembersKind::kHash};
  EXPECT_NE(FindCollective(table, {.members_hash = hash}), nullptr);
  EXPECT_EQ(FindCollective(table, {.members_hash = hash + 1}), nullptr);
  EXPECT_EQ(FindCollective(table, {}), nullptr) << "members unknown";
}

}  // namespace
}  // namespace weft::abi
