#include "planner/tasks/step_program_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/tasks/step_program_parts.h"
#include "planner/tasks/step_program_volumes.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

tl::unexpected<Error> Refuse(std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); }

/// One class, instruction by instruction.
class ClassCheck {
 public:
  ClassCheck(const StepProgram& program, size_t index)
      : p_(program), c_(program.classes[index]), index_(index), micro_batches_(MicroBatchesOf(program, index)) {}

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
      if (!HasSlice(b.part, b.slice, b.slices))
        return Refuse(fmt::format("class {}: slice {} of {} of {}", index_, b.slice, b.slices, PartName(b.part)));
      if (!blocks_.insert({{b.part, b.layer, b.slice, b.slices}, b.elements}).second)
        return Refuse(fmt::format("class {}: {} of layer {} twice", index_, PartName(b.part), b.layer));
    }
    const auto ends = std::count_if(c_.instructions.begin(), c_.instructions.end(),
                                    [](const Instruction& i) { return i.action == StepAction::kLossSum; });
    if (ends != 1) return Refuse(fmt::format("class {}: {} instructions sum the loss, expected one", index_, ends));
    for (at_ = 0; at_ < c_.instructions.size(); ++at_) WEFT_RETURN_IF_ERROR(CheckOne(c_.instructions[at_]));
    if (arriving_ >= 0) return Refuse(fmt::format("class {}: the shards of a scatter are never summed", index_));
    return Ok();
  }

 private:
  tl::unexpected<Error> Wrong(std::string_view what) const {
    return Refuse(fmt::format("class {}, instruction {} ({}): {}", index_, at_, ActionName(c_.instructions[at_].action), what));
  }

  /// Whether the layer is one that the part can be of.
  bool HasLayer(ModelPart part, int32_t layer) const {
    if (OfVolumes(part) || p_.IsCnn()) return IsOfItsVolumes(p_, {.part = part, .layer = layer});
    return OfLayer(part) ? layer >= 0 && layer < p_.layers : layer == -1;
  }
  /// Whether the part can be cut so.
  bool HasSlice(ModelPart part, int32_t slice, int32_t slices) const {
    if (slices == 1) return slice == 0;
    if (slices < 1 || slice < 0 || slice >= slices) return false;
    const int64_t pieces = p_.tensor * slices;
    switch (part) {
      case ModelPart::kProduct:
        return !p_.grid.cube && slices == p_.grid.side;
      case ModelPart::kQkv:
      case ModelPart::kAttentionCore:
      case ModelPart::kAttentionOut:
        return p_.kv_heads % pieces == 0 && p_.heads % pieces == 0 && p_.hidden % pieces == 0;
      case ModelPart::kMlp:
        return p_.ffn_hidden % pieces == 0 && p_.hidden % pieces == 0;
      case ModelPart::kHead:
        return p_.vocab % pieces == 0;
      default:
        return false;
    }
  }
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
      if (u.across < -1 || (u.across >= 0 && (!IsCommunicator(u.across) || !u.gradients_sharded)))
        return Refuse(fmt::format("class {}: a unit is summed across communicator {}, expected one, and sharded gradients", index_,
                                  u.across));
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
    if (OfPart(i.action) && !HasLayer(i.part, i.layer))
      return Wrong(fmt::format("{} of layer {} of {}", PartName(i.part), i.layer, p_.layers));
    const std::optional<Arity> arity = ArityOfOne(i);
    if (!arity) return Wrong(fmt::format("{} has no such computation", PartName(i.part)));
    if (i.inputs.size() != arity->inputs || i.outputs.size() != arity->outputs) {
      return Wrong(fmt::format("reads {} values and writes {}, expected {} and {}", i.inputs.size(), i.outputs.size(),
                               arity->inputs, arity->outputs));
    }
    if (i.every < 1 || (i.every > 1 && i.action != StepAction::kAverage)) return Wrong(fmt::format("every {} steps", i.every));
    if (i.unit < 0 && (i.wire != WireType::kWhole || i.action == StepAction::kAverage || i.action == StepAction::kMix))
      return Wrong("of no unit, expected one");
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

  std::optional<Arity> ArityOfOne(const Instruction& i) const {
    if (!OfPart(i.action) || !OfVolumes(i.part)) return ArityOf(i);
    const std::optional<PartShapes> shapes = VolumeShapes(p_, i);
    return shapes ? std::optional(Arity{shapes->inputs.size(), shapes->outputs.size()}) : std::nullopt;
  }

  /// Requires: as many values as the computation has, all in range.
  Status CheckShapes(const Instruction& i) {
    const auto shape_of = [&](int32_t value) { return c_.values[static_cast<size_t>(value)]; };
    if (p_.grid.exists()) rows_ = GridRows(p_);
    if (OfStream(i.part) && rows_ == 0) {
      const int64_t tokens = TokensOf(p_), rows = shape_of(i.inputs.front()).rows;
      const bool split = tokens % p_.tensor == 0 && rows == tokens / p_.tensor;
      if (rows != tokens && !split)
        return Wrong(fmt::format("{} rows, expected {} tokens, or a tensor rank's share of them", rows, tokens));
      rows_ = rows;
    }
    std::vector<ValueShape> given;
    for (const int32_t v : i.inputs) given.push_back(shape_of(v));
    if (i.part == ModelPart::kProduct) {
      const bool fits = FitsProduct(p_, i, given, shape_of(i.outputs.front()));
      return fits ? Ok() : Status(Wrong("shapes do not fit a product and its panels"));
    }
    const PartShapes expected = ExpectedShapes(i, given, i.outputs.empty() ? ValueShape{} : shape_of(i.outputs.front()));
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

  PartShapes ExpectedShapes(const Instruction& i, const std::vector<ValueShape>& given, const ValueShape& out) const {
    if (OfVolumes(i.part)) return *VolumeShapes(p_, i);
    if (i.action == StepAction::kParameters || i.action == StepAction::kGradient) {
      const ValueShape panel{1, blocks_.at({i.part, i.layer, i.slice, i.slices})};
      return i.action == StepAction::kParameters ? PartShapes{{}, {panel}} : PartShapes{{panel}, {}};
    }
    const bool norms = i.part == ModelPart::kNormSums || i.part == ModelPart::kGridNorm || i.part == ModelPart::kActivation;
    return norms ? NormShapes(p_, i, given, out) : ShapesOf(p_, i, rows_, given.empty() ? ValueShape{} : given.front());
  }

  Status CheckPart(const Instruction& i) {
    if (i.micro_batch < 0 || i.micro_batch >= micro_batches_)
      return Wrong(fmt::format("micro-batch {} of {}", i.micro_batch, micro_batches_));
    const bool routes = i.part >= ModelPart::kRouter && i.part <= ModelPart::kCombine;
    if (routes && p_.experts == 0) return Wrong(fmt::format("{} of a model without experts", PartName(i.part)));
    if (!HasSlice(i.part, i.slice, i.slices))
      return Wrong(fmt::format("slice {} of {} of {}", i.slice, i.slices, PartName(i.part)));
    const bool whole = OfPart(i.action) && i.action <= StepAction::kWeight;
    if (p_.grid.exists() ? whole && (InPanels(i.part) || i.part == ModelPart::kMlp) : OfGrid(i.part) || !whole)
      return Wrong(fmt::format("{} {} a grid of tensor ranks", PartName(i.part), p_.grid.exists() ? "on" : "without"));
    const bool tied = i.part == ModelPart::kHead && i.slices == 1 && blocks_.contains({ModelPart::kEmbedding, -1, 0, 1});
    if (HasParameters(i.part) && !tied && !blocks_.contains({i.part, i.layer, i.slice, i.slices})) {
      return Wrong(fmt::format("{} of layer {}: no block has its parameters", PartName(i.part), i.layer));
    }
    // A data gradient needs what its forward pass kept, a weight gradient its data gradient, each once.
    const auto key = std::tuple(i.part, i.layer, i.micro_batch, i.slice);
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
    if (i.action == StepAction::kWeight && !without_state) {
      if (state != 2) return Wrong(fmt::format("{} of layer {} has no data gradient", PartName(i.part), i.layer));
      state = 3;
    }
    return Ok();
  }

  /// Of a unit. What a scatter brings to a shard that other groups have too is summed with theirs before anything else.
  Status CheckExchange(const Instruction& i) {
    const ParameterUnit& unit = c_.units[static_cast<size_t>(i.unit)];
    const bool alone = i.action == StepAction::kAverage || i.action == StepAction::kMix;
    const bool shared = i.action == StepAction::kAllGather || i.action == StepAction::kReduceScatter;
    if (i.action != StepAction::kAllReduce && !shared && !alone)
      return Wrong("of a unit, expected a sum, gather, scatter or mean");
    if (alone && (unit.shard >= 0 || !p_.replicas_differ)) return Wrong("of a sharded unit, or of replicas that are equal");
    if (i.wire != WireType::kWhole && (i.action == StepAction::kAllGather || alone || i.of_shard))
      return Wrong("narrow, expected a sum or scatter");
    if (shared && i.communicator != unit.shard)
      return Wrong(fmt::format("over communicator {}, expected the unit's {}", i.communicator, unit.shard));
    if (i.of_shard && (i.action != StepAction::kAllReduce || i.communicator != unit.across || unit.across < 0))
      return Wrong(
          fmt::format("of a shard over communicator {}, expected a sum over the unit's {}", i.communicator, unit.across));
    // Ranks' shards have different elements, and the list says the unit's.
    if (i.elements != unit.elements) return Wrong(fmt::format("{} elements, expected the unit's {}", i.elements, unit.elements));
    if (i.of_shard != (arriving_ >= 0) || (i.of_shard && arriving_ != i.unit))
      return Wrong("a scatter and the sum of its shards do not follow each other");
    arriving_ = i.action == StepAction::kReduceScatter && unit.across >= 0 ? i.unit : -1;
    return Ok();
  }

  Status CheckCommunication(const Instruction& i) {
    if (!IsCommunicator(i.communicator)) return Wrong(fmt::format("communicator {}", i.communicator));
    const int64_t n = GroupSize(i.communicator);
    if (i.unit >= 0) return CheckExchange(i);
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
      case StepAction::kBroadcast:
      case StepAction::kReduce:
        if (i.tag < 0 || i.tag >= n) return Wrong(fmt::format("tag {}, expected a place among {} ranks", i.tag, n));
        if (in != out || i.elements != in.elements()) return Wrong("shapes differ");
        if (i.inputs.size() > 1 && shape({i.inputs[1]}) != out) return Wrong("shapes differ");
        break;
      case StepAction::kHalo:
        if (in != out || i.elements != in.elements() || in.rows % 2 != 0) return Wrong("shapes do not fit planes at two ends");
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
  int64_t micro_batches_;
  int32_t arriving_ = -1;  // unit whose shard is to be summed next
  int64_t rows_ = 0;  // of the residual stream, as its first computation has them
  std::vector<int64_t> writer_;
  std::map<std::tuple<ModelPart, int32_t, int32_t, int32_t>, int64_t> blocks_;  // their elements
  std::map<std::tuple<ModelPart, int32_t, int32_t, int32_t>, int> states_;  // 1 kept, 2 with data gradient, 3 with weight gradient
};

}  // namespace

Status CheckClass(const StepProgram& program, size_t index) { return ClassCheck(program, index).Run(); }

}  // namespace weft::planner::tasks
