#include "runtime/execute/units.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <cmath>
#include <numeric>

#include "common/check.h"
#include "planner/tasks/program_memory.h"

namespace weft::runtime {
namespace {

using planner::ModelPart;
using planner::StepAction;

collectives::DataType TypeOf(torch::ScalarType type) {
  return type == torch::kFloat64 ? collectives::DataType::kFloat64 : collectives::DataType::kFloat32;
}

int64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Result<std::unique_ptr<Units>> Units::Create(const planner::RankClass& program, const ModelShape& shape,
                                             const ProgramGroups& groups, std::optional<uint64_t> seed) {
  auto units = std::unique_ptr<Units>(new Units(shape));
  for (const planner::ParameterUnit& plan : program.units) {
    Unit unit{.plan = plan};
    unit.end = plan.elements;
    if (plan.shard >= 0) {
      const int64_t n = groups.SizeOf(plan.shard), index = groups.PlaceOf(plan.shard).index;
      if (index < 0) return Fail(Code::kInvalidArgument, "a unit is sharded over a communicator that this rank is no member of");
      unit.begin = index * plan.elements / n;
      unit.end = (index + 1) * plan.elements / n;
    }
    for (const int32_t communicator : plan.duplicates) unit.counts = unit.counts && groups.PlaceOf(communicator).index <= 0;
    units->units_.push_back(std::move(unit));
  }
  WEFT_RETURN_IF_ERROR(units->Fill(program, seed));
  if (shape.model.learned_positions && units->Find(ModelPart::kEmbedding, -1) != nullptr &&
      units->Find(ModelPart::kPositions, -1) == nullptr) {
    return Fail(Code::kInvalidArgument, "program: no block has the model's positions");
  }
  for (Unit& unit : units->units_) units->Shard(unit);
  return units;
}

Status Units::Fill(const planner::RankClass& program, std::optional<uint64_t> seed) {
  blocks_ = program.blocks;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    unit.parameters = torch::zeros({unit.plan.elements}, shape_.type);
    int64_t offset = 0;
    for (int32_t b = unit.plan.first_block; b < unit.plan.first_block + unit.plan.blocks; ++b) {
      const planner::ParameterBlock& block = blocks_[static_cast<size_t>(b)];
      Place place{.unit = static_cast<int32_t>(u), .offset = offset, .counts = !block.copy && (!block.whole || shape_.tensor == 0)};
      const ModelShape share = ShapeOfSlice(shape_, block.slice, block.slices);
      for (const TensorLayout& layout : LayoutOf(block.part, shape_.model, block.layer)) {
        const std::vector<int64_t> sizes = ShareSizes(block.part, layout, share);
        place.elements += Product(sizes);
        place.sizes.push_back(sizes);
      }
      if (place.elements != block.elements) {
        return Fail(Code::kInvalidArgument,
                    fmt::format("program: {} of layer {} has {} elements, expected the model's {}", planner::PartName(block.part),
                                block.layer, block.elements, place.elements));
      }
      int64_t at = offset;
      for (const TensorLayout& layout : seed ? LayoutOf(block.part, shape_.model, block.layer) : std::vector<TensorLayout>()) {
        const torch::Tensor whole = InitialValue(layout, shape_.model, block.layer, *seed, shape_.type);
        const torch::Tensor value = ShareOf(block.part, layout, whole, share);
        unit.parameters.narrow(0, at, value.numel()).copy_(value.reshape({-1}));
        at += value.numel();
      }
      offset += block.elements;
      places_.push_back(std::move(place));
      at_[{block.part, block.layer, block.slice}] = places_.size() - 1;
    }
  }
  return Ok();
}

void Units::Shard(Unit& u) {
  const int64_t own = u.end - u.begin;
  u.shard = u.parameters.narrow(0, u.begin, own);
  if (u.plan.parameters_sharded) {
    u.shard = u.shard.clone();
    u.parameters = torch::Tensor();
  }
  const auto zeros = [&](int64_t elements) { return torch::zeros({elements}, shape_.type); };
  if (!u.plan.gradients_sharded) {
    u.gradients = zeros(u.plan.elements);
    u.gradient_shard = u.gradients.narrow(0, u.begin, own);
  } else {
    u.gradient_shard = zeros(own);
  }
  u.first = zeros(own);
  u.second = zeros(own);
}

const Units::Place* Units::Find(ModelPart part, int64_t layer, int32_t slice) const {
  auto at = at_.find({part, layer, slice});
  if (at == at_.end() && part == ModelPart::kHead) at = at_.find({ModelPart::kEmbedding, -1, 0});
  return at == at_.end() ? nullptr : &places_[at->second];
}

Tensors Units::Views(const torch::Tensor& memory, const Place& place) {
  Tensors views;
  int64_t at = place.offset;
  for (const std::vector<int64_t>& sizes : place.sizes) {
    const int64_t elements = Product(sizes);
    views.push_back(memory.narrow(0, at, elements).view(sizes));
    at += elements;
  }
  return views;
}

std::vector<int32_t> Units::UnitsOf(ModelPart part, int64_t layer, int32_t slice) const {
  std::vector<int32_t> units;
  if (const Place* place = Find(part, layer, slice)) units.push_back(place->unit);
  if (part != ModelPart::kEmbedding) return units;
  if (const Place* positions = Find(ModelPart::kPositions, layer)) units.push_back(positions->unit);
  return units;
}

Result<PartParameters> Units::Of(ModelPart part, int64_t layer, int32_t slice, bool gradients) {
  PartParameters of;
  const auto add = [&](const Place* place) {
    if (place == nullptr) return Ok();
    Unit& unit = units_[static_cast<size_t>(place->unit)];
    // A weight gradient needs no parameters, so that they may be released by then.
    if (!unit.parameters.defined() && !gradients) {
      return Status(Fail(Code::kFailedPrecondition, fmt::format("program: {} of layer {} is used while its unit is not gathered",
                                                                planner::PartName(part), layer)));
    }
    if (unit.parameters.defined()) {
      for (torch::Tensor& view : Views(unit.parameters, *place)) of.values.push_back(std::move(view));
    }
    if (!gradients) return Ok();
    if (!unit.gradients.defined()) unit.gradients = torch::zeros({unit.plan.elements}, shape_.type);
    for (torch::Tensor& view : Views(unit.gradients, *place)) of.gradients.push_back(std::move(view));
    return Ok();
  };
  WEFT_RETURN_IF_ERROR(add(Find(part, layer, slice)));
  if (part == ModelPart::kEmbedding) WEFT_RETURN_IF_ERROR(add(Find(ModelPart::kPositions, layer)));
  return of;
}

Result<torch::Tensor> Units::PanelOf(ModelPart part, int64_t layer, bool gradients) {
  WEFT_ASSIGN_OR_RETURN(const PartParameters of, Of(part, layer, 0, gradients));
  const Place* place = Find(part, layer);
  if (place == nullptr) return Fail(Code::kFailedPrecondition, "program: no block has the parameters");
  const Unit& unit = units_[static_cast<size_t>(place->unit)];
  return (gradients ? unit.gradients : unit.parameters).narrow(0, place->offset, place->elements).view({1, -1});
}

Transfer Units::Prepare(const planner::Instruction& i) {
  Unit& u = units_[static_cast<size_t>(i.unit)];
  Transfer t{.action = i.action, .type = TypeOf(shape_.type), .elements = i.elements};
  if (i.action == StepAction::kAllGather) {
    if (!u.parameters.defined()) u.parameters = torch::empty({u.plan.elements}, shape_.type);
    t.input = u.shard.data_ptr();
    t.output = u.parameters.data_ptr();
    t.lasting = !u.plan.parameters_sharded;
    return t;
  }
  if (i.action == StepAction::kAverage || i.action == StepAction::kMix) {
    if (i.action == StepAction::kMix) u.arriving = torch::empty({u.plan.elements}, shape_.type);
    t.input = u.parameters.data_ptr();
    t.output = i.action == StepAction::kMix ? u.arriving.data_ptr() : u.parameters.data_ptr();
    t.lasting = i.action == StepAction::kAverage;
    return t;
  }
  if (i.of_shard) {
    t.elements = u.end - u.begin;
    t.input = t.output = u.arriving.data_ptr();
    return t;
  }
  if (!u.gradients.defined()) u.gradients = torch::zeros({u.plan.elements}, shape_.type);
  t.input = t.output = u.gradients.data_ptr();
  t.lasting = !u.plan.gradients_sharded;
  t.wire = i.wire;
  if (i.wire == planner::WireType::kFloat8) {
    if (!u.remainder.defined()) u.remainder = torch::zeros({u.plan.elements}, shape_.type);
    t.remainder = u.remainder.data_ptr();
  }
  if (i.action == StepAction::kReduceScatter) {
    u.arriving = torch::empty({u.end - u.begin}, shape_.type);
    t.output = u.arriving.data_ptr();
    t.lasting = false;
  }
  return t;
}

void Units::Finish(const planner::Instruction& i, int64_t ranks) {
  if (i.action == StepAction::kAverage) units_[static_cast<size_t>(i.unit)].parameters.div_(static_cast<double>(ranks));
  if (i.action != StepAction::kReduceScatter && !i.of_shard) return;
  Unit& u = units_[static_cast<size_t>(i.unit)];
  if (!i.of_shard && u.plan.gradients_sharded) u.gradients = torch::Tensor();
  if (!i.of_shard && u.plan.across >= 0) return;  // a sum of what is arriving follows
  if (u.plan.gradients_sharded) {
    u.gradient_shard.add_(u.arriving);
  } else {
    u.gradient_shard.copy_(u.arriving);
  }
  u.arriving = torch::Tensor();
}

void Units::Release(int32_t unit) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (u.plan.parameters_sharded) u.parameters = torch::Tensor();
}

