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
#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {
namespace {

using ::testing::HasSubstr;
using Key = std::pair<CommunicatorKind, OperationKind>;

ModelSpec SmallGpt() {
  return {.name = "gpt",
          .architecture = Architecture::kGpt2,
          .layers = 4,
          .hidden = 64,
          .heads = 8,
          .kv_heads = 8,
          .head_dim = 8,
          .ffn_hidden = 256,
          .vocab = 256,
          .max_positions = 64};
}

ModelSpec SmallLlama() {
  ModelSpec m{.name = "llama",
              .architecture = Architecture::kLlama,
              .layers = 6,
              .hidden = 64,
              .heads = 8,
              .kv_heads = 4,
              .head_dim = 8,
              .ffn_hidden = 96,
              .vocab = 256,
              .max_positions = 64,
              .gated_mlp = true,
              .tied_embeddings = false,
              .attention_bias = false,
              .mlp_bias = false,
              .learned_positions = false,
              .rms_norm = true};
  m.attention = Attention::kGroupedQuery;
  m.numerics.activation = Activation::kSilu;
  return m;
}

ModelSpec SmallMixtral() {
  ModelSpec m = SmallLlama();
  m.name = "mixtral";
  m.architecture = Architecture::kMixtral;
  m.experts = 8;
  m.experts_per_token = 2;
  m.expert_ffn_hidden = m.ffn_hidden;
  return m;
}

template <typename T>
T Any(std::mt19937& random, std::initializer_list<T> of) {
  return *(of.begin() + static_cast<int64_t>(random() % of.size()));
}

Strategy Draw(std::mt19937& random, bool moe) {
  Strategy s{.dp = Any<int64_t>(random, {1, 2, 3, 4}),
             .tp = Any<int64_t>(random, {1, 1, 2, 4}),
             .pp = Any<int64_t>(random, {1, 2, 3, 4}),
             .vpp = Any<int64_t>(random, {1, 1, 2}),
             .micro_batch = Any<int64_t>(random, {1, 2}),
             .zero_stage = Any<int64_t>(random, {0, 1, 2, 3})};
  s.cp = Any<int64_t>(random, {1, 1, 2, 4});
  s.context_mode = Any(random, {ContextMode::kRing, ContextMode::kAllGather, ContextMode::kUlysses});
  s.keep_after_forward = s.zero_stage == 3 && Any(random, {true, false});
  s.recompute = Any(random, {Recompute::kNone, Recompute::kSelective, Recompute::kFull});
  s.recompute_layers = Any<int64_t>(random, {-1, -1, 0, 1, 2});
  s.sequence_parallel = Any(random, {true, false});
  s.schedule = Any(random, {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B, ScheduleKind::kInterleaved,
                            ScheduleKind::kZbH1, ScheduleKind::kZbH2, ScheduleKind::kZbV});
  s.rank_order = Any(random, {RankOrder::kTpCpEpDpPp, RankOrder::kTpCpPpDp});
  if (moe) {
    s.zero_stage %= 2;
    s.keep_after_forward = false;
    s.ep = Any<int64_t>(random, {1, 2, 4, 8});
    s.etp = Any<int64_t>(random, {1, 1, 2, 4});
  }
  s.bucket_bytes = Any(random, {Bytes(4), Bytes(20'000), Bytes(1 << 20)});
  return s;
}

OperationKind KindOf(StepAction action) {
  switch (action) {
    case StepAction::kAllGather: return OperationKind::kAllGather;
    case StepAction::kReduceScatter: return OperationKind::kReduceScatter;
    case StepAction::kAllToAll: return OperationKind::kAllToAll;
    case StepAction::kShift:
    case StepAction::kSend: return OperationKind::kSendReceive;
    default: return OperationKind::kAllReduce;
  }
}

std::map<Key, double> OfProgram(const StepProgram& program) {
  std::map<Key, double> bytes;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const ProgramVolume& v : VolumesOf(program, static_cast<int64_t>(rank)))
      bytes[{v.kind, KindOf(v.action)}] += static_cast<double>(v.bytes);
  }
  return bytes;
}

std::map<Key, double> OfList(const OperationList& list) {
  std::map<Key, double> bytes;
  for (const StageOperations& stages : list.classes) {
    const auto ranks = static_cast<double>(stages.stages.size()) * static_cast<double>(list.ranks_per_stage);
    for (const Operation& o : stages.operations) {
      if (o.kind == OperationKind::kCompute || o.bytes * o.calls <= 0) continue;
      const double times = o.pass == OperationPass::kOnce ? 1 : static_cast<double>(list.micro_batches);
      bytes[{o.communicator, o.kind}] += ranks * times * o.calls * o.bytes;
    }
  }
  return bytes;
}

// The two accounts of volumes: what the cost model prices, and what weft-train executes.
TEST(ExpandProgram, HasTheVolumesOfTheOperationList) {
  std::mt19937 random(7);
  std::set<std::string> met;
  int checked = 0, experts_shared = 0, contexts = 0;
  for (int draw = 0; draw < 60'000 && checked < 1500; ++draw) {
    JobSpec job{.name = "j",
                .model = Any(random, {SmallGpt(), SmallLlama(), SmallMixtral()}),
                .global_batch = Any<int64_t>(random, {12, 24}),
                .sequence = 32,
                .precision = Precision::kFp32};
    const Strategy s = Draw(random, job.model.IsMoe());
    job.gpus = GpuCount(s);
    if (WhyIllegal(job, job.gpus, s) || WhyNoProgram(job, s)) continue;
    // The cost model has a V's head, and with it a copy of a tied table, on the last stage; it ends on the first.
    if (s.schedule == ScheduleKind::kZbV && job.model.tied_embeddings) continue;
    SCOPED_TRACE(fmt::format("{} of {}, {} sequences", DescribeStrategy(s), job.model.name, job.global_batch));
    const auto program = ExpandProgram(job, s, ElementType::kFloat32);
    ASSERT_TRUE(program) << program.error().message();
    const CostModel model =
        CostModel::Make(job, FindClusterPreset("dgx-a100", 32).value(), {}, {.framework = Framework::kWeftTrain}).value();
    CostModel::Scratch scratch;
    std::map<Key, double> list = OfList(model.Lower(s, scratch)), own = OfProgram(*program);
    for (const auto& [key, unused] : list) own.try_emplace(key, 0);
    for (const auto& [key, bytes] : own) {
      ASSERT_NEAR(bytes, list[key], 1e-9 * bytes + 1e-6) << CommunicatorKindName(key.first) << " " << OperationKindName(key.second);
    }
    met.insert(
        fmt::format("{}{}{}{} {}{}{}", ScheduleName(s.schedule), s.zero_stage, s.sequence_parallel ? "sp" : "",
                    s.tp > 1 ? "tp" : "",
                           s.ep > 1 ? "ep" : "", s.etp > 1 ? "etp" : "", s.cp > 1 ? ContextModeName(s.context_mode) : ""));
    ++checked;
    experts_shared += s.ep > 1 ? 1 : 0;
    contexts += s.cp > 1 ? 1 : 0;
  }
  EXPECT_EQ(checked, 1500);
  EXPECT_GT(met.size(), 200u);
  EXPECT_GT(experts_shared, 100);
  EXPECT_GT(contexts, 300);
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

TEST(ExpandProgram, RefusesWhatIsNotExecutedByName) {
  JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 4};
  const auto why = [&](const Strategy& s) { return ExpandProgram(job, s, ElementType::kFloat32).error().message(); };
  const Strategy cut{.dp = 2, .cp = 2};
  JobSpec short_job = job;
  short_job.sequence = 30;
  EXPECT_THAT(WhyNoProgram(short_job, cut).value_or(""), HasSubstr("cp=2: does not cut a sequence of 30"));
  EXPECT_THAT(why({.dp = 4, .zero_stage = 3, .shard_group = 2}), HasSubstr("shard_group=2: not executed"));
  EXPECT_THAT(why({.dp = 3}), HasSubstr("batch"));
  const Strategy by_hierarchy{.dp = 4, .data_sync = DataSync::kHierarchical};
  EXPECT_THAT(WhyNoProgram(job, by_hierarchy).value_or(""), HasSubstr("not executed, expected ring"));
  JobSpec narrow = job;
  narrow.precision = Precision::kBf16;
  EXPECT_THAT(WhyNoProgram(narrow, {}).value_or(""), HasSubstr("precision bf16: not executed, expected fp32"));
  JobSpec odd = job;
  odd.model = SmallLlama();
  odd.model.head_dim = 7;
  EXPECT_THAT(WhyNoProgram(odd, {}).value_or(""), HasSubstr("heads of width 7, expected an even one"));
}

// Whatever single field of an instruction a file gets wrong, the program is refused or still one that can be run.
TEST(CheckProgram, RefusesListsThatCannotRun) {
  JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 8};
  const StepProgram good = ExpandProgram(job, {.dp = 2, .tp = 2, .pp = 2}, ElementType::kFloat32).value();
  ASSERT_TRUE(CheckProgram(good));
  const auto refused = [&](auto change) {
    StepProgram bad = good;
    change(bad);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  EXPECT_THAT(refused([](StepProgram& p) { p.ranks[3].rank_class = 9; }), HasSubstr("rank 3 stands outside"));
  EXPECT_THAT(refused([](StepProgram& p) { p.communicators[0].groups[0][0] = 77; }), HasSubstr("rank 77 twice, or not of 8"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].outputs[0] = 1 << 30; }), HasSubstr("writes value"));
  EXPECT_THAT(refused([](StepProgram& p) { std::swap(p.classes[0].instructions[0], p.classes[0].instructions[1]); }),
              HasSubstr("which nothing wrote before"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions.pop_back(); }), HasSubstr("do not say the same"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[1].units[0].elements += 1; }), HasSubstr("expected its blocks'"));
  EXPECT_THAT(refused([](StepProgram& p) { p.micro_batch = 3; }), HasSubstr("in micro-batches of 3"));
  EXPECT_THAT(refused([](StepProgram& p) { p.communicators.resize(70'000); }), HasSubstr("70000 communicators"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].part = ModelPart::kPositions; }),
              HasSubstr("positions has no such computation"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].layer = 0; }), HasSubstr("embedding of layer 0"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].blocks[0].layer = 99; }), HasSubstr("in layer 99 of 4"));
  EXPECT_THAT(refused([](StepProgram& p) {
                for (const Instruction& i : p.classes[0].instructions) {
                  if (i.action == StepAction::kData && i.part == ModelPart::kMlp)
                    p.classes[0].values[static_cast<size_t>(i.outputs[0])].rows = 1;
                }
              }),
              HasSubstr("of mlp is 1 x 64, expected"));
  EXPECT_THAT(refused([](StepProgram& p) {
                for (Instruction& i : p.classes[0].instructions) i.needs = {1 << 29};
              }),
              HasSubstr("expected an earlier communication"));
}

