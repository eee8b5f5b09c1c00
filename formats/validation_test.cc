#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/calibration_yaml.h"
#include "formats/validation_case.h"
#include "formats/validation_csv.h"

namespace weft::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kHeader =
    "source,model,params_b,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq,experts,topk,gpu,gpus,gpus_per_node,tp,pp,dp,"
    "ep,cp,vpp,zero_stage,micro_batch,global_batch,recompute,seq_parallel,measured_metric,measured_value,unit,notes\r\n";

std::string Table(std::string_view row) { return std::string(kHeader) + std::string(row) + "\r\n"; }

ValidationRow Row(std::string_view row) { return ParseValidationCsv(Table(row), "t.csv").value().at(0); }

constexpr std::string_view kGpt =
    "arXiv:2205.05198 Table 5,GPT-175B,175,96,12288,49152,96,96,51200,2048,,,A100-80GB,64,8,8,8,1,1,1,3,0,1,64,full,0,"
    "iteration_time,18.13,s,precision=fp16; selene 8x200Gb/s HDR";

TEST(ParseCsv, ReadsQuotesCommasAndLineEnds) {
  const auto rows = ParseCsv("a,\"b, \"\"c\"\"\",\r\n\"two\nlines\",2\nlast", "x").value();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0], ElementsAre("a", "b, \"c\"", ""));
  EXPECT_THAT(rows[1], ElementsAre("two\nlines", "2"));
  EXPECT_THAT(rows[2], ElementsAre("last"));
}

