#include "planner/tasks/resharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace weft::planner::inline tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;
const ReshardNetwork kNetwork{GigabytesPerSecond(1), GigabytesPerSecond(1e6), Seconds(0)};

// Rows over 2 hosts of 2 devices (4 row blocks) become columns over 2 hosts: 4 × 2 boxes; a box has the one sender that
// has its rows and the one receiver that wants its columns.
TEST(CutSlices, RowsToColumnsIsAnAllToAll) {
  const ReshardProblem problem{.shape = {8, 6}, .element_bytes = 2,
                               .from = {.hosts = 2, .devices = 2, .host_dimension = 0, .device_dimension = 0},
                               .to = {.hosts = 2, .devices = 2, .host_dimension = 1}};
  const std::vector<ReshardSlice> slices = CutSlices(problem).value();
  ASSERT_EQ(slices.size(), 8u);
  Bytes sum;
  for (size_t k = 0; k < slices.size(); ++k) {
    EXPECT_EQ(slices[k].bytes, Bytes(2 * 3 * 2));
    EXPECT_THAT(slices[k].senders, ElementsAre(k < 4 ? 0 : 1));
    EXPECT_THAT(slices[k].receivers, ElementsAre(k % 2));
    EXPECT_EQ(slices[k].devices, 2);
    sum += slices[k].bytes;
  }
  EXPECT_EQ(sum, Bytes(8 * 6 * 2));
}

TEST(CutSlices, AReplicatedTensorHasAChoiceOfSenders) {
  const ReshardProblem problem{.shape = {6}, .element_bytes = 4,
                               .from = {.hosts = 3, .devices = 2, .device_dimension = 0},
                               .to = {.hosts = 2, .devices = 3, .device_dimension = 0}};
  const std::vector<ReshardSlice> slices = CutSlices(problem).value();  // cut at 0 2 3 4
  ASSERT_EQ(slices.size(), 4u);
  EXPECT_EQ(slices[0].bytes, Bytes(8));
  EXPECT_EQ(slices[1].bytes, Bytes(4));
  for (const ReshardSlice& slice : slices) {
    EXPECT_THAT(slice.senders, ElementsAre(0, 1, 2));
    EXPECT_THAT(slice.receivers, ElementsAre(0, 1));
    EXPECT_EQ(slice.devices, 1);
  }
}

TEST(CutSlices, RefusesWhatCannotBeCut) {
  const auto message = [](const ReshardProblem& problem) {
    const Result<std::vector<ReshardSlice>> slices = CutSlices(problem);
    return slices ? std::string("accepted") : slices.error().message();
  };
  EXPECT_THAT(message({}), HasSubstr("0 dimensions"));
  EXPECT_THAT(message({.shape = {4, 0}}), HasSubstr("expected sizes of 1 or more"));
  EXPECT_THAT(message({.shape = {4}, .from = {.hosts = 3, .host_dimension = 0}}),
              HasSubstr("resharding from: dimension 0 of 4 elements, expected a multiple of 3 parts"));
  EXPECT_THAT(message({.shape = {4}, .to = {.hosts = 2, .host_dimension = 1}}),
              HasSubstr("resharding to: dimension 1, expected -1 to 0"));
  EXPECT_THAT(message({.shape = {4}, .to = {.hosts = 0}}), HasSubstr("0 hosts of 1 devices"));
  EXPECT_THAT(message({.shape = {4096, 4096}, .from = {.hosts = 128, .host_dimension = 0},
                       .to = {.hosts = 64, .host_dimension = 1}}), HasSubstr("8192 slices, expected at most 4096"));
}

