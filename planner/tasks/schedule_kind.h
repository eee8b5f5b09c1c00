// The pipeline schedules by name. What each one does, pipeline_order.h says; how long it takes, pipeline.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/result.h"

namespace weft::planner::inline tasks {

/// Order of forward and backward passes on the stages of a pipeline.
enum class ScheduleKind : uint8_t {
  kGpipe,        ///< all forwards, then all backwards. Source: arXiv 1811.06965
  k1F1B,         ///< one forward, one backward after a short warm-up. Source: arXiv 2104.04473, section 2.2
  kEager1F1B,    ///< 1F1B with twice the warm-up, which hides message latency. Source: arXiv 2211.05322
  kInterleaved,  ///< 1F1B over v chunks per stage. Source: arXiv 2104.04473, section 2.2
  kZbH1,         ///< backward split in data and weight gradient, memory of 1F1B. Source: arXiv 2401.10241
  kZbH2,         ///< as kZbH1 with twice the memory and next to no bubble. Source: arXiv 2401.10241
  kZbV,          ///< two chunks per stage in V shape, memory of 1F1B. Source: arXiv 2401.10241
};

inline constexpr std::array kAllSchedules = {ScheduleKind::kGpipe,       ScheduleKind::k1F1B, ScheduleKind::kEager1F1B,
                                             ScheduleKind::kInterleaved, ScheduleKind::kZbH1, ScheduleKind::kZbH2,
                                             ScheduleKind::kZbV};

/// "gpipe", "1f1b", "eager-1f1b", "interleaved", "zb-h1", "zb-h2" or "zb-v".
std::string_view ScheduleName(ScheduleKind kind);

/// The schedule that ScheduleName writes so. Errors: kInvalidArgument naming the text and all names.
[[nodiscard]] Result<ScheduleKind> ParseSchedule(std::string_view text);

/// Whether weight gradients are tasks of their own, so that a backward pass may send its data gradient first.
constexpr bool SplitsBackward(ScheduleKind kind) {
  return kind == ScheduleKind::kZbH1 || kind == ScheduleKind::kZbH2 || kind == ScheduleKind::kZbV;
}

/// Whether an iteration ends for all stages at once. Without, each stage steps when it is done and the step is checked
/// afterwards. Source: arXiv 2401.10241.
constexpr bool HasBarrier(ScheduleKind kind) { return kind != ScheduleKind::kZbH2 && kind != ScheduleKind::kZbV; }

}  // namespace weft::planner::tasks
