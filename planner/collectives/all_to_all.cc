#include "planner/collectives/all_to_all.h"

#include <algorithm>
#include <utility>

#include "planner/collectives/schedule_builder.h"

namespace weft::planner::inline collectives {
namespace {

void CopyOwn(ScheduleBuilder* builder) {
  for (int32_t rank = 0; rank < builder->ranks(); ++rank) builder->Copy(rank, OutputChunk(rank), InputChunk(rank));
}

/// Adds to each step of a pair the need of the rank's transfers before it, so that a rank is in one exchange at a time.
void OneExchangeAtATime(Schedule* schedule) {
  for (std::vector<Step>& steps : schedule->ranks) {
    std::vector<StepId> before, current;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == StepKind::kCopy) continue;
      steps[i].needs.insert(steps[i].needs.end(), before.begin(), before.end());
      std::sort(steps[i].needs.begin(), steps[i].needs.end());
      current.emplace_back(static_cast<int32_t>(i));
      if (current.size() == 2) before = std::exchange(current, {});
    }
  }
}

/// Which rank of the sender's group carries a block for `to` across: the one with the same place in its group, or the place
/// counted round where the group is too small for it.
int32_t Forwarder(int32_t from, int32_t to, int32_t ranks, int32_t group) {
  const int32_t first = from / group * group;
  return first + to % group % std::min(group, ranks - first);
}

}  // namespace

Schedule DirectAllToAll(int32_t ranks) {
  ScheduleBuilder builder(Collective::kAllToAll, "direct", ranks, ranks);
  CopyOwn(&builder);
  for (int32_t shift = 1; shift < ranks; ++shift) {
    for (int32_t r = 0; r < ranks; ++r) {
      builder.Transfer(r, InputChunk((r + shift) % ranks), (r + shift) % ranks, OutputChunk(r));
    }
  }
  return builder.Finish();
}

Schedule PairwiseAllToAll(int32_t ranks) {
  Schedule schedule = DirectAllToAll(ranks);
  schedule.algorithm = "pairwise";
  OneExchangeAtATime(&schedule);
  return schedule;
}

Schedule HierarchicalAllToAll(int32_t ranks, int32_t group) {
  // Scratch chunk (s mod group)·ranks + t: the block from s to t, at the rank of s's group that carries it.
  const auto held = [&](int32_t s, int32_t t) { return ScratchChunk(s % group * ranks + t); };
  ScheduleBuilder builder(Collective::kAllToAll, "hierarchical", ranks, ranks, std::min(group, ranks) * ranks);
  CopyOwn(&builder);
  const auto same_group = [&](int32_t a, int32_t b) { return a / group == b / group; };
  for (int32_t shift = 1; shift < ranks; ++shift) {
    for (int32_t s = 0; s < ranks; ++s) {
      const int32_t t = (s + shift) % ranks;
      if (same_group(s, t)) {
        builder.Transfer(s, InputChunk(t), t, OutputChunk(s));
      } else if (const int32_t via = Forwarder(s, t, ranks, group); via != s) {
        builder.Transfer(s, InputChunk(t), via, held(s, t));
      }
    }
  }
  for (int32_t shift = 1; shift < ranks; ++shift) {
    for (int32_t s = 0; s < ranks; ++s) {
      const int32_t t = (s + shift) % ranks;
      if (same_group(s, t)) continue;
      const int32_t via = Forwarder(s, t, ranks, group);
      builder.Transfer(via, via == s ? InputChunk(t) : held(s, t), t, OutputChunk(s));
    }
  }
  return builder.Finish();
}

}  // namespace weft::planner::collectives