// 1 GB at 1 GB/s to A hosts of G devices, latency and local links for free: A·G, A, 2 - 1/A and 1 + (A-1)/κ.
TEST(SliceTime, IsThePublishedOrderOfTheFourWays) {
  const Bytes gigabyte(1'000'000'000);
  for (const int64_t a : {1, 2, 4}) {
    const double hosts = static_cast<double>(a);
    EXPECT_NEAR(SliceTime(ReshardMethod::kSeparateSends, gigabyte, a, 4, kNetwork).count(), hosts * 4, 1e-5);
    EXPECT_NEAR(SliceTime(ReshardMethod::kLocalAllGather, gigabyte, a, 4, kNetwork).count(), hosts, 1e-5);
    EXPECT_NEAR(SliceTime(ReshardMethod::kScatterAllGather, gigabyte, a, 4, kNetwork).count(), 2 - 1 / hosts, 1e-5);
    EXPECT_NEAR(SliceTime(ReshardMethod::kBroadcastChain, gigabyte, a, 4, kNetwork).count(), 1 + (hosts - 1) / 256, 1e-5);
  }
  EXPECT_EQ(BestReshardMethod(gigabyte, 4, 4, kNetwork), ReshardMethod::kBroadcastChain);
  EXPECT_EQ(BestReshardMethod(gigabyte, 1, 1, kNetwork), ReshardMethod::kSeparateSends);
}

TEST(BroadcastChunks, IsWhatEnumerationFinds) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const ReshardNetwork network{GigabytesPerSecond(25), GigabytesPerSecond(200),
                                 Seconds(1e-6 * static_cast<double>(1 + random() % 40))};
    const Bytes bytes(1 + static_cast<int64_t>(random() % (64 << 20)));
    const int64_t a = 1 + static_cast<int64_t>(random() % 8), g = 1 + static_cast<int64_t>(random() % 8);
    const Seconds wire = bytes / network.nic, local = g > 1 ? bytes / network.local : Seconds(0);
    double best = INFINITY;
    for (int64_t k = 1; k <= 256; ++k) {
      const double n = static_cast<double>(k);
      best = std::min(best, (static_cast<double>(k + a - 1) * (network.latency + wire / n) + local / n).count());
    }
    EXPECT_NEAR(SliceTime(ReshardMethod::kBroadcastChain, bytes, a, g, network).count(), best, 1e-12);
  }
}

struct Random {
  std::vector<ReshardSlice> slices;
  std::vector<Seconds> durations;
};

Random RandomSlices(std::mt19937& random, size_t count) {
  Random r;
  const auto hosts = [&](size_t of) {
    std::vector<int32_t> chosen;
    for (size_t host = 0; host < of; ++host) {
      if (random() % 2 == 0) chosen.push_back(static_cast<int32_t>(host));
    }
    if (chosen.empty()) chosen.push_back(static_cast<int32_t>(random() % of));
    return chosen;
  };
  for (size_t k = 0; k < count; ++k) {
    r.slices.push_back({Bytes(1), hosts(3), hosts(3), 1});
    r.durations.push_back(Seconds(static_cast<double>(1 + random() % 6)));
  }
  return r;
}

