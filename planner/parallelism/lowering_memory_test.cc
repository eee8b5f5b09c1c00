// The memory that the list of operations says, walked in the order of the schedule, against the cost model's closed forms, and its
// simple pieces against formulas that are written down here once more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/variables.h"
#include "planner/search/testing/random_cases.h"
#include "planner/tasks/memory_over_time.h"
#include "planner/tasks/pipeline.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

/// Bytes of a stage's pieces of one kind, each once.
Bytes Sum(const StageOperations& stage, HoldingPart part) {
  Bytes sum;
  for (const Holding& piece : stage.memory) {
    if (piece.part == part) sum += piece.bytes;
  }
  return sum;
}

double LayersOf(const StageOperations& stage, std::string_view what) {
  double count = 0;
  for (const Operation& o : stage.operations) {
    if (o.kind == OperationKind::kCompute && o.pass == OperationPass::kForward && o.what == what) count += o.calls;
  }
  return count;
}

/// Parameters of a GPT-2, Llama or Mixtral of random_cases.h on one rank: matrices, and biases with them, are cut; positions and
/// routers are whole, and norms unless a grid cuts the residual stream. All of a grid's depth have the same.
struct Parameters {
  double plain = 0, experts = 0;

  Parameters(const ModelSpec& m, const Strategy& s, double dense, double moe, bool first, bool last) {
    const auto h = static_cast<double>(m.hidden), d = static_cast<double>(m.head_dim), a = static_cast<double>(m.heads);
    const auto kv = static_cast<double>(m.kv_heads), t = static_cast<double>(s.tp), f = static_cast<double>(m.ffn_hidden);
    const auto expert = static_cast<double>(m.expert_ffn_hidden), count = static_cast<double>(m.experts);
    const double cut = t / static_cast<double>(s.tensor_depth), whole = s.tensor_mode == TensorMode::k1D ? 1 : cut;
    const double ways = m.gated_mlp ? 3 : 2, norm = 2 * h;
    const double attention = 2 * h * a * d + 2 * h * kv * d + a * d + 2 * kv * d + h;
    const double mlp = ways * h * f + (ways - 1) * f + h;
    plain = dense * ((attention + mlp) / cut + 2 * norm / whole) + moe * (attention / cut + 2 * norm / whole + h * count);
    experts = moe * count * ways * h * expert / static_cast<double>(s.ep * s.etp);
    // The head's table is the embedding's; stages apart each have it.
    const double table = static_cast<double>(m.vocab) * h / t;
    if (first || last) plain += table;
    if (first) plain += static_cast<double>(m.max_positions) * h;
    if (last) plain += norm / whole;
  }
};

struct Seen {
  std::set<ScheduleKind> schedules;
  std::set<int64_t> zero_stages;
  std::set<Recompute> recomputes;
  std::set<DataSync> exchanges;
  std::set<std::string> pieces;
  int strategies = 0, stages = 0, by_operator = 0, formulas = 0;
};

/// 16-bit parameters, fp32 gradients, two moments and a copy in fp32, and what each ZeRO stage divides: arXiv 1910.02054.
void ExpectTheFormulas(const JobSpec& job, const Strategy& s, const StageOperations& stage) {
  const bool first = stage.stages.front() == 0, last = stage.stages.back() == s.pp - 1;
  const Parameters p(job.model, s, LayersOf(stage, "layers"), LayersOf(stage, "MoE layers"), first, last);
  const auto shards = static_cast<double>(s.shard_group > 0 ? s.shard_group : s.dp * s.cp);
  const auto copies = static_cast<double>(s.tp * s.cp * s.dp / (s.etp * s.ep));
  const double all = p.plain + p.experts, part = p.plain / shards + p.experts / std::min(shards, std::max(1.0, copies));
  double parameters = 2 * (s.zero_stage == 3 ? part : all), gradients = 4 * (s.zero_stage >= 2 ? part : all);
  if (s.zero_stage == 3 && s.keep_after_forward) parameters += 2 * all;
  if (s.gradient_wire == GradientWire::kFp8) gradients += 2 * all;
  const bool replicated = s.dp * s.cp > 1;
  if (s.zero_stage >= 2 && replicated && s.schedule == ScheduleKind::kInterleaved) gradients += 4 * all / static_cast<double>(s.vpp);
  EXPECT_NEAR(static_cast<double>(Sum(stage, HoldingPart::kParameters).count()), parameters, 2);
  EXPECT_NEAR(static_cast<double>(Sum(stage, HoldingPart::kGradients).count()), gradients, 2);
  EXPECT_NEAR(static_cast<double>(Sum(stage, HoldingPart::kOptimizer).count()), 12 * (s.zero_stage >= 1 ? part : all), 2);
}

