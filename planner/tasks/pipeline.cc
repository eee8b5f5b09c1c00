#include "planner/tasks/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/tasks/pipeline_order.h"
#include "planner/tasks/pipeline_tables.h"

namespace weft::planner::inline tasks {
namespace {

constexpr double kMostSeconds = 5e6;

Tick Ticks(Seconds time) { return std::llround(time.count() * kTicksPerSecond); }
Seconds ToSeconds(Tick ticks) { return Seconds(static_cast<double>(ticks) / kTicksPerSecond); }

Status CheckShape(const PipelineProblem& problem) {
  const int64_t m = problem.micro_batches, v = problem.chunks;
  const auto cells = static_cast<int64_t>(problem.stages.size());
  const auto refuse = [&](std::string_view what) {
    return Fail(Code::kInvalidArgument, fmt::format("{} pipeline: {}", ScheduleName(problem.schedule), what));
  };
  if (v < 1 || m < 1) return CheckOrder(problem.schedule, 1, m, v);
  if (cells == 0 || cells % v != 0) {
    return refuse(fmt::format("{} stage times, expected a positive multiple of {} chunks", cells, v));
  }
  const int64_t p = cells / v;
  WEFT_RETURN_IF_ERROR(CheckOrder(problem.schedule, p, m, v));
  const auto hops = static_cast<int64_t>(problem.hops.size());
  if (hops != 0 && hops != 1 && hops != p) {
    return refuse(fmt::format("{} hop times, expected none, 1 or {} (one per stage)", hops, p));
  }
  return Ok();
}

Status CheckTimes(const PipelineProblem& problem) {
  double sum = 0;
  const auto add = [&](Seconds time, int64_t chunks = 1) {
    sum += time.count() * static_cast<double>(problem.micro_batches * chunks);
    return std::isfinite(time.count()) && time.count() >= 0;
  };
  const auto refuse = [&](std::string_view what, size_t index, Seconds time) {
    return Fail(Code::kInvalidArgument, fmt::format("{} pipeline: {} {} is {} s, expected a finite time of 0 or more",
                                                    ScheduleName(problem.schedule), what, index, time.count()));
  };
  for (size_t k = 0; k < problem.stages.size(); ++k) {
    const StageTime& stage = problem.stages[k];
    if (!add(stage.forward)) return refuse("forward time", k, stage.forward);
    if (!add(stage.data_gradient)) return refuse("data gradient time", k, stage.data_gradient);
    if (!add(stage.weight_gradient)) return refuse("weight gradient time", k, stage.weight_gradient);
  }
  for (size_t k = 0; k < problem.hops.size(); ++k) {
    if (!add(problem.hops[k], problem.chunks)) return refuse("hop time", k, problem.hops[k]);
  }
  if (sum > kMostSeconds) {
    return Fail(Code::kInvalidArgument, fmt::format("{} pipeline: all passes together take {} s, expected at most {} s",
                                                    ScheduleName(problem.schedule), sum, kMostSeconds));
  }
  return Ok();
}

/// Ways between neighbours, and between the ends for a chunk that follows another.
class Hops {
 public:
  Hops(const PipelineProblem& problem, int64_t p) : problem_(problem), p_(p) {}

  /// From stage i to stage i + 1, the last to the first.
  Tick After(int64_t i) const {
    if (problem_.hops.empty() || p_ == 1) return 0;
    return Ticks(problem_.hops[problem_.hops.size() == 1 ? 0 : static_cast<size_t>(i)]);
  }
  Tick Before(int64_t i) const { return After(i > 0 ? i - 1 : p_ - 1); }

