// CheckProgram: what a program must keep to so that the interpreter may trust it. Lists come from files.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/tasks/step_program.h"
#include "planner/tasks/step_program_parts.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr size_t kMostCommunicators = 65'536;

tl::unexpected<Error> Refuse(std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); }

/// One class, instruction by instruction.
class ClassCheck {
 public:
  ClassCheck(const StepProgram& program, size_t index) : p_(program), c_(program.classes[index]), index_(index) {}

  Status Run() {
    WEFT_RETURN_IF_ERROR(CheckUnits());
    for (const ValueShape& v : c_.values) {
      if (v.rows < 1 || v.columns < 1 || v.rows > kMostElements / v.columns)
        return Refuse(fmt::format("class {}: a value of {} x {}", index_, v.rows, v.columns));
    }
    writer_.assign(c_.values.size(), -1);
    for (const ParameterBlock& b : c_.blocks) {
      if (!HasLayer(b.part, b.layer))
        return Refuse(fmt::format("class {}: a block of {} in layer {} of {}", index_, PartName(b.part), b.layer, p_.layers));
      if (!blocks_.insert({b.part, b.layer}).second)
        return Refuse(fmt::format("class {}: {} of layer {} twice", index_, PartName(b.part), b.layer));
    }
    const auto ends = std::count_if(c_.instructions.begin(), c_.instructions.end(),
                                    [](const Instruction& i) { return i.action == StepAction::kLossSum; });
    if (ends != 1) return Refuse(fmt::format("class {}: {} instructions sum the loss, expected one", index_, ends));
    for (at_ = 0; at_ < c_.instructions.size(); ++at_) WEFT_RETURN_IF_ERROR(CheckOne(c_.instructions[at_]));
    return Ok();
  }

 private:
  tl::unexpected<Error> Wrong(std::string_view what) const {
    return Refuse(fmt::format("class {}, instruction {} ({}): {}", index_, at_, ActionName(c_.instructions[at_].action), what));
  }

  /// Whether the layer is one that the part can be of.
  bool HasLayer(ModelPart part, int32_t layer) const { return OfLayer(part) ? layer >= 0 && layer < p_.layers : layer == -1; }
  bool IsCommunicator(int32_t index) const { return index >= 0 && static_cast<size_t>(index) < p_.communicators.size(); }
  int64_t GroupSize(int32_t communicator) const {
    return static_cast<int64_t>(p_.communicators[static_cast<size_t>(communicator)].groups.front().size());
  }

  Status CheckUnits() const {
    int64_t next = 0;
    for (const ParameterUnit& u : c_.units) {
      if (u.first_block != next || u.blocks < 1 || u.blocks > static_cast<int64_t>(c_.blocks.size()) - next) {
        return Refuse(fmt::format("class {}: units do not cover its {} blocks one after another", index_, c_.blocks.size()));
      }
      int64_t elements = 0;
      for (int32_t b = u.first_block; b < u.first_block + u.blocks; ++b) {
        const int64_t of_block = c_.blocks[static_cast<size_t>(b)].elements;
        if (of_block < 1 || of_block > kMostElements - elements)
          return Refuse(fmt::format("class {}: block {} has {} elements", index_, b, of_block));
        elements += of_block;
      }
      if (elements != u.elements)
        return Refuse(fmt::format("class {}: a unit has {} elements, expected its blocks' {}", index_, u.elements, elements));
      const bool sharded = u.parameters_sharded || u.gradients_sharded || u.optimizer_sharded;
      if (sharded != (u.shard >= 0) || (sharded && (!IsCommunicator(u.shard) || !u.optimizer_sharded))) {
        return Refuse(fmt::format("class {}: a unit is sharded over communicator {}, expected one, and a sharded optimizer", index_,
                                  u.shard));
      }
      for (const int32_t d : u.duplicates) {
        if (!IsCommunicator(d)) return Refuse(fmt::format("class {}: a unit has duplicates over communicator {}", index_, d));
      }
      next += u.blocks;
    }
    if (next != static_cast<int64_t>(c_.blocks.size()))
      return Refuse(fmt::format("class {}: units do not cover its blocks", index_));
    return Ok();
  }

