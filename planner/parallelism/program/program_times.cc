#include "planner/parallelism/program/program_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "planner/collectives/schedule_cost.h"

namespace weft::planner::inline parallelism {
namespace {

/// Elements of a unit that the rank keeps.
int64_t OwnElements(const StepProgram& program, const ParameterUnit& unit) {
  if (unit.shard < 0) return unit.elements;
  return unit.elements / std::ssize(program.communicators[static_cast<size_t>(unit.shard)].groups.front());
}

bool Attends(ModelPart part) {
  return part == ModelPart::kAttentionCore || part == ModelPart::kAttentionBlock || part == ModelPart::kAttentionGathered ||
         part == ModelPart::kAttentionHeads;
}

std::string NameOfPart(const StepProgram& program, const RankClass& list, const Instruction& i) {
  std::string name = fmt::format("{}.{}.{}.b{}", ActionName(i.action), PartName(i.part), ElementTypeName(program.type), program.micro_batch);
  if (OfVolumes(i.part)) name += fmt::format(".l{}", i.layer);  // kernels and strides are the layer's
  if (Attends(i.part)) name += fmt::format(".d{}", program.head_dim);
  for (const int32_t value : i.inputs.empty() ? i.outputs : i.inputs) {
    const ValueShape& shape = list.values[static_cast<size_t>(value)];
    name += fmt::format(".{}x{}", shape.rows, shape.columns);
  }
  int64_t parameters = 0;
  for (const ParameterBlock& block : list.blocks) {
    if (block.part == i.part && block.layer == i.layer && block.slice == i.slice) parameters += block.elements;
  }
  if (parameters > 0) name += fmt::format(".p{}", parameters);
  return name;
}

class Communications {
 public:
  Communications(const StepProgram& program, const GroupNetwork& network) : program_(program), network_(network) {}

  Seconds Of(const RankClass& list, const Instruction& i) const {
    const ProgramCommunicator& communicator = program_.communicators[static_cast<size_t>(i.communicator)];
    const Group group = GroupOf(communicator);
    const int64_t elements = Elements(list, i);
    const double bytes = static_cast<double>(elements * BytesOf(program_.type));
    if (i.wire != WireType::kWhole) return Narrow(group, i);
    switch (i.action) {
      case StepAction::kAllGather: return Ring(group, Collective::kAllGather, bytes);
      case StepAction::kReduceScatter: return Ring(group, Collective::kReduceScatter, bytes);
      case StepAction::kAllToAll: return Seconds(AllToAllTime(network_, group, bytes));
      case StepAction::kBroadcast:
      case StepAction::kReduce: return Ring(group, Collective::kBroadcast, bytes);
      case StepAction::kHalo:
      case StepAction::kShift:
      case StepAction::kMix: return Seconds(RingStepTime(network_, group, bytes));
      case StepAction::kSend:
      case StepAction::kReceive:
        return Seconds(SendTime(network_, SideBySide(communicator), UnitsLeftOf(communicator), bytes));
      default: break;
    }
    if (i.unit < 0 || communicator.sums.algorithm == Algorithm::kRing) return Ring(group, Collective::kAllReduce, bytes);
    // Its ranks fill the nodes one after the other.
    GroupNetwork own = network_;
    own.gpus_per_node = RanksInside(group, network_.gpus_per_node);
    const Result<Seconds> time = AlgorithmTime(communicator.sums, Collective::kAllReduce, own, static_cast<int32_t>(group.size),
                                               Bytes(elements * BytesOf(program_.type)));
    return time ? *time : Ring(group, Collective::kAllReduce, bytes);
  }

  /// Of a member's share of the NICs: what it sends over what could leave meanwhile. A sum sends twice what a scatter does, whatever its
  /// algorithm.
  double PortShare(const RankClass& list, const Instruction& i) const {
    const ProgramCommunicator& communicator = program_.communicators[static_cast<size_t>(i.communicator)];
    const Group group = GroupOf(communicator);
    const bool message = i.action == StepAction::kSend || i.action == StepAction::kReceive;
    if (message ? UnitsLeftOf(communicator) == 0 : RanksInside(group, network_.gpus_per_node) == group.size) return 0;
    const bool narrow = i.wire != WireType::kWhole;
    const double n = static_cast<double>(group.size), rest = (n - 1) / n;
    const double whole = static_cast<double>(Elements(list, i) * BytesOf(program_.type));
    double sent = whole * rest;
    switch (i.action) {
      case StepAction::kHalo:
      case StepAction::kShift:
      case StepAction::kMix:
      case StepAction::kSend:
      case StepAction::kReceive: sent = whole; break;
      case StepAction::kReduceScatter:
        if (narrow) sent = NarrowBytesOf(group, i) * rest;
        break;
      case StepAction::kAllReduce: sent = (narrow ? 2 * NarrowBytesOf(group, i) : 2 * whole) * rest; break;
      default: break;
    }
    const double alone = Of(list, i).count();
    return alone > 0 ? std::min(1.0, sent / network_.nic_rate / alone) : 0;
  }

