// The two accounts of what strategies send: of programs, and of the list of operations that is priced.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <utility>

#include "planner/parallelism/strategy.h"
#include "planner/tasks/operations.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline parallelism {

using ListedKey = std::pair<CommunicatorKind, OperationKind>;

template <typename T>
T Any(std::mt19937& random, std::initializer_list<T> of) {
  return *(of.begin() + static_cast<int64_t>(random() % of.size()));
}

inline OperationKind KindOf(StepAction action) {
  switch (action) {
    case StepAction::kAllGather: return OperationKind::kAllGather;
    case StepAction::kReduceScatter: return OperationKind::kReduceScatter;
    case StepAction::kAllToAll: return OperationKind::kAllToAll;
    case StepAction::kHalo:
    case StepAction::kShift:
    case StepAction::kSend: return OperationKind::kSendReceive;
    case StepAction::kBroadcast:
    case StepAction::kReduce: return OperationKind::kBroadcast;
    default: return OperationKind::kAllReduce;
  }
}

struct ListedSums {
  double bytes = 0, calls = 0;
};

/// A step's share of so many.
inline std::map<ListedKey, ListedSums> OfProgram(const StepProgram& program, int64_t steps) {
  std::map<ListedKey, ListedSums> sums;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const ProgramVolume& v : VolumesOf(program, static_cast<int64_t>(rank), steps)) {
      ListedSums& sum = sums[{v.kind, KindOf(v.action)}];
      sum.bytes += static_cast<double>(v.bytes) / static_cast<double>(steps);
      sum.calls += static_cast<double>(v.calls) / static_cast<double>(steps);
    }
  }
  return sums;
}

inline std::map<ListedKey, double> OfList(const OperationList& list) {
  std::map<ListedKey, double> bytes;
  for (const StageOperations& stages : list.classes) {
    const auto ranks = static_cast<double>(stages.stages.size()) * static_cast<double>(list.ranks_per_stage);
    for (const Operation& o : stages.operations) {
      if (o.kind == OperationKind::kCompute || o.bytes * o.calls <= 0) continue;
      const double times = o.pass == OperationPass::kOnce ? 1 : static_cast<double>(list.micro_batches);
      bytes[{o.communicator, o.kind}] += ranks * times * o.calls * o.bytes;
    }
  }
  return bytes;
}

/// The program's volumes are the list's.
inline void ExpectVolumesOf(std::map<ListedKey, double> list, const StepProgram& program, const Strategy& s) {
  std::map<ListedKey, ListedSums> own = OfProgram(program, s.local_steps);
  for (const auto& [key, unused] : list) own.try_emplace(key);
  for (const auto& [key, sum] : own) {
    // The list has scales of fp8 for every 128 elements, a transfer has whole ones.
    const double scales = s.gradient_wire == GradientWire::kFp8 ? 4 * sum.calls : 0;
    ASSERT_NEAR(sum.bytes, list[key], 1e-9 * sum.bytes + 1e-6 + scales)
        << CommunicatorKindName(key.first) << " " << OperationKindName(key.second);
  }
}

}  // namespace weft::planner::parallelism
