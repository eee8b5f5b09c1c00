#include "proto/operation_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "proto/plan_codec.h"

namespace weft::proto {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kWords[] = {"layers", "tensor gathers", "ring", "tree", "", "computation", "activations"};

/// Any list that the message can hold: words, counts and amounts of every size, stages in any classes.
planner::OperationList RandomList(std::mt19937& random) {
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random); };
  const auto amount = [&] { return std::ldexp(static_cast<double>(draw(0, 1 << 30)), static_cast<int>(draw(-60, 60))); };
  const auto word = [&] { return kWords[static_cast<size_t>(draw(0, 6))]; };
  planner::OperationList list{.schedule = planner::kAllSchedules[static_cast<size_t>(draw(0, 6))], .stages = draw(1, 40), .chunks = draw(1, 8),
                              .micro_batches = draw(1, 1 << 20), .ranks_per_stage = draw(1, 16384)};
  for (int64_t i = draw(1, list.stages); i > 0; --i) list.classes.emplace_back();
  for (size_t i = 0; i < static_cast<size_t>(list.stages); ++i) {
    // Each class has one at least.
    const size_t place = i < list.classes.size() ? i : static_cast<size_t>(draw(0, static_cast<int64_t>(list.classes.size()) - 1));
    list.classes[place].stages.push_back(static_cast<int64_t>(i));
  }
  for (planner::StageOperations& equal : list.classes) {
    equal.fragmentation = amount();
    for (int64_t i = draw(0, 12); i > 0; --i) {
      planner::Operation o{.what = word(), .kind = static_cast<planner::OperationKind>(draw(0, 6)),
                           .pass = static_cast<planner::OperationPass>(draw(0, 3)), .calls = amount(), .seconds = amount(),
                           .exposed = amount(), .flops = amount()};
      if (o.kind != planner::OperationKind::kCompute) {
        o.communicator = static_cast<planner::CommunicatorKind>(draw(0, 8));
        o.group = {draw(1, 1 << 20), draw(1, 1 << 20)};
        o.bytes = amount();
        o.algorithm = word();
        o.hides_behind = word();
      }
      equal.operations.push_back(o);
    }
    for (int64_t i = draw(0, 12); i > 0; --i) {
      equal.memory.push_back({.what = word(), .part = static_cast<planner::HoldingPart>(draw(0, 6)),
                              .span = static_cast<planner::HoldingSpan>(draw(0, 3)),
                              .chunks = static_cast<planner::HoldingChunks>(draw(0, 2)), .bytes = Bytes(draw(0, kMostHeldBytes))});
    }
  }
  return list;
}

void ExpectSame(const planner::OperationList& a, const planner::OperationList& b) {
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.stages, b.stages);
  EXPECT_EQ(a.chunks, b.chunks);
  EXPECT_EQ(a.micro_batches, b.micro_batches);
  EXPECT_EQ(a.ranks_per_stage, b.ranks_per_stage);
  EXPECT_TRUE(a.classes == b.classes);
}

TEST(OperationCodec, TheRoundTripIsTheIdentity) {
  std::mt19937 random(5);
  for (int round = 0; round < 1000; ++round) {
    const planner::OperationList list = RandomList(random);
    std::string wire;
    ASSERT_TRUE(ToProto(list).SerializeToString(&wire));
    Result<planner::OperationList> back = planner::OperationList();
    {
      v1::OperationList message;  // gone before its texts are looked at
      ASSERT_TRUE(message.ParseFromString(wire));
      back = OperationListFromProto(message);
    }
    ASSERT_TRUE(back) << back.error().message();
    ExpectSame(list, *back);
    if (HasFailure()) return;
  }
}

planner::JobSpec Job() {
  planner::JobSpec job{.name = "j", .global_batch = 32, .sequence = 1024, .precision = planner::Precision::kBf16, .gpus = 8};
  job.model = {.name = "m", .layers = 4, .hidden = 1024, .heads = 8, .kv_heads = 8, .head_dim = 128, .ffn_hidden = 4096, .vocab = 32000,
               .max_positions = 2048};
  return job;
}

