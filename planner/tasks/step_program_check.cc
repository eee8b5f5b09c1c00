// CheckProgram: what a program must keep to so that the interpreter may trust it. Lists come from files. Of single classes:
// step_program_class.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/tasks/step_program.h"
#include "planner/tasks/step_program_class.h"
#include "planner/tasks/volume_slabs.h"

namespace weft::planner::inline tasks {
namespace {

constexpr size_t kMostCommunicators = 65'536;

tl::unexpected<Error> Refuse(std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); }

/// Of an MoE model: that experts, their ranks and the capacity are whole numbers.
Status CheckExperts(const StepProgram& p) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (p.experts == 0) {
    const bool none = p.experts_per_token == 0 && p.expert_hidden == 0 && p.expert_ranks == 1 && p.expert_tensor == 1;
    return none ? Ok() : Status(Refuse("sizes of experts, expected none of a model without"));
  }
  constexpr int64_t kMostExperts = 65'536;
  for (const int64_t size : {p.experts, p.experts_per_token, p.expert_ranks, p.expert_tensor}) {
    if (size < 1 || size > kMostExperts)
      return Refuse(fmt::format("experts: a number of {}, expected 1 to {}", size, kMostExperts));
  }
  if (p.expert_hidden < 1 || p.expert_hidden > kMost) return Refuse(fmt::format("experts: a width of {}", p.expert_hidden));
  const int64_t tokens = p.micro_batch * p.sequence / p.context;
  const bool divides = tokens <= kMost && p.experts_per_token <= p.experts && p.experts % p.expert_ranks == 0 &&
                       tokens % p.tensor == 0 && tokens / p.tensor * p.experts_per_token % p.experts == 0;
  if (divides) return Ok();
  return Refuse(fmt::format("{} experts on {} ranks, {} to each of {} tokens: expected them to divide", p.experts, p.expert_ranks,
                            p.experts_per_token, tokens));
}

/// How replicas share the batch.
Status CheckShares(const StepProgram& p) {
  if (p.shares.empty()) {
    if (p.global_batch % p.replicas == 0 && p.global_batch / p.replicas % p.micro_batch == 0) return Ok();
    return Refuse(fmt::format("{} sequences on {} replicas in micro-batches of {}", p.global_batch, p.replicas, p.micro_batch));
  }
  if (static_cast<int64_t>(p.shares.size()) != p.replicas || p.replicas_differ)
    return Refuse(fmt::format("{} shares of the batch, expected one of each of {} equal replicas", p.shares.size(), p.replicas));
  int64_t left = p.global_batch;
  for (const int64_t share : p.shares) {
    if (share < 1 || share > left || share % p.micro_batch != 0)
      return Refuse(fmt::format("a share of {} of the last {} sequences in micro-batches of {}", share, left, p.micro_batch));
    left -= share;
  }
  return left == 0 ? Ok() : Status(Refuse(fmt::format("{} of {} sequences are no replica's", left, p.global_batch)));
}

/// That the tensor ranks stand in the grid, and everything that it cuts is cut in whole pieces.
Status CheckGrid(const StepProgram& p) {
  const RankGrid& g = p.grid;
  constexpr int64_t kMostSide = 64;
  if (g == RankGrid()) return Ok();
  if (g.side < 2 || g.side > kMostSide || g.depth < 1 || g.depth > kMostSide || (g.cube && g.depth != 1) || g.ranks() != p.tensor)
    return Refuse(fmt::format("a grid of side {} and depth {} of {} tensor ranks", g.side, g.depth, p.tensor));
  const bool cuts = p.micro_batch % g.batches() == 0 && p.hidden % g.side == 0 && p.heads % g.side == 0 &&
                    p.kv_heads % g.side == 0 && p.ffn_hidden % g.side == 0 && p.vocab % p.tensor == 0;
  if (cuts && p.context == 1 && p.experts == 0) return Ok();
  return Refuse(fmt::format("a grid of side {} cuts {} sequences, width {}, {} heads, inner width {}: expected whole pieces, one "
                            "context rank, no experts",
                            g.side, p.micro_batch, p.hidden, p.heads, p.ffn_hidden));
}

