#include "planner/tasks/program_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "planner/tasks/list_waits.h"
#include "planner/tasks/part_memory.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int32_t kNone = -1;

/// Pieces of memory, each until the last that holds it lets go.
class Pieces {
 public:
  int32_t Make(int64_t bytes) {
    pieces_.push_back({bytes, 1});
    now_ += bytes;
    peak_ = std::max(peak_, now_);
    return static_cast<int32_t>(pieces_.size() - 1);
  }
  int32_t Hold(int32_t piece) {
    if (piece != kNone) ++pieces_[static_cast<size_t>(piece)].holders;
    return piece;
  }
  void Drop(int32_t piece) {
    if (piece != kNone && --pieces_[static_cast<size_t>(piece)].holders == 0) now_ -= pieces_[static_cast<size_t>(piece)].bytes;
  }
  void Besides(int64_t bytes) { peak_ = std::max(peak_, now_ + bytes); }
  int64_t peak() const { return peak_; }

 private:
  struct Piece {
    int64_t bytes;
    int holders;
  };
  std::vector<Piece> pieces_;
  int64_t now_ = 0, peak_ = 0;
};

class Walk {
 public:
  Walk(const StepProgram& program, const ModelSpec& model, int64_t rank, const RankTimeline* timeline)
      : program_(program), model_(model), rank_(program.ranks[static_cast<size_t>(rank)]),
        list_(program.classes[static_cast<size_t>(rank_.rank_class)]), timeline_(timeline), part_units_(list_), waits_(list_),
        b_(BytesOf(program.type)) {
    for (const ParameterUnit& plan : list_.units) {
      Unit unit{.plan = &plan};
      unit.own = plan.elements;
      if (plan.shard >= 0) {
        const GroupPlace place = PlaceIn(program.communicators[static_cast<size_t>(plan.shard)], static_cast<int32_t>(rank));
        const int64_t n = std::ssize(program.communicators[static_cast<size_t>(plan.shard)].groups.front());
        unit.begin = place.index * plan.elements / n;
        unit.own = (place.index + 1) * plan.elements / n - unit.begin;
      }
      for (const int32_t c : plan.duplicates) {
        unit.counts &= PlaceIn(program.communicators[static_cast<size_t>(c)], static_cast<int32_t>(rank)).index <= 0;
      }
      pieces_.Make(2 * unit.own * b_);  // moments
      if (plan.parameters_sharded) pieces_.Make(unit.own * b_);
      else unit.parameters = pieces_.Make(plan.elements * b_);
      if (plan.gradients_sharded) pieces_.Make(unit.own * b_);
      else unit.gradients = pieces_.Make(plan.elements * b_);
      units_.push_back(unit);
    }
    for (const int32_t unit : UnitsWithRemainders()) pieces_.Make(list_.units[static_cast<size_t>(unit)].elements * b_);
    values_.assign(list_.values.size(), kNone);
    last_reader_.assign(list_.values.size(), kNone);
    for (size_t k = 0; k < list_.instructions.size(); ++k) {
      for (const int32_t v : list_.instructions[k].outputs) last_reader_[static_cast<size_t>(v)] = static_cast<int32_t>(k);
      for (const int32_t v : list_.instructions[k].inputs) last_reader_[static_cast<size_t>(v)] = static_cast<int32_t>(k);
    }
  }

  Bytes Peak() {
    for (at_ = 0; at_ < list_.instructions.size(); ++at_) {
      const Instruction& i = list_.instructions[at_];
      if (i.every != 1) continue;
      EndExchanges();
      if (Communicates(i.action)) {
        i.unit >= 0 ? ExchangeUnit(i) : Exchange(i);
      } else {
        Compute(i);
      }
      waits_.Pass(static_cast<int32_t>(at_));
      for (const auto* list : {&i.inputs, &i.outputs}) {
        for (const int32_t v : *list) DropAfterLast(v);
      }
    }
    return Bytes(pieces_.peak());
  }

 private:
  struct Unit {
    const ParameterUnit* plan;
    int64_t begin = 0, own = 0;
    bool counts = true;  // of gradients that other ranks have as well
    int32_t parameters = kNone, gradients = kNone, arriving = kNone;
  };
  struct State {
    std::vector<int32_t> kept, gradients;
  };
  /// What is given back when a communication is over.
  struct Pending {
    int32_t instruction = kNone;
    std::vector<int32_t> pieces;
    int32_t unit = kNone;     // of a scatter: what arrived is added
    bool whole = false;       // and the whole gradients go
    bool arrived = false;
  };
  using Key = std::tuple<ModelPart, int32_t, int32_t, int32_t>;

