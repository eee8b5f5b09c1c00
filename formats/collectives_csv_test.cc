#include "formats/collectives_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "formats/read_file.h"

namespace weft::formats {
namespace {

using ::testing::HasSubstr;

constexpr char kHeader[] =
    "source,gpu,nodes,gpus_per_node,nics_per_node,nic_gbps,intra_link,collective,bytes,algo,proto,metric,value,notes\r\n";

std::string Message(const std::string& rows) {
  const auto table = ParseCollectiveTable(kHeader + rows, "t.csv");
  return table ? "accepted" : table.error().message();
}

TEST(CollectivesCsv, ARowBecomesAClusterAndATime) {
  const auto table = ParseCollectiveTable(
      std::string(kHeader) + "\"a, b\",H100,2,8,8,400,NVLink4-NVSwitch,all_reduce,1000000,auto,auto,busbw,187.5,RoCEv2\r\n",
      "t.csv");
  ASSERT_TRUE(table) << table.error().message();
  const CollectiveRow& row = table->measured.at(0);
  EXPECT_EQ(row.source, "a, b");
  EXPECT_EQ(row.system, "2 x 8 H100");
  EXPECT_EQ(row.cluster.TotalGpus(), 16);
  EXPECT_EQ(row.cluster.device.name, "h100-80");
  EXPECT_EQ(row.cluster.intra_node_rate, GigabytesPerSecond(450));
  EXPECT_EQ(row.cluster.nic_rate, GigabitsPerSecond(3200)) << "of all NICs";
  EXPECT_FALSE(row.algorithm);
  // 1 MB at 187.5 / (2 · 15/16) = 100 GB/s.
  EXPECT_NEAR(row.time.count(), 1e-5, 1e-12);
  EXPECT_FALSE(row.degraded);
}

TEST(CollectivesCsv, WhatItCannotReadNamesLineColumnAndValue) {
  EXPECT_THAT(Message("s,H100,0,8,0,0,NVLink3,all_reduce,8,auto,p,busbw,1,\n"), HasSubstr("t.csv:2: nodes: \"0\""));
  EXPECT_THAT(Message("s,H100,2,8,0,0,NVLink3,all_reduce,8,auto,p,busbw,1,\n"), HasSubstr("nics_per_node: \"0\""));
  EXPECT_THAT(Message("s,H100,1,8,0,0,Token Ring,all_reduce,8,auto,p,busbw,1,\n"), HasSubstr("intra_link: \"Token Ring\""));
  EXPECT_THAT(Message("s,H100,1,8,0,0,xGMI,all_sum,8,auto,p,busbw,1,\n"), HasSubstr("collective: \"all_sum\""));
  EXPECT_THAT(Message("s,H100,1,8,0,0,xGMI,all_reduce,8,auto,p,mph,1,\n"), HasSubstr("metric: \"mph\""));
  EXPECT_THAT(Message("s,H100,1,8,0,0,xGMI,all_reduce,nan,auto,p,busbw,1,\n"), HasSubstr("bytes: \"nan\""));
  EXPECT_THAT(Message("s,H100,1,8,0,0,xGMI,all_reduce,8,auto,p,busbw,0,\n"), HasSubstr("value: \"0\""));
  EXPECT_THAT(Message("s,H100,1.5,8,0,0,xGMI,all_reduce,8,auto,p,busbw,1,\n"), HasSubstr("a whole number"));
  EXPECT_THAT(Message("s,Abacus,1,8,0,0,xGMI,all_reduce,8,auto,p,busbw,1,\n"), HasSubstr("gpu: \"Abacus\""));
  EXPECT_THAT(Message("s,H100,1,8,0,0,xGMI,all_reduce,8,Star,p,busbw,1,\n"), HasSubstr("algo: \"Star\""));
  EXPECT_THAT(Message("s,g\n"), HasSubstr("t.csv:2: 2 fields, expected 14"));
  const auto headless = ParseCollectiveTable("source,intra_link\ns,xGMI\n", "t.csv");
  ASSERT_FALSE(headless);
  EXPECT_THAT(headless.error().message(), HasSubstr("t.csv:2: column gpu is missing"));
  EXPECT_FALSE(ParseCollectiveTable("", "t.csv"));
}

CollectiveTable Published(const char* name) {
  const auto text = ReadFile(std::string(WEFT_VALIDATION_FOLDER) + "/" + name);
  EXPECT_TRUE(text) << text.error().message();
  EXPECT_TRUE(IsCollectiveTable(*text));
  auto table = ParseCollectiveTable(*text, name);
  EXPECT_TRUE(table) << table.error().message();
  return std::move(*table);
}

TEST(CollectivesCsv, PublishedTablesAreReadRowByRow) {
  const CollectiveTable measured = Published("collectives.csv");
  EXPECT_EQ(measured.measured.size(), 136u);
  EXPECT_EQ(std::ranges::count_if(measured.measured, [](const CollectiveRow& row) { return row.degraded; }), 4);
  EXPECT_EQ(std::ranges::count_if(measured.measured, [](const CollectiveRow& row) { return row.algorithm.has_value(); }), 5);
  EXPECT_EQ(Published("collective_efficiency.csv").shares.size(), 143u);
}

}  // namespace
}  // namespace weft::formats
