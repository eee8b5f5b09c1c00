#include "planner/parallelism/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include "planner/parallelism/legality.h"
#include "planner/parallelism/variables.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

std::vector<CommunicationVolume> Volumes(const CostModel& model, const Strategy& s, int64_t stage) {
  CostModel::Scratch scratch;
  return CostModel::CommunicationVolumes(model.Lower(s, scratch), stage);
}

using testing::HasSubstr;

JobSpec Job(const char* model, int64_t gpus, int64_t batch, int64_t sequence = 2048) {
  return {.name = "j", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = sequence,
          .precision = Precision::kBf16, .gpus = gpus};
}

CostModel Model(const JobSpec& job, const char* cluster = "dgx-a100") {
  return CostModel::Make(job, FindClusterPreset(cluster, (job.gpus + 7) / 8).value()).value();
}

const CommunicationVolume* Find(const std::vector<CommunicationVolume>& volumes, std::string_view what) {
  for (const CommunicationVolume& line : volumes) {
    if (line.what == what) return &line;
  }
  return nullptr;
}

/// Legal strategies of a job, drawn at random.
std::vector<Strategy> Draw(const CostModel& model, int count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<int64_t>& of) { return of[random() % of.size()]; };
  std::vector<Strategy> drawn;
  const JobSpec& job = model.job();
  for (int tries = 0; tries < 200'000 && static_cast<int>(drawn.size()) < count; ++tries) {
    Strategy s{.tp = pick({1, 2, 4, 8}), .pp = pick({1, 2, 4, 8}), .cp = pick({1, 1, 2}), .ep = pick({1, 1, 2, 8}),
               .vpp = pick({1, 1, 2, 3}), .micro_batch = pick({1, 2, 4}), .zero_stage = pick({0, 1, 2, 3})};
    s.dp = job.gpus / (s.tp * s.pp * s.cp);
    s.recompute = static_cast<Recompute>(random() % 3);
    s.sequence_parallel = s.tp > 1 && random() % 2 == 0;
    s.schedule = s.vpp > 1 ? ScheduleKind::kInterleaved
                           : std::vector{ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kZbH1}[random() % 3];
    s.keep_after_forward = s.zero_stage == 3 && s.pp > 1;
    if (model.IsLegal(s)) drawn.push_back(s);
  }
  return drawn;
}

// At 32768 tokens a window of 1024 in every layer leaves 1/16 of the pairs; without a mask there are twice as many.
TEST(CostModel, AWindowIsFasterAndNoMaskSlower) {
  CostModel::Scratch scratch;
  const Strategy s{.dp = 8, .tp = 8, .recompute = Recompute::kFull, .sequence_parallel = true};
  JobSpec job = Job("llama3-8b", 64, 64, 32768), windowed = job, open = job;
  windowed.model.window_kind = AttentionWindow::kSliding;
  windowed.model.attention_window = 1024;
  windowed.model.local_layers.assign(32, true);
  open.model.causal = false;
  const double base = Model(job).Evaluate(s, scratch).compute.count();
  scratch.Clear();
  const double less = Model(windowed).Evaluate(s, scratch).compute.count();
  scratch.Clear();
  const double more = Model(open).Evaluate(s, scratch).compute.count();
  // The core's share c of the causal model: less = base − c·15/16, more = base + c.
  EXPECT_NEAR((base - less) / (more - base), 15.0 / 16, 0.02);
  EXPECT_GT(Model(open).model_flops().count(), 0);
  EXPECT_DOUBLE_EQ(Model(open).model_flops().count(), Model(job).model_flops().count()) << "causal counts whole";
  EXPECT_LT(Model(windowed).model_flops().count(), Model(job).model_flops().count());
}

TEST(CostModel, PartsAddUpToTheIteration) {
  for (const char* name : {"gpt3-175b", "llama3-8b", "mixtral-8x7b"}) {
    const CostModel model = Model(Job(name, 64, 256));
    CostModel::Scratch scratch;
    const std::vector<Strategy> strategies = Draw(model, 300, 7);
    ASSERT_EQ(strategies.size(), 300U);
    for (const Strategy& s : strategies) {
      const Estimate e = model.Evaluate(s, scratch);
      const Seconds parts = e.compute + e.exposed_communication() + e.bubble + e.optimizer + e.overhead;
      ASSERT_NEAR(parts / e.iteration, 1, 1e-9) << name;
      ASSERT_GE(e.bubble.count(), -1e-9 * e.iteration.count()) << name;
      ASSERT_GT(e.compute.count(), 0);
    }
  }
}