TEST(ParseCsv, RefusesBrokenQuotes) {
  const auto open = ParseCsv("a\n\"b", "x.csv");
  ASSERT_FALSE(open.has_value());
  EXPECT_EQ(open.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(open.error().message(), HasSubstr("x.csv:2: a quoted field never ends"));
  const auto behind = ParseCsv("\"b\"c,d", "x.csv");
  ASSERT_FALSE(behind.has_value());
  EXPECT_THAT(behind.error().message(), HasSubstr("'c' behind a closing quote"));
}

TEST(ParseValidationCsv, NamesLineAndColumn) {
  const struct {
    std::string text;
    const char* words;
  } cases[] = {
      {"", "empty, expected a header"},
      {"source,model\r\n", "column params_b is missing"},
      {Table("a,b"), "t.csv:2: 2 fields, expected 30"},
      {Table(",m,,x,,,,,,,,,,,,,,,,,,,,,,,iteration_time,1,s,"), "t.csv:2: layers: \"x\", expected a positive whole number"},
      {Table(",m,,-3,,,,,,,,,,,,,,,,,,,,,,,iteration_time,1,s,"), "layers: \"-3\""},
      {Table(",m,,1,,,,,,,,,,,,,,,,,,,,,some,,iteration_time,1,s,"), "recompute: \"some\", expected one of"},
      {Table(",m,,1,,,,,,,,,,,,,,,,,,,,,,,iteration_time,fast,s,"), "measured_value: \"fast\""},
  };
  for (const auto& expected : cases) {
    const auto rows = ParseValidationCsv(expected.text, "t.csv");
    ASSERT_FALSE(rows.has_value()) << expected.words;
    EXPECT_EQ(rows.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(rows.error().message(), HasSubstr(expected.words));
  }
}

TEST(Note, IsTheValueBehindItsKey) {
  EXPECT_EQ(Note("precision=fp8; mfu=41.2; ETP=4", "mfu"), "41.2");
  EXPECT_EQ(Note("precision=fp8; mfu=41.2; ETP=4", "ETP"), "4");
  EXPECT_EQ(Note("my_mfu=1; x", "mfu"), "");
}

TEST(MakeValidationCase, SaysWhatTheRowSays) {
  const ValidationCase question = MakeValidationCase(Row(kGpt)).value();
  EXPECT_EQ(planner::FrameworkName(question.framework), "megatron-2022");
  EXPECT_EQ(question.job.precision, planner::Precision::kFp16);
  EXPECT_EQ(question.job.model.layers, 96);
  EXPECT_EQ(question.strategy.vpp, 3);
  EXPECT_EQ(question.strategy.schedule, planner::ScheduleKind::kInterleaved);
  EXPECT_EQ(question.strategy.recompute, planner::Recompute::kFull);
  EXPECT_FALSE(question.strategy.sequence_parallel);
  EXPECT_EQ(question.cluster.device.name, "a100-80");
  EXPECT_EQ(question.cluster.nic_rate, GigabitsPerSecond(1600));
  EXPECT_DOUBLE_EQ(question.measured, 18.13);
  EXPECT_THAT(question.defaults, testing::IsEmpty());
}

TEST(MakeValidationCase, NamesItsDefaults) {
  const ValidationCase question =
      MakeValidationCase(Row("x,GPT-175B,175,96,12288,49152,,,,2048,,,H100-80GB,512,8,8,8,8,,,,,,768,,,"
                             "tokens_per_s_per_gpu,100,tokens/s,precision=bf16")).value();
  EXPECT_THAT(question.defaults, testing::IsSupersetOf({"heads=96", "vocab=51200", "micro_batch=1",
                                                        "vpp=6: two layers per chunk", "recompute: the least that fits"}));
  EXPECT_DOUBLE_EQ(question.measured, 768.0 * 2048 / (100 * 512));
}

TEST(MakeValidationCase, SaysWhyARowCannotBePredicted) {
  const struct {
    const char* row;
    const char* words;
  } cases[] = {
      {",U-Net,,,,,,,,,,,P40-24GB,1,8,1,1,1,,,,,,,none,,samples_per_s_total,28.5,samples/s,", "layers or hidden not stated"},
      {",OPT,,8,7168,28672,56,,,2048,,,,8,8,1,1,8,1,1,,3,1,64,,,samples_per_s_total,1,s,", "GPU type not stated"},
      {",OPT,,8,7168,28672,56,,,2048,,,A100-80GB,8,8,1,1,,1,1,,3,1,64,,,iteration_time,1,s,", "tp, pp or dp not stated"},
      {",OPT,,8,7168,28672,56,,,2048,,,A100-80GB,8,8,1,1,8,1,1,,per-op,1,64,,,iteration_time,1,s,", "per operator"},
      {",OPT,,8,7168,28672,56,,,2048,,,A100-80GB,8,8,1,1,8,1,1,,3,1,64,,,joy,1,s,", "metric joy"},
      {",OPT,,8,7168,28672,56,,,2048,,,A100-80GB,8,8,1,1,8,1,1,,3,1,,,,iteration_time,1,s,", "global batch not stated"},
  };
  for (const auto& expected : cases) {
    const auto question = MakeValidationCase(Row(expected.row));
    ASSERT_FALSE(question.has_value()) << expected.words;
    EXPECT_THAT(question.error().message(), HasSubstr(expected.words));
  }
}

// 12 h² L + …: the families' own shapes reach the published sizes.
TEST(ModelOfRow, ReachesThePublishedParameterCounts) {
  const struct {
    const char* row;
    double billions;
  } cases[] = {
      {",Llama-3.1-405B,,126,16384,53248,128,8,128256,8192,,,H100-80GB,8,8,1,1,8,1,1,,,1,8,,,iteration_time,1,s,", 405.853},
      {",DeepSeek-V3,,61,7168,2048,128,128,129280,4096,256,8,H100-80GB,8,8,1,1,8,1,1,,,1,8,,,iteration_time,1,s,", 671.026},
      {",Mixtral-8x7B,,32,4096,14336,32,8,32000,4096,8,2,H100-80GB,8,8,1,1,8,1,1,,,1,8,,,iteration_time,1,s,", 46.703},
      {",Qwen3-235B-A22B,,94,4096,1536,64,4,151936,4096,128,8,H100-80GB,8,8,1,1,8,1,1,,,1,8,,,iteration_time,1,s,", 235.09},
  };
  for (const auto& expected : cases) {
    std::vector<std::string> defaults;
    const planner::ModelSpec model = ModelOfRow(Row(expected.row), defaults).value();
    EXPECT_NEAR(static_cast<double>(planner::ParameterCount(model)) / 1e9, expected.billions, 0.002 * expected.billions)
        << model.name;
  }
}

// The notes say how a run was made: NICs, attention, dispatch, sharding.
TEST(ValidationCase, ReadsWhatTheNotesSay) {
  const auto with = [](const char* source, const char* model, const char* notes) {
    return MakeValidationCase(Row(std::string(source) + "," + model + notes)).value();
  };
  const char* const llama = "Llama-3-8B,8,32,4096,14336,32,8,128256,8192,,,H100-80GB,16,8,1,1,16,1,1,1,3,1,16,full,,iteration_time,1,s,";
  EXPECT_EQ(with("x", llama, "AWS EFA").cluster.nic_kind, planner::NicKind::kEfa);
  EXPECT_EQ(with("x", llama, "Slingshot 11").cluster.nic_kind, planner::NicKind::kSlingshot);
  const ValidationCase shared = with("x", llama, "4x100Gb/s Omni-Path per node");
  EXPECT_EQ(shared.cluster.nics_per_node, 4);
  EXPECT_TRUE(shared.cluster.SharesNics());
  EXPECT_TRUE(with("x", llama, "flash attention").job.model.flash_attention);
  EXPECT_FALSE(with("x", llama, "no flash attention").job.model.flash_attention);
  EXPECT_EQ(planner::FrameworkName(with("yanring/Megatron-MoE-ModelZoo", llama, "dispatcher=a2a").framework), "megatron-moe");
  EXPECT_EQ(planner::FrameworkName(with("yanring/Megatron-MoE-ModelZoo", llama, "dispatcher=deepep").framework), "megatron-moe-deepep");
  EXPECT_EQ(planner::FrameworkName(with("mlcommons/training_results_v5.0", llama, "no CUDA graphs").framework), "mlperf");
  const char* const bert = "BERT-large,0.336,24,1024,4096,16,16,30522,512,,,H100-80GB,8,8,1,1,8,1,1,1,,48,384,none,,iteration_time,1,s,";
  const ValidationCase encoder = with("mlcommons/training_results_v3.1", bert, "LAMB; encoder");
  EXPECT_EQ(encoder.strategy.zero_stage, 0) << "LAMB's norms are of whole layers";
  EXPECT_FALSE(encoder.job.model.causal);
  EXPECT_EQ(planner::FrameworkName(encoder.framework), "mlperf-graphs");
}

TEST(CalibrationYaml, RefusesWhatPhysicsForbids) {
  const auto text = [](std::string_view entry) { return "version: 1\nconstants:\n  - " + std::string(entry) + "\n"; };
  const auto read = [&](std::string_view entry) { return ParseCalibrationYaml(text(entry), "c.yaml"); };
  const auto good = read("{name: gpu.flash, value: 0.5, least: 0.1, most: 0.85, fitted: true, source: \"x\"}");
  ASSERT_TRUE(good.has_value()) << good.error().message();
  EXPECT_EQ(good->Get("gpu.a100", "flash"), 0.5);
  const auto outside = read("{name: gpu.flash, value: 1.5, least: 0.1, most: 0.85, fitted: true, source: \"x\"}");
  ASSERT_FALSE(outside.has_value());
  EXPECT_EQ(outside.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(outside.error().message(), HasSubstr("c.yaml:3: gpu.flash: expected 0.1 to 0.85, is 1.5"));
  const auto missing = read("{name: gpu.flash, value: 1}");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("least: expected a value"));
  EXPECT_FALSE(ParseCalibrationYaml("constants: []\n", "c.yaml").has_value()) << "no version";
}

// The file that is edited and the table that is compiled in are written together.
TEST(CalibrationYaml, FileAndCompiledConstantsAreTheSame) {
  const auto file = ReadCalibrationYaml(WEFT_CALIBRATION_YAML);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const planner::Calibration compiled;
  ASSERT_EQ(file->constants().size(), compiled.constants().size());
  for (size_t i = 0; i < compiled.constants().size(); ++i) {
    const planner::CalibrationConstant& a = file->constants()[i];
    const planner::CalibrationConstant& b = compiled.constants()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.value, b.value) << a.name;
    EXPECT_FALSE(a.source.empty()) << a.name;
  }
  const auto& constants = compiled.constants();
  EXPECT_LE(std::count_if(constants.begin(), constants.end(), [](const planner::CalibrationConstant& c) { return c.fitted; }), 30);
}

}  // namespace
}  // namespace weft::formats