 private:
  /// By the pair that leaves most.
  size_t UnitsLeftOf(const ProgramCommunicator& communicator) const {
    size_t left = 0;
    for (const std::vector<int32_t>& pair : communicator.groups) left = std::max(left, UnitsLeft(network_, pair[0], pair[1]));
    return left;
  }

  /// Senders whose ranks follow each other: a stage's of one pipeline, or of all.
  static int64_t SideBySide(const ProgramCommunicator& communicator) {
    const std::vector<std::vector<int32_t>>& pairs = communicator.groups;
    size_t count = 1;
    while (count < pairs.size() && pairs[count][0] == pairs[count - 1][0] + 1) ++count;
    return static_cast<int64_t>(count);
  }

  static Group GroupOf(const ProgramCommunicator& communicator) {
    const std::vector<int32_t>& members = communicator.groups.front();
    return {std::ssize(members), std::abs(members[1] - members[0])};
  }

  int64_t Elements(const RankClass& list, const Instruction& i) const {
    return i.of_shard ? OwnElements(program_, list.units[static_cast<size_t>(i.unit)]) : i.elements;
  }

  static double NarrowBytesOf(const Group& group, const Instruction& i) {
    return static_cast<double>(NarrowBytes(i.wire, (i.elements + group.size - 1) / group.size) * group.size);
  }

  Seconds Ring(const Group& group, Collective collective, double bytes) const {
    return Seconds(CollectiveTime(network_, group, collective, Algorithm::kRing, Protocol::kSimple, bytes).value_or(0));
  }

  /// Each rank's cuts to those that sum them, and of an all-reduce the sums back.
  Seconds Narrow(const Group& group, const Instruction& i) const {
    const double bytes = NarrowBytesOf(group, i);
    const Seconds there(AllToAllTime(network_, group, bytes));
    return i.action == StepAction::kReduceScatter ? there : there + Ring(group, Collective::kAllGather, bytes);
  }

  const StepProgram& program_;
  const GroupNetwork network_;
};

}  // namespace

std::string OperationName(const StepProgram& program, const RankClass& list, const Instruction& i) {
  if (OfPart(i.action)) return NameOfPart(program, list, i);
  const std::string name = fmt::format("{}.{}", ActionName(i.action), ElementTypeName(program.type));
  if (i.action == StepAction::kUpdate) {
    const ParameterUnit& unit = list.units[static_cast<size_t>(i.unit)];
    return fmt::format("{}.p{}.p{}", name, unit.elements, OwnElements(program, unit));
  }
  if (i.action == StepAction::kSquares) {
    int64_t own = 0;
    for (const ParameterUnit& unit : list.units) own += OwnElements(program, unit);
    return fmt::format("{}.p{}", name, own);
  }
  return "";
}

Result<InstructionTimes> TimesOf(const StepProgram& program, const Calibration& calibration, const GroupNetwork& network,
                                 double stretch) {
  auto measured = std::make_shared<std::map<const Instruction*, Seconds>>();
  for (const RankClass& list : program.classes) {
    for (const Instruction& i : list.instructions) {
      if (Communicates(i.action)) continue;
      const std::string name = OperationName(program, list, i);
      const double seconds = name.empty() ? 0 : calibration.Get("operation", name);
      if (std::isnan(seconds)) {
        return Fail(Code::kNotFound, fmt::format("calibration: no constant operation.{}: measure this program with weft-train --calibrate", name));
      }
      (*measured)[&i] = Seconds(seconds * stretch);
    }
  }
  const auto communications = std::make_shared<const Communications>(program, network);
  return InstructionTimes{
      .compute = [measured](const RankClass&, const Instruction& i) { return measured->at(&i); },
      .communicate = [communications](const RankClass& list, const Instruction& i) { return communications->Of(list, i); },
      .port_share = [communications](const RankClass& list, const Instruction& i) { return communications->PortShare(list, i); }};
}

}  // namespace weft::planner::parallelism