TEST(CostModel, AnswersDoNotDependOnWhatWasAskedBefore) {
  const CostModel model = Model(Job("llama3-8b", 64, 256));
  CostModel::Scratch used;
  const std::vector<Strategy> strategies = Draw(model, 100, 3);
  for (const Strategy& s : strategies) model.Evaluate(s, used);
  for (const Strategy& s : strategies) {
    CostModel::Scratch fresh;
    ASSERT_EQ(model.Evaluate(s, used).iteration, model.Evaluate(s, fresh).iteration);
    ASSERT_EQ(model.Evaluate(s, used).memory.total(), model.Evaluate(s, fresh).memory.total());
  }
}

// What a search cuts by is never above the prediction, whatever the program; the parts of the prediction add up.
TEST(CostModel, TheClosedFormIsABoundOfTheSimulation) {
  for (const char* name : {"gpt3-175b", "llama3-8b", "mixtral-8x7b"}) {
    for (const Framework program : {Framework::kAny, Framework::kMegatron, Framework::kTorchtitan, Framework::kDeepspeed}) {
      const CostModel model =
          CostModel::Make(Job(name, 64, 256), FindClusterPreset("dgx-a100", 8).value(), {}, {.framework = program}).value();
      CostModel::Scratch scratch;
      std::vector<double> gaps;
      for (const Strategy& s : Draw(model, 300, 11)) {
        const Estimate closed = model.Evaluate(s, scratch), simulated = model.EvaluateSimulated(s, scratch);
        ASSERT_LE(closed.iteration, simulated.iteration * (1 + 1e-9)) << name << " " << DescribeStrategy(s);
        const Seconds parts = simulated.compute + simulated.exposed_communication() + simulated.bubble + simulated.optimizer +
                              simulated.overhead;
        ASSERT_NEAR(parts / simulated.iteration, 1, 1e-9) << name << " " << DescribeStrategy(s);
        gaps.push_back(simulated.iteration / closed.iteration - 1);
      }
      std::sort(gaps.begin(), gaps.end());
      std::printf("%s, %s: prediction over closed form, of %zu strategies: median %.2f %%, p90 %.2f %%, worst %.2f %%\n", name,
                  std::string(FrameworkTitle(program)).c_str(), gaps.size(), 100 * gaps[gaps.size() / 2],
                  100 * gaps[gaps.size() * 9 / 10], 100 * gaps.back());
      EXPECT_LT(gaps[gaps.size() / 2], 0.001) << name << " " << FrameworkTitle(program);
      EXPECT_LT(gaps.back(), 0.05) << name << " " << FrameworkTitle(program);
    }
  }
}

// Every schedule's passes fill their time with their parts, follow each other on their stage, and end with the simulation.
TEST(Timeline, PassesFollowEachOtherAndEndWithTheSimulation) {
  const CostModel model = Model(Job("gpt3-175b", 64, 64));
  for (const ScheduleKind schedule : kAllSchedules) {
    const int64_t chunks = schedule == ScheduleKind::kInterleaved || schedule == ScheduleKind::kZbV ? 2 : 1;
    const Strategy s{.tp = 8, .pp = 8, .vpp = chunks, .recompute = Recompute::kFull, .sequence_parallel = true, .schedule = schedule};
    if (model.WhyIllegal(s)) continue;
    CostModel::Scratch scratch;
    const IterationTimeline timeline = model.Timeline(s, scratch).value();
    std::vector<Seconds> free(8, Seconds(0));
    for (const TimelinePass& pass : timeline.passes) {
      Seconds& at = free[static_cast<size_t>(pass.stage)];
      EXPECT_GE(pass.begin.count(), at.count() - 1e-9);
      at = pass.end;
      const TimelineParts& p = pass.parts;
      EXPECT_NEAR((p.compute + p.tensor + p.context + p.expert + p.data).count(), (pass.end - pass.begin).count(), 1e-9);
    }
    EXPECT_EQ(timeline.passes.size(), 8u * 64 * static_cast<size_t>(chunks) * (SplitsBackward(schedule) ? 3 : 2));
    if (!HasBarrier(schedule)) continue;  // whose distance of two iterations is less than one's length
    EXPECT_NEAR(timeline.iteration / model.EvaluateSimulated(s, scratch).iteration, 1, 1e-9) << ScheduleName(schedule);
  }
}