RankState Units::State() {
  RankState state{.type = shape_.type == torch::kFloat64 ? planner::ElementType::kFloat64 : planner::ElementType::kFloat32};
  for (const Unit& u : units_)
    state.units.push_back({.parts = {u.shard.data_ptr(), u.first.data_ptr(), u.second.data_ptr()}, .elements = u.end - u.begin});
  return state;
}

double Units::Squares() const {
  double sum = 0;
  for (size_t b = 0; b < places_.size(); ++b) {
    const Place& place = places_[b];
    const Unit& u = units_[static_cast<size_t>(place.unit)];
    if (!place.counts || !u.counts) continue;
    const int64_t begin = std::max(place.offset, u.begin), end = std::min(place.offset + place.elements, u.end);
    for (int64_t at = begin; at < end; at += planner::kSquaredAtOnce) {
      const int64_t count = std::min(end - at, planner::kSquaredAtOnce);
      const torch::Tensor wide = u.gradient_shard.narrow(0, at - u.begin, count).to(torch::kFloat64);
      sum += wide.dot(wide).item<double>();
    }
  }
  return sum;
}

void Units::Update(int32_t unit, const AdamOptions& o, double factor, int64_t step) {
  Unit& u = units_[static_cast<size_t>(unit)];
  if (factor != 1) u.gradient_shard.mul_(factor);
  if (!u.plan.optimizer_sharded && u.arriving.defined()) {  // a neighbour's parameters
    u.parameters.add_(u.arriving).div_(2);
    u.arriving = torch::Tensor();
  }
  const torch::Tensor& g = u.gradient_shard;
  u.shard.mul_(1 - o.learning_rate * o.weight_decay);
  u.first.mul_(o.beta1).add_(g, 1 - o.beta1);
  u.second.mul_(o.beta2).addcmul_(g, g, 1 - o.beta2);
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step)),
               correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  const torch::Tensor denominator = (u.second.sqrt() / std::sqrt(correction2)).add_(o.epsilon);
  u.shard.addcdiv_(u.first, denominator, -o.learning_rate / correction1);
  if (u.gradients.defined()) u.gradients.zero_();
  u.gradient_shard.zero_();
}

}  // namespace weft::runtime
