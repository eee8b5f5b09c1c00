#include "planner/collectives/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace weft::planner::inline collectives {
namespace {

using namespace literals;
using testing::HasSubstr;

constexpr int kSlices = 3;

/// Runs a schedule on integers, one per slice of a chunk, in a random order that respects nothing but `needs` and the
/// order of each pair's transfers: a missing need shows as a wrong number under some seed.
class Machine {
 public:
  Machine(const Schedule& schedule, bool in_place, uint32_t seed) : schedule_(schedule), random_(seed) {
    for (int32_t r = 0; r < schedule.rank_count(); ++r) {
      Memory memory;
      memory.in_place = in_place;
      for (int32_t c = 0; c < schedule.input_chunks(); ++c) {
        for (int s = 0; s < kSlices; ++s) memory.input.push_back(Value(r, c, s));
      }
      memory.output.assign(static_cast<size_t>(schedule.output_chunks() * kSlices), -1);
      memory.scratch.assign(static_cast<size_t>(schedule.scratch_chunks * kSlices), -1);
      memory_.push_back(std::move(memory));
      done_.emplace_back(schedule.ranks[static_cast<size_t>(r)].size() * kSlices, false);
    }
  }

  static int64_t Value(int64_t rank, int64_t chunk, int64_t slice) {
    return (rank + 1) * 1'000'003 + chunk * 1009 + slice * 31;
  }

  bool Run() {
    for (;;) {
      std::vector<Event> ready;
      for (int32_t r = 0; r < schedule_.rank_count(); ++r) {
        for (size_t i = 0; i < Steps(r).size(); ++i) {
          for (int s = 0; s < kSlices; ++s) {
            if (CanRun({r, i, s})) ready.push_back({r, i, s});
          }
        }
      }
      if (ready.empty()) break;
      Execute(ready[random_() % ready.size()]);
    }
    for (const auto& done : done_) {
      for (const bool one : done) {
        if (!one) return false;
      }
    }
    return true;
  }

  int64_t Output(int32_t rank, int32_t chunk, int slice) {
    return *At(rank, {BufferKind::kOutput, chunk}, slice);
  }

 private:
  struct Memory {
    bool in_place = false;
    std::vector<int64_t> input, output, scratch;
  };
  struct Event {
    int32_t rank;
    size_t step;
    int slice;
  };

  const std::vector<Step>& Steps(int32_t rank) const { return schedule_.ranks[static_cast<size_t>(rank)]; }
  std::vector<bool>::reference Done(const Event& e) {
    return done_[static_cast<size_t>(e.rank)][e.step * kSlices + static_cast<size_t>(e.slice)];
  }
  int64_t* At(int32_t rank, ChunkRef ref, int slice) {
    Memory& memory = memory_[static_cast<size_t>(rank)];
    auto& buffer = ref.buffer == BufferKind::kScratch                        ? memory.scratch
                   : ref.buffer == BufferKind::kInput || memory.in_place ? memory.input
                                                                             : memory.output;
    return &buffer.at(static_cast<size_t>(ref.chunk * kSlices + slice));
  }

  bool NeedsMet(const Event& e) {
    for (const StepId need : Steps(e.rank)[e.step].needs) {
      if (!Done({e.rank, need.index(), e.slice})) return false;
    }
    return !Done(e);
  }

  /// The matching receive of a send, found by counting; only asked of sends.
  Event Partner(const Event& send) {
    const int32_t peer = Steps(send.rank)[send.step].peer.value();
    int64_t ordinal = 0;
    for (size_t i = 0; i < send.step; ++i) ordinal += Matches(send.rank, i, StepKind::kSend, peer);
    for (size_t i = 0;; ++i) {
      if (Matches(peer, i, StepKind::kRecv, send.rank) && ordinal-- == 0) return {peer, i, send.slice};
    }
  }
  bool Matches(int32_t rank, size_t step, StepKind kind, int32_t peer) const {
    return Steps(rank).at(step).kind == kind && Steps(rank).at(step).peer.value() == peer;
  }

