#include "formats/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/checkpoint_json.h"
#include "formats/hf_config.h"
#include "formats/hf_tensors.h"
#include "formats/testing/config_corpus.h"

namespace weft::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Mutated;
using testing::Noise;

std::string Json(const std::string& text) {
  std::string out = text;
  for (char& c : out) c = c == '\'' ? '"' : c;
  return out;
}

TEST(Safetensors, ReadsWhatItWrites) {
  std::vector<StoredTensor> tensors = {{.name = "b", .type = StoredType::kFloat64, .shape = {2, 3}, .begin = 0, .end = 48},
                                       {.name = "a", .type = StoredType::kFloat32, .shape = {5}, .begin = 48, .end = 68}};
  const std::string begin = WriteSafetensorsHeader(&tensors);
  const int64_t bytes = tensors.back().end;
  EXPECT_EQ(bytes, static_cast<int64_t>(begin.size()) + 68);
  EXPECT_EQ(begin.size() % 8, 0u);
  EXPECT_EQ(SafetensorsHeaderBytes(begin.substr(0, 8), bytes, "f").value(), static_cast<int64_t>(begin.size()) - 8);
  EXPECT_EQ(ParseSafetensorsHeader(begin.substr(8), bytes, "f").value(), tensors);
}

TEST(Safetensors, RefusesAHeaderThatTheFileDoesNotHold) {
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff", 8), hundred("\x64\0\0\0\0\0\0\0", 8);
  EXPECT_THAT(SafetensorsHeaderBytes(huge, 1000, "f").error().message(), HasSubstr("a header of 18446744073709551615 bytes"));
  EXPECT_THAT(SafetensorsHeaderBytes(hundred, 107, "f").error().message(), HasSubstr("expected at most 99"));
  EXPECT_EQ(SafetensorsHeaderBytes(hundred, 108, "f").value(), 100);
  EXPECT_THAT(SafetensorsHeaderBytes("abc", 3, "f").error().message(), HasSubstr("f: 3 bytes"));
}

TEST(Safetensors, RefusesHeadersThatLie) {
  const struct {
    const char* header;
    int64_t data;
    const char* piece;
  } cases[] = {
      {"{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 12]}}", 12, "expected the 16 of its shape"},
      {"{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}}", 12, "expected 86"},
      {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}}", 8, "begins at byte 4, expected 0"},
      {"{'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}, 'b': {'dtype': 'F32', 'shape': [2], 'data_offsets': [4, "
       "12]}}",
       12, "begins at byte 4, expected 8"},
      {"{'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}, 'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, "
       "8]}}",
       8, "twice"},
      {"{'a': {'dtype': 'F31', 'shape': [1], 'data_offsets': [0, 4]}}", 4, "dtype"},
      {"{'a': {'dtype': 'F32', 'shape': [-1], 'data_offsets': [0, 4]}}", 4, "shape"},
      {"{'a': {'dtype': 'F32', 'shape': [16777216, 16777216, 16777216], 'data_offsets': [0, 4]}}", 4, "shape"},
      {"{'a': {'dtype': 'F32', 'data_offsets': [0, 4]}}", 4, "shape"},
      {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [8, 4]}}", 8, "data_offsets"},
      {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0]}}", 4, "data_offsets"},
      {"{'a': 3}", 0, "expected an object"},
      {"{'a b': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}", 4, "printable"},
      {"[1]", 0, "f"},
      {"{'a': ", 0, "line 1"},
  };
  for (const auto& one : cases) {
    const std::string text = Json(one.header);
    const auto read = ParseSafetensorsHeader(text, 8 + static_cast<int64_t>(text.size()) + one.data, "f");
    ASSERT_FALSE(read) << one.header;
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(one.piece)) << one.header;
  }
}

TEST(Safetensors, MutationsGiveTensorsInTheFileOrOneClearLine) {
  std::vector<StoredTensor> tensors = {
      {.name = "h.0.attn.c_attn.weight", .type = StoredType::kFloat32, .shape = {8, 24}, .begin = 0, .end = 768},
      {.name = "wte.weight", .type = StoredType::kFloat32, .shape = {16, 8}, .begin = 768, .end = 1280}};
  const std::string header = WriteSafetensorsHeader(&tensors).substr(8);
  const std::string manifest =
      WriteManifest({.step = 3, .files = {{"model.safetensors", 1280}}, .sums = {{"wte.weight", 7}}, .training = 9});
  const std::string where =
      WriteTrainingState({.step = 3, .seed = 1, .text_digest = 2, .sequence = 4, .global_batch = 5, .peak = 0.1});
  const std::string index = WriteHfIndex({{"wte.weight", "model.safetensors"}}, 1280);
  Noise noise(7);
  int good = 0, bad = 0;
  const auto seen = [&](const auto& read) {
    ++(read ? good : bad);
    if (read) return;
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_TRUE(read.error().message().starts_with("fuzz")) << read.error().message();
    EXPECT_EQ(read.error().message().find('\n'), std::string::npos);
  };
  for (int round = 0; round < 4000; ++round) {
    const std::string text = Mutated(header, noise);
    const auto bytes = static_cast<int64_t>(8 + text.size() + 1280);
    const auto read = ParseSafetensorsHeader(text, bytes, "fuzz");
    seen(read);
    if (read) {
      for (const StoredTensor& tensor : *read) ASSERT_TRUE(tensor.begin <= tensor.end && tensor.end <= bytes) << text;
    }
    seen(ParseManifest(Mutated(manifest, noise), "fuzz"));
    seen(ParseTrainingState(Mutated(where, noise), "fuzz"));
    seen(ParseHfIndex(Mutated(index, noise), "fuzz"));
  }
  EXPECT_GT(good, 100);
  EXPECT_GT(bad, 1000);
}

