#include "planner/network/fair_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

namespace weft::planner {
namespace {

struct KnownFlow {
  std::vector<LinkId> links;
  double weight = 1;
  double cap = 1e300;
  int32_t priority = 0;
  FairShares::ClassId id = -1;
};

std::vector<LinkId> Path(std::vector<int> links) {
  std::vector<LinkId> path;
  for (const int l : links) path.emplace_back(l);
  return path;
}

std::vector<BitsPerSecond> Capacities(std::vector<double> values) {
  std::vector<BitsPerSecond> capacity;
  for (const double value : values) capacity.emplace_back(value);
  return capacity;
}

MaxMinFlow AsMaxMin(const KnownFlow& flow) {
  return {.links = flow.links, .weight = flow.weight, .cap = BitsPerSecond(flow.cap), .priority = flow.priority};
}

TEST(FairShares, AnArrivalAndADepartureAreFollowed) {
  FairShares shares(Capacities({10}));
  const std::vector<LinkId> path = Path({0});
  const auto first = shares.Add({.links = path, .weight = 1});
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(first).value(), 10);
  const auto second = shares.Add({.links = path, .weight = 4});
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(first).value(), 2);
  EXPECT_DOUBLE_EQ(shares.rate(second).value(), 8);
  shares.Remove(second);
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(first).value(), 10);
}

TEST(FairShares, EqualFlowsAreOneClassThatIsCounted) {
  FairShares shares(Capacities({12}));
  const std::vector<LinkId> path = Path({0});
  const auto id = shares.Add({.links = path}, 3);
  EXPECT_EQ(shares.Add({.links = path}), id);
  shares.Update();
  EXPECT_EQ(shares.count(id), 4);
  EXPECT_DOUBLE_EQ(shares.rate(id).value(), 3);
  shares.Remove(id, 3);
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(id).value(), 12);
}

// The lower priority gets what the higher one leaves: 10 - 4 on link 0; the cap of 4 holds the higher one.
TEST(FairShares, ALowerPriorityGetsWhatIsLeft) {
  FairShares shares(Capacities({10, 3}), {.priorities = 2});
  const std::vector<LinkId> one = Path({0}), both = Path({0, 1});
  const auto low = shares.Add({.links = one, .priority = 1});
  const auto high = shares.Add({.links = one, .cap = BitsPerSecond(4), .priority = 0});
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(high).value(), 4);
  EXPECT_DOUBLE_EQ(shares.rate(low).value(), 6);
  const auto wide = shares.Add({.links = both, .priority = 0});
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(wide).value(), 3);
  EXPECT_DOUBLE_EQ(shares.rate(low).value(), 3);
}

TEST(FairShares, ChangedListsExactlyTheClassesWhoseRateChanged) {
  FairShares shares(Capacities({10, 10}));
  const std::vector<LinkId> left = Path({0}), right = Path({1});
  const auto a = shares.Add({.links = left});
  const auto b = shares.Add({.links = right});
  shares.Update();
  EXPECT_THAT(shares.changed(), testing::UnorderedElementsAre(a, b));
  shares.SetCapacity(LinkId(1), BitsPerSecond(4));
  shares.Update();
  EXPECT_THAT(shares.changed(), testing::ElementsAre(b));
  EXPECT_DOUBLE_EQ(shares.rate(b).value(), 4);
  shares.Update();
  EXPECT_TRUE(shares.changed().empty());
}

TEST(FairShares, ADeadLinkStopsItsFlowsUntilItIsBack) {
  FairShares shares(Capacities({10, 8}));
  const std::vector<LinkId> both = Path({0, 1}), one = Path({1});
  const auto a = shares.Add({.links = both});
  const auto b = shares.Add({.links = one});
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(a).value(), 4);
  shares.SetCapacity(LinkId(0), BitsPerSecond(0));
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(a).value(), 0);
  EXPECT_DOUBLE_EQ(shares.rate(b).value(), 8);
  shares.SetCapacity(LinkId(0), BitsPerSecond(1));
  shares.Update();
  EXPECT_DOUBLE_EQ(shares.rate(a).value(), 1);
  EXPECT_DOUBLE_EQ(shares.rate(b).value(), 7);
}

/// A seeded life of a network: arrivals, departures and capacity changes.
class Churn {
 public:
  Churn(uint32_t seed, FairShareOptions options, int most_links, int most_flows)
      : random_(seed), options_(options), most_flows_(most_flows), links_(Draw(1, most_links)) {
    for (int l = 0; l < links_; ++l) capacity_.emplace_back(Draw(1, 20));
    shares_.emplace(capacity_, options);
  }