  bool CanRun(const Event& e) {
    const Step& step = Steps(e.rank)[e.step];
    if (step.kind == StepKind::kRecv || !NeedsMet(e)) return false;
    if (step.kind != StepKind::kSend) return true;
    for (size_t i = 0; i < e.step; ++i) {  // earlier transfers of the pair, and earlier slices of this one
      if (Matches(e.rank, i, StepKind::kSend, step.peer.value()) && !Done({e.rank, i, kSlices - 1})) return false;
    }
    if (e.slice > 0 && !Done({e.rank, e.step, e.slice - 1})) return false;
    return NeedsMet(Partner(e));
  }

  void Execute(const Event& e) {
    const Step& step = Steps(e.rank)[e.step];
    Done(e) = true;
    if (step.kind == StepKind::kSend) {
      const Event to = Partner(e);
      Done(to) = true;
      *At(to.rank, Steps(to.rank)[to.step].destination, e.slice) = *At(e.rank, step.source, e.slice);
      return;
    }
    int64_t* destination = At(e.rank, step.destination, e.slice);
    const int64_t source = *At(e.rank, step.source, e.slice);
    *destination = step.kind == StepKind::kCopy ? source : *destination + source;
  }

  const Schedule& schedule_;
  std::mt19937 random_;
  std::vector<Memory> memory_;
  std::vector<std::vector<bool>> done_;
};

/// What rank `r` must hold in chunk c of its output, by the collective's definition.
int64_t Expected(const Schedule& schedule, int32_t root, int32_t r, int32_t c, int slice) {
  const int32_t n = schedule.rank_count();
  const auto sum = [&](int32_t chunk) {
    int64_t total = 0;
    for (int32_t i = 0; i < n; ++i) total += Machine::Value(i, chunk, slice);
    return total;
  };
  switch (schedule.collective) {
    case Collective::kAllReduce: return sum(c);
    case Collective::kReduceScatter: return sum(r * schedule.output_chunks() + c);
    case Collective::kAllGather: return Machine::Value(c, 0, slice);
    case Collective::kAllToAll: return Machine::Value(c, r, slice);
    case Collective::kBroadcast: return Machine::Value(root, c, slice);
    case Collective::kSendRecv: return r == 1 ? Machine::Value(0, c, slice) : -1;
  }
  return 0;
}

void ExpectCorrect(Collective collective, int32_t ranks, int32_t root, bool in_place) {
  const Result<Schedule> schedule = RingSchedule(collective, ranks, RankId(root));
  ASSERT_TRUE(schedule) << schedule.error().message();
  const Status valid = ValidateSchedule(*schedule);
  ASSERT_TRUE(valid) << valid.error().message();
  for (uint32_t seed = 0; seed < 4; ++seed) {
    Machine machine(*schedule, in_place, seed);
    ASSERT_TRUE(machine.Run());
    for (int32_t r = 0; r < ranks; ++r) {
      for (int32_t c = 0; c < schedule->output_chunks(); ++c) {
        for (int s = 0; s < kSlices; ++s) {
          ASSERT_EQ(machine.Output(r, c, s), Expected(*schedule, root, r, c, s))
              << CollectiveName(collective) << " n=" << ranks << " rank " << r << " chunk " << c << " slice " << s;
        }
      }
    }
  }
}

TEST(RingSchedule, EveryCollectiveGivesItsResultInAnyOrderThatTheNeedsAllow) {
  for (const int32_t ranks : {1, 2, 3, 4, 6}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                        Collective::kAllToAll, Collective::kBroadcast}) {
      ExpectCorrect(collective, ranks, 0, false);
    }
  }
  ExpectCorrect(Collective::kSendRecv, 2, 0, false);
}

TEST(RingSchedule, AllReduceAndBroadcastWorkInPlace) {
  for (const int32_t ranks : {1, 2, 5}) {
    ExpectCorrect(Collective::kAllReduce, ranks, 0, true);
    ExpectCorrect(Collective::kBroadcast, ranks, ranks - 1, true);
  }
}

TEST(RingShift, GivesEveryRankWhatTheOneBeforeItHas) {
  for (const int32_t ranks : {2, 3, 4, 7}) {
    const Schedule schedule = RingShift(ranks);
    ASSERT_TRUE(ValidateSchedule(schedule));
    for (uint32_t seed = 0; seed < 4; ++seed) {
      Machine machine(schedule, false, seed);
      ASSERT_TRUE(machine.Run());
      for (int32_t r = 0; r < ranks; ++r) {
        for (int s = 0; s < kSlices; ++s) EXPECT_EQ(machine.Output(r, 0, s), Machine::Value((r + ranks - 1) % ranks, 0, s));
      }
    }
  }
}

