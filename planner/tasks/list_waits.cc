#include "planner/tasks/list_waits.h"

#include <algorithm>

namespace weft::planner::inline tasks {
namespace {

constexpr int32_t kNone = -1;

}  // namespace

PartUnits::PartUnits(const RankClass& list) {
  for (size_t u = 0; u < list.units.size(); ++u) {
    for (int32_t b = 0; b < list.units[u].blocks; ++b) {
      const ParameterBlock& block = list.blocks[static_cast<size_t>(list.units[u].first_block + b)];
      places_.push_back({block.part, block.layer, block.slice, static_cast<int32_t>(u)});
    }
  }
}

std::vector<int32_t> PartUnits::Of(ModelPart part, int32_t layer, int32_t slice) const {
  std::vector<int32_t> units;
  const auto add = [&](ModelPart wanted, int32_t of_slice) {
    const auto at = std::ranges::find_if(
        places_, [&](const Place& p) { return p.part == wanted && p.layer == layer && p.slice == of_slice; });
    if (at != places_.end()) units.push_back(at->unit);
    return at != places_.end();
  };
  if (!add(part, slice) && part == ModelPart::kHead) add(ModelPart::kEmbedding, 0);
  if (part == ModelPart::kEmbedding) add(ModelPart::kPositions, 0);
  return units;
}

ListWaits::ListWaits(const RankClass& list) : list_(&list), units_(list), writer_(list.values.size(), kNone) {
  for (size_t k = 0; k < list.instructions.size(); ++k) {
    for (const int32_t value : list.instructions[k].outputs) writer_[static_cast<size_t>(value)] = static_cast<int32_t>(k);
  }
  BeginStep();
}

void ListWaits::BeginStep() {
  for (std::vector<int32_t>* last : {&last_on_unit_, &last_gather_, &last_mix_}) last->assign(list_->units.size(), kNone);
}

std::vector<int32_t> ListWaits::Own(int32_t k) const {
  const Instruction& i = At(k);
  std::vector<int32_t> waits;
  const auto add = [&](int32_t communication) {
    if (communication != kNone) waits.push_back(communication);
  };
  const auto unit = static_cast<size_t>(i.unit);
  if (Communicates(i.action)) {  // what may give the unit other memory waits for its last exchange
    if (i.unit < 0) return waits;
    const int32_t last = (i.action == StepAction::kMix ? last_mix_ : last_on_unit_)[unit];
    if (last == kNone) return waits;
    const bool in_place = i.of_shard || At(last).action == StepAction::kAllReduce;
    const bool arrives = !i.of_shard && i.action == StepAction::kReduceScatter && At(last).of_shard;
    if (!in_place || arrives) add(last);
    return waits;
  }
  for (const int32_t value : i.inputs) {
    const int32_t writer = writer_[static_cast<size_t>(value)];
    if (writer != kNone && Communicates(At(writer).action)) add(writer);
  }
  for (const int32_t need : i.needs) add(need);
  if (OfPart(i.action)) {
    for (const int32_t u : units_.Of(i.part, i.layer, i.slice)) add(last_on_unit_[static_cast<size_t>(u)]);
  }
  if (i.action == StepAction::kUpdate) add(last_on_unit_[unit]), add(last_mix_[unit]);
  if (i.action == StepAction::kRelease) add(last_gather_[unit]);
  return waits;
}

std::vector<int32_t> ListWaits::Before(int32_t k) const {
  const Instruction& i = At(k);
  std::vector<int32_t> before = i.needs;
  for (const int32_t value : i.inputs) {
    const int32_t writer = writer_[static_cast<size_t>(value)];
    if (writer != kNone) before.push_back(writer);
  }
  if (i.unit < 0) return before;
  const int32_t last = (i.action == StepAction::kMix ? last_mix_ : last_on_unit_)[static_cast<size_t>(i.unit)];
  if (last != kNone) before.push_back(last);
  return before;
}

void ListWaits::Pass(int32_t k) {
  const Instruction& i = At(k);
  if (!Communicates(i.action) || i.unit < 0) return;
  const auto unit = static_cast<size_t>(i.unit);
  (i.action == StepAction::kMix ? last_mix_ : last_on_unit_)[unit] = k;
  if (i.action == StepAction::kAllGather) last_gather_[unit] = k;
}

}  // namespace weft::planner::tasks
