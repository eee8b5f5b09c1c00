#include "runtime/program_volumes.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace weft::runtime {
namespace {

/// What all ranks together were to send in the steps [begin, end): every rank of a group has the same share of it.
void AddPlanned(const planner::StepProgram& program, int64_t begin, int64_t end, Volumes* volumes) {
  std::map<VolumeKey, double> sent;
  // Some operations are not of every step: what there is up to `end` without what there was up to `begin`.
  const auto add = [&](int64_t rank, int64_t steps, int64_t sign) {
    for (const planner::ProgramVolume& v : planner::VolumesOf(program, rank, steps)) {
      MeasuredVolume& sum = (*volumes)[{v.kind, v.action}];
      sum.kind = v.kind, sum.action = v.action;
      sum.planned_calls += sign * v.calls;
      sent[{v.kind, v.action}] += static_cast<double>(sign) * v.sent;
    }
  };
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    add(static_cast<int64_t>(rank), end, 1);
    if (begin > 0) add(static_cast<int64_t>(rank), begin, -1);
  }
  for (const auto& [key, bytes] : sent) (*volumes)[key].planned_bytes += std::llround(bytes);
}

/// Adds what every rank has counted. Collective.
Status AddMeasured(const ProgramGroups& groups, collectives::Bootstrap* bootstrap, Volumes* volumes) {
  std::vector<int64_t> mine;
  for (const SentBytes& s : groups.Sent())
    mine.insert(mine.end(), {static_cast<int64_t>(s.kind), static_cast<int64_t>(s.action), s.calls, s.bytes});
  std::vector<std::vector<uint8_t>> all;
  if (bootstrap != nullptr) {
    WEFT_ASSIGN_OR_RETURN(all,
                          bootstrap->AllGather({reinterpret_cast<const uint8_t*>(mine.data()), mine.size() * sizeof(int64_t)}));
  }
  for (const std::vector<uint8_t>& blob : all) {
    std::vector<int64_t> numbers(blob.size() / sizeof(int64_t));
    std::memcpy(numbers.data(), blob.data(), numbers.size() * sizeof(int64_t));
    for (size_t i = 0; i + 3 < numbers.size(); i += 4) {
      constexpr int64_t kKinds = static_cast<int64_t>(planner::CommunicatorKind::kWorld) + 1;
      if (numbers[i] < 0 || numbers[i] >= kKinds || numbers[i + 1] < 0 || numbers[i + 1] >= planner::kActions) {
        return Fail(Code::kInvalidArgument,
                    fmt::format("a rank counted communicator kind {}, action {}: expected less than {}, {}", numbers[i],
                                numbers[i + 1], kKinds, planner::kActions));
      }
      const VolumeKey key(static_cast<planner::CommunicatorKind>(numbers[i]), static_cast<planner::StepAction>(numbers[i + 1]));
      MeasuredVolume& sum = (*volumes)[key];
      sum.kind = key.first, sum.action = key.second;
      sum.calls += numbers[i + 2];
      sum.bytes += numbers[i + 3];
    }
  }
  return Ok();
}

}  // namespace

Status AddVolumes(const planner::StepProgram& program, int64_t begin, int64_t end, const ProgramGroups& groups,
                  collectives::Bootstrap* bootstrap, Volumes* volumes) {
  AddPlanned(program, begin, end, volumes);
  return AddMeasured(groups, bootstrap, volumes);
}

}  // namespace weft::runtime
