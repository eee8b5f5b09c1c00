// The timeline of a program against the pipeline's own simulation, and against sums by hand.
#include "planner/parallelism/program/program_times.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/testing/small_models.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/pipeline.h"

namespace weft::planner::inline parallelism {
namespace {

using ::testing::HasSubstr;

StepProgram Program(const ModelSpec& model, const Strategy& s, int64_t micro_batches = 8) {
  JobSpec job{.model = model, .global_batch = micro_batches * s.dp * s.micro_batch, .sequence = 32, .precision = Precision::kFp32,
              .gpus = GpuCount(s)};
  Result<StepProgram> program = ExpandProgram(job, s, ElementType::kFloat32);
  EXPECT_TRUE(program) << (program ? "" : program.error().message());
  return std::move(*program);
}

/// Each layer's MLP takes so long in the three passes, a message `hop`, all else nothing.
InstructionTimes MlpAlone(double forward, double data, double weight, double hop, double sum = 0) {
  return {.compute =
              [=](const RankClass&, const Instruction& i) {
                if (!OfPart(i.action) || i.part != ModelPart::kMlp) return Seconds(0);
                return Seconds(i.action == StepAction::kForward ? forward : i.action == StepAction::kData ? data : weight);
              },
          .communicate =
              [=](const RankClass&, const Instruction& i) {
                const bool message = i.action == StepAction::kSend || i.action == StepAction::kReceive;
                return Seconds(message ? hop : i.unit >= 0 ? sum : 0);
              }};
}

/// 8 layers over p·v chunks, 8 micro-batches; messages of `hop` seconds.
void ExpectPipelinesTimeline(const Strategy& s, double hop) {
  SCOPED_TRACE(DescribeStrategy(s) + " hop " + std::to_string(hop));
  ModelSpec model = SmallGpt();
  model.layers = 8;
  const StepProgram program = Program(model, s);
  const double forward = 0.25, data = 0.5, weight = 0.125;
  const auto each = static_cast<double>(8 / (s.pp * s.vpp));
  const std::vector<StageTime> times(static_cast<size_t>(s.pp * s.vpp),
                                     {Seconds(each * forward), Seconds(each * data), Seconds(each * weight)});
  const Seconds way(hop);
  PipelineScratch scratch;
  const PipelineTime expected = SimulatePipeline({.schedule = s.schedule, .stages = times, .micro_batches = 8, .chunks = s.vpp,
                                                  .hops = std::span(&way, s.pp > 1 ? 1 : 0)},
                                                 scratch)
                                    .value();
  const ProgramTimeline timeline = TimelineOf(program, MlpAlone(forward, data, weight, hop)).value();
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankTimeline& of = timeline.ranks[rank];
    EXPECT_NEAR(of.step.count(), expected.makespan.count(), 1e-9);
    EXPECT_NEAR(of.parts.bubble.count(), expected.stages[rank].idle.count(), 1e-9);
    EXPECT_NEAR(of.parts.compute.count(), 8 * 8 / static_cast<double>(s.pp) * (forward + data + weight), 1e-9);
    EXPECT_NEAR(of.parts.exposed.count(), 0, 1e-9);
  }
}

// Messages that never wait for another, and some that are longer than any pass: a link carries one at a time in both accounts.
TEST(ProgramTimeline, IsThePipelinesSimulationForEverySchedule) {
  for (const ScheduleKind schedule : {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B, ScheduleKind::kInterleaved,
                                      ScheduleKind::kZbH1, ScheduleKind::kZbH2, ScheduleKind::kZbV}) {
    for (const int64_t stages : {1, 2, 4}) {
      const bool two = schedule == ScheduleKind::kInterleaved || schedule == ScheduleKind::kZbV;
      if (two && stages == 1) continue;
      Strategy s{.pp = stages, .vpp = two ? 2 : 1};
      s.schedule = schedule;
      for (const double hop : {0.03125, 8.0}) ExpectPipelinesTimeline(s, hop);
    }
  }
}

// One bucket for each layer: the sums queue on one stream behind a backward pass of 1 s for each of 4 layers, the first of them 1 s
// after it began; 4 of 3 s are over 1 + 12 s after, which is 9 s after the pass.
TEST(ProgramTimeline, SumsOfGradientsHideBehindTheBackwardPass) {
  Strategy s{.dp = 2};
  s.zero_stage = 2;
  const StepProgram program = Program(SmallGpt(), s, 1);
  int layers = 0;
  InstructionTimes times = MlpAlone(1, 0.5, 0.5, 0);
  times.communicate = [&](const RankClass& list, const Instruction& i) {
    if (i.action != StepAction::kReduceScatter) return Seconds(0);
    const ParameterUnit& unit = list.units[static_cast<size_t>(i.unit)];
    const bool layer = list.blocks[static_cast<size_t>(unit.first_block)].layer >= 0;
    layers += layer ? 1 : 0;
    return Seconds(layer ? 3 : 0);
  };
  const ProgramTimeline timeline = TimelineOf(program, times).value();
  ASSERT_EQ(layers, 4 * 3);  // of both ranks together, in each step that was laid out
  EXPECT_NEAR(timeline.ranks[0].step.count(), 4 + 1 + 12, 1e-9);
  EXPECT_NEAR(timeline.ranks[0].parts.compute.count(), 8, 1e-9);
  EXPECT_NEAR(timeline.ranks[0].parts.exposed.count() + timeline.ranks[0].parts.bubble.count(), 9, 1e-9);
}

// A computation waits for scatters until those under way are no more than the largest unit's elements.
TEST(ProgramTimeline, WholeGradientsDoNotPileUp) {
  ModelSpec model = SmallLlama();
  model.layers = 8;
  Strategy s{.dp = 4};
  s.zero_stage = 3;
  const StepProgram program = Program(model, s, 4);
  const RankClass& list = program.classes[0];
  std::map<int32_t, int64_t> under_way;
  int64_t largest = 0, waits = 0;
  for (const ParameterUnit& unit : list.units) largest = std::max(largest, unit.gradients_sharded ? unit.elements : 0);
  for (size_t k = 0; k < list.instructions.size(); ++k) {
    const Instruction& i = list.instructions[k];
    const bool scatters = i.action == StepAction::kReduceScatter && i.unit >= 0;
    if (scatters && list.units[static_cast<size_t>(i.unit)].gradients_sharded) under_way[static_cast<int32_t>(k)] = i.elements;
    if (!OfPart(i.action)) continue;
    for (const int32_t need : i.needs) waits += static_cast<int64_t>(under_way.erase(need));
    int64_t elements = 0;
    for (const auto& [at, of] : under_way) elements += of;
    EXPECT_LE(elements, largest) << k;
  }
  EXPECT_GT(waits, 0);
}

TEST(ProgramTimeline, EveryStrategyOfASmallModelComesToItsEnd) {
  const auto times = [](const RankClass&, const Instruction&) { return Seconds(1e-3); };
  int made = 0;
  for (ModelSpec model : {SmallGpt(), SmallLlama(), SmallMixtral()}) {
    model.layers = 8;  // of so many per stage some gradients' scatters are waited for
    for (const char* text : {"dp=2,tp=2,pp=2,vpp=2,schedule=zb-v", "dp=4,zero_stage=3", "dp=2,pp=2,zero_stage=3,keep_after_forward=true",
                             "dp=2,tp=2,sequence_parallel=true,recompute=full", "dp=2,cp=2,context_mode=ulysses", "dp=2,cp=2,tp=2",
                             "dp=4,data_sync=gossip", "dp=2,local_steps=3", "dp=4,ep=2,pp=2", "dp=4,zero_stage=2,shard_group=2"}) {
      if (std::string_view(text).find("ep=") != std::string_view::npos && model.experts == 0) continue;
      Strategy s;
      const FixedVariables fixed = ParseFixed(text).value();
      for (const auto& [name, value] : fixed) FindStrategyVariable(name)->set(s, value);
      JobSpec job{.model = model, .global_batch = 4 * s.dp, .sequence = 32, .precision = Precision::kFp32, .gpus = GpuCount(s)};
      if (WhyNoProgram(job, s)) continue;
      const StepProgram program = Program(model, s, 4);
      const Result<ProgramTimeline> timeline = TimelineOf(program, {times, times});
      ASSERT_TRUE(timeline) << model.name << ' ' << text << ": " << timeline.error().message();
      for (const RankTimeline& rank : timeline->ranks) {
        EXPECT_NEAR((rank.parts.compute + rank.parts.exposed + rank.parts.bubble - rank.step).count(), 0, 1e-9) << text;
      }
      ++made;
    }
  }
  EXPECT_GE(made, 18);
}

TEST(TimesOf, NamesWhatTheCalibrationLacksAndStretchesWhatItHas) {
  const StepProgram program = Program(SmallLlama(), {}, 1);
  const GroupNetwork network{.single_ring = true};
  const auto lacks = TimesOf(program, Calibration(std::vector<CalibrationConstant>{}), network);
  ASSERT_FALSE(lacks);
  EXPECT_EQ(lacks.error().code(), Code::kNotFound);
  EXPECT_THAT(lacks.error().message(), HasSubstr("no constant operation.forward.embedding.fp32.b1.32x64.p16384: measure"));

  const RankClass& list = program.classes.front();
  std::set<std::string> names;
  for (const Instruction& i : list.instructions) {
    if (!Communicates(i.action)) names.insert(OperationName(program, list, i));
  }
  names.erase("");
  // 6 equal layers have one name for each of their 7 parts' passes, and share some with what is around them.
  EXPECT_EQ(names.count("forward.mlp.fp32.b1.32x64.p18432"), 1);
  EXPECT_EQ(names.count("weight-gradient.mlp.fp32.b1.32x64.p18432"), 1);
  std::vector<CalibrationConstant> constants;
  for (const std::string& name : names) {
    constants.push_back({.name = "operation." + name, .value = 0.5, .least = 0, .most = 1, .fitted = true, .source = "by hand"});
  }
  const InstructionTimes times = TimesOf(program, Calibration(std::move(constants)), network, 3).value();
  Seconds sum{0};
  for (const Instruction& i : list.instructions) {
    if (!Communicates(i.action)) sum += times.compute(list, i);
  }
  int64_t timed = 0;
  for (const Instruction& i : list.instructions) timed += !Communicates(i.action) && !OperationName(program, list, i).empty();
  EXPECT_NEAR(sum.count(), 1.5 * static_cast<double>(timed), 1e-9);
}

// A ring of 4 ranks on a node each: 2·3 steps of a quarter of the bytes, at 100 MB/s and 1 ms.
TEST(TimesOf, CommunicationIsWhatTheOneAccountSays) {
  Strategy s{.dp = 4};
  const StepProgram program = Program(SmallGpt(), s, 1);
  std::vector<CalibrationConstant> constants;
  for (const Instruction& i : program.classes.front().instructions) {
    constants.push_back({.name = "operation." + OperationName(program, program.classes.front(), i), .value = 0, .source = ""});
  }
  const GroupNetwork network{.nic_rate = 100e6, .nic_latency = 1e-3, .single_ring = true};
  const InstructionTimes times = TimesOf(program, Calibration(std::move(constants)), network).value();
  bool found = false;
  for (const Instruction& i : program.classes.front().instructions) {
    if (i.action != StepAction::kAllReduce || i.unit < 0) continue;
    const double expected = 6 * (1e-3 + static_cast<double>(i.elements * 4) / 4 / 100e6);
    EXPECT_NEAR(times.communicate(program.classes.front(), i).count(), expected, 1e-12);
    found = true;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace weft::planner::parallelism