/// Every stage's walk against the closed form, part by part where nothing is counted by micro-batch.
void CheckStages(const CostModel& model, const Strategy& s, bool formulas, CostModel::Scratch& scratch, Seen& seen) {
  SCOPED_TRACE(fmt::format("{} of {} layers", DescribeStrategy(s), model.job().model.layers));
  const OperationList list = model.Lower(s, scratch);
  std::vector<MemoryUse> stages(static_cast<size_t>(s.pp));
  model.EvaluateMemory(s, stages, scratch);
  for (int64_t i = 0; i < s.pp; ++i) {
    const MemoryUse& closed = stages[static_cast<size_t>(i)];
    const StageOperations& own = list.OfStage(i);
    const Result<MemoryOverTime> walked = MemoryOfStage(list, i);
    ASSERT_TRUE(walked) << walked.error().message();
    ASSERT_EQ(walked->peak, closed.total()) << "stage " << i;
    ASSERT_EQ(Sum(own, HoldingPart::kParameters), closed.parameters);
    ASSERT_EQ(Sum(own, HoldingPart::kGradients), closed.gradients);
    ASSERT_EQ(Sum(own, HoldingPart::kOptimizer), closed.optimizer);
    ASSERT_EQ(Sum(own, HoldingPart::kContext), closed.context);
    ASSERT_EQ(Sum(own, HoldingPart::kActivations) * InFlight(s.schedule, i, s.pp, list.micro_batches, s.vpp), closed.activations);
    for (const Holding& piece : own.memory) seen.pieces.emplace(piece.what);
    if (formulas && s.sharding == Sharding::kUniform) {
      ExpectTheFormulas(model.job(), s, own);
      ++seen.formulas;
    }
    ++seen.stages;
  }
  ++seen.strategies;
  seen.schedules.insert(s.schedule);
  seen.zero_stages.insert(s.zero_stage);
  seen.recomputes.insert(s.recompute);
  seen.exchanges.insert(s.data_sync);
  seen.by_operator += s.sharding == Sharding::kOperator ? 1 : 0;
}

TEST(Lower, MemoryOverTimePeaksAtTheClosedFormToTheByte) {
  std::mt19937 random(91);
  Seen seen;
  while (seen.strategies < 6000) {
    JobSpec job = RandomJob(random);
    job.global_batch *= random() % 2 == 0 ? 1 : 8;
    const bool formulas = random() % 2 == 0;
    job.precision = formulas || random() % 2 == 0 ? Precision::kBf16 : random() % 2 == 0 ? Precision::kFp32 : Precision::kFp8;
    ClusterSpec cluster = RandomCluster(random);  // decisions per operator depend on how little memory there is
    cluster.switch_sums = true;
    const Framework framework = formulas ? Framework::kAny : static_cast<Framework>(random() % AllFrameworks().size());
    const CostModel model = CostModel::Make(job, cluster, Calibration(), {.framework = framework}).value();
    CostModel::Scratch scratch;
    const SpaceOptions everything{.allow = {.low_precision = true, .local_steps = true, .gossip = true}};
    for (const Strategy& s : DrawLeaves(model, random, 12, everything)) {
      CheckStages(model, s, formulas, scratch, seen);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(seen.schedules.size(), kAllSchedules.size());
  EXPECT_EQ(seen.zero_stages.size(), 4u);
  EXPECT_EQ(seen.recomputes.size(), 3u);
  EXPECT_EQ(seen.exchanges.size(), 5u);
  EXPECT_GT(seen.by_operator, 50);
  EXPECT_GT(seen.formulas, 1000);
  EXPECT_EQ(seen.pieces.size(), 15u) << "every kind of piece was met";
  RecordProperty("strategies", seen.strategies);
  RecordProperty("stages", seen.stages);
  RecordProperty("formulas", seen.formulas);
  RecordProperty("pieces", fmt::format("{}", seen.pieces.size()));
}

// The embedding's masks live in the first chunk. With interleaving that holds two rounds of micro-batches at once, 2p, and not the mean
// of all chunks, which the closed form once took: (p - 1) · 2 + (v - 1) p + 1 of v chunks, 31 / 3 at p = 8, v = 3.
TEST(Lower, MasksOfTheEmbeddingAreThoseOfTheFirstChunk) {
  JobSpec job{.name = "j", .model = FindModelPreset("gpt3-175b").value(), .global_batch = 64, .sequence = 2048,
              .precision = Precision::kBf16, .gpus = 64};
  const CostModel model = CostModel::Make(job, FindClusterPreset("dgx-a100", 8).value()).value();
  CostModel::Scratch scratch;
  const Strategy s{.tp = 8, .pp = 8, .vpp = 3, .schedule = ScheduleKind::kInterleaved};
  const OperationList list = model.Lower(s, scratch);
  std::vector<MemoryUse> stages(8);
  model.EvaluateMemory(s, stages, scratch);
  const int64_t masks = 16 * 2048 * 12288;  // one byte for each value of the stream, of 16 micro-batches
  EXPECT_EQ(stages[0].transient - stages[1].transient, Bytes(masks));
  EXPECT_EQ(MemoryOfStage(list, 0)->peak, stages[0].total());
}

}  // namespace
}  // namespace weft::planner::parallelism
