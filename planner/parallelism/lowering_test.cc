// The list of operations against the model's tables, and against closed forms that are written down here once more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/space.h"
#include "planner/parallelism/variables.h"
#include "planner/search/testing/random_cases.h"
#include "planner/workload/recompute.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

double Sum(const StageOperations& stage, const std::function<double(const Operation&)>& of) {
  double sum = 0;
  for (const Operation& o : stage.operations) sum += of(o);
  return sum;
}

/// What a micro-batch waits for of these communicators; compute alone for an empty set.
double Exposed(const StageOperations& stage, const std::set<CommunicatorKind>& kinds) {
  return Sum(stage, [&](const Operation& o) {
    if (o.pass == OperationPass::kOnce || (o.kind == OperationKind::kCompute) != kinds.empty()) return 0.0;
    return kinds.empty() || kinds.contains(o.communicator) ? o.exposed : 0.0;
  });
}

/// Bytes of a stage's calls of one name, per micro-batch or, for what runs once, per iteration.
std::map<std::string, double> BytesByName(const StageOperations& stage) {
  std::map<std::string, double> sums;
  for (const Operation& o : stage.operations) {
    if (o.kind != OperationKind::kCompute) sums[std::string(o.what)] += o.calls * o.bytes;
  }
  return sums;
}

/// Independent closed forms of a dense or MoE transformer in 16 bits, one stage: the full tensors of all calls of a micro-batch.
class Expected {
 public:
  Expected(const JobSpec& job, const Strategy& s, double layers, double moe, bool first, bool last)
      : model_(job.model), s_(s), layers_(layers), moe_(moe), first_(first), last_(last) {
    tokens_ = static_cast<double>(s.micro_batch * job.sequence) / static_cast<double>(s.cp);
    hidden_ = static_cast<double>(job.model.hidden);
    const double repeated = s.recompute_layers < 0 ? layers : std::min(layers, static_cast<double>(s.recompute_layers));
    again_ = s.recompute == Recompute::kFull && layers > 0 ? repeated / layers : 0;
  }

  std::map<std::string, double> All() {
    const double stream = 2 * tokens_ * hidden_, passes = 2 + again_;
    // Attention and, but for routed experts alone, MLP: those get each rank's own tokens.
    const double routed_alone = model_.shared_experts == 0 ? moe_ : 0, split = 2 * layers_ - routed_alone;
    if (s_.tp > 1 && s_.tensor_mode == TensorMode::k1D) {
      if (s_.sequence_parallel) {
        Put("tensor gathers", split * passes * stream);
        Put("tensor scatters", split * passes * stream);
        Put("stored shards", split * stream);
        if (last_) Put("head gather", stream);
      } else {
        Put("tensor sums", split * passes * stream);
        Put("experts' tokens", routed_alone * passes * stream);
      }
    }
    if (s_.tp > 1) {
      if (first_) Put("embedding", stream);
      if (last_) Put("head gradient", stream);
      if (last_) Put("loss", 3 * 4 * tokens_);
    }
    Context(passes);
    const double held = stream / static_cast<double>(s_.tp) * static_cast<double>(model_.experts_per_token);
    if (s_.ep > 1) Put("expert dispatch and combine", 2 * passes * moe_ * held);
    if (s_.etp > 1) Put("expert gathers", passes * moe_ * held * static_cast<double>(s_.etp));
    if (s_.etp > 1) Put("expert scatters", passes * moe_ * held * static_cast<double>(s_.etp));
    const auto chunks = static_cast<double>(s_.vpp);
    // A V turns on the last stage and ends on the first.
    const bool v = s_.schedule == ScheduleKind::kZbV;
    const double out = last_ || (v && first_) ? chunks - 1 : chunks, back = first_ || (v && last_) ? chunks - 1 : chunks;
    if (s_.pp > 1) Put("activations", out * stream / static_cast<double>(s_.tp));
    if (s_.pp > 1) Put("activation gradients", back * stream / static_cast<double>(s_.tp));
    return std::move(bytes_);
  }

 private:
  void Put(const char* what, double bytes) {
    if (bytes > 0) bytes_[what] += bytes;
  }

  void Context(double passes) {
    if (s_.cp == 1) return;
    const auto t = static_cast<double>(s_.tp), c = static_cast<double>(s_.cp);
    const double kv = 2 * 2 * tokens_ * std::max(static_cast<double>(model_.kv_heads) / t, 1.0) * static_cast<double>(model_.head_dim);
    const double q = 2 * tokens_ * static_cast<double>(model_.heads * model_.head_dim) / t;
    switch (s_.context_mode) {
      case ContextMode::kRing: return Put("context ring", (passes + 1) * (c - 1) * layers_ * kv);
      case ContextMode::kAllGather:
        Put("context gathers", passes * layers_ * c * kv);
        return Put("context scatters", layers_ * c * kv);
      case ContextMode::kUlysses:
        Put("context queries", 2 * passes * layers_ * q);
        return Put("context keys and values", passes * layers_ * kv);
    }
  }