TEST(CheckpointJson, ReadsWhatItWrites) {
  const CheckpointManifest manifest{
      .step = 50, .files = {{"a.safetensors", 1}, {"b.safetensors", 2}}, .sums = {{"x", ~uint64_t{0}}}, .training = 3};
  EXPECT_EQ(ParseManifest(WriteManifest(manifest), "m").value(), manifest);
  const TrainingState where{.step = 50,
                            .seed = ~uint64_t{0},
                            .text_digest = 3,
                            .sequence = 16,
                            .global_batch = 8,
                            .peak = 0.1 + 0.2,
                            .least = 1e-5,
                            .warm_up = 5,
                            .decay = 30};
  EXPECT_EQ(ParseTrainingState(WriteTrainingState(where), "t").value(), where);
}

TEST(CheckpointJson, NamesOfFilesLeadNowhereElse) {
  for (const char* name : {"../a", "/etc/passwd", "a/b", ".hidden", "", "a\\nb"}) {
    const std::string manifest =
        Json(fmt::format("{{'version':1,'step':1,'files':[{{'name':'{}','bytes':1}}],'sums':{{}},"
                         "'training':'0000000000000000'}}",
                         name));
    EXPECT_FALSE(ParseManifest(manifest, "m")) << name;
    EXPECT_FALSE(ParseHfIndex(Json(fmt::format("{{'weight_map':{{'a':'{}'}}}}", name)), "i")) << name;
  }
}

TEST(HfTensors, LlamasProductsAreSeveralAndGpt2sAreTransposed) {
  planner::ModelSpec llama{.architecture = planner::Architecture::kLlama,
                           .layers = 1,
                           .hidden = 8,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 2,
                           .ffn_hidden = 12,
                           .gated_mlp = true,
                           .mlp_bias = false};
  const auto qkv = HfTensorsOf(llama, {.part = planner::ModelPart::kQkv, .layer = 3, .index = 0, .rows = 16, .columns = 8});
  ASSERT_EQ(qkv.size(), 3u);
  EXPECT_EQ(qkv[1].name, "model.layers.3.self_attn.k_proj.weight");
  EXPECT_EQ(qkv[1].row, 8);
  EXPECT_THAT(qkv[1].shape, ElementsAre(4, 8));
  const auto down = HfTensorsOf(llama, {.part = planner::ModelPart::kMlp, .layer = 0, .index = 1, .rows = 8, .columns = 12});
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down[0].name, "model.layers.0.mlp.down_proj.weight");
  planner::ModelSpec gpt2{.architecture = planner::Architecture::kGpt2,
                          .layers = 1,
                          .hidden = 8,
                          .heads = 4,
                          .kv_heads = 4,
                          .head_dim = 2,
                          .ffn_hidden = 12};
  const auto up = HfTensorsOf(gpt2, {.part = planner::ModelPart::kMlp, .layer = 0, .index = 0, .rows = 12, .columns = 8});
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].name, "h.0.mlp.c_fc.weight");
  EXPECT_TRUE(up[0].transposed);
  EXPECT_THAT(up[0].shape, ElementsAre(8, 12));
  const auto down_bias = HfTensorsOf(gpt2, {.part = planner::ModelPart::kMlp, .layer = 0, .index = 3, .rows = 8, .columns = 1});
  EXPECT_EQ(down_bias[0].name, "h.0.mlp.c_proj.bias");
}

TEST(HfTensors, ConvolutionsAreStoredWithTheirKernel) {
  const planner::ModelSpec cnn = ParseHfConfig(testing::kCnnClassifier, "c").value();
  const auto convolution =
      HfTensorsOf(cnn, {.part = planner::ModelPart::kConvolution, .layer = 0, .index = 0, .rows = 4, .columns = 27});
  ASSERT_EQ(convolution.size(), 1u);
  EXPECT_EQ(convolution[0].name, "layers.0.weight");
  EXPECT_THAT(convolution[0].shape, ElementsAre(4, 1, 3, 3, 3));
  const auto bias = HfTensorsOf(cnn, {.part = planner::ModelPart::kClassifier, .layer = 3, .index = 1, .rows = 256, .columns = 1});
  EXPECT_EQ(bias[0].name, "layers.3.bias");
  EXPECT_THAT(bias[0].shape, ElementsAre(256));
}

// GPT-2's vocabulary begins "!", '"', …; its space is token 220, its newline 198.
TEST(HfTensors, KnowsWhichTokensAreBytes) {
  const std::vector<int64_t> rows = RowsOfBytes({.architecture = planner::Architecture::kGpt2}, 50257);
  ASSERT_EQ(rows.size(), 256u);
  EXPECT_EQ(rows['!'], 0);
  EXPECT_EQ(rows['A'], 32);
  EXPECT_EQ(rows[' '], 220);
  EXPECT_EQ(rows['\n'], 198);
  EXPECT_EQ(RowsOfBytes({.architecture = planner::Architecture::kLlama}, 32000)['A'], 68);
  EXPECT_TRUE(RowsOfBytes({.architecture = planner::Architecture::kGpt2}, 50000).empty());
}

}  // namespace
}  // namespace weft::formats
