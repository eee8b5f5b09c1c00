// What a micro-batch in flight adds to a stage's peak, by hand.
#include "planner/tasks/program_memory.h"

#include <gtest/gtest.h>

#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/testing/small_models.h"

namespace weft::planner::inline parallelism {
namespace {

int64_t PeakOf(const ModelSpec& model, Strategy s, int64_t micro_batches, int64_t rank) {
  const JobSpec job{.model = model, .global_batch = micro_batches * s.micro_batch * s.dp, .sequence = 32,
                    .precision = Precision::kFp32, .gpus = GpuCount(s)};
  const StepProgram program = ExpandProgram(job, s, ElementType::kFloat32).value();
  return PeakMemoryOf(program, model, rank).count();
}

// GPipe's first stage has 2 of 4 layers and all micro-batches in flight. Of T = 32 tokens, h = 64, 8 heads, 4h inner columns a layer keeps
// x, n, q, k, v, o, x + y and n2 (8 Th), the inner values before and behind the activation (8 Th), scores (8 heads · T · T), and two
// numbers a token of each of two norms; the micro-batch besides its tokens, targets and positions, 8 bytes each.
TEST(PeakMemory, OfAMicroBatchMoreIsWhatItsLayersKeep) {
  Strategy s{.pp = 2};
  s.schedule = ScheduleKind::kGpipe;
  const int64_t t = 32, h = 64, layer = 4 * (16 * t * h + 8 * t * t + 4 * t);
  EXPECT_EQ(PeakOf(SmallGpt(), s, 6, 0) - PeakOf(SmallGpt(), s, 5, 0), 2 * layer + 8 * 3 * t);
}

// The same of two sequences on a grid of 2 × 2, whose ranks have r = T rows and half of the columns, and four of the heads. Two norms
// keep two sums of each row, and two vectors of their columns.
TEST(PeakMemory, OfAMicroBatchMoreOnAGridIsAQuarter) {
  Strategy s{.tp = 4, .pp = 2, .micro_batch = 2, .tensor_mode = TensorMode::k2D};
  s.schedule = ScheduleKind::kGpipe;
  const int64_t r = 32, h = 64, layer = 4 * (16 * r * h / 2 + 4 * r * r + 2 * 2 * r + 2 * 2 * h / 2);
  EXPECT_EQ(PeakOf(SmallGpt(), s, 8, 0) - PeakOf(SmallGpt(), s, 7, 0), 2 * layer + 8 * (2 * 2 * 32 + 32));
}

// One micro-batch of either stage's schedule is in flight more: 1F1B holds as many as there are stages behind.
TEST(PeakMemory, OfOneForwardOneBackwardDoesNotGrowWithTheBatch) {
  const Strategy s{.pp = 2};
  const int64_t tokens = 8 * 3 * 32;  // which stay until the step ends
  EXPECT_EQ(PeakOf(SmallGpt(), s, 9, 0) - PeakOf(SmallGpt(), s, 6, 0), 3 * tokens);
}

// Nothing but each layer's input stays: with so many micro-batches more than what the optimizer's step needs besides.
TEST(PeakMemory, OfFullRecomputationIsTheLayersInputs) {
  Strategy s{.pp = 2};
  s.schedule = ScheduleKind::kGpipe;
  s.recompute = Recompute::kFull;
  EXPECT_EQ(PeakOf(SmallGpt(), s, 151, 0) - PeakOf(SmallGpt(), s, 150, 0), 2 * 4 * 32 * 64 + 8 * 3 * 32);
}

// Moments and gradients of a layer are a quarter under ZeRO-2; there is less to sum at once.
TEST(PeakMemory, ShardsAreAShare) {
  Strategy plain{.dp = 4}, sharded{.dp = 4};
  sharded.zero_stage = 2;
  const ModelSpec model = SmallLlama();
  EXPECT_LT(PeakOf(model, sharded, 1, 0), PeakOf(model, plain, 1, 0) - 2 * 4 * ParameterCount(model) * 3 / 4);
}

}  // namespace
}  // namespace weft::planner::parallelism