// What a search of the whole space answers goes out with its list, for every schedule.
TEST(OperationCodec, APlansAnswerCarriesItsList) {
  const planner::ClusterSpec cluster = planner::FindClusterPreset("dgx-a100", 1).value();
  for (const planner::ScheduleKind schedule : planner::kAllSchedules) {
    planner::PlanOptions options;
    options.fix = {{"pp", 2}, {"schedule", static_cast<int64_t>(schedule)}};
    const Result<planner::PlanAnswer> answer = planner::Plan(Job(), cluster, options);
    ASSERT_TRUE(answer) << answer.error().message();
    ASSERT_FALSE(answer->plans.empty()) << planner::ScheduleName(schedule);
    const planner::JobPlan& plan = answer->plans.front();
    v1::JobPlan message;
    ToProto(plan, message);
    ASSERT_TRUE(message.has_operations());
    EXPECT_EQ(message.operations().version(), planner::OperationList::kVersion);
    const Result<planner::OperationList> back = OperationListFromProto(message.operations());
    ASSERT_TRUE(back) << back.error().message();
    ExpectSame(plan.operations, *back);
    EXPECT_FALSE(back->OfStage(1).operations.empty());
    // The memory of the fullest stage can be had from what was sent.
    Bytes most;
    for (int64_t stage = 0; stage < 2; ++stage) most = std::max(most, planner::MemoryOfStage(*back, stage)->peak);
    EXPECT_EQ(most, plan.predicted.memory.total());
  }
  v1::JobPlan without;
  ToProto(planner::JobPlan(), without);
  EXPECT_FALSE(without.has_operations()) << "a plan without classes has none";
}

v1::OperationList Good() {
  planner::OperationList list{.schedule = planner::ScheduleKind::k1F1B, .stages = 3, .chunks = 1, .micro_batches = 4, .ranks_per_stage = 2};
  list.classes.resize(2);
  list.classes[0].stages = {0, 2};
  list.classes[1].stages = {1};
  for (planner::StageOperations& equal : list.classes) {
    equal.operations = {{.what = "layers"}, {.what = "gradients", .kind = planner::OperationKind::kAllReduce, .algorithm = "ring"}};
    equal.memory = {{.what = "parameters", .bytes = Bytes(7)}};
  }
  return ToProto(list);
}