TEST(Timeline, OneStageIsThePrediction) {
  const CostModel model = Model(Job("llama3-8b", 64, 256));
  CostModel::Scratch scratch;
  for (const int64_t stage : {0, 1, 3}) {
    const Strategy s{.dp = 32, .tp = 2, .micro_batch = 2, .zero_stage = stage, .sequence_parallel = true};
    ASSERT_EQ(model.WhyIllegal(s), std::nullopt);
    EXPECT_NEAR(model.Timeline(s, scratch)->iteration / model.EvaluateSimulated(s, scratch).iteration, 1, 1e-9) << stage;
  }
}

TEST(Timeline, RefusesMorePassesThanATraceCanShow) {
  JobSpec job = Job("gpt2", 1, 1'000'000);
  const CostModel model = CostModel::Make(job, FindClusterPreset("dgx-a100", 1).value()).value();
  CostModel::Scratch scratch;
  const auto timeline = model.Timeline({}, scratch);
  ASSERT_FALSE(timeline.has_value());
  EXPECT_THAT(timeline.error().message(), HasSubstr("1000000 micro-batches through 1 stages"));
}

// tp inside the node, replicas over all leaves: what each kind crosses, sends and waits for.
TEST(Communicators, SayWhatTheyCrossAndShareTheExposedTime) {
  ClusterSpec cluster = FindClusterPreset("dgx-h100", 32).value();
  cluster.tiers = {{"leaf", 8, cluster.nic_rate * 0.25}, {"spine", 32, BitsPerSecond(0)}};
  const CostModel model = CostModel::Make(Job("mixtral-8x7b", 256, 512), cluster).value();
  CostModel::Scratch scratch;
  const Strategy s{.dp = 32, .tp = 4, .pp = 2, .ep = 8, .sequence_parallel = true};
  ASSERT_EQ(model.WhyIllegal(s), std::nullopt);
  const Estimate estimate = model.Evaluate(s, scratch);
  std::map<CommunicatorKind, CommunicatorUse> uses;
  for (CommunicatorUse& use : model.Communicators(s, estimate, model.Lower(s, scratch))) uses[use.kind] = std::move(use);
  EXPECT_EQ(uses.at(CommunicatorKind::kTensor).crosses, "node");
  EXPECT_EQ(uses.at(CommunicatorKind::kTensor).count, 64);
  EXPECT_EQ(uses.at(CommunicatorKind::kExpert).crosses, "node");
  EXPECT_EQ(uses.at(CommunicatorKind::kData).crosses, "spine");
  EXPECT_EQ(uses.at(CommunicatorKind::kData).size, 32);
  EXPECT_EQ(uses.at(CommunicatorKind::kPipeline).crosses, "spine");
  const Seconds data = uses.at(CommunicatorKind::kData).exposed + uses.at(CommunicatorKind::kExpertData).exposed;
  EXPECT_NEAR(data / estimate.data, 1, 1e-9);
  EXPECT_NEAR(uses.at(CommunicatorKind::kTensor).exposed / estimate.tensor, 1, 1e-9);
  for (const auto& [kind, use] : uses) {
    EXPECT_GT(use.bytes.count(), 0) << CommunicatorKindName(kind);
    EXPECT_GT(use.seconds.count(), 0) << CommunicatorKindName(kind);
  }
}

