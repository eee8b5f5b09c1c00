// The core against random events: nothing that agents, hooks or people send may crash it, nor make two cores differ.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "controller/core.h"
#include "controller/testing/random_events.h"

namespace weft::controller {
namespace {

template <typename T>
std::vector<T> Of(const std::vector<Action>& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

TEST(Core, SurvivesRandomEventsAndStaysDeterministic) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Core one({});
    Core two({});
    RandomEvents nonsense(seed);
    double time = 0;
    std::map<std::string, int64_t> epochs;
    for (int i = 0; i < 3000; ++i) {
      time += i % 50 == 0 ? -0.5 : 0.05;
      const Event event = nonsense.Make(time);
      const std::vector<Action> actions = one.Handle(event);
      ASSERT_EQ(SerializeActions(actions), SerializeActions(two.Handle(event))) << "seed " << seed << " event " << i;
      for (const KeepEpoch& kept : Of<KeepEpoch>(actions)) {
        ASSERT_GT(kept.epoch, epochs[kept.job_id]) << "seed " << seed << " event " << i;
        epochs[kept.job_id] = kept.epoch;
      }
      for (const PushPolicy& push : Of<PushPolicy>(actions)) {
        for (const v1::FlowPolicy& flow : push.policy.flows()) {
          int32_t sum = 0;
          for (const v1::LanePolicy& lane : flow.lanes()) sum += lane.weight();
          ASSERT_EQ(sum, kWeightSum);
          ASSERT_LE(flow.lanes_size(), 8);
        }
      }
    }
    for (const v1::LinkStatus& link : one.Links()) {
      ASSERT_GT(link.available_bps(), 0);
      ASSERT_LE(link.available_bps(), link.line_rate_bps());
      ASSERT_TRUE(std::isfinite(link.used_bps()));
    }
    one.Jobs();
    one.Hosts();
  }
}

}  // namespace
}  // namespace weft::controller
