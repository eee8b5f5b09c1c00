#include "planner/tasks/pipeline_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::planner::inline tasks {
namespace {

// Pass indices of ZB-V's order fit 32 bits, stages 16.
constexpr int64_t kMostStages = 4096, kMostPasses = int64_t{1} << 28;

/// Passes per stage before the first backward pass.
int64_t WarmUp(ScheduleKind schedule, int64_t stage, int64_t p, int64_t m, int64_t v) {
  const int64_t below = p - 1 - stage;
  switch (schedule) {
    case ScheduleKind::kGpipe: return m;
    case ScheduleKind::k1F1B:
    case ScheduleKind::kZbH1: return below;
    case ScheduleKind::kInterleaved: return m == p && v > 1 ? m * v : 2 * below + (v - 1) * p;
    default: return 2 * below;
  }
}

/// How many weight gradients wait: what the later stages have spare of the first stage's memory.
int64_t Waiting(ScheduleKind schedule, int64_t stage) { return schedule == ScheduleKind::kZbH2 ? 2 * stage : stage; }

/// Forward passes take p micro-batches through chunk 0, then the same through chunk 1 and so on; backward passes from the
/// last chunk to the first. With one chunk that is the plain order.
StagePass Nth(PassKind kind, int64_t n, int64_t p, int64_t v) {
  const int64_t round = n / (p * v), inside = n % (p * v);
  const int64_t chunk = kind == PassKind::kForward ? inside / p : v - 1 - inside / p;
  return {kind, static_cast<int32_t>(chunk), round * p + inside % p};
}

std::vector<StagePass> WarmUpThenAlternate(ScheduleKind schedule, int64_t stage, int64_t p, int64_t m, int64_t v) {
  const int64_t passes = m * v, warm_up = std::min(passes, WarmUp(schedule, stage, p, m, v));
  const bool split = SplitsBackward(schedule);
  std::vector<StagePass> order;
  order.reserve(static_cast<size_t>((split ? 3 : 2) * passes));
  for (int64_t n = 0; n < warm_up; ++n) order.push_back(Nth(PassKind::kForward, n, p, v));
  int64_t weights = 0;
  for (int64_t q = 0; q < passes; ++q) {
    if (warm_up + q < passes) order.push_back(Nth(PassKind::kForward, warm_up + q, p, v));
    order.push_back(Nth(PassKind::kData, q, p, v));
    if (split && q >= Waiting(schedule, stage)) order.push_back({PassKind::kWeight, 0, weights++});
  }
  while (split && weights < passes) order.push_back({PassKind::kWeight, 0, weights++});
  return order;
}

/// ZB-V on stage i. Source: the handcrafted schedule of arXiv 2401.10241, for F = D = W:
///   warm-up   2(p-i)-1 forwards of chunk 0; i times a forward of chunk 1 and of chunk 0;
///             p-i times forward, data gradient, weight gradient of chunk 1
///   steady    forward, D, W of chunk 0, then of chunk 1, until no forward is left
///   drain     i times D of chunk 0 and of chunk 1; p-i times D and W of chunk 0; then the weight gradients that wait
/// With fewer than 2p-1 micro-batches the passes of those that do not exist are left out.
class VShape {
 public:
  VShape(int64_t stage, int64_t p, int64_t m) : m_(m) {
    using enum PassKind;
    const int64_t padded = std::max(m, 2 * p - 1);
    Repeat(2 * (p - stage) - 1, [&] { Add(kForward, 0); });
    Repeat(stage, [&] { Add(kForward, 1), Add(kForward, 0); });
    Repeat(p - stage, [&] { Add(kForward, 1), Add(kData, 1), Add(kWeight, 1); });
    while (Next(kForward, 1) < padded) {
      if (Next(kForward, 0) < padded) Add(kForward, 0);
      Add(kData, 0), Add(kWeight, 0);
      Add(kForward, 1), Add(kData, 1), Add(kWeight, 1);
    }
    Repeat(stage, [&] { Add(kData, 0), Add(kData, 1); });
    Repeat(p - stage, [&] { Add(kData, 0), Add(kWeight, 0); });
    while (Next(kWeight, 1) < Next(kData, 1)) Add(kWeight, 1);
    while (Next(kWeight, 0) < Next(kData, 0)) Add(kWeight, 0);
  }

  std::vector<StagePass> Take() { return std::move(order_); }

 private:
  template <typename Body>
  static void Repeat(int64_t times, Body body) {
    for (int64_t k = 0; k < times; ++k) body();
  }

  int64_t& Next(PassKind kind, int32_t chunk) { return next_[static_cast<int>(kind)][chunk]; }

  void Add(PassKind kind, int32_t chunk) {
    const int64_t micro_batch = Next(kind, chunk)++;
    if (micro_batch < m_) order_.push_back({kind, chunk, micro_batch});
  }

  int64_t m_;
  int64_t next_[3][2] = {};
  std::vector<StagePass> order_;
};

}  // namespace

Status CheckOrder(ScheduleKind schedule, int64_t p, int64_t m, int64_t v) {
  const auto refuse = [&](std::string_view what) {
    return Fail(Code::kInvalidArgument, fmt::format("{} pipeline: {}", ScheduleName(schedule), what));
  };
  if (v < 1 || m < 1) return refuse(fmt::format("{} micro-batches of {} chunks, both must be positive", m, v));
  if (p > kMostStages || v > kMostPasses || m > kMostPasses / (4 * p * v)) {
    return refuse(fmt::format("{} stages, {} chunks, {} micro-batches: expected at most {} stages and {} passes", p, v, m, kMostStages,
                              kMostPasses));
  }
  if (schedule == ScheduleKind::kZbV && v != 2) return refuse(fmt::format("{} chunks, expected 2", v));
  const bool chunks = schedule == ScheduleKind::kZbV || schedule == ScheduleKind::kInterleaved;
  if (!chunks && v != 1) return refuse(fmt::format("{} chunks, expected 1", v));
  if (v > 1 && schedule == ScheduleKind::kInterleaved && m % p != 0) {
    return refuse(fmt::format("{} micro-batches, expected a multiple of {} stages", m, p));
  }
  return Ok();
}

std::vector<StagePass> StageOrder(ScheduleKind schedule, int64_t stage, int64_t p, int64_t m, int64_t v) {
  if (schedule == ScheduleKind::kZbV) return VShape(stage, p, m).Take();
  return WarmUpThenAlternate(schedule, stage, p, m, v);
}

int64_t VirtualStage(ScheduleKind schedule, int64_t stage, int64_t chunk, int64_t p) {
  return schedule == ScheduleKind::kZbV && chunk == 1 ? 2 * p - 1 - stage : chunk * p + stage;
}

StageChunk PlaceOf(ScheduleKind schedule, int64_t virtual_stage, int64_t p) {
  const int64_t chunk = virtual_stage / p, inside = virtual_stage % p;
  return {schedule == ScheduleKind::kZbV && chunk == 1 ? p - 1 - inside : inside, chunk};
}

}  // namespace weft::planner::tasks
