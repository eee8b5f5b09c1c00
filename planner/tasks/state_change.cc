#include "planner/tasks/state_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "planner/tasks/assignment.h"

namespace weft::planner::inline tasks {
namespace {

using RankBoxes = std::vector<std::pair<int32_t, const HeldBox*>>;

/// By tensor, the boxes that ranks of the run have now.
std::vector<RankBoxes> HoldersOf(const ProgramState& from, const Places& places) {
  std::vector<RankBoxes> holders(from.tensors.size());
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank] < 0) continue;
    for (const HeldBox& held : from.ranks[static_cast<size_t>(places[rank])])
      holders[static_cast<size_t>(held.box.tensor)].push_back({static_cast<int32_t>(rank), &held});
  }
  return holders;
}

/// Elements of each place of `to` that each rank has: [places × ranks].
std::vector<std::vector<int64_t>> Shared(const std::vector<RankBoxes>& holders, const ProgramState& to, size_t ranks) {
  std::vector<std::vector<int64_t>> shared(to.ranks.size(), std::vector<int64_t>(ranks, 0));
  for (size_t place = 0; place < to.ranks.size(); ++place) {
    for (const HeldBox& need : to.ranks[place]) {
      for (const auto& [rank, held] : holders[static_cast<size_t>(need.box.tensor)]) {
        if (const auto common = CommonBox(need.box, held->box)) shared[place][static_cast<size_t>(rank)] += common->elements();
      }
    }
  }
  return shared;
}

Places ChoosePlaces(const std::vector<RankBoxes>& holders, const ProgramState& to, size_t ranks, PlaceChoice choice) {
  Places places(ranks, -1);
  if (choice == PlaceChoice::kOwnNumber || static_cast<int64_t>(ranks) > kMostAssignedRanks) {
    for (size_t place = 0; place < to.ranks.size(); ++place) places[place] = static_cast<int32_t>(place);
    return places;
  }
  // Twice what is shared, and one more for a rank that stays where it is: equal choices change nothing.
  std::vector<std::vector<int64_t>> gain = Shared(holders, to, ranks);
  for (size_t place = 0; place < gain.size(); ++place) {
    for (size_t rank = 0; rank < ranks; ++rank)
      gain[place][rank] = 2 * static_cast<int64_t>(ranks) * gain[place][rank] + (place == rank ? 1 : 0);
  }
  const std::vector<int32_t> rank_of = LargestAssignment(gain);
  for (size_t place = 0; place < rank_of.size(); ++place)
    places[static_cast<size_t>(rank_of[place])] = static_cast<int32_t>(place);
  return places;
}

/// Takes what `held` has of the boxes that are still missing, as moves to `need`'s memory.
void TakeFrom(int32_t sender, const HeldBox& held, int32_t receiver, const HeldBox& need, std::vector<TensorBox>* missing,
              std::vector<StateMove>* moves, int64_t* elements) {
  std::vector<TensorBox> still;
  for (const TensorBox& box : *missing) {
    const auto common = CommonBox(box, held.box);
    if (!common) {
      still.push_back(box);
      continue;
    }
    moves->push_back({sender, receiver, PartOfHeld(held, *common), PartOfHeld(need, *common)});
    *elements += common->elements();
    for (const TensorBox& rest : BoxWithout(box, *common)) still.push_back(rest);
  }
  *missing = std::move(still);
}

/// Rounds in which everybody meets everybody once, each at most one other at a time: the circle method of tournaments.
int32_t RoundOf(int32_t a, int32_t b, int32_t ranks) {
  const int32_t n = ranks + ranks % 2 - 1;  // one stays in its place while n move around
  if (n <= 0) return 0;
  if (a == n || b == n) return 2 * std::min(a, b) % n;
  return (a + b) % n;
}

std::vector<StateRound> PairsOf(const std::vector<StateMove>& moves, int32_t ranks) {
  std::vector<StateRound> pairs;
  for (const StateMove& move : moves) {
    if (move.sender == move.receiver) continue;
    const auto [first, second] = std::minmax(move.sender, move.receiver);
    pairs.push_back({RoundOf(first, second, ranks), first, second});
  }
  const auto key = [](const StateRound& r) { return std::tuple(r.round, r.first, r.second); };
  std::sort(pairs.begin(), pairs.end(), [&](const StateRound& a, const StateRound& b) { return key(a) < key(b); });
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

}  // namespace

std::string LeftBehind(const StepProgram& program) {
  if (program.replicas_differ) return "replicas that differ";
  for (const RankClass& c : program.classes) {
    for (const Instruction& i : c.instructions) {
      if (i.wire == WireType::kFloat8) return "what gradients in fp8 have left out";
    }
  }
  return "";
}

Result<StateChange> PlanStateChange(const ProgramState& from, const Places& places, const ProgramState& to, PlaceChoice choice) {
  if (from.tensors != to.tensors) return Fail(Code::kInvalidArgument, "programs of two models: expected the same tensors");
  if (places.size() < to.ranks.size()) {
    return Fail(Code::kInvalidArgument,
                fmt::format("a program for {} ranks, expected at most {}", to.ranks.size(), places.size()));
  }
  const std::vector<RankBoxes> holders = HoldersOf(from, places);
  StateChange change{.places = ChoosePlaces(holders, to, places.size(), choice)};
  std::vector<int64_t> sends(places.size(), 0);
  for (size_t r = 0; r < places.size(); ++r) {
    if (change.places[r] < 0) continue;
    const auto receiver = static_cast<int32_t>(r);
    for (const HeldBox& need : to.ranks[static_cast<size_t>(change.places[r])]) {
      std::vector<TensorBox> missing = {need.box};
      RankBoxes sources = holders[static_cast<size_t>(need.box.tensor)];
      // What it has itself is not sent.
      std::stable_sort(sources.begin(), sources.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.first != receiver, sends[static_cast<size_t>(a.first)]) <
               std::pair(b.first != receiver, sends[static_cast<size_t>(b.first)]);
      });
      for (const auto& [sender, held] : sources) {
        if (missing.empty()) break;
        int64_t elements = 0;
        TakeFrom(sender, *held, receiver, need, &missing, &change.moves, &elements);
        if (sender == receiver) continue;
        sends[static_cast<size_t>(sender)] += elements;
        change.sent += elements;
      }
      if (!missing.empty()) {
        return Fail(Code::kInvalidArgument, fmt::format("no rank has row {} of {} of layer {}", missing[0].row,
                                                        PartName(to.tensors[static_cast<size_t>(need.box.tensor)].part),
                                                        to.tensors[static_cast<size_t>(need.box.tensor)].layer));
      }
    }
  }
  change.pairs = PairsOf(change.moves, static_cast<int32_t>(places.size()));
  return change;
}

}  // namespace weft::planner::tasks
