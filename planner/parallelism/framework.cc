// What the programs of Framework can run, and their names.
#include <algorithm>
#include <array>

#include "planner/parallelism/space.h"

namespace weft::planner {
namespace {

constexpr std::array<std::string_view, 5> kFrameworks = {"any", "megatron", "torchtitan", "deepspeed", "weft-train"};

bool OneDimensional(const Strategy& s) { return s.tensor_mode == TensorMode::k1D; }

}  // namespace

bool Runs(Framework framework, const Strategy& s) {
  switch (framework) {
    case Framework::kAny: return true;
    case Framework::kMegatron:
      return OneDimensional(s) && s.zero_stage <= 1 && s.data_sync != DataSync::kParameterServer &&
             (s.schedule == ScheduleKind::k1F1B || s.schedule == ScheduleKind::kInterleaved);
    case Framework::kTorchtitan:
      return OneDimensional(s) && s.zero_stage != 1 && s.data_sync != DataSync::kParameterServer && s.etp == 1 &&
             s.schedule != ScheduleKind::kEager1F1B && s.schedule != ScheduleKind::kZbH1 &&
             s.schedule != ScheduleKind::kZbH2 && (s.cp == 1 || s.context_mode != ContextMode::kUlysses) &&
             (s.shard_group < s.cp || s.shard_group % s.cp == 0);
    case Framework::kDeepspeed:
      return OneDimensional(s) && s.data_sync != DataSync::kParameterServer && s.schedule == ScheduleKind::k1F1B &&
             s.shard_group == 0 && s.sharding == Sharding::kUniform && (s.pp == 1 || s.zero_stage <= 1) &&
             (s.cp == 1 || s.context_mode == ContextMode::kUlysses) &&
             (s.shard_group == 0 || s.shard_group == s.dp * s.cp);
    case Framework::kWeftTrain:
      return s.tp == 1 && s.pp == 1 && s.cp == 1 && s.ep == 1 && s.zero_stage == 0 && s.recompute == Recompute::kNone;
  }
  return false;
}

std::string_view FrameworkName(Framework framework) { return kFrameworks[static_cast<size_t>(framework)]; }

std::optional<Framework> ParseFramework(std::string_view text) {
  const auto found = std::find(kFrameworks.begin(), kFrameworks.end(), text);
  if (found == kFrameworks.end()) return std::nullopt;
  return static_cast<Framework>(found - kFrameworks.begin());
}

}  // namespace weft::planner
