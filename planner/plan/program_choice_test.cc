// Which program, at which risk, and what would be faster: the answers that no single search gives.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/planner.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

JobSpec Job(const char* model, int64_t batch, int64_t sequence, int64_t gpus = 0) {
  return {.name = "job", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = sequence, .gpus = gpus};
}
ClusterSpec Cluster(const char* name, int64_t nodes) { return FindClusterPreset(name, nodes).value(); }

/// What `weft plan` does where nothing is said.
PlanAnswer Default(const JobSpec& job, const ClusterSpec& cluster, bool advise = false) {
  return Plan(job, cluster, {.known_programs = true, .advise = advise}).value();
}

std::string Line(const JobPlan& plan, std::string_view start) {
  for (const std::string& line : plan.why) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

struct Place {
  const char* cluster;
  int64_t nodes;
};

// What a device has is not planned beyond 95 %, and the program that is named runs the plan.
TEST(DefaultPlan, KeepsItsRiskAndIsOneProgramsOwn) {
  int planned = 0;
  for (const char* model : {"gpt2", "llama3-8b", "llama3-70b", "mixtral-8x7b", "deepseek-v3"}) {
    for (const Place& place : {Place{"dgx-a100", 1}, Place{"dgx-a100", 8}, Place{"dgx-h100", 4}, Place{"dgx-h100", 32},
                               Place{"dgx-b200", 2}, Place{"gb200-nvl72", 1}}) {
      JobSpec job = Job(model, 256, 1024);
      const ClusterSpec cluster = Cluster(place.cluster, place.nodes);
      job.gpus = cluster.TotalGpus();
      const PlanAnswer answer = Default(job, cluster);
      if (answer.plans.empty()) continue;
      ++planned;
      const JobPlan& plan = answer.plans.front();
      const std::string where = fmt::format("{} on {}:{}", model, place.cluster, place.nodes);
      EXPECT_LE(static_cast<double>(plan.predicted.memory.total().count()),
                0.95 * static_cast<double>(cluster.device.memory.count())) << where;
      EXPECT_GE(plan.predicted.fits, 1 - kDefaultRisk - 1e-9) << where;
      EXPECT_THAT(KnownFrameworks(), Contains(plan.framework)) << where;
      EXPECT_EQ(WhyCannotRun(plan.framework, {job, cluster, plan.strategy}), std::nullopt) << where;
      EXPECT_THAT(plan.why, Contains(HasSubstr("(--framework any)"))) << where;
      EXPECT_THAT(plan.why, Contains(HasSubstr("of Megatron-LM, torchtitan and DeepSpeed, " + FrameworkTitle(plan.framework) + " is predicted the fastest"))) << where;
    }
  }
  EXPECT_GT(planned, 20);
}

// The plan of the fastest program is what that program's own search finds, and no program finds a faster one.
TEST(DefaultPlan, IsTheFastestProgramsOptimum) {
  const JobSpec job = Job("llama3-8b", 128, 8192);
  const ClusterSpec cluster = Cluster("dgx-h100", 2);
  const JobPlan best = Default(job, cluster).plans.at(0);
  for (const Framework framework : KnownFrameworks()) {
    const PlanAnswer own = Plan(job, cluster, {.framework = framework}).value();
    if (own.plans.empty()) continue;
    EXPECT_GE(own.plans[0].predicted.iteration, best.predicted.iteration) << FrameworkName(framework);
    EXPECT_TRUE(framework != best.framework || own.plans[0].strategy == best.strategy);
  }
  const PlanAnswer whole = Plan(job, cluster, {}).value();
  EXPECT_EQ(whole.plans.at(0).framework, Framework::kAny);
}

// A vision transformer is nobody's: the whole space answers, and says so.
TEST(DefaultPlan, OfAModelThatNoProgramRunsIsTheWholeSpaces) {
  JobSpec job = Job("gpt2", 64, 1024);
  job.model.head = HeadKind::kNone;
  const PlanAnswer answer = Default(job, Cluster("dgx-a100", 1));
  ASSERT_FALSE(answer.plans.empty());
  EXPECT_EQ(answer.plans[0].framework, Framework::kAny);
  EXPECT_THAT(answer.plans[0].why.front(), HasSubstr("no known program runs this: Megatron-LM core_v0.19.0: "));
}

TEST(Risk, MoreOfItNeverMakesAPlanSlower) {
  for (const char* model : {"llama3-8b", "mixtral-8x7b"}) {
    const JobSpec job = Job(model, 64, 8192);
    double last = 1e300;
    for (const std::optional<double> risk : {std::optional(0.001), std::optional(0.05), std::optional(0.2), std::optional(0.5),
                                             std::optional<double>()}) {
      const PlanAnswer answer = Plan(job, Cluster("dgx-h100", 2), {.framework = Framework::kMegatron, .risk = risk}).value();
      if (answer.plans.empty()) {
        EXPECT_EQ(last, 1e300) << "what fitted at a lower risk fits at a higher one";
        continue;
      }
      // Without a risk the prediction alone has to fit, which half of the runs exceed: between 0.2 and 0.9.
      if (risk) {
        EXPECT_LE(answer.plans[0].predicted.iteration.count(), last * (1 + 1e-12)) << model << " " << *risk;
        last = answer.plans[0].predicted.iteration.count();
        EXPECT_GE(answer.plans[0].predicted.fits, 1 - *risk - 1e-9);
      } else {
        EXPECT_LE(answer.plans[0].predicted.memory.total(), Cluster("dgx-h100", 2).device.memory);
      }
    }
  }
}

TEST(Risk, ThatIsNoProbabilityIsRefused) {
  for (const double risk : {0.0, 1.0, -1.0, 2.0}) {
    const auto answer = Plan(Job("gpt2", 64, 1024), Cluster("dgx-a100", 1), {.risk = risk});
    ASSERT_FALSE(answer) << risk;
    EXPECT_THAT(answer.error().message(), HasSubstr("expected a probability above 0 and below 1"));
  }
}

// A host's processor has neither a context nor a caching allocator.
TEST(Risk, AProcessorsMemoryIsWhatIsAskedFor) {
  ClusterSpec cluster = Cluster("dgx-a100", 1);
  cluster.device.reserved = Bytes(0);
  const MemoryUse memory = Plan(Job("gpt2", 64, 1024), cluster, {}).value().plans.at(0).predicted.memory;
  EXPECT_EQ(memory.context, Bytes(0));
  EXPECT_EQ(memory.fragmentation, Bytes(0));
  EXPECT_EQ(memory.total(), memory.allocated());
}

// Hopper's tensor cores end at 8 bits.
TEST(Precision, WithoutUnitsIsRefused) {
  JobSpec job = Job("llama3-8b", 64, 4096);
  job.precision = Precision::kFp4;
  const auto hopper = Plan(job, Cluster("dgx-h100", 1), {});
  ASSERT_FALSE(hopper);
  EXPECT_EQ(hopper.error().message(), "precision fp4: h100-80 has no units for it, expected one of fp32, fp16, bf16, fp8");
  EXPECT_TRUE(Plan(job, Cluster("dgx-b200", 1), {}));
  job.precision = Precision::kFp8;
  EXPECT_FALSE(Plan(job, Cluster("dgx-a100", 1), {}));
  EXPECT_TRUE(Plan(job, Cluster("dgx-h100", 1), {}));
}

/// The GPUs that the advice names; 0: it names none.
int64_t FewerGpus(const JobPlan& plan) {
  const std::string line = Line(plan, "fewer GPUs are faster: --gpus ");
  return line.empty() ? 0 : std::stoll(line.substr(line.find("--gpus ") + 7));
}

// 1024 sequences divide over 128 ranks and not over 144, of which only 16 or so are replicas then; 30 likewise.
TEST(Advice, NamesFewerGpusWhereTheyAreFaster) {
  const struct {
    const char* model;
    const char* cluster;
    int64_t nodes, batch, gpus, fewer;
  } cases[] = {{"llama3-8b", "gb200-nvl72", 2, 1024, 144, 128}, {"llama3-8b", "dgx-h100", 4, 256, 30, 24}};
  for (const auto& one : cases) {
    const ClusterSpec cluster = Cluster(one.cluster, one.nodes);
    const JobSpec job = Job(one.model, one.batch, 8192, one.gpus);
    const JobPlan plan = Default(job, cluster, true).plans.at(0);
    EXPECT_EQ(FewerGpus(plan), one.fewer) << one.cluster;
    JobSpec smaller = job;
    smaller.gpus = one.fewer;
    EXPECT_LT(Default(smaller, cluster).plans.at(0).predicted.iteration, plan.predicted.iteration);
    EXPECT_NE(Line(plan, "another batch uses the GPUs better: --global-batch "), "");
  }
}

// Where another program gains by fewer GPUs, it is named: of 144 torchtitan is the fastest, of 128 Megatron-LM, and faster.
TEST(Advice, LooksAtAllProgramsThatWereAsked) {
  const ClusterSpec cluster = Cluster("gb200-nvl72", 2);
  const JobPlan plan = Default(Job("llama3-70b", 128, 8192, 144), cluster, true).plans.at(0);
  const JobPlan smaller = Default(Job("llama3-70b", 128, 8192, 128), cluster).plans.at(0);
  ASSERT_LT(smaller.predicted.iteration.count(), plan.predicted.iteration.count() * (1 - 1e-3));
  EXPECT_EQ(FewerGpus(plan), 128);
  if (smaller.framework != plan.framework) {
    EXPECT_THAT(plan.why, Contains(HasSubstr(" with " + FrameworkTitle(smaller.framework))));
  }
}

TEST(Advice, SaysNothingWhereAllDivides) {
  const JobPlan plan = Default(Job("llama3-8b", 256, 8192), Cluster("dgx-h100", 4), true).plans.at(0);
  EXPECT_THAT(plan.why, Not(Contains(HasSubstr("fewer GPUs"))));
}

}  // namespace
}  // namespace weft::planner
