// Single instructions of a stage's list, and its blocks.
#include <algorithm>
#include <utility>

#include "planner/parallelism/program/stage_program.h"

namespace weft::planner::inline parallelism {

StageProgram::StageProgram(const ProgramFrame& frame, int64_t stage)
    : f_(frame), s_(frame.strategy), model_(frame.job.model), stage_(stage), blocks_(BlocksOfStage(frame, stage)),
      grid_(frame.grid()) {
  for (const Boundary& b : BoundariesOf(s_)) {
    if (b.to == stage) inbox_[b.from] = MessagesBetween(frame, b.from, stage);
  }
}

void StageProgram::Reset() {
  out_ = {};
  known_turns_.clear();
  kept_.clear(), grid_kept_.clear(), head_kept_.clear(), pending_.clear(), mail_.clear(), received_.clear(), block_at_.clear();
}

RankClass StageProgram::Make() {
  // Once without units, to learn in which order gradients become final; and once for good.
  Reset();
  for (size_t i = 0; i < blocks_.size(); ++i)
    block_at_[{blocks_[i].block.part, blocks_[i].block.layer, blocks_[i].block.slice}] = i;
  left_.clear();
  for (const StageBlock& b : blocks_) left_.push_back(b.contributions);
  RunPasses();
  Reset();
  each_pass_ = CutUnits(f_, stage_, order_, &out_);
  std::vector<int64_t> contributions(out_.blocks.size());
  for (size_t i = 0; i < out_.blocks.size(); ++i) {
    block_at_[{out_.blocks[i].part, out_.blocks[i].layer, out_.blocks[i].slice}] = i;
    for (const StageBlock& b : blocks_) {
      if (b.block == out_.blocks[i]) contributions[i] = b.contributions;
    }
  }
  for (size_t u = 0; u < out_.units.size(); ++u) {
    const ParameterUnit& unit = out_.units[u];
    int64_t all = 0;
    for (int32_t b = unit.first_block; b < unit.first_block + unit.blocks; ++b) {
      unit_of_block_.push_back(static_cast<int32_t>(u));
      all += contributions[static_cast<size_t>(b)];
    }
    unit_left_.push_back(unit.gradients_sharded ? all / f_.micro_batches() * Round() : all);
  }
  last_on_unit_.assign(out_.units.size(), -1);
  RunPasses();
  return std::move(out_);
}

int32_t StageProgram::Value(int64_t rows, int64_t columns) {
  out_.values.push_back({rows, columns});
  return static_cast<int32_t>(out_.values.size() - 1);
}

int32_t StageProgram::Emit(Instruction instruction) {
  out_.instructions.push_back(std::move(instruction));
  return static_cast<int32_t>(out_.instructions.size() - 1);
}

std::vector<int32_t> StageProgram::Compute(StepAction action, ModelPart part, int64_t layer, std::vector<int32_t> inputs,
                                           std::vector<ValueShape> outputs, bool keeps, Cut cut) {
  std::vector<int32_t> values;
  for (const ValueShape& shape : outputs) values.push_back(Value(shape.rows, shape.columns));
  Emit({.action = action,
        .part = part,
        .keeps = keeps,
        .layer = static_cast<int32_t>(layer),
        .micro_batch = micro_batch_,
        .slice = static_cast<int32_t>(cut.slice),
        .slices = static_cast<int32_t>(cut.slices),
        .inputs = std::move(inputs),
        .outputs = values,
        .needs = ScattersToWaitFor()});
  return values;
}

int32_t StageProgram::One(StepAction action, ModelPart part, int64_t layer, std::vector<int32_t> inputs, ValueShape output,
                          bool keeps, Cut cut) {
  return Compute(action, part, layer, std::move(inputs), {output}, keeps, cut)[0];
}

int32_t StageProgram::Collective(StepAction action, int32_t communicator, int32_t value, ValueShape output) {
  const int64_t in = out_.values[static_cast<size_t>(value)].elements();
  const int32_t result = Value(output.rows, output.columns);
  Emit({.action = action,
        .micro_batch = micro_batch_,
        .communicator = communicator,
        .elements = std::max(in, output.elements()),
        .inputs = {value},
        .outputs = {result}});
  return result;
}

int32_t StageProgram::TensorReduce(StepAction action, int32_t value) {
  return s_.tp == 1 ? value : Collective(action, f_.groups.tensor, value, out_.values[static_cast<size_t>(value)]);
}

int32_t StageProgram::Sum(int32_t value) {
  if (grid_.exists()) {
    const ValueShape own{f_.rows(), f_.columns()};
    const int32_t blocks = One(StepAction::kForward, ModelPart::kToGrid, -1, {value}, {s_.tp * own.rows, own.columns});
    return Collective(StepAction::kReduceScatter, f_.groups.tensor, blocks, own);
  }
  if (!s_.sequence_parallel) return TensorReduce(StepAction::kAllReduce, value);
  return Collective(StepAction::kReduceScatter, f_.groups.tensor, value,
                    {f_.rows(), out_.values[static_cast<size_t>(value)].columns});
}

int32_t StageProgram::Whole(int32_t value) {
  if (grid_.exists()) {
    const int32_t blocks = Collective(StepAction::kAllGather, f_.groups.tensor, value, {s_.tp * f_.rows(), f_.columns()});
    return One(StepAction::kForward, ModelPart::kFromGrid, -1, {blocks}, {f_.tokens(), model_.hidden});
  }
  if (!s_.sequence_parallel) return value;
  return Collective(StepAction::kAllGather, f_.groups.tensor, value,
                    {f_.tokens(), out_.values[static_cast<size_t>(value)].columns});
}

}  // namespace weft::planner::parallelism