TEST(OperationCodec, WhatIsNoListIsRefusedByName) {
  ASSERT_TRUE(OperationListFromProto(Good()));
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  using List = v1::OperationList;
  const auto operation = [](List& m) { return m.mutable_classes(1)->mutable_operations(1); };
  const auto piece = [](List& m) { return m.mutable_classes(0)->mutable_memory(0); };
  const struct {
    const char* message;
    std::function<void(List&)> spoil;
  } cases[] = {
      {"operations: version: 0, expected 1", [](List& m) { m.clear_version(); }},
      {"operations: version: 2, expected 1", [](List& m) { m.set_version(2); }},
      {"operations: schedule: 0, expected a known word, 1 to 7", [](List& m) { m.clear_schedule(); }},
      {"operations: schedule: 8, expected a known word", [](List& m) { m.set_schedule(static_cast<v1::PipelineSchedule>(8)); }},
      {"operations: stages: 0, expected 1 to 4096", [](List& m) { m.clear_stages(); }},
      {"operations: stages: 1099511627776, expected 1 to 4096", [](List& m) { m.set_stages(int64_t{1} << 40); }},
      {"operations: chunks: -1, expected 1 to 4096", [](List& m) { m.set_chunks(-1); }},
      {"operations: micro_batches: 0, expected 1 to", [](List& m) { m.set_micro_batches(0); }},
      {"operations: ranks_per_stage: 0, expected 1 to", [](List& m) { m.clear_ranks_per_stage(); }},
      {"operations: classes: 4 of them, expected at most one for each stage", [](List& m) { m.add_classes(), m.add_classes(); }},
      {"operations: classes: none has stage 1, expected each stage in one of them", [](List& m) { m.mutable_classes()->RemoveLast(); }},
      {"operations: classes[2].stages: none, expected at least one", [](List& m) { m.add_classes(); }},
      {"operations: classes[1].stages: 3, expected 0 to 2", [](List& m) { m.mutable_classes(1)->set_stages(0, 3); }},
      {"operations: classes[1].stages: -1, expected 0 to 2", [](List& m) { m.mutable_classes(1)->set_stages(0, -1); }},
      {"operations: classes[1].stages: 2, expected each stage once", [](List& m) { m.mutable_classes(1)->set_stages(0, 2); }},
      {"operations: classes[0].stages: 0, expected each stage once", [](List& m) { m.mutable_classes(0)->set_stages(1, 0); }},
      {"operations: classes[0].stages: 0, expected ascending numbers",
       [](List& m) { m.mutable_classes(0)->set_stages(0, 2), m.mutable_classes(0)->set_stages(1, 0); }},
      {"operations: classes[0].operations: 4097 of them, expected at most 4096",
       [](List& m) { while (m.classes(0).operations_size() <= kMostListOperations) m.mutable_classes(0)->add_operations(); }},
      {"operations: classes[0].memory: 257 of them, expected at most 256",
       [](List& m) { while (m.classes(0).memory_size() <= kMostListHoldings) m.mutable_classes(0)->add_memory(); }},
      {"operations: classes[0].fragmentation: -0.5, expected a finite number", [](List& m) { m.mutable_classes(0)->set_fragmentation(-0.5); }},
      {"operations: classes[1].operations[1].what: 64 characters, expected a line of at most 63",
       [&](List& m) { operation(m)->set_what(std::string(64, 'x')); }},
      {"operations[1].algorithm: 3 characters, expected a line", [&](List& m) { operation(m)->set_algorithm("a\nb"); }},
      {"operations[1].hides_behind: 2 characters, expected a line", [&](List& m) { operation(m)->set_hides_behind("\xc3\xa9"); }},
      {"operations[1].kind: 0, expected a known word, 1 to 7", [&](List& m) { operation(m)->clear_kind(); }},
      {"operations[1].kind: 99, expected a known word", [&](List& m) { operation(m)->set_kind(static_cast<v1::OperationKind>(99)); }},
      {"operations[1].pass: -1, expected a known word, 1 to 4", [&](List& m) { operation(m)->set_pass(static_cast<v1::OperationPass>(-1)); }},
      {"operations[1].communicator: 10, expected a known word",
       [&](List& m) { operation(m)->set_communicator(static_cast<v1::CommunicatorKind>(10)); }},
      {"operations[1].calls: -1, expected a finite number of at least 0", [&](List& m) { operation(m)->set_calls(-1); }},
      {"operations[1].total_s: nan, expected a finite number", [&](List& m) { operation(m)->set_total_s(nan); }},
      {"operations[1].exposed_s: inf, expected a finite number", [&](List& m) { operation(m)->set_exposed_s(infinity); }},
      {"operations[1].total_flops: -inf, expected a finite number", [&](List& m) { operation(m)->set_total_flops(-infinity); }},
      {"operations[1].call_bytes: nan, expected a finite number", [&](List& m) { operation(m)->set_call_bytes(nan); }},
      {"operations[1].group_ranks: 0, expected 1 to", [&](List& m) { operation(m)->set_group_ranks(0); }},
      {"operations[1].group_stride: -4, expected 1 to", [&](List& m) { operation(m)->set_group_stride(-4); }},
      {"classes[0].memory[0].held_bytes: -1, expected 0 to", [&](List& m) { piece(m)->set_held_bytes(-1); }},
      {"classes[0].memory[0].held_bytes: 9223372036854775807, expected 0 to",
       [&](List& m) { piece(m)->set_held_bytes(std::numeric_limits<int64_t>::max()); }},
      {"memory[0].what: 100 characters, expected a line", [&](List& m) { piece(m)->set_what(std::string(100, 'x')); }},
      {"memory[0].part: 8, expected a known word, 1 to 7", [&](List& m) { piece(m)->set_part(static_cast<v1::HoldingPart>(8)); }},
      {"memory[0].span: 0, expected a known word, 1 to 4", [&](List& m) { piece(m)->clear_span(); }},
      {"memory[0].chunks: 4, expected a known word, 1 to 3", [&](List& m) { piece(m)->set_chunks(static_cast<v1::HoldingChunks>(4)); }},
  };
  for (const auto& bad : cases) {
    v1::OperationList message = Good();
    bad.spoil(message);
    const Result<planner::OperationList> list = OperationListFromProto(message);
    ASSERT_FALSE(list) << bad.message;
    EXPECT_EQ(list.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(list.error().message(), HasSubstr(bad.message));
  }
}

}  // namespace
}  // namespace weft::proto