TEST(CostModel, MoreBandwidthNeverCostsTime) {
  const JobSpec job = Job("llama3-8b", 64, 256);
  ClusterSpec slow = FindClusterPreset("dgx-a100", 8).value(), fast = slow;
  fast.nic_rate = slow.nic_rate * 2;
  fast.intra_node_rate = slow.intra_node_rate * 2;
  const CostModel a = CostModel::Make(job, slow).value(), b = CostModel::Make(job, fast).value();
  CostModel::Scratch scratch_a, scratch_b;
  for (const Strategy& s : Draw(a, 200, 5)) {
    ASSERT_LE(b.Evaluate(s, scratch_b).iteration, a.Evaluate(s, scratch_a).iteration);
  }
}

TEST(CostModel, ExchangeSeenDependsOnWhatTheStackOverlaps) {
  const JobSpec job = Job("llama3-8b", 64, 64);
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 8).value();
  CostModel::Scratch scratch, scratch2;
  const Strategy s{.dp = 64, .micro_batch = 1, .zero_stage = 1};
  const CostModel hidden = CostModel::Make(job, cluster, {}, {.framework = FindFramework("megatron-core").value()}).value();
  const CostModel seen = CostModel::Make(job, cluster, {}, {.framework = FindFramework("megatron-2022").value()}).value();
  EXPECT_LT(hidden.Evaluate(s, scratch).data, seen.Evaluate(s, scratch2).data * 0.7);
}

// Eight micro-batches, buckets of 40 million parameters. ZeRO-1 scatters 4 bytes and gathers 2 per parameter, once; ZeRO-2, and ZeRO-3 with kept parameters,
// scatter eight times. Nothing hides; the latency of ZeRO-1's buckets keeps the ratio below (8 · 4 + 2) / (4 + 2).
TEST(CostModel, ShardedGradientsAreReducedEveryMicroBatch) {
  const CostModel model = CostModel::Make(Job("llama3-8b", 64, 512), FindClusterPreset("dgx-a100", 8).value(), {},
                                          {.framework = FindFramework("megatron-2022").value()}).value();
  CostModel::Scratch scratch;
  const auto data = [&](int64_t stage, bool keep) {
    Strategy s{.dp = 64, .micro_batch = 1, .zero_stage = stage, .keep_after_forward = keep};
    s.bucket_bytes = Bytes(160'000'000);
    return model.Evaluate(s, scratch).data;
  };
  EXPECT_GT(data(2, false) / data(1, false), 2);
  EXPECT_LT(data(2, false) / data(1, false), 34.0 / 6);
  EXPECT_NEAR(data(3, true) / data(2, false), 1, 0.01);
  EXPECT_GT(data(3, false), data(2, false)) << "its gathers come with every micro-batch as well";
}

TEST(CostModel, RefusesImpossibleSizesByName) {
  JobSpec job = Job("llama3-8b", 8, 64);
  job.model.heads = 0;
  const auto model = CostModel::Make(job, FindClusterPreset("dgx-a100", 1).value());
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(model.error().message(), HasSubstr("model heads: 0"));
  for (const double risk : {0.0, -0.1, 1.0}) {
    const auto risky = CostModel::Make(Job("llama3-8b", 8, 64), FindClusterPreset("dgx-a100", 1).value(), {}, {.risk = risk});
    ASSERT_FALSE(risky.has_value());
    EXPECT_THAT(risky.error().message(), HasSubstr("expected a probability above 0 and below 1"));
  }
}

TEST(Legality, NamesTheRuleAndTheValues) {
  const CostModel model = Model(Job("llama3-8b", 64, 256));
  const struct {
    Strategy strategy;
    const char* words;
  } cases[] = {
      {{.dp = 32}, "= 32, expected the job's 64"},
      {{.dp = 0}, "degrees: dp=0"},
      {{.dp = 64, .micro_batch = 3}, "dp=64 x micro_batch=3 does not divide the 256"},
      {{.dp = 1, .tp = 64}, "tp=64 does not divide 32 heads"},
      {{.dp = 1, .pp = 64}, "pp=64"},
      {{.dp = 64, .vpp = 2}, "vpp=2 with pp=1"},
      {{.dp = 64, .ep = 2}, "ep=2"},
      {{.dp = 64, .zero_stage = 3, .shard_group = 24}, "shard_group=24"},
      {{.dp = 8, .pp = 8, .zero_stage = 3}, "keep_after_forward"},
      {{.dp = 64, .sequence_parallel = true}, "sequence_parallel"},
      {{.dp = 8, .tp = 8, .tensor_mode = TensorMode::k2D}, "no such grid"},
  };
  for (const auto& expected : cases) {
    const auto why = model.WhyIllegal(expected.strategy);
    ASSERT_TRUE(why.has_value()) << expected.words;
    EXPECT_THAT(*why, HasSubstr(expected.words));
    EXPECT_FALSE(model.IsLegal(expected.strategy));
  }
  EXPECT_EQ(model.WhyIllegal({.dp = 64}), std::nullopt);
  EXPECT_EQ(model.WhyIllegal({.dp = 16, .tp = 4, .micro_batch = 2, .tensor_mode = TensorMode::k2D}), std::nullopt);
}