/// Of a 3D CNN: that its layers are executed, and cut in equal slabs.
Status CheckVolumes(const StepProgram& p) {
  if (!p.IsCnn()) return Ok();
  const auto none = {p.hidden, p.heads, p.kv_heads, p.head_dim, p.ffn_hidden, p.vocab, p.experts};
  const auto one = {p.sequence, p.context, p.stages, p.chunks, p.expert_tensor};
  const bool alone = std::ranges::all_of(none, [](int64_t size) { return size == 0; }) &&
                     std::ranges::all_of(one, [](int64_t size) { return size == 1; });
  if (!alone || p.layers != std::ssize(p.volumes) || p.grid.exists())
    return Refuse("a 3D CNN with sizes of a transformer, more than one stage, or another number of layers");
  if (const auto why = WhyNoVolumes(p.volumes)) return Refuse(*why);
  const auto why = WhyNoSlabs(p.volumes, p.tensor);
  return why ? Status(Refuse(*why)) : Ok();
}

Status CheckHeader(const StepProgram& p) {
  std::vector<int64_t> sizes = {p.layers, p.sequence, p.global_batch, p.micro_batch, p.replicas,
                                p.tensor, p.context,  p.stages,       p.chunks};
  if (!p.IsCnn()) sizes.insert(sizes.end(), {p.hidden, p.heads, p.kv_heads, p.head_dim, p.ffn_hidden, p.vocab});
  for (const int64_t size : sizes) {
    if (size < 1 || size > (int64_t{1} << 31)) return Refuse(fmt::format("a size of {}, expected 1 to 2^31", size));
  }
  WEFT_RETURN_IF_ERROR(CheckVolumes(p));
  if (p.sequence % p.context != 0 || (p.context > 1 && p.sequence % (2 * p.context) != 0)) {
    return Refuse(fmt::format("sequences of {} on {} context ranks, expected two equal pieces for each", p.sequence, p.context));
  }
  WEFT_RETURN_IF_ERROR(CheckShares(p));
  WEFT_RETURN_IF_ERROR(CheckExperts(p));
  WEFT_RETURN_IF_ERROR(CheckGrid(p));
  if (p.ranks.empty() || static_cast<int64_t>(p.ranks.size()) > StepProgram::kMostRanks) {
    return Refuse(fmt::format("{} ranks, expected 1 to {}", p.ranks.size(), StepProgram::kMostRanks));
  }
  if (p.communicators.size() > kMostCommunicators)
    return Refuse(fmt::format("{} communicators, expected at most {}", p.communicators.size(), kMostCommunicators));
  int64_t instructions = 0;
  for (const RankClass& c : p.classes) instructions += static_cast<int64_t>(c.instructions.size());
  if (instructions > StepProgram::kMostInstructions)
    return Refuse(fmt::format("{} instructions, expected at most {}", instructions, StepProgram::kMostInstructions));
  return Ok();
}

bool CanSum(const AlgorithmSpec& sums, int64_t ranks) {
  const int64_t parameter = sums.parameter;
  switch (sums.algorithm) {
    case Algorithm::kRing:
    case Algorithm::kTree:
      return parameter == 0;
    case Algorithm::kHierarchical:
      return parameter > 1 && parameter < ranks && ranks % parameter == 0;
    case Algorithm::kParameterServer:
      return parameter >= 1 && parameter <= ranks;
    default:
      return false;
  }
}

