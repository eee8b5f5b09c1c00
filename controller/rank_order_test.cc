#include "controller/rank_order.h"

#include <gmock/gmock.h>

#include "controller/flow_planner.h"

namespace weft::controller {
namespace {

using ::testing::ElementsAre;

TEST(RankOrder, RingNeighboursSitUnderOneLeaf) {
  PlacementView view;
  view.leaf = {{"h1", "leaf1"}, {"h2", "leaf1"}, {"h3", "leaf2"}, {"h4", "leaf2"}};
  EXPECT_THAT(OrderHosts({"h1", "h3", "h2", "h4"}, view), ElementsAre("h1", "h2", "h3", "h4"));
  // The ring closes: h2 and h1 are neighbours, so this order crosses twice as well and is kept.
  EXPECT_THAT(OrderHosts({"h1", "h3", "h4", "h2"}, view), ElementsAre("h1", "h3", "h4", "h2"));
  EXPECT_THAT(OrderHosts({"x", "y", "z"}, view), ElementsAre("x", "y", "z"));
  EXPECT_TRUE(OrderHosts({}, view).empty());
}

TEST(Weights, AddUpByLargestRemainder) {
  EXPECT_THAT(ToWeights({1, 0}), ElementsAre(16, 0));
  EXPECT_THAT(ToWeights({2.0 / 3, 1.0 / 3}), ElementsAre(11, 5));
  EXPECT_THAT(ToWeights({1.0 / 3, 1.0 / 3, 1.0 / 3}), ElementsAre(6, 5, 5));
}

}  // namespace
}  // namespace weft::controller