// 16 · 7/8 · 2048 · 12288 bytes leave each GPU per layer: two gathers and two scatters of wTh each way, without the
// stored shards' gathers, which hide. Messages are wTh / t: 48 MiB / 8.
TEST(CommunicationVolumes, TensorAndPipelineBytesAreThePapers) {
  const CostModel model = Model(Job("gpt3-175b", 64, 64));
  const Strategy s{.tp = 8, .pp = 8, .micro_batch = 1, .sequence_parallel = true};
  const std::vector<CommunicationVolume> volumes = Volumes(model, s, 3);
  const CommunicationVolume* gathers = Find(volumes, "tensor gathers");
  const CommunicationVolume* scatters = Find(volumes, "tensor scatters");
  ASSERT_NE(gathers, nullptr);
  ASSERT_NE(scatters, nullptr);
  const double wire = (gathers->count + scatters->count) / 12 * 7 / 8 * static_cast<double>(gathers->bytes.count());
  EXPECT_NEAR(wire / 0x1p20, 336, 1e-6);
  EXPECT_EQ(gathers->group, 8);
  const CommunicationVolume* message = Find(volumes, "activations");
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->bytes, Bytes(6 << 20));
  EXPECT_EQ(message->stride, 8);
  EXPECT_EQ(Find(Volumes(model, s, 7), "activations"), nullptr) << "the last stage hands nothing on";
}

// Three times w (d-1)/d of all parameters in units: 47.4 GB for 8 B parameters on 64 ranks, but for embedding and head.
TEST(CommunicationVolumes, ZeroThreeMovesThreeTimesTheParameters) {
  const JobSpec job = Job("llama3-8b", 64, 64);
  const CostModel model = CostModel::Make(job, FindClusterPreset("dgx-a100", 8).value(), {}, {.framework = FindFramework("fms-fsdp").value()}).value();
  const std::vector<CommunicationVolume> volumes = Volumes(model, {.dp = 64, .zero_stage = 3}, 0);
  const CommunicationVolume* parameters = Find(volumes, "unit parameters");
  const CommunicationVolume* gradients = Find(volumes, "unit gradients");
  ASSERT_NE(parameters, nullptr);
  ASSERT_NE(gradients, nullptr);
  const double wire = (parameters->count * static_cast<double>(parameters->bytes.count()) +
                       gradients->count * static_cast<double>(gradients->bytes.count())) * 63 / 64;
  const double layers = 32 * static_cast<double>(LayerParameterCount(job.model));
  EXPECT_NEAR(wire / (3 * 2 * 63.0 / 64 * layers), 1, 1e-6);
}

// Mixtral, T = 4096, t = 1: 2 · 4096 · 2 · 4096 bytes = 64 MiB held, four times per layer.
TEST(CommunicationVolumes, ExpertsExchangeTwiceEachWay) {
  const CostModel model = Model(Job("mixtral-8x7b", 8, 64, 4096));
  const std::vector<CommunicationVolume> volumes = Volumes(model, {.dp = 8, .ep = 8}, 0);
  const CommunicationVolume* exchange = Find(volumes, "expert dispatch and combine");
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->bytes, Bytes(64 << 20));
  EXPECT_EQ(exchange->count, 4 * 32);
  EXPECT_EQ(exchange->type, OperationKind::kAllToAll);
}

}  // namespace
}  // namespace weft::planner::parallelism
