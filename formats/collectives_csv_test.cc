#include "formats/collectives_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "formats/read_file.h"

namespace weft::formats {
namespace {

using planner::HostLinkConstants;
using planner::NetworkConstants;
using ::testing::HasSubstr;

constexpr char kHeader[] =
    "source,gpu,nodes,gpus_per_node,nics_per_node,nic_gbps,intra_link,collective,bytes,algo,proto,metric,value,notes\r\n";

std::string Message(const std::string& rows) {
  const auto table = ParseCollectiveTable(kHeader + rows, "t.csv");
  return table ? "accepted" : table.error().message();
}

TEST(CollectivesCsv, ARowBecomesACommunicatorAndATime) {
  const auto table = ParseCollectiveTable(
      std::string(kHeader) + "\"a, b\",H100,2,8,8,400,NVLink4-NVSwitch,all_reduce,1000000,auto,auto,busbw,187.5,RoCEv2\r\n",
      "t.csv");
  ASSERT_TRUE(table) << table.error().message();
  const CollectiveRow& row = table->measured.at(0);
  EXPECT_EQ(row.source, "a, b");
  EXPECT_EQ(row.system, "2 x 8 H100");
  EXPECT_EQ(row.communicator.ranks(), 16);
  EXPECT_EQ(row.communicator.link.name, "nvlink4-switch");
  EXPECT_EQ(row.communicator.network.name, "roce");
  // 1 MB at 187.5 / (2 · 15/16) = 100 GB/s.
  EXPECT_NEAR(row.time.count(), 1e-5, 1e-12);
  EXPECT_FALSE(row.degraded);
}

TEST(CollectivesCsv, WhatItCannotReadNamesLineColumnAndValue) {
  EXPECT_THAT(Message("s,g,0,8,0,0,NVLink3,all_reduce,8,a,p,busbw,1,\n"), HasSubstr("t.csv:2: nodes: \"0\""));
  EXPECT_THAT(Message("s,g,2,8,0,0,NVLink3,all_reduce,8,a,p,busbw,1,\n"), HasSubstr("nics_per_node: \"0\""));
  EXPECT_THAT(Message("s,g,1,8,0,0,Token Ring,all_reduce,8,a,p,busbw,1,\n"), HasSubstr("intra_link: \"Token Ring\""));
  EXPECT_THAT(Message("s,g,1,8,0,0,xGMI,all_sum,8,a,p,busbw,1,\n"), HasSubstr("collective: \"all_sum\""));
  EXPECT_THAT(Message("s,g,1,8,0,0,xGMI,all_reduce,8,a,p,mph,1,\n"), HasSubstr("metric: \"mph\""));
  EXPECT_THAT(Message("s,g,1,8,0,0,xGMI,all_reduce,nan,a,p,busbw,1,\n"), HasSubstr("bytes: \"nan\""));
  EXPECT_THAT(Message("s,g,1,8,0,0,xGMI,all_reduce,8,a,p,busbw,0,\n"), HasSubstr("value: \"0\""));
  EXPECT_THAT(Message("s,g,1.5,8,0,0,xGMI,all_reduce,8,a,p,busbw,1,\n"), HasSubstr("a whole number"));
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

std::vector<CollectiveRow> LargeRows() {
  std::vector<CollectiveRow> large;
  for (CollectiveRow& row : Published("collectives.csv").measured) {
    if (!row.degraded && row.bytes >= Bytes(1 << 20)) large.push_back(std::move(row));
  }
  return large;
}

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values.at(static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1);
}

double RelativeError(const CollectiveRow& row) {
  return std::abs(planner::MeasuredNcclTime(row.communicator, row.collective, row.bytes) / row.time - 1);
}

TEST(CollectiveFidelity, PublishedCollectivesFromOneMebibyteAreWithinTheirBounds) {
  std::vector<double> errors;
  for (const CollectiveRow& row : LargeRows()) errors.push_back(RelativeError(row));
  EXPECT_EQ(errors.size(), 123u);
  EXPECT_LE(Quantile(errors, 0.5), 0.10);
  EXPECT_LE(Quantile(errors, 0.9), 0.25);
}

TEST(CollectiveFidelity, SharesOfThePeakAreWithinTheirBounds) {
  std::vector<double> errors;
  for (const EfficiencyRow& row : Published("collective_efficiency.csv").efficiencies) {
    for (const auto& constants : planner::EfficiencyTable()) {
      if (constants.fabric != row.fabric || constants.all_to_all != row.all_to_all) continue;
      errors.push_back(std::abs(planner::Efficiency(constants, row.gpus, row.bytes) / row.efficiency - 1));
    }
  }
  EXPECT_EQ(errors.size(), 143u);
  EXPECT_LE(Quantile(errors, 0.5), 0.10);
}

// ---- leaving measurements out: the same constants, found again without them by coordinate descent

using Links = std::map<std::string, HostLinkConstants, std::less<>>;
using Nets = std::map<std::string, NetworkConstants, std::less<>>;

struct Fit {
  Links links;
  Nets networks;