  const ModelSpec& model_;
  const Strategy& s_;
  double layers_, moe_, tokens_, hidden_, again_;
  bool first_, last_;
  std::map<std::string, double> bytes_;
};

/// FLOPs of all ranks in all passes of an iteration without recomputation: 6 per parameter and token, and attention's, whose
/// backward pass computes the scores again.
double ExpectedFlops(const JobSpec& job) {
  const ModelSpec& m = job.model;
  const auto h = static_cast<double>(m.hidden), d = static_cast<double>(m.head_dim), sequence = static_cast<double>(job.sequence);
  const auto heads = static_cast<double>(m.heads), kv = static_cast<double>(m.kv_heads);
  const double attention = h * d * (heads + 2 * kv) + heads * d * h, ways = m.gated_mlp ? 3 : 2;
  double parameters = h * static_cast<double>(m.vocab);
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const auto f = static_cast<double>(m.ffn_hidden), expert = static_cast<double>(m.expert_ffn_hidden);
    const double routed = static_cast<double>(m.experts_per_token) * ways * h * expert + h * static_cast<double>(m.experts);
    parameters += attention + (m.IsMoeLayer(layer) ? routed : ways * h * f);
  }
  const double core = static_cast<double>(m.layers) * 2 * 2 * heads * d * sequence * sequence * MeanAttendedShare(m, sequence);
  return static_cast<double>(job.global_batch) * (6 * sequence * parameters + 3.5 * core);
}

TEST(Lower, IsTheTablesAccountAndThatOfIndependentClosedForms) {
  std::mt19937 random(61);
  int checked = 0, flops_checked = 0;
  std::set<std::string> names;
  while (checked < 600) {
    JobSpec job = RandomJob(random);
    job.precision = Precision::kBf16;
    ClusterSpec cluster = RandomCluster(random);
    cluster.device.memory = Bytes(int64_t{1} << 42);  // all fit: what is drawn is not to depend on memory
    const CostModel model = CostModel::Make(job, cluster).value();
    CostModel::Scratch scratch;
    for (const Strategy& s : DrawLeaves(model, random, 12)) {
      SCOPED_TRACE(fmt::format("{} of {} layers", DescribeStrategy(s), job.model.layers));
      const OperationList list = model.Lower(s, scratch);
      const Estimate e = model.EvaluateSimulated(s, scratch);
      const StageOperations& slowest = list.OfStage(e.slowest_stage);
      const auto m = static_cast<double>(list.micro_batches);
      const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * std::max({std::abs(a), std::abs(b), 1e-9}); };
      ASSERT_PRED2(near, m * Exposed(slowest, {}), e.compute.count());
      ASSERT_PRED2(near, m * Exposed(slowest, {CommunicatorKind::kTensor}), e.tensor.count());
      ASSERT_PRED2(near, m * Exposed(slowest, {CommunicatorKind::kContext}), e.context.count());
      ASSERT_PRED2(near, m * Exposed(slowest, {CommunicatorKind::kExpert, CommunicatorKind::kExpertTensor}), e.expert.count());
      ASSERT_LE(m * Exposed(slowest, {CommunicatorKind::kData}), e.data.count() * (1 + 1e-9) + 1e-12);
      int64_t stages = 0;
      double flops = 0;
      for (const StageOperations& stage : list.classes) {
        stages += static_cast<int64_t>(stage.stages.size());
        flops += static_cast<double>(stage.stages.size() * static_cast<size_t>(list.ranks_per_stage)) * m *
                 Sum(stage, [](const Operation& o) { return o.flops; });
        // StageBegin() cuts layers as evenly as embedding and head allow: take the list's own counts of layers.
        double layers = 0, moe = 0;
        for (const Operation& o : stage.operations) {
          if (o.pass != OperationPass::kForward || o.kind != OperationKind::kCompute) continue;
          if (o.what == "layers") layers += o.calls;
          if (o.what == "MoE layers") moe += o.calls;
        }
        const bool first = stage.stages.front() == 0, last = stage.stages.back() == s.pp - 1;
        std::map<std::string, double> own = BytesByName(stage);
        for (const auto& [what, bytes] : Expected(job, s, layers + moe, moe, first, last).All()) {
          ASSERT_NEAR(own[what] / bytes, 1, 1e-12) << what;
          names.insert(what);
        }
      }
      ASSERT_EQ(stages, s.pp);
      if (s.recompute == Recompute::kNone && s.tp <= job.model.kv_heads && s.tensor_mode == TensorMode::k1D) {
        ASSERT_NEAR(flops / ExpectedFlops(job), 1, 1e-9);
        ++flops_checked;
      }
      ++checked;
    }
  }
  EXPECT_GT(flops_checked, 100);
  EXPECT_EQ(names.size(), 19u) << "every kind of volume was met";
}