  void Step() {
    const int kind = Draw(0, 9);
    if (kind == 0) {
      const int link = Draw(0, links_ - 1);
      capacity_[static_cast<size_t>(link)] = BitsPerSecond(Draw(0, 3) == 0 ? 0 : Draw(1, 20));
      shares_->SetCapacity(LinkId(link), capacity_[static_cast<size_t>(link)]);
    } else if (kind <= 5 && static_cast<int>(flows_.size()) < most_flows_) {
      Arrive();
    } else if (!flows_.empty()) {
      const size_t gone = static_cast<size_t>(Draw(0, static_cast<int>(flows_.size()) - 1));
      shares_->Remove(flows_[gone].id);
      flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(gone));
    }
  }

  void Arrive() {
    KnownFlow flow{.weight = static_cast<double>(Draw(1, 4)), .cap = Draw(0, 2) == 0 ? Draw(1, 6) : 1e300,
                   .priority = Draw(0, options_.priorities - 1)};
    std::vector<LinkId> all;
    for (int l = 0; l < links_; ++l) all.emplace_back(l);
    std::sample(all.begin(), all.end(), std::back_inserter(flow.links), Draw(1, 4), random_);
    flow.id = shares_->Add(AsMaxMin(flow));
    flows_.push_back(std::move(flow));
  }

  FairShares& shares() { return *shares_; }
  const std::vector<KnownFlow>& flows() const { return flows_; }
  std::vector<BitsPerSecond> Expected() const {
    std::vector<MaxMinFlow> flows;
    for (const KnownFlow& flow : flows_) flows.push_back(AsMaxMin(flow));
    return MaxMinRates(capacity_, flows);
  }
  int Draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

 private:
  std::mt19937 random_;
  FairShareOptions options_;
  int most_flows_;
  int links_;
  std::vector<BitsPerSecond> capacity_;
  std::vector<KnownFlow> flows_;
  std::optional<FairShares> shares_;
};

// 1,200 lives of 40 changes, with and without priorities and merging: after each update the rates are those of a
// solution from nothing.
TEST(FairShares, AgreesWithACompleteSolutionAfterEveryChange) {
  for (uint32_t seed = 0; seed < 1200; ++seed) {
    Churn churn(seed, {.priorities = seed % 2 == 0 ? 1 : 3, .merge = seed % 3 != 0}, 10, 20);
    for (int step = 0; step < 40; ++step) {
      for (int batch = churn.Draw(1, 2); batch > 0; --batch) churn.Step();
      churn.shares().Update();
      const std::vector<BitsPerSecond> expected = churn.Expected();
      for (size_t f = 0; f < expected.size(); ++f) {
        ASSERT_NEAR(churn.shares().rate(churn.flows()[f].id).value(), expected[f].value(), 1e-7)
            << "seed " << seed << " step " << step << " flow " << f;
      }
    }
  }
}

// Updates that reach hundreds of links, which are settled in sweeps.
TEST(FairShares, AgreesWithACompleteSolutionInLargeNetworks) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Churn churn(seed, {.priorities = seed % 2 == 0 ? 1 : 2}, 400, 2000);
    for (int f = 0; f < 1500; ++f) churn.Arrive();
    churn.shares().Update();
    for (int step = 0; step < 60; ++step) {
      churn.Step();
      churn.shares().Update();
      if (step % 6 != 0) continue;
      const std::vector<BitsPerSecond> expected = churn.Expected();
      for (size_t f = 0; f < expected.size(); ++f) {
        ASSERT_NEAR(churn.shares().rate(churn.flows()[f].id).value(), expected[f].value(), 1e-9)
            << "seed " << seed << " step " << step << " flow " << f;
      }
    }
  }
}

// What changed() lists is all that a listener needs to follow every rate.
TEST(FairShares, ChangedLeavesOutNoRateThatChanged) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Churn churn(seed, {.priorities = 2, .merge = false}, 12, 30);
    std::map<FairShares::ClassId, double> known;
    for (int step = 0; step < 60; ++step) {
      churn.Step();
      churn.shares().Update();
      for (const FairShares::ClassId id : churn.shares().changed()) known[id] = churn.shares().rate(id).value();
      for (const KnownFlow& flow : churn.flows()) {
        ASSERT_EQ(known[flow.id], churn.shares().rate(flow.id).value()) << "seed " << seed << " step " << step;
      }
    }
  }
}

TEST(FairShares, UpdatesAreLocalRatherThanComplete) {
  int64_t complete = 0, updates = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Churn churn(seed, {}, 60, 200);
    for (int f = 0; f < 100; ++f) churn.Arrive();
    churn.shares().Update();
    for (int step = 0; step < 100; ++step, ++updates) {
      churn.Step();
      churn.shares().Update();
    }
    complete += churn.shares().complete_solutions();
  }
  EXPECT_LE(complete, 20 + updates / 100);
}

// With a tolerance t each link's level lags by at most t, and so do the rates, here within 20 t of their exact
// values.
TEST(FairShares, AToleranceIsKept) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Churn churn(seed, {.tolerance = 1e-3}, 40, 120);
    for (int step = 0; step < 200; ++step) {
      churn.Step();
      churn.shares().Update();
      if (step % 10 != 0) continue;
      const std::vector<BitsPerSecond> expected = churn.Expected();
      for (size_t f = 0; f < expected.size(); ++f) {
        const double rate = churn.shares().rate(churn.flows()[f].id).value();
        ASSERT_NEAR(rate, expected[f].value(), 0.02 * (0.01 + expected[f].value()))
            << "seed " << seed << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace weft::planner
