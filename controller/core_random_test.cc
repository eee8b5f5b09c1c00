// The core against random events: nothing that agents, hooks or people send may crash it, nor make two cores differ.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "controller/core.h"

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

class Nonsense {
 public:
  explicit Nonsense(uint32_t seed) : random_(seed) {}

  Event Make(double time) {
    switch (Pick(9)) {
      case 0: return {Seconds(time), HostRegistered{Registration()}};
      case 1: return {Seconds(time), HostLost{Host()}};
      case 2: return {Seconds(time), JobReleased{Job()}};
      case 3: return {Seconds(time), EpochKnown{Job(), Int()}};
      case 4: return {Seconds(time), ModeSet{static_cast<v1::Mode>(Pick(4))}};
      case 5: return {Seconds(time), PathsReceived{Host(), Paths()}};
      case 6: return {Seconds(time), JobSubmitted{Spec(), {}, {}}};
      case 7: return {Seconds(time), Tick{}};
      default: return {Seconds(time), SampleReceived{Host(), Sample()}};
    }
  }

 private:
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  std::string Host() { return Pick(20) == 0 ? "" : fmt::format("h{}", Pick(4)); }
  std::string Job() { return Pick(20) == 0 ? "" : fmt::format("job{}", Pick(3)); }
  std::string Address() { return Pick(20) == 0 ? "" : fmt::format("addr{}", Pick(5)); }
  uint64_t Flow() { return static_cast<uint64_t>(Pick(12)); }
  int64_t Int() {
    const int64_t values[] = {0, -1, 7, 1 << 20, INT64_MAX, INT64_MIN, static_cast<int64_t>(random_()) << 10};
    return values[Pick(7)];
  }
  double Real() {
    const double values[] = {0, -1, 1.5, 1e300, -1e300, NAN, INFINITY, 1e-300, static_cast<double>(Pick(1000))};
    return values[Pick(9)];
  }
  v1::JobSpec Spec() {
    v1::JobSpec spec;
    spec.set_job_id(Job());
    spec.add_hosts(Host());
    return spec;
  }
  v1::Register Registration() {
    v1::Register message;
    message.set_host(Host());
    message.set_incarnation(Int());
    for (int i = Pick(3); i > 0; --i) message.add_interfaces()->add_addresses(Address());
    v1::JobEpoch* policy = message.add_policies();
    policy->set_job_id(Job());
    policy->set_epoch(Int());
    return message;
  }
  v1::PathReport Paths() {
    v1::PathReport report;
    report.set_flow(Flow());
    report.set_local_address(Address());
    report.set_peer_address(Address());
    report.set_hop_count(Pick(4));
    for (int i = Pick(6); i > 0; --i) {
      v1::Path* path = report.add_paths();
      path->set_source_port(Pick(3) == 0 ? static_cast<int32_t>(Int()) : 41000 + Pick(6));
      path->set_complete(Pick(4) != 0);
      for (int hop = Pick(4); hop > 0; --hop) path->add_hops(Pick(10) == 0 ? Host() : fmt::format("s{}", Pick(5)));
    }
    return report;
  }
  v1::HostSample Sample() {
    v1::HostSample sample;
    sample.set_time_s(Pick(3) == 0 ? Real() : time_ += 0.1);
    for (int i = Pick(3); i > 0; --i) {
      v1::FlowIdentity* identity = sample.add_opened();
      identity->set_flow(Flow());
      identity->set_job_id(Job());
      identity->set_send(Pick(4) != 0);
      identity->set_local_address(Address());
      identity->set_peer_address(Address());
    }
    for (int i = Pick(4); i > 0; --i) {
      v1::FlowCounters* counters = sample.add_counters();
      counters->set_flow(Flow());
      counters->set_send(Pick(4) != 0);
      counters->set_wait_wire_s(Real());
      counters->set_period_s(Real());
      for (int lane = Pick(4); lane > 0; --lane) {
        v1::LaneCounters* entry = counters->add_lanes();
        entry->set_source_port(Pick(5) == 0 ? static_cast<int32_t>(Int()) : 41000 + Pick(6));
        entry->set_weight(static_cast<int32_t>(Int()));
        entry->set_state(Pick(5) == 0 ? "failed" : "active");
        entry->set_wire_bytes(Pick(4) == 0 ? Int() : bytes_ += Pick(1 << 20));
        entry->set_rtt_s(Real());
      }
    }
    for (int i = Pick(2); i > 0; --i) sample.add_closed(Flow());
    return sample;
  }

  std::mt19937 random_;
  double time_ = 100;
  int64_t bytes_ = 0;
};

TEST(Core, SurvivesRandomEventsAndStaysDeterministic) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Core one({});
    Core two({});
    Nonsense nonsense(seed);
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