  /// What rounding took of their gradients stays from step to step.
  std::set<int32_t> UnitsWithRemainders() const {
    std::set<int32_t> units;
    for (const Instruction& i : list_.instructions) {
      if (i.wire == WireType::kFloat8 && i.unit >= 0) units.insert(i.unit);
    }
    return units;
  }

  ValueShape ShapeOf(int32_t value) const { return list_.values[static_cast<size_t>(value)]; }
  int64_t BytesOfValue(int32_t value) const { return ShapeOf(value).elements() * (ShapeOf(value).elements() == 1 ? 8 : b_); }

  void DropAfterLast(int32_t value) {
    if (last_reader_[static_cast<size_t>(value)] != static_cast<int32_t>(at_)) return;
    pieces_.Drop(values_[static_cast<size_t>(value)]);
    values_[static_cast<size_t>(value)] = kNone;
  }

  /// Whether it is over before the instruction under way, which waits for `waits`. Without a timeline those of values are at once, and
  /// those of units once somebody waits for them, or for a later one of their stream.
  bool IsOver(const Pending& p, const std::vector<int32_t>& waits) const {
    if (timeline_ != nullptr) {
      return !Communicates(list_.instructions[at_].action) &&
             timeline_->instructions[static_cast<size_t>(p.instruction)].end <= timeline_->instructions[at_].begin;
    }
    if (p.unit == kNone) return true;
    const int32_t stream = list_.instructions[static_cast<size_t>(p.instruction)].communicator;
    return std::ranges::any_of(waits, [&](int32_t k) {
      return k >= p.instruction && list_.instructions[static_cast<size_t>(k)].communicator == stream;
    });
  }

  void EndExchanges() {
    const std::vector<int32_t> waits = waits_.Own(static_cast<int32_t>(at_));
    std::erase_if(pending_, [&](const Pending& p) {
      if (!IsOver(p, waits)) return false;
      for (const int32_t piece : p.pieces) pieces_.Drop(piece);
      if (p.unit == kNone) return true;
      Unit& u = units_[static_cast<size_t>(p.unit)];
      if (p.whole) pieces_.Drop(std::exchange(u.gradients, kNone));
      if (p.arrived) pieces_.Drop(std::exchange(u.arriving, kNone));
      return true;
    });
  }

  void Exchange(const Instruction& i) {
    Pending pending{.instruction = static_cast<int32_t>(at_), .pieces = {}};
    for (const int32_t v : i.outputs) {
      // Sums go one after the other to the ranks that they are for, into the same memory.
      values_[static_cast<size_t>(v)] = i.action == StepAction::kReduce && i.inputs.size() > 1
                                            ? pieces_.Hold(values_[static_cast<size_t>(i.inputs[1])])
                                            : pieces_.Make(BytesOfValue(v));
      pending.pieces.push_back(pieces_.Hold(values_[static_cast<size_t>(v)]));
    }
    for (const int32_t v : i.inputs) pending.pieces.push_back(pieces_.Hold(values_[static_cast<size_t>(v)]));
    pending_.push_back(std::move(pending));
  }

  void ExchangeUnit(const Instruction& i) {
    Unit& u = units_[static_cast<size_t>(i.unit)];
    const int64_t whole = u.plan->elements * b_;
    const auto need = [&](int32_t* piece, int64_t bytes) {
      if (*piece == kNone) *piece = pieces_.Make(bytes);
    };
    if (i.action == StepAction::kAllGather) return need(&u.parameters, whole);
    if (i.action == StepAction::kMix) return need(&u.arriving, whole);
    if (i.action == StepAction::kAverage) return;
    if (i.of_shard) {
      pending_.push_back({.instruction = static_cast<int32_t>(at_), .pieces = {}, .unit = i.unit, .arrived = true});
      return;
    }
    need(&u.gradients, whole);
    if (i.action != StepAction::kReduceScatter) return;
    need(&u.arriving, u.own * b_);
    pending_.push_back(
        {.instruction = static_cast<int32_t>(at_), .pieces = {}, .unit = i.unit, .whole = u.plan->gradients_sharded,
         .arrived = u.plan->across < 0});
  }

  void Compute(const Instruction& i) {
    switch (i.action) {
      case StepAction::kRelease: {
        Unit& u = units_[static_cast<size_t>(i.unit)];
        if (u.plan->parameters_sharded) pieces_.Drop(std::exchange(u.parameters, kNone));
        return;
      }
      case StepAction::kUpdate: {
        Unit& u = units_[static_cast<size_t>(i.unit)];
        pieces_.Besides(2 * u.own * b_);
        return pieces_.Drop(std::exchange(u.arriving, kNone));
      }
      case StepAction::kSquares: return pieces_.Besides(MostSquared());
      case StepAction::kLossSum: break;
      default: return ComputePart(i);
    }
    for (const int32_t v : i.outputs) values_[static_cast<size_t>(v)] = pieces_.Make(BytesOfValue(v));
  }

