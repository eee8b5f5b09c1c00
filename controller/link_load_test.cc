#include "controller/link_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;

double CarriedOn(const PlacementView& view, const std::string& from, const std::string& to) {
  const auto link = view.topology.FindLink(*view.topology.FindNode(from), *view.topology.FindNode(to));
  return link ? view.carried.at(link->index()).value() : -1;
}

/// Two ranks under each of two leaves; bursts of 3 MB on 100 Mbit/s behind 0.56 s of compute: 0.8 s per iteration, 30 Mbit/s in the mean.
struct Site {
  Site() : core(Options()), cluster(core, 2, 2, 2) {
    cluster.RegisterAll();
    cluster.Start({.id = "a", .ring = {"h1", "h2", "h3", "h4"}, .compute_s = 0.56, .bytes = 3e6}, 0);
    cluster.Run(0.3);
    cluster.Probe("a");
    cluster.Run(20);
  }
  static CoreOptions Options() {
    CoreOptions options;
    options.rates.line_rate = MegabitsPerSecond(100);
    return options;
  }
  Core core;
  FakeCluster cluster;
};

// Whatever second it is asked in: a burst, or the pause between two.
TEST(LinkLoad, IsTheMeanOverIterationsOfOtherJobs) {
  Site site;
  for (int i = 0; i < 8; ++i) {
    site.cluster.Run(0.1);
    const PlacementView view = site.core.Placement("b");
    const double up = CarriedOn(view, "leaf1", "spine1") + std::max(0.0, CarriedOn(view, "leaf1", "spine2"));
    EXPECT_NEAR(up, 30e6, 4e6) << i;
    EXPECT_NEAR(CarriedOn(view, "h1", "leaf1"), 30e6, 4e6);
  }
  const PlacementView own = site.core.Placement("a");
  for (const BitsPerSecond rate : own.carried) EXPECT_EQ(rate.value(), 0) << "a job is not in its own way";
}

TEST(LinkLoad, WhoEndsOrFallsSilentTakesNothing) {
  Site site;
  site.cluster.Finish("a");
  site.cluster.Run(1);
  for (const BitsPerSecond rate : site.core.Placement("b").carried) EXPECT_EQ(rate.value(), 0);
}

}  // namespace
}  // namespace weft::controller
