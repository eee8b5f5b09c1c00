#include "planner/parallelism/device_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace weft::planner {
namespace {

using testing::HasSubstr;

/// Devices of `sites`, 1 ms and 1 GB/s inside a site, 50 ms and 0.1 GB/s between sites.
PlacementProblem Sites(const std::vector<int64_t>& site, int64_t stages) {
  const auto n = static_cast<int64_t>(site.size());
  PlacementProblem p{.devices = n, .stages = stages, .replicas = n / stages, .gradients = Bytes(1'000'000'000),
                     .message = Bytes(10'000'000)};
  for (const int64_t a : site) {
    for (const int64_t b : site) {
      p.latency.push_back(a == b ? 1e-3 : 50e-3);
      p.rate.push_back(a == b ? 1e9 : 1e8);
    }
  }
  return p;
}

// Replicas of a stage share a site: 2(1 ms + 0.5 s) of gradients; the one boundary crosses: 50 ms + 0.1 s. The other way
// round gradients would take 2(50 ms + 5 s).
TEST(PlaceDevices, GradientsStayInASiteAndActivationsCross) {
  const DevicePlacement placement = PlaceDevices(Sites({0, 1, 0, 1}, 2)).value();
  EXPECT_NEAR(placement.exchange.count(), 1.002, 1e-9);
  EXPECT_NEAR(placement.pipeline.count(), 0.15, 1e-9);
  EXPECT_EQ(placement.device[0] % 2, placement.device[1] % 2);
}

// Few gradients, large activations: now each replica's pipeline stays in its site.
TEST(PlaceDevices, PipelinesStayInASiteWhereActivationsAreLarge) {
  PlacementProblem p = Sites({0, 1, 0, 1}, 2);
  p.gradients = Bytes(1000);
  p.message = Bytes(1'000'000'000);
  const DevicePlacement placement = PlaceDevices(p).value();
  EXPECT_NEAR(placement.pipeline.count(), 1e-3 + 1, 1e-9);
  EXPECT_EQ(placement.device[0] % 2, placement.device[2] % 2);
}

PlacementProblem Random(std::mt19937& random, int64_t stages, int64_t replicas) {
  const int64_t n = stages * replicas;
  PlacementProblem p{.devices = n, .stages = stages, .replicas = replicas,
                     .gradients = Bytes(static_cast<int64_t>(random() % 1000) * 1'000'000),
                     .message = Bytes(static_cast<int64_t>(random() % 100) * 1'000'000)};
  p.latency.resize(static_cast<size_t>(n * n));
  p.rate.resize(static_cast<size_t>(n * n), 1);
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b < a; ++b) {
      const double latency = static_cast<double>(random() % 250) * 1e-3;
      const double rate = 40e6 + static_cast<double>(random() % 1000) * 1e6;
      for (const auto at : {a * n + b, b * n + a}) {
        p.latency[static_cast<size_t>(at)] = latency;
        p.rate[static_cast<size_t>(at)] = rate;
      }
    }
  }
  return p;
}

// All placements of up to seven devices: pairing and order are exact, groups a local optimum that is nearly always global.
TEST(PlaceDevices, IsNeverBelowAndNearlyAlwaysAtTheEnumeratedOptimum) {
  std::mt19937 random(61);
  const std::pair<int64_t, int64_t> shapes[] = {{2, 2}, {3, 2}, {2, 3}, {5, 1}, {1, 5}, {6, 1}};
  int equal = 0, cases = 0;
  for (int round = 0; round < 120; ++round) {
    const auto [stages, replicas] = shapes[round % 6];
    const PlacementProblem p = Random(random, stages, replicas);
    const DevicePlacement found = PlaceDevices(p).value();
    std::vector<int64_t> device(static_cast<size_t>(p.devices));
    std::iota(device.begin(), device.end(), 0);
    double best = 1e300;
    do {
      best = std::min(best, PlacementCost(p, device).total().count());
    } while (std::next_permutation(device.begin(), device.end()));
    ASSERT_GE(found.total().count(), best * (1 - 1e-12));
    ASSERT_LE(found.total().count(), best * 1.25) << round;
    equal += found.total().count() <= best * (1 + 1e-12) ? 1 : 0;
    // One group, or one device per group: only pairing and order are left, and these are exact.
    if (stages == 1 || replicas == 1) {
      ASSERT_NEAR(found.total().count(), best, 1e-12 * best) << round;
    }
    ++cases;
  }
  EXPECT_GT(equal, cases * 9 / 10);
}

TEST(PlaceDevices, BeatsTheGivenOrderOnMixedSites) {
  std::vector<int64_t> site;
  for (int64_t i = 0; i < 32; ++i) site.push_back(i * 7 % 4);
  const PlacementProblem p = Sites(site, 4);
  std::vector<int64_t> given(32);
  std::iota(given.begin(), given.end(), 0);
  const DevicePlacement found = PlaceDevices(p).value();
  EXPECT_NEAR(found.exchange.count(), 7 * 2 * (1e-3 + 0.125), 1e-9) << "every stage in a site of its own";
  EXPECT_LT(found.total(), PlacementCost(p, given).total() * 0.5);
  EXPECT_EQ(found.device, PlaceDevices(p).value().device);
}

TEST(PlaceDevices, BadProblemsAreErrors) {
  const auto message = [](const PlacementProblem& p) {
    const Result<DevicePlacement> placement = PlaceDevices(p);
    if (placement) return std::string("accepted");
    EXPECT_EQ(placement.error().code(), Code::kInvalidArgument);
    return placement.error().message();
  };
  PlacementProblem p = Sites({0, 1, 0, 1}, 2);
  p.stages = 3;
  EXPECT_THAT(message(p), HasSubstr("stages 3 x replicas 2: expected the 4 devices"));
  p = Sites({0, 1, 0, 1}, 2);
  p.rate[1] = 0;
  EXPECT_THAT(message(p), HasSubstr("devices 0 and 1: rate 0 byte/s"));
  p = Sites({0, 1, 0, 1}, 2);
  p.latency.pop_back();
  EXPECT_THAT(message(p), HasSubstr("15 and 16 entries, expected 4 x 4"));
}

}  // namespace
}  // namespace weft::planner
