#include "planner/parallelism/program/expand.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/legality.h"
#include "planner/parallelism/program/program_times.h"
#include "planner/parallelism/program/testing/listed_volumes.h"
#include "planner/parallelism/program/testing/small_models.h"
#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {
namespace {

using ::testing::HasSubstr;

Strategy Draw(std::mt19937& random, bool moe) {
  Strategy s{.dp = Any<int64_t>(random, {1, 2, 3, 4}),
             .tp = Any<int64_t>(random, {1, 1, 2, 4}),
             .pp = Any<int64_t>(random, {1, 2, 3, 4}),
             .vpp = Any<int64_t>(random, {1, 1, 2}),
             .micro_batch = Any<int64_t>(random, {1, 2}),
             .zero_stage = Any<int64_t>(random, {0, 1, 2, 3}),
             .shard_group = Any<int64_t>(random, {0, 0, 2})};
  s.cp = Any<int64_t>(random, {1, 1, 2, 4});
  s.context_mode = Any(random, {ContextMode::kRing, ContextMode::kAllGather, ContextMode::kUlysses});
  s.keep_after_forward = s.zero_stage == 3 && Any(random, {true, false});
  s.recompute = Any(random, {Recompute::kNone, Recompute::kSelective, Recompute::kFull});
  s.recompute_layers = Any<int64_t>(random, {-1, -1, 0, 1, 2});
  s.sequence_parallel = Any(random, {true, false});
  s.schedule = Any(random, {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B, ScheduleKind::kInterleaved,
                            ScheduleKind::kZbH1, ScheduleKind::kZbH2, ScheduleKind::kZbV});
  s.rank_order = Any(random, {RankOrder::kTpCpEpDpPp, RankOrder::kTpCpPpDp});
  s.data_sync =
      Any(random, {DataSync::kRing, DataSync::kRing, DataSync::kHierarchical, DataSync::kParameterServer, DataSync::kGossip});
  s.gradient_wire =
      Any(random, {GradientWire::kWhole, GradientWire::kWhole, GradientWire::kWhole, GradientWire::kBf16, GradientWire::kFp8});
  s.local_steps = Any<int64_t>(random, {1, 1, 1, 3});
  if (s.zero_stage == 3 && Any(random, {true, false})) {
    s.sharding = Sharding::kOperator;
    s.keep_after_forward = false;
  }
  if (!moe && Any(random, {true, false, false, false})) {  // a grid of tensor ranks
    s.tensor_mode = Any(random, {TensorMode::k2D, TensorMode::k25D, TensorMode::k3D});
    s.tensor_depth = s.tensor_mode == TensorMode::k25D ? 2 : 1;
    s.tp = s.tensor_mode == TensorMode::k2D ? 4 : 8;
    s.micro_batch = 4;
    s.sequence_parallel = false;
    s.cp = 1;
    s.sharding = Sharding::kUniform;
  }
  if (moe) {  // which are not executed with the others
    s.shard_group = 0;
    s.sharding = Sharding::kUniform;
    s.data_sync = DataSync::kRing;
    s.gradient_wire = GradientWire::kWhole;
    s.local_steps = 1;
    s.ep = Any<int64_t>(random, {1, 2, 4, 8});
    s.etp = Any<int64_t>(random, {1, 1, 2, 4});
  }
  s.bucket_bytes = Any(random, {Bytes(4), Bytes(20'000), Bytes(1 << 20)});
  return s;
}

/// What of a strategy decides how a list is written, as text.
std::string KindOf(const Strategy& s) {
  return fmt::format("{}{}{}{} {}{}{}", ScheduleName(s.schedule), s.zero_stage, s.sequence_parallel ? "sp" : "",
                     s.tp > 1 ? TensorModeName(s.tensor_mode) : "", s.ep > 1 ? "ep" : "", s.etp > 1 ? "etp" : "",
                     s.cp > 1 ? ContextModeName(s.context_mode) : "");
}

/// How its replicas share and exchange.
void AddExchanges(const Strategy& s, const ProgramChoices& choices, const std::vector<StageOperators>& operators,
                  std::set<std::string>* met) {
  for (const StageOperators& stage : operators) {
    if (stage.head_slices > 1) met->insert("head in slices");
    for (const OperatorRun& run : stage.runs) {
      for (const OperatorDecision& d : {run.attention, run.mlp}) met->insert(fmt::format("{}/{}{}", d.sharded, d.slices, d.kept));
    }
  }
  if (s.shard_group > 0 && s.shard_group < s.dp * s.cp) {
    met->insert(fmt::format("groups {}", s.zero_stage));
    if (s.zero_stage > 0 && s.cp > 1) met->insert("groups of contexts");
  }
  met->insert(ToString(choices.sums));
  met->insert(std::string(DataSyncName(s.data_sync)));
  met->insert(std::string(GradientWireName(s.gradient_wire)));
  if (s.local_steps > 1) met->insert("local steps");
}

// The two accounts of volumes: what the cost model prices, and what weft-train executes.
TEST(ExpandProgram, HasTheVolumesOfTheOperationList) {
  std::mt19937 random(7);
  std::set<std::string> met, exchanges;
  int checked = 0, experts_shared = 0, contexts = 0;
  std::map<TensorMode, int> grids;
  for (int draw = 0; draw < 400'000 && checked < 2500; ++draw) {
    JobSpec job{.name = "j",
                .model = Any(random, {SmallGpt(), SmallLlama(), SmallMixtral()}),
                .global_batch = Any<int64_t>(random, {12, 24}),
                .sequence = 32,
                .precision = Precision::kFp32};
    const Strategy s = Draw(random, job.model.IsMoe());
    job.gpus = GpuCount(s);
    if (WhyIllegal(job, job.gpus, s)) continue;
    // The cost model has a V's head, and with it a copy of a tied table, on the last stage; it ends on the first.
    if (s.schedule == ScheduleKind::kZbV && job.model.tied_embeddings) continue;
    SCOPED_TRACE(fmt::format("{} of {}, {} sequences", DescribeStrategy(s), job.model.name, job.global_batch));
    // Little memory, so that operators decide differently.
    ClusterSpec cluster = FindClusterPreset("dgx-a100", 32).value();
    cluster.gpus_per_node = Any<int64_t>(random, {1, 2, 8});
    cluster.device = FindDevice("cpu").value();
    const bool decides = s.sharding == Sharding::kOperator;
    cluster.device.memory =
        decides ? Bytes(static_cast<int64_t>(std::exp2(std::uniform_real_distribution(18.5, 22.0)(random)))) : Bytes(1 << 30);
    const CostModel model = CostModel::Make(job, cluster, {}, {.framework = Framework::kWeftTrain, .risk = std::nullopt}).value();
    CostModel::Scratch scratch;
    if (!model.Evaluate(s, scratch).fits) continue;
    const OperationList priced = model.Lower(s, scratch);
    const std::vector<StageOperators> operators = model.Operators(s, scratch);
    const ProgramChoices choices = ChoicesOf(s, operators, priced, cluster.gpus_per_node);
    if (WhyNoProgram(job, s, choices)) continue;
    const auto program = ExpandProgram(job, s, ElementType::kFloat32, choices);
    ASSERT_TRUE(program) << program.error().message();
    ASSERT_NO_FATAL_FAILURE(ExpectVolumesOf(OfList(priced), *program, s));
    // Nobody waits for somebody who waits for him.
    const auto timeline = TimelineOf(*program, {.compute = [](const RankClass&, const Instruction&) { return Seconds(1); },
                                                .communicate = [](const RankClass&, const Instruction&) { return Seconds(1); }});
    ASSERT_TRUE(timeline) << timeline.error().message();
    met.insert(KindOf(s));
    AddExchanges(s, choices, operators, &exchanges);
    ++checked;
    experts_shared += s.ep > 1 ? 1 : 0;
    contexts += s.cp > 1 ? 1 : 0;
    ++grids[s.tensor_mode];
  }
  EXPECT_EQ(checked, 2500);
  EXPECT_GT(met.size(), 200u);
  EXPECT_GT(experts_shared, 100);
  EXPECT_GT(contexts, 300);
  for (const TensorMode grid : {TensorMode::k2D, TensorMode::k25D, TensorMode::k3D}) EXPECT_GT(grids[grid], 50);
  // Replicated, kept, sharded; slices with a rest of either kind, and all; shard groups; sums in levels and on servers.
  for (const char* one : {"0/1false", "0/1true", "1/1false", "4/4false", "head in slices", "groups 1", "groups 2", "groups 3",
                          "groups of contexts", "ring", "tree", "hierarchical:2", "ps:4", "gossip", "bf16", "fp8", "local steps"}) {
    EXPECT_TRUE(exchanges.contains(one)) << one;
  }
}

TEST(ExpandProgram, DigestIsThatOfTheListAndNotOfItsNames) {
  JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 4};
  const Strategy s{.dp = 2, .pp = 2};
  StepProgram a = ExpandProgram(job, s, ElementType::kFloat32).value();
  const uint64_t digest = DigestOf(a);
  EXPECT_EQ(digest, DigestOf(ExpandProgram(job, s, ElementType::kFloat32).value()));
  EXPECT_NE(digest, DigestOf(ExpandProgram(job, s, ElementType::kFloat64).value()));
  EXPECT_NE(digest,
            DigestOf(ExpandProgram(job, {.dp = 2, .pp = 2, .schedule = ScheduleKind::kGpipe}, ElementType::kFloat32).value()));
  a.model = "another";
  EXPECT_EQ(digest, DigestOf(a));
}

// Three, three and two micro-batches: two kinds of lists, which send as much as replicas with equal shares.
TEST(ExpandProgram, ReplicasMayHaveUnequalShares) {
  JobSpec job{.name = "j", .model = SmallLlama(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 12};
  const Strategy s{.dp = 3, .tp = 2, .pp = 2, .zero_stage = 1, .rank_order = RankOrder::kTpCpPpDp};
  const std::vector<BatchShare> shares = {{.replicas = 2, .sequences = 6}, {.replicas = 1, .sequences = 2}};
  const StepProgram program = ExpandProgram(job, s, ElementType::kFloat32, {.shares = shares}).value();
  EXPECT_EQ(program.shares, (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(SequencesOf(program, 2).first, 6);
  ASSERT_EQ(program.classes.size(), 4u);
  for (const RankPlace& place : program.ranks) {
    EXPECT_EQ(MicroBatchesOf(program, static_cast<size_t>(place.rank_class)), place.replica < 2 ? 3 : 2);
    EXPECT_EQ(place.rank_class % 2, place.stage);
  }
  JobSpec equal_job = job;
  equal_job.global_batch = 9;
  const StepProgram equal = ExpandProgram(equal_job, s, ElementType::kFloat32).value();
  for (int64_t rank = 0; rank < 12; ++rank) {
    const auto of_data = [&](const StepProgram& p) {
      std::vector<ProgramVolume> found;
      for (const ProgramVolume& v : VolumesOf(p, rank)) {
        if (v.kind == CommunicatorKind::kData) found.push_back(v);
      }
      return found;
    };
    EXPECT_EQ(of_data(program), of_data(equal));
  }
}

// Three stages of 4, 1 and 1 layers, in the order of the model.
TEST(ExpandProgram, StagesMayHaveUnequalLayers) {
  const JobSpec job{
      .name = "j", .model = SmallLlama(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 3};
  const std::vector<int64_t> layers = {4, 1, 1};
  const StepProgram program = ExpandProgram(job, {.pp = 3}, ElementType::kFloat32, {.layers = layers}).value();
  std::vector<std::set<int32_t>> held;
  for (const RankClass& c : program.classes) {
    held.emplace_back();
    for (const ParameterBlock& b : c.blocks) {
      if (b.layer >= 0) held.back().insert(b.layer);
    }
  }
  EXPECT_EQ(held, (std::vector<std::set<int32_t>>{{0, 1, 2, 3}, {4}, {5}}));
  const auto why = [&](const Strategy& s, std::vector<int64_t> of_stages) {
    return ExpandProgram(job, s, ElementType::kFloat32, {.layers = of_stages}).error().message();
  };
  EXPECT_THAT(why({.pp = 3}, {4, 1}), HasSubstr("stages of 4, 1 layers: expected 3 stages with 6 layers together"));
  EXPECT_THAT(why({.pp = 3}, {4, 3, -1}), HasSubstr("expected 3 stages"));
  EXPECT_THAT(why({.pp = 3}, {4, 1, 2}), HasSubstr("with 6 layers together"));
  EXPECT_THAT(why({.pp = 2, .vpp = 2, .schedule = ScheduleKind::kZbV}, {4, 2}), HasSubstr("vpp=2: not executed"));
}

TEST(ExpandProgram, RefusesSharesThatCannotBe) {
  const JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 2};
  const auto why = [&](const Strategy& s, int64_t first, int64_t second) {
    const std::vector<BatchShare> shares = {{.replicas = 1, .sequences = first}, {.replicas = 1, .sequences = second}};
    return ExpandProgram(job, s, ElementType::kFloat32, {.shares = shares}).error().message();
  };
  EXPECT_THAT(why({.dp = 2}, 5, 2), HasSubstr("shares of 2 replicas and 7 sequences, expected 2 and 8"));
  EXPECT_THAT(why({.dp = 4}, 5, 3), HasSubstr("expected 4 and 8"));
  EXPECT_THAT(why({.dp = 2, .micro_batch = 2}, 5, 3),
              HasSubstr("a share of 5 sequences of 1 replicas: expected whole micro-batches"));
  EXPECT_THAT(why({.dp = 2, .zero_stage = 2}, 5, 3), HasSubstr("zero_stage=2: not executed"));
  EXPECT_THAT(why({.dp = 2, .local_steps = 2}, 5, 3), HasSubstr("replicas that differ"));
}

TEST(ExpandProgram, RefusesWhatIsNotExecutedByName) {
  JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 4};
  const auto why = [&](const Strategy& s) { return ExpandProgram(job, s, ElementType::kFloat32).error().message(); };
  JobSpec short_job = job;
  short_job.sequence = 30;
  EXPECT_THAT(WhyNoProgram(short_job, {.dp = 2, .cp = 2}).value_or(""), HasSubstr("cp=2: does not cut a sequence of 30"));
  EXPECT_THAT(why({.dp = 4, .zero_stage = 3, .shard_group = 1}), HasSubstr("shard_group=1: not executed"));
  EXPECT_THAT(why({.dp = 3}), HasSubstr("batch"));
  const Strategy by_switches{.dp = 4, .data_sync = DataSync::kSwitch};
  EXPECT_THAT(WhyNoProgram(job, by_switches).value_or(""), HasSubstr("data_sync=switch: not executed"));
  const Strategy decides{.dp = 4, .zero_stage = 3, .sharding = Sharding::kOperator};
  EXPECT_THAT(WhyNoProgram(job, decides).value_or(""), HasSubstr("decisions of 0 stages, expected those of 1"));
  const std::vector<StageOperators> cut = {
      {.runs = {{.layers = 4, .attention = {}, .mlp = {.slices = 3, .sharded = 3}}}, .head = true}};
  EXPECT_THAT(WhyNoProgram(job, decides, {.operators = cut}).value_or(""), HasSubstr("they do not divide"));
  // Each context rank has a part of every head's keys: no slice of heads.
  const std::vector<StageOperators> halves = {
      {.runs = {{.layers = 4, .attention = {.slices = 2, .sharded = 2}, .mlp = {.slices = 2, .sharded = 2}}}, .head = true}};
  const Strategy of_contexts{.dp = 2, .cp = 2, .zero_stage = 3, .sharding = Sharding::kOperator};
  EXPECT_THAT(WhyNoProgram(job, of_contexts, {.operators = halves}).value_or(""),
              HasSubstr("attention in 2 slices with cp=2: not executed"));
  JobSpec routed = job;
  routed.model = SmallMixtral();
  EXPECT_THAT(WhyNoProgram(routed, {.dp = 4, .tp = 2, .zero_stage = 2}).value_or(""),
              HasSubstr("zero_stage=2: not executed with ep=1 and etp=1, expected together at least tp=2"));
  EXPECT_THAT(WhyNoProgram(routed, {.dp = 4, .zero_stage = 3, .sharding = Sharding::kOperator}).value_or(""),
              HasSubstr("sharding=osdp: not executed, expected uniform with experts"));
  EXPECT_THAT(WhyNoProgram(routed, {.dp = 4, .zero_stage = 1, .shard_group = 2}).value_or(""),
              HasSubstr("shard_group=2: not executed, expected 0, all replicas, with experts"));
  EXPECT_THAT(WhyNoProgram(routed, {.dp = 4, .gradient_wire = GradientWire::kBf16}).value_or(""),
              HasSubstr("gradient_wire=bf16: not executed, expected whole with experts"));
  JobSpec narrow = job;
  narrow.precision = Precision::kBf16;
  EXPECT_THAT(WhyNoProgram(narrow, {}).value_or(""), HasSubstr("precision bf16: not executed, expected fp32"));
  JobSpec odd = job;
  odd.model = SmallLlama();
  odd.model.head_dim = 7;
  EXPECT_THAT(WhyNoProgram(odd, {}).value_or(""), HasSubstr("expected heads of an even width"));
}

}  // namespace
}  // namespace weft::planner::parallelism