  Status CheckOne(const Instruction& i) {
    const std::optional<Arity> arity = ArityOf(i);
    if (!arity) return Wrong(fmt::format("{} has no such computation", PartName(i.part)));
    if (i.inputs.size() != arity->inputs || i.outputs.size() != arity->outputs) {
      return Wrong(fmt::format("reads {} values and writes {}, expected {} and {}", i.inputs.size(), i.outputs.size(),
                               arity->inputs, arity->outputs));
    }
    if (i.unit < -1 || i.unit >= static_cast<int64_t>(c_.units.size())) return Wrong(fmt::format("unit {}", i.unit));
    const bool of_unit = i.action == StepAction::kUpdate || i.action == StepAction::kRelease;
    if (of_unit && i.unit < 0) return Wrong("no unit, expected one");
    for (const int32_t v : i.inputs) {
      if (v < 0 || static_cast<size_t>(v) >= writer_.size() || writer_[static_cast<size_t>(v)] < 0)
        return Wrong(fmt::format("reads value {}, which nothing wrote before", v));
    }
    for (const int32_t need : i.needs) {
      if (need < 0 || static_cast<size_t>(need) >= at_ || !Communicates(c_.instructions[static_cast<size_t>(need)].action)) {
        return Wrong(fmt::format("needs instruction {}, expected an earlier communication", need));
      }
    }
    if (OfPart(i.action)) WEFT_RETURN_IF_ERROR(CheckPart(i));
    if (Communicates(i.action)) WEFT_RETURN_IF_ERROR(CheckCommunication(i));
    for (const int32_t v : i.outputs) {
      if (v < 0 || static_cast<size_t>(v) >= writer_.size() || writer_[static_cast<size_t>(v)] >= 0)
        return Wrong(fmt::format("writes value {}, expected one that was not written", v));
      writer_[static_cast<size_t>(v)] = static_cast<int64_t>(at_);
    }
    return OfPart(i.action) ? CheckShapes(i) : Ok();
  }

  /// Requires: as many values as the computation has, all in range.
  Status CheckShapes(const Instruction& i) {
    const auto shape_of = [&](int32_t value) { return c_.values[static_cast<size_t>(value)]; };
    if (OfStream(i.part) && rows_ == 0) {
      const int64_t tokens = TokensOf(p_), rows = shape_of(i.inputs.front()).rows;
      const bool split = tokens % p_.tensor == 0 && rows == tokens / p_.tensor;
      if (rows != tokens && !split)
        return Wrong(fmt::format("{} rows, expected {} tokens, or a tensor rank's share of them", rows, tokens));
      rows_ = rows;
    }
    const PartShapes expected = ShapesOf(p_, i, rows_, i.inputs.empty() ? ValueShape{} : shape_of(i.inputs.front()));
    const auto check = [&](const std::vector<int32_t>& values, const std::vector<ValueShape>& shapes) -> Status {
      for (size_t k = 0; k < values.size(); ++k) {
        const ValueShape have = shape_of(values[k]);
        if (have == shapes[k]) continue;
        return Wrong(fmt::format("value {} of {} is {} x {}, expected {} x {}", values[k], PartName(i.part), have.rows,
                                 have.columns, shapes[k].rows, shapes[k].columns));
      }
      return Ok();
    };
    WEFT_RETURN_IF_ERROR(check(i.inputs, expected.inputs));
    return check(i.outputs, expected.outputs);
  }

  Status CheckPart(const Instruction& i) {
    const int64_t micro_batches = p_.global_batch / (p_.replicas * p_.micro_batch);
    if (i.micro_batch < 0 || i.micro_batch >= micro_batches)
      return Wrong(fmt::format("micro-batch {} of {}", i.micro_batch, micro_batches));
    const bool routes = i.part >= ModelPart::kRouter && i.part <= ModelPart::kCombine;
    if (routes && p_.experts == 0) return Wrong(fmt::format("{} of a model without experts", PartName(i.part)));
    if (!HasLayer(i.part, i.layer)) return Wrong(fmt::format("{} of layer {} of {}", PartName(i.part), i.layer, p_.layers));
    const bool tied = i.part == ModelPart::kHead && blocks_.contains({ModelPart::kEmbedding, -1});
    if (HasParameters(i.part) && !tied && !blocks_.contains({i.part, i.layer})) {
      return Wrong(fmt::format("{} of layer {}: no block has its parameters", PartName(i.part), i.layer));
    }
    // A data gradient needs what its forward pass kept, a weight gradient its data gradient, each once.
    const auto key = std::tuple(i.part, i.layer, i.micro_batch);
    int& state = states_[key];
    if (i.action == StepAction::kForward && i.keeps) {
      if (state != 0) return Wrong(fmt::format("{} of layer {} is kept twice", PartName(i.part), i.layer));
      state = 1;
    }
    const bool without_state = ReadsAgain(i.part);
    if (without_state && i.keeps) return Wrong(fmt::format("{} keeps nothing", PartName(i.part)));
    const bool contexts = i.part >= ModelPart::kAttentionBlock && i.part <= ModelPart::kAttentionHeads;
    if (contexts && p_.context == 1) return Wrong(fmt::format("{} of one context rank", PartName(i.part)));
    if (i.part == ModelPart::kAttentionBlock && i.tag >= p_.context)
      return Wrong(fmt::format("keys from {} places away, of {} context ranks", i.tag, p_.context));
    if (i.action == StepAction::kData && !without_state) {
      if (state != 1) return Wrong(fmt::format("{} of layer {} was not kept", PartName(i.part), i.layer));
      state = 2;
    }
    if (i.action == StepAction::kWeight) {
      if (state != 2) return Wrong(fmt::format("{} of layer {} has no data gradient", PartName(i.part), i.layer));
      state = 3;
    }
    return Ok();
  }