// What is exchanged between replicas: w bytes per parameter over all replicas, in whatever pieces.
TEST(Lower, ReplicasExchangeEveryParameterOnce) {
  JobSpec job{.name = "j", .model = FindModelPreset("llama3-8b").value(), .global_batch = 64, .sequence = 2048, .precision = Precision::kBf16,
              .gpus = 64};
  const CostModel model = CostModel::Make(job, FindClusterPreset("dgx-a100", 8).value()).value();
  CostModel::Scratch scratch;
  const auto parameters = static_cast<double>(ParameterCount(job.model));
  for (const int64_t stage : {0, 1, 2}) {
    const OperationList list = model.Lower({.dp = 64, .zero_stage = stage}, scratch);
    std::map<std::string, double> bytes = BytesByName(list.OfStage(0));
    EXPECT_NEAR((bytes["gradients"] + bytes["unit gradients"]) / (4 * parameters), 1, 1e-6) << stage;
    EXPECT_NEAR(bytes["parameters"] / (2 * parameters), stage == 0 ? 0 : 1, 1e-6) << stage;
  }
}

// Four stages on four hosts in two leaves of a cut fabric: only the message in the middle leaves a leaf, and the simulated iteration has
// each boundary's own way. Replicas in between make the outer order's messages all cross, the inner order's none.
TEST(Lower, AMessagePaysForTheBoundaryThatItCrosses) {
  const JobSpec job{.name = "j", .model = FindModelPreset("gpt2").value(), .global_batch = 16, .sequence = 256,
                    .precision = Precision::kFp32, .gpus = 4};
  ClusterSpec cluster = FindClusterPreset("dgx-a100", 4).value();
  cluster.gpus_per_node = cluster.nics_per_node = 1;
  cluster.nic_rate = BitsPerSecond(1e9);
  cluster.tiers.push_back({"leaf", 2, cluster.nic_rate * 0.05});  // a tenth for both together
  cluster.tiers.push_back({"spine", 4, BitsPerSecond(0)});
  const CostModel model = CostModel::Make(job, cluster).value();
  CostModel::Scratch scratch;
  const auto sends = [&](const Strategy& s, int64_t stage, OperationPass pass) {
    double seconds = 0;
    for (const Operation& o : model.Lower(s, scratch).OfStage(stage).operations) {
      if (o.kind == OperationKind::kSendReceive && o.pass == pass) seconds += o.seconds;
    }
    return seconds;
  };
  const Strategy pipeline{.pp = 4};
  const double near = sends(pipeline, 0, OperationPass::kForward), far = sends(pipeline, 1, OperationPass::kForward);
  EXPECT_NEAR(far / near, 10, 0.2);
  EXPECT_DOUBLE_EQ(sends(pipeline, 2, OperationPass::kForward), near);
  EXPECT_DOUBLE_EQ(sends(pipeline, 2, OperationPass::kData), far);
  EXPECT_DOUBLE_EQ(sends(pipeline, 3, OperationPass::kData), near);
  Strategy replicas{.dp = 2, .pp = 2};
  const double crossing = sends(replicas, 0, OperationPass::kForward);
  replicas.rank_order = RankOrder::kTpCpPpDp;
  EXPECT_NEAR(crossing / sends(replicas, 0, OperationPass::kForward), 20, 0.4);
}

// 16,384 GPUs in 16 stages are as many lists as stages differ.
TEST(Lower, EqualStagesAreOneClass) {
  JobSpec job{.name = "j", .model = FindModelPreset("llama3-405b").value(), .global_batch = 2048, .sequence = 8192,
              .precision = Precision::kBf16, .gpus = 16384};
  const CostModel model = CostModel::Make(job, FindClusterPreset("dgx-h100", 2048).value()).value();
  CostModel::Scratch scratch;
  const OperationList list = model.Lower({.dp = 128, .tp = 8, .pp = 16, .sequence_parallel = true}, scratch);
  EXPECT_LE(list.classes.size(), 4u);
  EXPECT_EQ(list.ranks_per_stage, 1024);
  for (int64_t stage = 0; stage < 16; ++stage) EXPECT_FALSE(list.OfStage(stage).operations.empty());
}

}  // namespace
}  // namespace weft::planner::parallelism