Status CheckRanks(const StepProgram& p) {
  const auto ranks = static_cast<int32_t>(p.ranks.size());
  for (int32_t r = 0; r < ranks; ++r) {
    const RankPlace& place = p.ranks[static_cast<size_t>(r)];
    const auto below = [](int32_t value, int64_t limit) { return value >= 0 && value < limit; };
    if (!below(place.rank_class, static_cast<int64_t>(p.classes.size())) || !below(place.stage, p.stages) ||
        !below(place.tensor, p.tensor) || !below(place.context, p.context) || !below(place.replica, p.replicas)) {
      return Refuse(fmt::format("rank {} stands outside the grid, or in class {} of {}", r, place.rank_class, p.classes.size()));
    }
  }
  std::map<int32_t, int64_t> micro_batches;  // by class
  for (const RankPlace& place : p.ranks) {
    const int64_t share = SequencesOf(p, place.replica).count / p.micro_batch;
    const int64_t of_class = micro_batches.try_emplace(place.rank_class, share).first->second;
    if (share == of_class) continue;
    return Refuse(fmt::format("class {}: ranks of {} and of {} micro-batches", place.rank_class, of_class, share));
  }
  for (size_t k = 0; k < p.communicators.size(); ++k) {
    const ProgramCommunicator& communicator = p.communicators[k];
    std::set<int32_t> seen;
    const size_t size = communicator.groups.empty() ? 0 : communicator.groups.front().size();
    if (size < 2) return Refuse(fmt::format("communicator {}: a group of {} ranks, expected 2 and more", k, size));
    if (!CanSum(communicator.sums, static_cast<int64_t>(size))) {
      return Refuse(
          fmt::format("communicator {}: sums by {} over {} ranks, expected ring, tree, hierarchical with a divisor, or ps with servers "
                      "among them",
                      k, ToString(communicator.sums), size));
    }
    for (const std::vector<int32_t>& group : communicator.groups) {
      if (group.size() != size) return Refuse(fmt::format("communicator {}: groups of different sizes", k));
      for (const int32_t rank : group) {
        if (rank < 0 || rank >= ranks || !seen.insert(rank).second)
          return Refuse(fmt::format("communicator {}: rank {} twice, or not of {}", k, rank, ranks));
      }
    }
  }
  return Ok();
}

/// What a class does over one communicator, in order: members of a group must do the same, and sends match receives.
using Talk = std::vector<std::tuple<StepAction, int64_t, bool, int32_t, int32_t, WireType>>;

Status CheckTalks(const StepProgram& p) {
  std::vector<std::map<int32_t, Talk>> talks(p.classes.size());
  for (size_t c = 0; c < p.classes.size(); ++c) {
    for (const Instruction& i : p.classes[c].instructions) {
      if (Communicates(i.action))
        talks[c][i.communicator].emplace_back(i.action, i.elements, i.of_shard, i.of_shard ? 0 : i.tag, i.every, i.wire);
    }
  }
  const auto class_of = [&](int32_t rank) { return p.ranks[static_cast<size_t>(rank)].rank_class; };
  for (size_t k = 0; k < p.communicators.size(); ++k) {
    const auto talk_of = [&](int32_t rank) -> const Talk& {
      return talks[static_cast<size_t>(class_of(rank))][static_cast<int32_t>(k)];
    };
    std::set<std::pair<int32_t, int32_t>> compared;  // classes
    for (const std::vector<int32_t>& group : p.communicators[k].groups) {
      for (size_t m = 1; m < group.size(); ++m) {
        if (!compared.insert({class_of(group.front()), class_of(group[m])}).second) continue;
        Talk first = talk_of(group.front());
        for (auto& [action, elements, of_shard, tag, every, wire] : first) {
          if (action == StepAction::kReceive)
            return Refuse(fmt::format("communicator {}: rank {} receives, expected it to send", k, group.front()));
          if (action == StepAction::kSend) action = StepAction::kReceive;
        }
        if (talk_of(group[m]) == first) continue;
        return Refuse(
            fmt::format("communicator {}: ranks {} and {} do not say the same in the same order", k, group.front(), group[m]));
      }
    }
  }
  for (size_t r = 0; r < p.ranks.size(); ++r) {
    for (const auto& [k, talk] : talks[static_cast<size_t>(p.ranks[r].rank_class)]) {
      if (!talk.empty() && PlaceIn(p.communicators[static_cast<size_t>(k)], static_cast<int32_t>(r)).group < 0) {
        return Refuse(fmt::format("rank {} uses communicator {}, of which it is no member", r, k));
      }
    }
  }
  return Ok();
}

}  // namespace

Status CheckProgram(const StepProgram& program) {
  WEFT_RETURN_IF_ERROR(CheckHeader(program));
  WEFT_RETURN_IF_ERROR(CheckRanks(program));
  for (size_t c = 0; c < program.classes.size(); ++c) WEFT_RETURN_IF_ERROR(CheckClass(program, c));
  return CheckTalks(program);
}

}  // namespace weft::planner::tasks