  Status CheckCommunication(const Instruction& i) const {
    if (!IsCommunicator(i.communicator)) return Wrong(fmt::format("communicator {}", i.communicator));
    const int64_t n = GroupSize(i.communicator);
    if (i.unit >= 0) {
      const ParameterUnit& unit = c_.units[static_cast<size_t>(i.unit)];
      const bool known =
          i.action == StepAction::kAllReduce || i.action == StepAction::kAllGather || i.action == StepAction::kReduceScatter;
      if (!known) return Wrong("of a unit, expected a sum, gather or scatter");
      if (i.action != StepAction::kAllReduce && i.communicator != unit.shard)
        return Wrong(fmt::format("over communicator {}, expected the unit's {}", i.communicator, unit.shard));
      // A sum after a scatter is of the shard: its elements differ between ranks, and the list says the unit's.
      if (i.elements != unit.elements) return Wrong(fmt::format("{} elements, expected the unit's {}", i.elements, unit.elements));
      return Ok();
    }
    const auto shape = [&](const std::vector<int32_t>& values) {
      const bool known = !values.empty() && values[0] >= 0 && static_cast<size_t>(values[0]) < c_.values.size();
      return known ? c_.values[static_cast<size_t>(values[0])] : ValueShape{0, 0};
    };
    const ValueShape in = shape(i.inputs), out = shape(i.outputs);
    switch (i.action) {
      case StepAction::kAllGather:
        if (out != ValueShape{n * in.rows, in.columns} || i.elements != out.elements()) return Wrong("shapes do not fit a gather");
        break;
      case StepAction::kReduceScatter:
        if (in != ValueShape{n * out.rows, out.columns} || i.elements != in.elements()) return Wrong("shapes do not fit a scatter");
        break;
      case StepAction::kSend:
      case StepAction::kReceive:
        if (n != 2 || i.elements != (i.action == StepAction::kSend ? in : out).elements())
          return Wrong("a message of another size, or not between two ranks");
        break;
      case StepAction::kAllToAll:
        if (in != out || i.elements != in.elements() || in.rows % n != 0) return Wrong("shapes do not fit an all-to-all");
        break;
      default:
        if (in != out || i.elements != in.elements()) return Wrong("shapes differ");
    }
    return Ok();
  }

  const StepProgram& p_;
  const RankClass& c_;
  size_t index_, at_ = 0;
  int64_t rows_ = 0;  // of the residual stream, as its first computation has them
  std::vector<int64_t> writer_;
  std::set<std::pair<ModelPart, int32_t>> blocks_;
  std::map<std::tuple<ModelPart, int32_t, int32_t>, int> states_;  // 1 kept, 2 with data gradient, 3 with weight gradient
};

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

Status CheckHeader(const StepProgram& p) {
  const std::array sizes = {p.layers,       p.hidden,      p.heads,    p.kv_heads, p.head_dim, p.ffn_hidden, p.vocab, p.sequence,
                            p.global_batch, p.micro_batch, p.replicas, p.tensor,   p.context,  p.stages,     p.chunks};
  for (const int64_t size : sizes) {
    if (size < 1 || size > (int64_t{1} << 31)) return Refuse(fmt::format("a size of {}, expected 1 to 2^31", size));
  }
  if (p.sequence % p.context != 0 || (p.context > 1 && p.sequence % (2 * p.context) != 0)) {
    return Refuse(fmt::format("sequences of {} on {} context ranks, expected two equal pieces for each", p.sequence, p.context));
  }
  if (p.global_batch % p.replicas != 0 || p.global_batch / p.replicas % p.micro_batch != 0) {
    return Refuse(fmt::format("{} sequences on {} replicas in micro-batches of {}", p.global_batch, p.replicas, p.micro_batch));
  }
  WEFT_RETURN_IF_ERROR(CheckExperts(p));
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
  for (size_t k = 0; k < p.communicators.size(); ++k) {
    const ProgramCommunicator& communicator = p.communicators[k];
    std::set<int32_t> seen;
    const size_t size = communicator.groups.empty() ? 0 : communicator.groups.front().size();
    if (size < 2) return Refuse(fmt::format("communicator {}: a group of {} ranks, expected 2 and more", k, size));
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
using Talk = std::vector<std::tuple<StepAction, int64_t, int32_t>>;

Status CheckTalks(const StepProgram& p) {
  std::vector<std::map<int32_t, Talk>> talks(p.classes.size());
  for (size_t c = 0; c < p.classes.size(); ++c) {
    for (const Instruction& i : p.classes[c].instructions) {
      if (Communicates(i.action)) talks[c][i.communicator].emplace_back(i.action, i.elements, i.tag);
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
        for (auto& [action, elements, tag] : first) {
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
  for (size_t c = 0; c < program.classes.size(); ++c) WEFT_RETURN_IF_ERROR(ClassCheck(program, c).Run());
  return CheckTalks(program);
}

}  // namespace weft::planner::tasks
