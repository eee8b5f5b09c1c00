#include "planner/plan/model_profile.h"
#include "planner/plan/model_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

std::vector<CommunicationVolume> Volumes(const CostModel& model, const Strategy& s, int64_t stage) {
  CostModel::Scratch scratch;
  return CostModel::CommunicationVolumes(model.Lower(s, scratch), stage);
}

JobSpec Job(const char* model, int64_t batch, int64_t sequence) {
  return {.name = "job", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = sequence};
}

ClusterSpec Dgx(int64_t nodes) { return FindClusterPreset("dgx-a100", nodes).value(); }

JobSpec On(JobSpec job, int64_t gpus) {
  job.gpus = gpus;
  return job;
}

/// Bytes from each node to each other one.
std::map<std::pair<int, int>, double> Matrix(const std::vector<PairBytes>& pairs) {
  std::map<std::pair<int, int>, double> matrix;
  for (const PairBytes& pair : pairs) matrix[{pair.from, pair.to}] += static_cast<double>(pair.bytes.count());
  return matrix;
}

/// The same of a whole iteration.
std::map<std::pair<int, int>, double> Sum(const IterationTraffic& traffic) {
  std::map<std::pair<int, int>, double> matrix = Matrix(traffic.passes);
  for (const auto& [nodes, bytes] : Matrix(traffic.once)) matrix[nodes] += bytes;
  return matrix;
}

// Data parallel over 16 GPUs of two nodes: the ring crosses each border once, with 2 · 15/16 of the gradients.
TEST(StrategyTraffic, RingsCrossEveryBorderOnce) {
  const CostModel model = CostModel::Make(On(Job("gpt2", 64, 1024), 16), Dgx(2)).value();
  const auto flat = Sum(StrategyTraffic(model, {.dp = 16}, 8));
  ASSERT_EQ(flat.size(), 2u);
  double gradients = 0;
  for (const CommunicationVolume& line : Volumes(model, {.dp = 16}, 0)) {
    if (line.what == "gradients") gradients = line.count * static_cast<double>(line.bytes.count());
  }
  ASSERT_GT(gradients, 1e8);
  EXPECT_NEAR(flat.at({0, 1}) / (2 * 15.0 / 16 * gradients), 1, 1e-5);
  EXPECT_NEAR(flat.at({1, 0}) / flat.at({0, 1}), 1, 1e-9);
}

// One message per micro-batch and tensor rank in each direction, between neighbours only.
TEST(StrategyTraffic, PipelinesTalkToTheirNeighbours) {
  const CostModel model = CostModel::Make(On(Job("gpt3-175b", 64, 2048), 64), Dgx(8)).value();
  const Strategy s{.dp = 1, .tp = 8, .pp = 8, .recompute = Recompute::kFull, .sequence_parallel = true};
  const auto matrix = Sum(StrategyTraffic(model, s, 8));
  const double message = 2.0 * 2048 * 12288;  // bf16, one sequence; an eighth from each of eight ranks
  for (int stage = 0; stage + 1 < 8; ++stage) {
    EXPECT_NEAR(matrix.at({stage, stage + 1}) / (64 * message), 1, 1e-5) << stage;
    EXPECT_NEAR(matrix.at({stage + 1, stage}) / (64 * message), 1, 1e-5) << stage;
  }
  for (const auto& [pair, bytes] : matrix) {
    const bool ends = pair == std::pair(0, 7) || pair == std::pair(7, 0);  // the tied embedding's gradient
    EXPECT_TRUE(ends || std::abs(pair.first - pair.second) == 1) << pair.first << " " << pair.second;
  }
}

// Each of 16 ranks holds S and sends S/8 to each of its eight experts' ranks. On nodes of four these are two nodes: 4 ·
// 4 pairs of ranks. On nodes of eight they are one node, and what crosses are gradients: one ring of all, eight rings
// of two.
TEST(StrategyTraffic, ExpertsExchangeWhereTheirGroupsEnd) {
  const CostModel model = CostModel::Make(On(Job("mixtral-8x7b", 16, 4096), 16), Dgx(2)).value();
  const Strategy s{.dp = 16, .ep = 8};
  double exchanged = 0, dense = 0, expert = 0;
  for (const CommunicationVolume& line : Volumes(model, s, 0)) {
    const double bytes = line.count * static_cast<double>(line.bytes.count());
    if (line.what == "expert dispatch and combine") exchanged += 16 * bytes / 8;
    if (line.what == "gradients") dense += 2 * 15.0 / 16 * bytes;
    if (line.what == "expert gradients") expert += 8 * 2 * 1.0 / 2 * bytes;
  }
  ASSERT_GT(exchanged, 0);
  ASSERT_GT(expert, 0);
  EXPECT_NEAR(Sum(StrategyTraffic(model, s, 4)).at({0, 1}) / (exchanged + dense), 1, 1e-5);
  EXPECT_NEAR(Sum(StrategyTraffic(model, s, 8)).at({0, 1}) / (expert + dense), 1, 1e-5);
}

// tp = 2, cp = 2, pp = 4 fill two nodes of eight; the next replica lies two nodes on. Each node has two tensor ranks of
// two stages: four rings over 2 · 4 ranks that leave it once.
TEST(StrategyTraffic, ReplicasBehindThePipelineAreWholePipelinesApart) {
  const CostModel model = CostModel::Make(On(Job("llama3-8b", 64, 2048), 64), Dgx(8)).value();
  const Strategy s{.dp = 4, .tp = 2, .pp = 4, .cp = 2, .rank_order = RankOrder::kTpCpPpDp};
  ASSERT_EQ(model.WhyIllegal(s), std::nullopt);
  double gradients = 0;  // of stages 1 and 2, on one rank: the middle ones are alike
  for (const CommunicationVolume& line : Volumes(model, s, 1)) {
    if (line.what == "gradients") gradients = static_cast<double>(line.bytes.count());
  }
  const auto matrix = Sum(StrategyTraffic(model, s, 8));
  const auto ring = [&](int from) { return matrix.at({from, (from + 2) % 8}); };
  EXPECT_NEAR(ring(0), ring(2), 1);
  EXPECT_NEAR(ring(6), ring(2), 1);
  // Stages 0 and 3 have the embedding or the head besides.
  EXPECT_GT(ring(0), 4 * 2 * 7.0 / 8 * gradients);
  EXPECT_LT(ring(0), 2 * 4 * 2 * 7.0 / 8 * gradients);
}