/// Every permutation with every choice of senders.
double Enumerate(const Random& r) {
  std::vector<size_t> order(r.slices.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  double best = INFINITY;
  do {
    const std::function<void(size_t, std::vector<double>, std::vector<double>)> place =
        [&](size_t at, std::vector<double> send, std::vector<double> receive) {
          if (at == order.size()) {
            best = std::min(best, std::max(*std::max_element(send.begin(), send.end()),
                                           *std::max_element(receive.begin(), receive.end())));
            return;
          }
          const ReshardSlice& slice = r.slices[order[at]];
          for (const int32_t sender : slice.senders) {
            double start = send[static_cast<size_t>(sender)];
            for (const int32_t host : slice.receivers) start = std::max(start, receive[static_cast<size_t>(host)]);
            std::vector<double> s = send, t = receive;
            s[static_cast<size_t>(sender)] = start + r.durations[order[at]].count();
            for (const int32_t host : slice.receivers) t[static_cast<size_t>(host)] = s[static_cast<size_t>(sender)];
            place(at + 1, s, t);
          }
        };
    place(0, {0, 0, 0}, {0, 0, 0});
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(ScheduleSlices, FewSlicesAreScheduledOptimally) {
  std::mt19937 random(9);
  for (int round = 0; round < 150; ++round) {
    const Random r = RandomSlices(random, 1 + random() % 5);
    const ReshardSchedule schedule = ScheduleSlices(r.slices, r.durations).value();
    EXPECT_NEAR(schedule.makespan.count(), Enumerate(r), kTolerance);
    EXPECT_TRUE(schedule.optimal);
  }
}

/// No two slices use a NIC at once, every sender has its slice, and no slice ends after the makespan.
void ExpectValid(const Random& r, const ReshardSchedule& schedule) {
  double end = 0;
  for (size_t a = 0; a < r.slices.size(); ++a) {
    const ReshardSlice& one = r.slices[a];
    EXPECT_NE(std::find(one.senders.begin(), one.senders.end(), schedule.sender[a]), one.senders.end());
    end = std::max(end, (schedule.start[a] + r.durations[a]).count());
    for (size_t b = 0; b < a; ++b) {
      const ReshardSlice& other = r.slices[b];
      const bool shared = schedule.sender[a] == schedule.sender[b] ||
                          std::find_first_of(one.receivers.begin(), one.receivers.end(), other.receivers.begin(),
                                             other.receivers.end()) != one.receivers.end();
      if (!shared) continue;
      EXPECT_TRUE(schedule.start[a] + r.durations[a] <= schedule.start[b] + Seconds(kTolerance) ||
                  schedule.start[b] + r.durations[b] <= schedule.start[a] + Seconds(kTolerance))
          << a << " and " << b;
    }
  }
  EXPECT_NEAR(schedule.makespan.count(), end, kTolerance);
}

TEST(ScheduleSlices, ManySlicesShareNoNicAndStayCloseToTheBound) {
  std::mt19937 random(10);
  for (int round = 0; round < 40; ++round) {
    const Random r = RandomSlices(random, 6 + random() % 30);
    const ReshardSchedule schedule = ScheduleSlices(r.slices, r.durations).value();
    ExpectValid(r, schedule);
    std::vector<double> load(3, 0);
    for (size_t k = 0; k < r.slices.size(); ++k) {
      for (const int32_t host : r.slices[k].receivers) load[static_cast<size_t>(host)] += r.durations[k].count();
    }
    EXPECT_GE(schedule.makespan.count(), *std::max_element(load.begin(), load.end()) - kTolerance);
    // The same question has the same answer.
    EXPECT_EQ(ScheduleSlices(r.slices, r.durations)->order, schedule.order);
  }
}

// Three hosts hold everything: the slices of three receivers run side by side.
TEST(ScheduleSlices, SendersAreBalanced) {
  const std::vector<ReshardSlice> slices = {{Bytes(1), {0, 1, 2}, {0}, 1}, {Bytes(1), {0, 1, 2}, {1}, 1},
                                            {Bytes(1), {0}, {2}, 1}};
  const std::vector<Seconds> durations(3, Seconds(1));
  const ReshardSchedule schedule = ScheduleSlices(slices, durations).value();
  EXPECT_NEAR(schedule.makespan.count(), 1, kTolerance);
  EXPECT_EQ(ScheduleSlices({}, {})->makespan, Seconds(0));
}

TEST(ScheduleSlices, RefusesSlicesWithoutHosts) {
  const std::vector<ReshardSlice> slices = {{Bytes(1), {}, {0}, 1}};
  const std::vector<Seconds> one = {Seconds(1)}, two(2, Seconds(1));
  EXPECT_THAT(ScheduleSlices(slices, one).error().message(), HasSubstr("slice 0 has 0 senders, 1 receivers"));
  EXPECT_THAT(ScheduleSlices(slices, two).error().message(), HasSubstr("2 durations, expected one for each of 1 slices"));
  EXPECT_EQ(ScheduleSlices(slices, one).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace weft::planner::tasks