  CollectiveRow With(CollectiveRow row) const {
    row.communicator.link = links.find(row.communicator.link.name)->second;
    row.communicator.network = networks.find(row.communicator.network.name)->second;
    return row;
  }
  double Loss(const std::vector<const CollectiveRow*>& rows) const {
    double sum = 0;  // bounded, so that a handful of strange systems does not rule
    for (const CollectiveRow* row : rows) sum += std::min(0.5, RelativeError(With(*row)));
    return sum;
  }
};

/// Constants that nobody measured: data sheets and NCCL's own tables.
Fit Neutral(const std::vector<CollectiveRow>& rows) {
  const std::map<std::string_view, double> sheet = {{"nvlink3", 300}, {"nvlink3-switch", 300}, {"nvlink4-switch", 450},
                                                    {"nvlink5-switch", 900}, {"xgmi", 448}, {"pcie", 64}, {"none", 1}};
  Fit fit;
  for (const CollectiveRow& row : rows) {
    HostLinkConstants link = row.communicator.link;
    link.bus = 0.8 * sheet.at(link.name);
    link.switch_bus = link.switch_bus > 0 ? 0.95 * sheet.at(link.name) : 0;
    link.fast_share = 0.8;
    link.base = 14;
    link.step_fast = 1.9;
    link.step_bulk = 5;
    link.switch_start = 100;
    fit.links.emplace(link.name, link);
    NetworkConstants network = row.communicator.network;
    network.efficiency = 0.9;
    network.gather_share = 1;
    network.fast_share = 0.8;
    network.hop = 14;
    fit.networks.emplace(network.name, network);
  }
  return fit;
}

/// Improves one constant by factors, as long as it helps.
void Descend(Fit* fit, double* constant, const std::vector<const CollectiveRow*>& rows) {
  double best = fit->Loss(rows);
  for (const double factor : {2.0, 0.5, 1.25, 0.8, 1.1, 0.9, 1.04, 0.96, 1.01, 0.99}) {
    for (int times = 0; times < 6; ++times) {
      const double before = *constant;
      *constant *= factor;
      const double loss = fit->Loss(rows);
      if (loss >= best - 1e-9) {
        *constant = before;
        break;
      }
      best = loss;
    }
  }
}

/// `all`: whose links and networks need constants, whether or not they are fitted.
Fit FitTo(const std::vector<const CollectiveRow*>& rows, const std::vector<CollectiveRow>& all) {
  Fit fit = Neutral(all);
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (auto& [name, network] : fit.networks) {
      std::vector<const CollectiveRow*> own;
      for (const CollectiveRow* row : rows) {
        if (row->communicator.hosts > 1 && row->communicator.network.name == name) own.push_back(row);
      }
      for (double* constant : {&network.efficiency, &network.fast_share, &network.hop, &network.gather_share}) {
        Descend(&fit, constant, own);
      }
    }
    for (auto& [name, link] : fit.links) {
      std::vector<const CollectiveRow*> own;
      for (const CollectiveRow* row : rows) {
        if (row->communicator.link.name == name) own.push_back(row);
      }
      for (double* constant : {&link.bus, &link.switch_bus, &link.fast_share, &link.switch_start, &link.step_bulk,
                               &link.base, &link.step_fast}) {
        if (*constant > 0) Descend(&fit, constant, own);
      }
    }
  }
  return fit;
}

/// Errors of all rows, each predicted by constants that were fitted without the rows for which `together` says so.
template <typename Together>
std::vector<double> LeftOutErrors(const std::vector<CollectiveRow>& rows, const std::vector<size_t>& first, Together together) {
  std::vector<double> errors;
  for (const size_t out : first) {
    std::vector<const CollectiveRow*> kept;
    for (const CollectiveRow& row : rows) {
      if (!together(row, rows[out])) kept.push_back(&row);
    }
    const Fit fit = FitTo(kept, rows);
    for (const CollectiveRow& row : rows) {
      if (together(row, rows[out])) errors.push_back(RelativeError(fit.With(row)));
    }
  }
  return errors;
}

TEST(CollectiveFidelity, HoldsForRowsThatTheConstantsWereNotFittedTo) {
  const std::vector<CollectiveRow> rows = LargeRows();
  std::vector<size_t> every, one_per_source;
  for (size_t i = 0; i < rows.size(); ++i) {
    every.push_back(i);
    if (i == 0 || rows[i].source != rows[i - 1].source) one_per_source.push_back(i);
  }
  const auto one = LeftOutErrors(rows, every, [](const auto& a, const auto& b) { return a.line == b.line; });
  const auto all = LeftOutErrors(rows, one_per_source, [](const auto& a, const auto& b) { return a.source == b.source; });
  ASSERT_EQ(one.size(), rows.size());
  ASSERT_EQ(all.size(), rows.size());
  std::printf("leave one row out: median %.1f %%, p90 %.1f %%; leave one source out: median %.1f %%, p90 %.1f %%\n",
              100 * Quantile(one, 0.5), 100 * Quantile(one, 0.9), 100 * Quantile(all, 0.5), 100 * Quantile(all, 0.9));
  EXPECT_LE(Quantile(one, 0.5), 0.10);
  EXPECT_LE(Quantile(one, 0.9), 0.35);
  EXPECT_LE(Quantile(all, 0.5), 0.25);
}

}  // namespace
}  // namespace weft::formats
