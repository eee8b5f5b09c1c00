// What replicas exchange: units, when their gradients are complete, and what a step begins and ends with.
#include <algorithm>
#include <set>

#include "planner/parallelism/program/stage_program.h"

namespace weft::planner::inline parallelism {
namespace {

WireType WireOf(GradientWire wire) {
  switch (wire) {
    case GradientWire::kWhole:
      break;
    case GradientWire::kBf16:
      return WireType::kBfloat16;
    case GradientWire::kFp8:
      return WireType::kFloat8;
  }
  return WireType::kWhole;
}

}  // namespace

/// Interleaved, gradients are scattered once per round of pp micro-batches (ReducesByRound(), memory_model.h).
int64_t StageProgram::Round() const {
  return s_.schedule == ScheduleKind::kInterleaved && s_.sharding == Sharding::kUniform ? s_.pp : 1;
}

/// The stage's first so many.
bool StageProgram::Recomputes(int64_t layer) const {
  return s_.recompute_layers < 0 || PlaceOnStage(f_, stage_, layer) < s_.recompute_layers;
}

int32_t StageProgram::OverUnit(StepAction action, int32_t communicator, int32_t unit) {
  Instruction i{.action = action,
                .micro_batch = micro_batch_,
                .unit = unit,
                .communicator = communicator,
                .elements = out_.units[static_cast<size_t>(unit)].elements};
  int32_t& last = last_on_unit_[static_cast<size_t>(unit)];
  if (last >= 0 && out_.instructions[static_cast<size_t>(last)].communicator != communicator) i.needs.push_back(last);
  last = Emit(std::move(i));
  return last;
}

int64_t StageProgram::SlicesOf(int64_t layer, bool mlp) const {
  if (f_.operators.empty()) return 1;
  const auto [known, fresh] = known_decisions_.try_emplace(layer);
  if (fresh) known->second = DecisionOf(f_, stage_, layer);
  return (mlp ? known->second.mlp : known->second.attention).slices;
}

/// Units that are gathered for each pass, of a slice of a layer's attention or MLP, or of the head (layer -1).
StageProgram::Turn StageProgram::OwnTurn(int64_t layer, bool mlp, int64_t slice) const {
  Turn turn;
  for (size_t b = 0; b < unit_of_block_.size(); ++b) {
    const ParameterBlock& block = out_.blocks[b];
    const bool of_operator = layer < 0 ? block.part == ModelPart::kHead : IsOfMlp(block.part) == mlp;
    const int32_t unit = unit_of_block_[b];
    if (block.layer != layer || !of_operator || block.slice != slice || !each_pass_[static_cast<size_t>(unit)]) continue;
    if (std::find(turn.begin(), turn.end(), unit) == turn.end()) turn.push_back(unit);
  }
  return turn;
}

StageProgram::Turn StageProgram::TurnOf(int64_t layer, bool mlp, int64_t slice) const {
  const auto [known, fresh] = known_turns_.try_emplace({layer, mlp, slice});
  if (fresh) known->second = MakeTurn(layer, mlp, slice);
  return known->second;
}

/// Two operators that share a unit are one turn.
StageProgram::Turn StageProgram::MakeTurn(int64_t layer, bool mlp, int64_t slice) const {
  const Turn own = OwnTurn(layer, mlp, slice);
  if (layer < 0 || SlicesOf(layer, false) > 1 || SlicesOf(layer, true) > 1) return own;
  const Turn attention = OwnTurn(layer, false, 0), of_mlp = OwnTurn(layer, true, 0);
  std::set<int32_t> both(attention.begin(), attention.end());
  both.insert(of_mlp.begin(), of_mlp.end());
  const bool apart = both.size() == attention.size() + of_mlp.size();
  return apart ? own : Turn(both.begin(), both.end());
}

/// Of a cut attention's first turn what its norms are in, which stays until the second one is used, and the other units.
StageProgram::Turn StageProgram::NormsOf(const Turn& turn) const {
  Turn norms;
  for (const int32_t unit : turn) {
    if (IsNorm(out_.blocks[static_cast<size_t>(out_.units[static_cast<size_t>(unit)].first_block)].part)) norms.push_back(unit);
  }
  return norms;
}

StageProgram::Turn StageProgram::ProductsOf(const Turn& turn) const {
  Turn products;
  for (const int32_t unit : turn) {
    if (!IsNorm(out_.blocks[static_cast<size_t>(out_.units[static_cast<size_t>(unit)].first_block)].part)) products.push_back(unit);
  }
  return products;
}

std::vector<StageProgram::Turn> StageProgram::TurnsOfHead() const {
  std::vector<Turn> turns;
  for (int64_t slice = 0; slice < HeadSlicesOf(f_); ++slice) turns.push_back(TurnOf(-1, false, slice));
  return turns;
}

/// In the order of a pass. Full recomputation: all of a layer at once, as it is used twice.
std::vector<StageProgram::Turn> StageProgram::TurnsOfLayer(int64_t layer, bool back) const {
  std::vector<Turn> turns;
  for (const bool mlp : {back, !back}) {
    for (int64_t slice = 0; slice < SlicesOf(layer, mlp); ++slice) turns.push_back(TurnOf(layer, mlp, slice));
  }
  if (!back || s_.recompute != Recompute::kFull || !Recomputes(layer)) return turns;
  Turn all;
  for (const Turn& turn : turns) {
    for (const int32_t unit : turn) {
      if (std::find(all.begin(), all.end(), unit) == all.end()) all.push_back(unit);
    }
  }
  return {all};
}

void StageProgram::Gather(const Turn& turn) {
  for (const int32_t unit : turn) OverUnit(StepAction::kAllGather, out_.units[static_cast<size_t>(unit)].shard, unit);
}

/// A pass begins: the first of its turns is gathered. Empty ones, and a layer's two operators in one unit, are none of their own.
void StageProgram::BeginTurns(const std::vector<Turn>& turns) {
  turns_.clear();
  for (const Turn& turn : turns) {
    if (!turn.empty() && (turns_.empty() || turns_.back() != turn)) turns_.push_back(turn);
  }
  next_turn_ = 0;
  if (!turns_.empty()) Gather(turns_[0]);
}

/// While a turn is used, the next one is gathered.
void StageProgram::Enter(const Turn& turn) {
  if (turn.empty() || holds_turn_ || (next_turn_ > 0 && turns_[next_turn_ - 1] == turn)) return;
  if (++next_turn_ < turns_.size()) Gather(turns_[next_turn_]);
}

void StageProgram::Leave(const Turn& turn) {
  if (holds_turn_) return;
  for (const int32_t unit : turn) Emit({.action = StepAction::kRelease, .micro_batch = micro_batch_, .unit = unit});
}

/// Gathers what the last step has left sharded, in the order of use: last in the order of gradients.
void StageProgram::BeginStep() {
  for (auto u = static_cast<int32_t>(out_.units.size()) - 1; u >= 0; --u) {
    const ParameterUnit& unit = out_.units[static_cast<size_t>(u)];
    if (unit.optimizer_sharded && !each_pass_[static_cast<size_t>(u)]) OverUnit(StepAction::kAllGather, unit.shard, u);
    // Behind the passes, which read the parameters and leave them.
    if (s_.data_sync == DataSync::kGossip) OverUnit(StepAction::kMix, f_.groups.data, u);
  }
}

void StageProgram::Contributed(ModelPart part, int64_t layer, int64_t slice) {
  const bool tied = part == ModelPart::kHead && !block_at_.contains({ModelPart::kHead, -1, 0});
  const auto at = block_at_.find({tied ? ModelPart::kEmbedding : part, layer, slice});
  if (at == block_at_.end()) return;  // a model without learned positions
  if (out_.units.empty()) {
    if (--left_[at->second] == 0) order_.push_back(blocks_[at->second].block);
    return;
  }
  const int32_t unit = unit_of_block_[at->second];
  int64_t& left = unit_left_[static_cast<size_t>(unit)];
  if (--left > 0) return;
  const ParameterBlock& first = out_.blocks[static_cast<size_t>(out_.units[static_cast<size_t>(unit)].first_block)];
  if (KindOf(f_, first) == UnitKind::kTied) tied_.push_back(unit);
  else Exchange(unit);
  left = out_.units[static_cast<size_t>(unit)].blocks * Round();  // counts only where it is scattered again
}

void StageProgram::Exchange(int32_t unit) {
  const ParameterUnit& u = out_.units[static_cast<size_t>(unit)];
  const ParameterBlock& first = out_.blocks[static_cast<size_t>(u.first_block)];
  const UnitKind kind = KindOf(f_, first);
  if (kind == UnitKind::kTensorSum) OverUnit(StepAction::kAllReduce, f_.groups.tensor, unit);
  if (kind == UnitKind::kTied) OverUnit(StepAction::kAllReduce, f_.groups.embedding, unit);
  const int32_t replicas = ReplicasOf(f_, first);
  if (replicas < 0 || ReplicasDiffer(s_)) return;
  // Of shard groups, whole gradients are summed over all replicas, and what was scattered over one group across the others.
  const bool scatters = u.gradients_sharded || (u.optimizer_sharded && u.shard == replicas);
  OverUnit(scatters ? StepAction::kReduceScatter : StepAction::kAllReduce, scatters ? u.shard : replicas, unit);
  out_.instructions.back().wire = WireOf(s_.gradient_wire);
  if (scatters && u.gradients_sharded) scatters_.push_back({last_on_unit_[static_cast<size_t>(unit)], u.elements});
  if (u.across < 0) return;
  OverUnit(StepAction::kAllReduce, u.across, unit);
  out_.instructions.back().of_shard = true;
}

/// Gradients are whole until they are scattered: where links are slower than computations they would pile up. So a computation waits
/// until no more is under way than the largest unit: with those that it makes two are whole, as many as FSDP lets be gathered at a time
/// (Zhao et al., "PyTorch FSDP", VLDB 2023, 3.4). Scatters of one size go on without a pause all the same.
std::vector<int32_t> StageProgram::ScattersToWaitFor() {
  if (scatters_.empty()) return {};
  int64_t largest = 0, under_way = 0;
  for (const ParameterUnit& unit : out_.units) {
    if (unit.gradients_sharded) largest = std::max(largest, unit.elements);
  }
  for (const Scatter& scatter : scatters_) under_way += scatter.elements;
  std::vector<int32_t> waits;
  for (; under_way > largest; scatters_.pop_front()) {
    waits.push_back(scatters_.front().instruction);
    under_way -= scatters_.front().elements;
  }
  return waits;
}

void StageProgram::EndStep() {
  if (out_.units.empty()) return;
  // The other end of the pipeline comes to its part of a tied table last of all. Whatever stood behind these sums would wait for that: a
  // gather that the passes between need, and who waits for such a gather is whom the other end waits for.
  for (const int32_t unit : tied_) Exchange(unit);
  const auto sum = [&](StepAction action, int32_t over) {
    const int32_t own = Value(1, 1);
    Instruction i{.action = action, .outputs = {own}};
    if (action == StepAction::kSquares) {
      for (const int32_t last : last_on_unit_) {
        if (last >= 0) i.needs.push_back(last);
      }
    }
    Emit(std::move(i));
    return over < 0 ? own : Collective(StepAction::kAllReduce, over, own, {1, 1});
  };
  const int32_t squares = sum(StepAction::kSquares, ReplicasDiffer(s_) ? f_.groups.replica : f_.groups.world);
  for (size_t u = 0; u < out_.units.size(); ++u) {
    Emit({.action = StepAction::kUpdate, .unit = static_cast<int32_t>(u), .inputs = {squares}});
  }
  sum(StepAction::kLossSum, f_.groups.world);
  for (size_t u = 0; u < out_.units.size() && s_.local_steps > 1; ++u) {
    OverUnit(StepAction::kAverage, f_.groups.data, static_cast<int32_t>(u));
    out_.instructions.back().every = static_cast<int32_t>(s_.local_steps);
  }
  for (size_t u = 0; u < out_.units.size(); ++u) {
    if (out_.units[u].parameters_sharded && !each_pass_[u]) Emit({.action = StepAction::kRelease, .unit = static_cast<int32_t>(u)});
  }
}

}  // namespace weft::planner::parallelism