// The same of experts, and of attention over context ranks.
TEST(CheckProgram, RefusesExpertsAndContextsThatCannotRun) {
  JobSpec job{.name = "j", .model = SmallMixtral(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 8};
  const StepProgram good = ExpandProgram(job, {.dp = 2, .tp = 2, .cp = 2, .ep = 4}, ElementType::kFloat32).value();
  ASSERT_TRUE(CheckProgram(good));
  const auto refused = [&](auto change) {
    StepProgram bad = good;
    change(bad);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  const auto first = [](StepProgram& p, StepAction action, ModelPart part) -> Instruction& {
    return *std::find_if(p.classes[0].instructions.begin(), p.classes[0].instructions.end(),
                         [&](const Instruction& i) { return i.action == action && i.part == part; });
  };
  EXPECT_THAT(refused([](StepProgram& p) { p.experts = 0; }), HasSubstr("expected none of a model without"));
  EXPECT_THAT(refused([](StepProgram& p) { p.experts_per_token = 9; }), HasSubstr("expected them to divide"));
  EXPECT_THAT(refused([](StepProgram& p) { p.expert_ranks = 3; }), HasSubstr("expected them to divide"));
  EXPECT_THAT(refused([](StepProgram& p) { p.expert_hidden = 0; }), HasSubstr("a width of 0"));
  EXPECT_THAT(refused([](StepProgram& p) { p.sequence = 34; }), HasSubstr("two equal pieces"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kAttentionBlock).tag = 1; }),
              HasSubstr("reads 2 values and writes 2, expected 4 and 2"));
  EXPECT_THAT(refused([&](StepProgram& p) {
                for (Instruction& i : p.classes[0].instructions) {
                  if (i.part == ModelPart::kAttentionBlock && i.tag == 1 && i.action == StepAction::kForward) i.tag = 2;
                }
              }),
              HasSubstr("keys from 2 places away, of 2"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kAttentionBlock).keeps = true; }),
              HasSubstr("keeps nothing"));
  EXPECT_THAT(refused([&](StepProgram& p) {
                p.classes[0].values[static_cast<size_t>(first(p, StepAction::kForward, ModelPart::kDispatch).outputs[0])].rows = 3;
              }),
              HasSubstr("of dispatch is 3 x 64, expected"));
}

// By hand: eight positions in four pieces; the first rank has the first and the last.
TEST(PositionsOf, GivesEachRankAPieceFromTheFrontAndOneFromTheBack) {
  EXPECT_EQ(PositionsOf(8, 2, 0), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(PositionsOf(8, 2, 1), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(PositionsOf(3, 1, 0), (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace weft::planner::parallelism