// Of n ranks in a line the ends have one neighbour: 2 (n - 1) messages.
TEST(NeighbourExchange, GivesEveryRankWhatItsNeighboursHaveForIt) {
  for (const int32_t ranks : {2, 3, 4, 7}) {
    const Schedule schedule = NeighbourExchange(ranks);
    ASSERT_TRUE(ValidateSchedule(schedule));
    int sends = 0;
    for (const std::vector<Step>& steps : schedule.ranks) {
      for (const Step& step : steps) sends += step.kind == StepKind::kSend ? 1 : 0;
    }
    EXPECT_EQ(sends, 2 * (ranks - 1));
    for (uint32_t seed = 0; seed < 4; ++seed) {
      Machine machine(schedule, false, seed);
      ASSERT_TRUE(machine.Run());
      for (int32_t r = 0; r < ranks; ++r) {
        for (int s = 0; s < kSlices; ++s) {
          if (r > 0) EXPECT_EQ(machine.Output(r, 0, s), Machine::Value(r - 1, 1, s));
          if (r + 1 < ranks) EXPECT_EQ(machine.Output(r, 1, s), Machine::Value(r + 1, 0, s));
        }
      }
    }
  }
}

// Of n ranks all but the root send once.
TEST(RingReduce, GivesTheRootAloneTheSum) {
  for (const int32_t ranks : {2, 3, 5}) {
    for (int32_t root = 0; root < ranks; ++root) {
      const Schedule schedule = RingReduce(ranks, RankId(root));
      ASSERT_TRUE(ValidateSchedule(schedule));
      int sends = 0;
      for (const std::vector<Step>& steps : schedule.ranks) {
        for (const Step& step : steps) sends += step.kind == StepKind::kSend ? 1 : 0;
      }
      EXPECT_EQ(sends, ranks - 1);
      for (uint32_t seed = 0; seed < 4; ++seed) {
        Machine machine(schedule, false, seed);
        ASSERT_TRUE(machine.Run());
        for (int s = 0; s < kSlices; ++s) {
          int64_t sum = 0;
          for (int32_t r = 0; r < ranks; ++r) sum += Machine::Value(r, 0, s);
          EXPECT_EQ(machine.Output(root, 0, s), sum) << ranks << " ranks, root " << root;
        }
      }
    }
  }
}

TEST(RingSchedule, AllReduceSendsEachRankTwiceNMinusOneChunks) {
  const Schedule schedule = RingSchedule(Collective::kAllReduce, 7).value();
  for (const auto& steps : schedule.ranks) {
    EXPECT_EQ(std::count_if(steps.begin(), steps.end(), [](const Step& s) { return s.kind == StepKind::kSend; }), 12);
  }
  EXPECT_EQ(schedule.chunk_count, 7);
  EXPECT_LE(schedule.scratch_chunks, 3);
}

TEST(RingSchedule, AThousandRanksAreValid) {
  const Schedule schedule = RingSchedule(Collective::kBroadcast, 1024, RankId(5)).value();
  EXPECT_TRUE(ValidateSchedule(schedule));
}

TEST(RingSchedule, RefusesWhatHasNoRing) {
  const auto message = [](const Result<Schedule>& schedule) {
    return schedule ? std::string("accepted") : schedule.error().message();
  };
  EXPECT_THAT(message(RingSchedule(Collective::kAllReduce, 0)), HasSubstr("0 ranks, expected at least 1"));
  EXPECT_THAT(message(RingSchedule(Collective::kSendRecv, 3)), HasSubstr("3 ranks, expected 2"));
  EXPECT_THAT(message(RingSchedule(Collective::kBroadcast, 4, RankId(4))), HasSubstr("root 4"));
}

TEST(BusBandwidthFactor, IsWhatNcclTestsCount) {
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kBroadcast, 4), 1);
}

}  // namespace
}  // namespace weft::planner::collectives
