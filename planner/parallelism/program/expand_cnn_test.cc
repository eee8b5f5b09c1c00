// Programs of a 3D CNN: what they send, against the list of operations; who sums; what they hold, by hand; what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/halo_exchange_time.h"
#include "planner/parallelism/legality.h"
#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/testing/listed_volumes.h"
#include "planner/parallelism/program/testing/small_models.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/program_memory.h"
#include "planner/tasks/program_state.h"
#include "planner/tasks/volume_slabs.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;
using ::testing::HasSubstr;

JobSpec CnnJob(const Strategy& s, int64_t global_batch) {
  return {.name = "j", .model = SmallCnn(), .global_batch = global_batch, .sequence = 1, .precision = Precision::kFp32,
          .gpus = GpuCount(s)};
}

Strategy Draw(std::mt19937& random) {
  Strategy s{.dp = Any<int64_t>(random, {1, 2, 3, 4}),
             .tp = Any<int64_t>(random, {1, 1, 2, 4}),
             .micro_batch = Any<int64_t>(random, {1, 2}),
             .zero_stage = Any<int64_t>(random, {0, 0, 1, 2, 3}),
             .shard_group = Any<int64_t>(random, {0, 0, 2})};
  s.keep_after_forward = s.zero_stage == 3 && Any(random, {true, false});
  s.schedule = Any(random, {ScheduleKind::kGpipe, ScheduleKind::k1F1B});
  s.data_sync =
      Any(random, {DataSync::kRing, DataSync::kRing, DataSync::kHierarchical, DataSync::kParameterServer, DataSync::kGossip});
  s.gradient_wire = Any(random, {GradientWire::kWhole, GradientWire::kWhole, GradientWire::kBf16, GradientWire::kFp8});
  s.local_steps = Any<int64_t>(random, {1, 1, 1, 3});
  s.bucket_bytes = Any(random, {Bytes(4), Bytes(2'000), Bytes(1 << 20)});
  return s;
}

// The two accounts of volumes. The list has gradients of halos for every layer; the samples themselves have none.
TEST(ExpandProgramOfCnn, HasTheVolumesOfTheOperationList) {
  std::mt19937 random(11);
  std::map<std::string, int> met;
  int checked = 0;
  for (int draw = 0; draw < 40'000 && checked < 1000; ++draw) {
    const Strategy s = Draw(random);
    const JobSpec job = CnnJob(s, 24);
    if (WhyIllegal(job, job.gpus, s)) continue;
    SCOPED_TRACE(DescribeStrategy(s));
    ClusterSpec cluster = FindClusterPreset("dgx-a100", 32).value();
    cluster.gpus_per_node = Any<int64_t>(random, {1, 2, 8});
    cluster.device = FindDevice("cpu").value();
    const CostModel model = CostModel::Make(job, cluster, {}, {.framework = Framework::kWeftTrain, .risk = std::nullopt}).value();
    CostModel::Scratch scratch;
    const OperationList priced = model.Lower(s, scratch);
    const ProgramChoices choices = ChoicesOf(s, {}, priced, cluster.gpus_per_node);
    if (WhyNoProgram(job, s, choices)) continue;
    const auto program = ExpandProgram(job, s, ElementType::kFloat32, choices);
    ASSERT_TRUE(program) << program.error().message();
    std::map<ListedKey, double> list = OfList(priced);
    if (s.tp > 1) {
      const double samples = static_cast<double>(GpuCount(s) * MicroBatches(s, job.global_batch));
      list[{CommunicatorKind::kTensor, OperationKind::kSendReceive}] -=
          samples * 2 * HaloBytes(job.model.cnn_layers.front(), s.micro_batch, s.tp, 4_B).count();
    }
    ASSERT_NO_FATAL_FAILURE(ExpectVolumesOf(list, *program, s));
    ++checked;
    ++met[fmt::format("zero {}{}", s.zero_stage, s.tp > 1 ? ", slabs" : "")];
    ++met[fmt::format("tp {} {}", s.tp, s.dp > 1 ? "replicas" : "alone")];
    ++met[std::string(DataSyncName(s.data_sync))];
    ++met[std::string(GradientWireName(s.gradient_wire))];
  }
  EXPECT_EQ(checked, 1000);
  for (const char* one : {"zero 0", "zero 1", "zero 2", "zero 3", "zero 0, slabs", "zero 1, slabs", "tp 2 alone", "tp 4 replicas",
                          "gossip", "parameter-server", "fp8", "bf16"}) {
    EXPECT_GT(met[one], 5) << one;
  }
}

// A slab at an end of the volume has one neighbour: of 2 · (4 - 1) messages each end has one. Per micro-batch three convolutions
// give planes and the last two have gradients of them.
TEST(ExpandProgramOfCnn, SendsHalosToNeighboursAlone) {
  const Strategy s{.tp = 4, .micro_batch = 2};
  const StepProgram program = ExpandProgram(CnnJob(s, 6), s, ElementType::kFloat64).value();
  ASSERT_EQ(program.classes.size(), 1u);
  const std::vector<Cnn3dLayer>& layers = program.volumes;
  int64_t planes = SlabHalo(layers[0], 2, 4).elements();
  for (const size_t layer : {size_t{2}, size_t{3}}) planes += 2 * SlabHalo(layers[layer], 2, 4).elements();
  EXPECT_EQ(planes, 2 * 2 * (2 * 64) + 2 * (2 * 2 * (4 * 16) + 2 * 2 * (8 * 4)));  // samples, two ends, channels and areas by hand
  for (int64_t rank = 0; rank < 4; ++rank) {
    const std::vector<ProgramVolume> volumes = VolumesOf(program, rank);
    const auto halo =
        std::find_if(volumes.begin(), volumes.end(), [](const ProgramVolume& v) { return v.action == StepAction::kHalo; });
    ASSERT_NE(halo, volumes.end());
    EXPECT_EQ(halo->kind, CommunicatorKind::kTensor);
    EXPECT_EQ(halo->calls, 3 * 5);
    EXPECT_EQ(halo->bytes, 3 * 8 * planes);
    EXPECT_EQ(halo->sent, rank == 0 || rank == 3 ? 3 * 4.0 * planes : 3 * 8.0 * planes);
  }
}

// All ranks that have the parameters sum gradients, whatever they share of the samples; all hold the whole state.
TEST(ExpandProgramOfCnn, SumsGradientsOverSlabsAndReplicas) {
  const Strategy s{.dp = 2, .tp = 2};
  const StepProgram program = ExpandProgram(CnnJob(s, 4), s, ElementType::kFloat32).value();
  std::set<std::pair<CommunicatorKind, size_t>> groups;
  for (const ProgramCommunicator& c : program.communicators) groups.insert({c.kind, c.groups.front().size()});
  EXPECT_EQ(groups, (std::set<std::pair<CommunicatorKind, size_t>>{
                        {CommunicatorKind::kTensor, 2}, {CommunicatorKind::kData, 4}, {CommunicatorKind::kWorld, 4}}));
  const ProgramState state = StateOf(program, SmallCnn()).value();
  for (const std::vector<HeldBox>& rank : state.ranks) {
    int64_t held = 0;
    for (const HeldBox& box : rank) held += box.box.elements();
    EXPECT_EQ(held, ParameterCount(SmallCnn()));
  }
}

// Two ranks, one sample: numbers by layer as the shapes of SmallCnn() say. A convolution keeps its input, the neighbours' planes
// and its output, which is the next one's input; a pooling where each largest number stood; then the mean and the logits. Besides the
// bytes and the class of the sample.
TEST(PeakMemoryOfCnn, OfAMicroBatchMoreIsWhatItsLayersKeep) {
  const auto peak = [](int64_t micro_batches) {
    const Strategy s{.tp = 2, .schedule = ScheduleKind::kGpipe};
    const StepProgram program = ExpandProgram(CnnJob(s, micro_batches), s, ElementType::kFloat32).value();
    return PeakMemoryOf(program, SmallCnn(), 0).count();
  };
  const int64_t input = 2 * 8 * 64, first = 4 * 8 * 64, pooled = 4 * 4 * 16, second = 8 * 2 * 4, third = second;
  const int64_t halos = 2 * 2 * 64 + 2 * 4 * 16 + 2 * 8 * 4;
  EXPECT_EQ(peak(30) - peak(29), 4 * (input + first + pooled + second + third + halos + 8 + 256) + 8 * pooled + input + 8);
}

TEST(ExpandProgramOfCnn, RefusesModelsByLayerAndValue) {
  const auto why = [](auto change) {
    ModelSpec m = SmallCnn();
    change(m.cnn_layers);
    m.layers = static_cast<int64_t>(m.cnn_layers.size());
    JobSpec job = CnnJob({}, 4);
    job.model = m;
    return WhyNoProgram(job, {}).value_or("");
  };
  using Layers = std::vector<Cnn3dLayer>;
  EXPECT_EQ(why([](Layers&) {}), "");
  EXPECT_THAT(why([](Layers& l) { l[2].kernel = {3, 2, 3}; }),
              HasSubstr("layer 2: a kernel of 3 x 2 x 3: not executed, expected odd"));
  EXPECT_THAT(why([](Layers& l) { l[2].normalised = true; }), HasSubstr("layer 2: other padding, groups or a norm"));
  EXPECT_THAT(why([](Layers& l) { l[1].stride = {1, 2, 2}; }), HasSubstr("layer 1: windows of 2 x 2 x 2 every 1 x 2 x 2"));
  EXPECT_THAT(why([](Layers& l) { l[2].in_channels = 5; }), HasSubstr("layer 2: it does not take the layer before it"));
  EXPECT_THAT(why([](Layers& l) { l[5].out_channels = 300; }), HasSubstr("layer 5: 300 classes, expected 2 to 256"));
  EXPECT_THAT(why([](Layers& l) { l.erase(l.begin() + 4); }), HasSubstr("a global pooling before the last layer"));
  EXPECT_THAT(why([](Layers& l) { l[5] = {.in_channels = 8, .out_channels = 256}; }),
              HasSubstr("layer 5: expected a dense layer at the end"));
  EXPECT_THAT(why([](Layers& l) { l.erase(l.begin()); }), HasSubstr("expected a convolution first"));
  EXPECT_THAT(why([](Layers& l) { l[0].kind = Cnn3dKind::kDense; }), HasSubstr("expected a convolution first"));
}

TEST(ExpandProgramOfCnn, RefusesSlabsThatAreNotEqual) {
  EXPECT_THAT(WhyNoProgram(CnnJob({.tp = 8}, 4), {.tp = 8}).value_or(""),
              HasSubstr("tp=8: layer 2: 8 planes in strides of 2: they do not make 8 equal slabs"));
  ModelSpec wide = SmallCnn();
  wide.cnn_layers[0].kernel = {11, 3, 3};  // five planes of a neighbour that has four
  EXPECT_THAT(WhyNoSlabs(wide.cnn_layers, 4).value_or(""), HasSubstr("layer 0: 4 planes of a slab, expected the 5"));
  EXPECT_EQ(WhyNoSlabs(wide.cnn_layers, 2), std::nullopt);
}

TEST(CheckProgramOfCnn, RefusesListsThatCannotRun) {
  const Strategy s{.tp = 2};
  const StepProgram good = ExpandProgram(CnnJob(s, 4), s, ElementType::kFloat32).value();
  ASSERT_TRUE(CheckProgram(good));
  const auto refused = [&](auto change) {
    StepProgram bad = good;
    change(bad);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  const auto first = [](StepProgram& p, StepAction action, ModelPart part) -> Instruction& {
    return *std::find_if(p.classes[0].instructions.begin(), p.classes[0].instructions.end(),
                         [&](const Instruction& i) { return i.action == action && (!OfPart(action) || i.part == part); });
  };
  EXPECT_THAT(refused([](StepProgram& p) { p.volumes.clear(); }), HasSubstr("a size of 0"));
  EXPECT_THAT(refused([](StepProgram& p) { p.hidden = 4; }), HasSubstr("a 3D CNN with sizes of a transformer"));
  EXPECT_THAT(refused([](StepProgram& p) { p.volumes[0].kernel[0] = 4; }), HasSubstr("layer 0: a kernel of 4 x 3 x 3"));
  EXPECT_THAT(refused([](StepProgram& p) { p.tensor = 3; }), HasSubstr("they do not make 3 equal slabs"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kConvolution).layer = 1; }),
              HasSubstr("convolution of layer 1 of 6"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kVolume).part = ModelPart::kEmbedding; }),
              HasSubstr("embedding of layer -1"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kConvolution).inputs.pop_back(); }),
              HasSubstr("reads 1 values and writes 1, expected 2 and 1"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kWeight, ModelPart::kConvolution).part = ModelPart::kPooling; }),
              HasSubstr("pooling of layer 3"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kHalo, {}).elements += 1; }), HasSubstr("planes at two ends"));
  EXPECT_THAT(refused([&](StepProgram& p) {
                const int32_t mean = first(p, StepAction::kForward, ModelPart::kGlobalPooling).outputs[0];
                p.classes[0].values[static_cast<size_t>(mean)].columns = 9;
              }),
              HasSubstr("of global-pooling is 1 x 9, expected 1 x 8"));
}

// Kernel, stride and channels are the program's.
TEST(CheckProgramOfCnn, DigestIsThatOfItsLayers) {
  StepProgram program = ExpandProgram(CnnJob({}, 4), {}, ElementType::kFloat32).value();
  const uint64_t digest = DigestOf(program);
  program.volumes[2].stride = {1, 2, 2};
  EXPECT_NE(DigestOf(program), digest);
}

}  // namespace
}  // namespace weft::planner::parallelism