// Shards stay inside a node of eight; each rank's eighth of the gradients goes round a ring of eight nodes, and eight
// ranks of a node do so at once: 2 · 7/8 of all sharded gradients over each border. Embedding's and head's are summed by one ring of
// all 64, which crosses it once.
TEST(StrategyTraffic, ShardGroupsSumTheirGradientsOverNodes) {
  const CostModel model = CostModel::Make(On(Job("llama3-8b", 64, 2048), 64), Dgx(8)).value();
  const Strategy s{.dp = 64, .zero_stage = 3, .shard_group = 8};
  ASSERT_EQ(model.WhyIllegal(s), std::nullopt);
  double gradients = 0, edges = 0;
  for (const CommunicationVolume& line : Volumes(model, s, 0)) {
    if (line.what == "unit gradients") gradients = line.count * static_cast<double>(line.bytes.count());
    if (line.what == "gradients") edges = static_cast<double>(line.bytes.count());
  }
  ASSERT_GT(gradients, 0);
  ASSERT_GT(edges, 0);
  const auto matrix = Sum(StrategyTraffic(model, s, 8));
  EXPECT_EQ(matrix.size(), 8u);
  EXPECT_NEAR(matrix.at({0, 1}) / (2 * 7.0 / 8 * gradients + 2 * 63.0 / 64 * edges), 1, 1e-4);
  EXPECT_NEAR(matrix.at({7, 0}) / matrix.at({0, 1}), 1, 1e-9);
}

Result<ModelWaysAnswer> Blind(const JobSpec& job, const ClusterSpec& cluster, FixedVariables fix = {}) {
  return WayPlanner(job, cluster, {.fix = std::move(fix), .framework = std::nullopt, .allow = {}}).Blind();
}

// compute + what is exposed of C is the prediction, so that the job alone iterates as planned.
TEST(ModelProfile, AloneTheJobIteratesAsPredicted) {
  for (const char* name : {"gpt2-xl", "llama3-8b"}) {
    const ClusterSpec cluster = Dgx(4);
    const ModelWaysAnswer answer = Blind(Job(name, 256, 1024), cluster).value();
    ASSERT_EQ(answer.ways.size(), 1u) << name;
    const ModelProfile& profile = answer.ways[0].profile;
    ASSERT_FALSE(profile.bursts.empty()) << name;
    EXPECT_GT(profile.compute.count(), 0);
    std::vector<BurstTimes> times;
    std::vector<double> wire;
    for (const ProfileBurst& burst : profile.bursts) {
      times.push_back(burst.times);
      std::map<int, double> sent;
      for (const PairBytes& pair : burst.between) sent[pair.from] += static_cast<double>(pair.bytes.count());
      double most = 0;
      for (const auto& [node, bytes] : sent) most = std::max(most, bytes);
      wire.push_back(most * 8 / cluster.nic_rate.value());
    }
    EXPECT_GE(profile.fine.size(), profile.bursts.size());
    const Seconds alone = IterationOf(profile.compute, times, wire);
    EXPECT_NEAR(alone / profile.plan.predicted.iteration, 1, 0.01) << name;
  }
}

TEST(ModelProfile, OneNodeSendsNothing) {
  const ModelWaysAnswer answer = Blind(Job("gpt2", 64, 1024), Dgx(1)).value();
  ASSERT_EQ(answer.ways.size(), 1u);
  EXPECT_TRUE(answer.ways[0].profile.bursts.empty());
  EXPECT_EQ(answer.ways[0].profile.compute, answer.ways[0].profile.plan.predicted.iteration);
}

TEST(ModelProfile, SaysWhyNothingFits) {
  const ModelWaysAnswer answer = Blind(Job("gpt3-175b", 8, 2048), Dgx(1)).value();
  EXPECT_TRUE(answer.ways.empty());
  ASSERT_FALSE(answer.infeasible.empty());
  const Result<ModelWaysAnswer> mixed =
      Blind(Job("gpt2", 8, 1024),
                   MakeCluster("mixed", {Dgx(1).Groups()[0], FindClusterPreset("dgx-v100", 1)->Groups()[0]}, 0.9));
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(mixed.error().message(), ::testing::HasSubstr("several kinds of nodes"));
}

TEST(ModelProfile, KeepsWhatIsFixed) {
  const ModelWaysAnswer answer =
      Blind(Job("llama3-8b", 64, 1024), Dgx(2), ParseFixed("tp=8,pp=2,dp=1,micro_batch=1").value()).value();
  ASSERT_EQ(answer.ways.size(), 1u);
  EXPECT_EQ(answer.ways[0].profile.plan.strategy.pp, 2);
  // Two stages on two nodes, 64 micro-batches of one: activations there and gradients back, in as many bursts as there may be.
  EXPECT_EQ(answer.ways[0].profile.bursts.size(), static_cast<size_t>(kMostPassBursts));
  for (const ProfileBurst& burst : answer.ways[0].profile.bursts) EXPECT_EQ(Matrix(burst.between).size(), 2u);
}

}  // namespace
}  // namespace weft::planner