 private:
  const PipelineProblem& problem_;
  int64_t p_;
};

void FillCosts(const PipelineProblem& problem, PipelineScratch::Tables& tables) {
  const int64_t p = tables.p, v = tables.v;
  const Hops hops(problem, p);
  const bool split = SplitsBackward(problem.schedule);
  for (int64_t i = 0; i < p; ++i) {
    for (int64_t c = 0; c < v; ++c) {
      const StageTime& time = problem.stages[static_cast<size_t>(i * v + c)];
      const Tick data = Ticks(time.data_gradient), weight = Ticks(time.weight_gradient);
      ChunkCost cost{.forward = Ticks(time.forward), .backward = split ? data : data + weight,
                     .weight = split ? weight : 0};
      if (problem.schedule == ScheduleKind::kZbV) {
        // Down with chunk 0, up with chunk 1; at the bottom both lie on the last stage.
        const Tick below = i + 1 < p ? hops.After(i) : 0, above = i > 0 ? hops.Before(i) : 0;
        cost.send_forward = c == 0 ? below : above;
        cost.send_backward = c == 0 ? above : below;
      } else {
        if (i + 1 < p || c + 1 < v) cost.send_forward = hops.After(i);
        if (i > 0 || c > 0) cost.send_backward = hops.Before(i);
      }
      tables.costs[static_cast<size_t>(i * v + c)] = cost;
    }
  }
}

StageUse Use(ScheduleKind schedule, const PipelineScratch::Tables& tables, int64_t i, Tick makespan) {
  Tick start = tables.chunks[static_cast<size_t>(i * tables.v)].first_forward;
  Tick busy = 0;
  for (int64_t c = 0; c < tables.v; ++c) {
    const ChunkCost& cost = tables.costs[static_cast<size_t>(i * tables.v + c)];
    busy += cost.forward + cost.backward + cost.weight + ((cost.send_forward + cost.send_backward) & tables.blocking);
    start = std::min(start, tables.chunks[static_cast<size_t>(i * tables.v + c)].first_forward);
  }
  busy *= tables.m;
  return {ToSeconds(start), ToSeconds(tables.lanes[static_cast<size_t>(i)].free), ToSeconds(busy),
          ToSeconds(makespan - busy), InFlight(schedule, i, tables.p, tables.m, tables.v)};
}

PipelineTime Collect(ScheduleKind schedule, PipelineScratch::Tables& tables) {
  Tick makespan = 0;
  for (int64_t i = 0; i < tables.p; ++i) makespan = std::max(makespan, tables.lanes[static_cast<size_t>(i)].free);
  PipelineTime time{.makespan = ToSeconds(makespan)};
  Seconds longest{0};
  for (int64_t i = 0; i < tables.p; ++i) {
    const StageUse use = Use(schedule, tables, i, makespan);
    tables.stage_use[static_cast<size_t>(i)] = use;
    longest = std::max(longest, use.end - use.start);
  }
  for (size_t k = 0; k < tables.chunks.size(); ++k) {
    const ChunkTicks& ticks = tables.chunks[k];
    const Tick from = SplitsBackward(schedule) ? ticks.gradients_ready - tables.costs[k].weight : ticks.last_backward;
    tables.chunk_use[k] = {.first_forward = ToSeconds(ticks.first_forward),
                           .first_backward_end = ToSeconds(ticks.first_backward_end),
                           .last_backward = ToSeconds(ticks.last_backward),
                           .gradients_from = ToSeconds(from),
                           .gradients_ready = ToSeconds(ticks.gradients_ready)};
  }
  time.iteration = HasBarrier(schedule) ? time.makespan : longest;
  time.stages = tables.stage_use;
  time.chunks = tables.chunk_use;
  time.operations = (SplitsBackward(schedule) ? 3 : 2) * tables.p * tables.v * tables.m;
  time.simulated = tables.simulated;
  return time;
}

}  // namespace

PipelineScratch::PipelineScratch() : tables_(std::make_unique<Tables>()) {}
PipelineScratch::~PipelineScratch() = default;
PipelineScratch::PipelineScratch(PipelineScratch&&) noexcept = default;
PipelineScratch& PipelineScratch::operator=(PipelineScratch&&) noexcept = default;

Status CheckPipeline(const PipelineProblem& problem) {
  WEFT_RETURN_IF_ERROR(CheckShape(problem));
  return CheckTimes(problem);
}

Result<PipelineTime> SimulatePipeline(const PipelineProblem& problem, PipelineScratch& scratch) {
  WEFT_RETURN_IF_ERROR(CheckPipeline(problem));
  PipelineScratch::Tables& tables = scratch.tables();
  const size_t cells = problem.stages.size();
  tables.v = problem.chunks;
  tables.p = static_cast<int64_t>(cells) / tables.v;
  tables.m = problem.micro_batches;
  tables.blocking = problem.blocking_sends ? ~Tick{0} : 0;
  tables.simulated = 0;
  const auto stages = static_cast<size_t>(tables.p);
  tables.costs.resize(cells);
  tables.chunks.resize(cells);
  tables.chunk_use.resize(cells);
  tables.lanes.resize(stages);
  tables.checkpoint.resize(stages);
  tables.stage_use.resize(stages);
  FillCosts(problem, tables);
  if (problem.schedule == ScheduleKind::kZbV) {
    RunZbV(tables);
  } else {
    RunWave(problem.schedule, tables);
  }
  return Collect(problem.schedule, tables);
}

int64_t InFlight(ScheduleKind schedule, int64_t stage, int64_t p, int64_t m, int64_t v) {
  const int64_t below = p - 1 - stage;
  switch (schedule) {
    case ScheduleKind::kGpipe: return m;
    case ScheduleKind::k1F1B: return std::min(m, below + 1);
    case ScheduleKind::kEager1F1B: return std::min(m, 2 * below + 1);
    case ScheduleKind::kInterleaved:
      if (m == p && v > 1) return m * v;
      return std::min(m * v, 2 * below + (v - 1) * p + 1);
    // What waits for its weight gradient adds to what waits for its backward pass.
    case ScheduleKind::kZbH1: return std::min(m, below + 1 + stage);
    case ScheduleKind::kZbH2: return std::min(m, 2 * below + 1 + 2 * stage);
    case ScheduleKind::kZbV: return std::min(m, 2 * p - 1 - stage) + std::min(m, stage + 1);
  }
  return m * v;
}

int64_t FirstChunkInFlight(ScheduleKind schedule, int64_t p, int64_t m, int64_t v) {
  // Two rounds of p: the second goes in before the first one's gradients come back through all chunks; ZB-V's two chunks trade places.
  return v > 1 ? std::min(m, 2 * p) : InFlight(schedule, 0, p, m, v);
}

}  // namespace weft::planner::tasks