  /// Of the blocks that this rank counts.
  int64_t MostSquared() const {
    int64_t most = 0;
    for (const Unit& u : units_) {
      int64_t offset = 0;
      for (int32_t k = 0; k < u.plan->blocks; ++k) {
        const ParameterBlock& block = list_.blocks[static_cast<size_t>(u.plan->first_block + k)];
        const int64_t end = offset + block.elements;
        if (u.counts && !block.copy && (!block.whole || rank_.tensor == 0)) {
          most = std::max(most, std::min(end, u.begin + u.own) - std::max(offset, u.begin));
        }
        offset = end;
      }
    }
    return program_.type == ElementType::kFloat32 ? std::min(most, kSquaredAtOnce) * 8 : 0;
  }

  void ComputePart(const Instruction& i) {
    const bool forward = i.action == StepAction::kForward;
    if (ReadsText(i.part) && !tokens_[i.micro_batch]) {
      tokens_[i.micro_batch] = true;  // positions, and two numbers for each
      const int64_t sequence = program_.sequence / program_.context;
      pieces_.Make(program_.IsCnn() ? MemoryOfSamples(program_) : 8 * sequence * (2 * program_.micro_batch + 1));
    }
    if (i.action == StepAction::kParameters) {  // the unit's own memory
      const Unit& u = units_[static_cast<size_t>(part_units_.Of(i.part, i.layer, i.slice).front())];
      values_[static_cast<size_t>(i.outputs[0])] = pieces_.Hold(u.parameters);
      return;
    }
    if (AddsToGradients(i)) {
      for (const int32_t unit : part_units_.Of(i.part, i.layer, i.slice)) {
        Unit& u = units_[static_cast<size_t>(unit)];
        if (u.gradients == kNone) u.gradients = pieces_.Make(u.plan->elements * b_);
      }
    }
    PartShape shape{.program = program_, .model = model_, .rank = rank_, .instruction = i, .inputs = {}, .outputs = {}};
    for (const int32_t v : i.inputs) shape.inputs.push_back(ShapeOf(v));
    for (const int32_t v : i.outputs) shape.outputs.push_back(ShapeOf(v));
    const PartMemory memory = MemoryOfPart(shape);
    pieces_.Besides(memory.first);
    State& state = states_[Key(i.part, i.layer, i.micro_batch, i.slice)];
    std::vector<int32_t> dropped;
    if (!forward) {
      dropped = std::move(state.kept);
      state.kept.clear();
      if (i.action == StepAction::kWeight) {
        dropped.insert(dropped.end(), state.gradients.begin(), state.gradients.end());
        state.gradients.clear();
      }
      if (memory.still_kept >= 0 && memory.still_kept < std::ssize(dropped)) {
        state.kept = {pieces_.Hold(dropped[static_cast<size_t>(memory.still_kept)])};
      }
      for (const int32_t piece : dropped) pieces_.Drop(piece);
      pieces_.Besides(memory.second);
    }
    for (const int32_t v : i.outputs) {
      values_[static_cast<size_t>(v)] =
          memory.output_is_input ? pieces_.Hold(values_[static_cast<size_t>(i.inputs[0])]) : pieces_.Make(BytesOfValue(v));
    }
    if (forward && i.keeps) Keep(i, memory.kept, &state.kept);
    if (i.action == StepAction::kData) Keep(i, memory.gradients, &state.gradients);
  }

  void Keep(const Instruction& i, const std::vector<KeptTensor>& tensors, std::vector<int32_t>* into) {
    for (const KeptTensor& t : tensors) {
      const auto at = static_cast<size_t>(t.index);
      into->push_back(t.of == KeptTensor::Of::kOwn     ? pieces_.Make(t.bytes)
                      : t.of == KeptTensor::Of::kInput ? pieces_.Hold(values_[static_cast<size_t>(i.inputs[at])])
                                                       : pieces_.Hold(values_[static_cast<size_t>(i.outputs[at])]));
    }
  }

  const StepProgram& program_;
  const ModelSpec& model_;
  const RankPlace& rank_;
  const RankClass& list_;
  const RankTimeline* timeline_;
  const PartUnits part_units_;
  ListWaits waits_;
  const int64_t b_;
  size_t at_ = 0;
  Pieces pieces_;
  std::vector<Unit> units_;
  std::vector<int32_t> values_, last_reader_;
  std::map<Key, State> states_;
  std::map<int32_t, bool> tokens_;
  std::vector<Pending> pending_;
};

}  // namespace

Bytes PeakMemoryOf(const StepProgram& program, const ModelSpec& model, int64_t rank, const RankTimeline* timeline) {
  return Walk(program, model, rank, timeline).Peak();
}

}  // namespace weft::planner::tasks
