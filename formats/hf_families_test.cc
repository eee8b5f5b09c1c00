// Every family's config.json, by the published size of one of its checkpoints.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hf_config.h"
#include "formats/testing/config_corpus.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

using ::testing::HasSubstr;
using testing::ConfigText;
using testing::Replaced;
using planner::Architecture;
using planner::Attention;
using planner::ModelSpec;

TEST(HfFamilies, HaveThePublishedParameterCounts) {
  for (const testing::ConfigSample& sample : testing::ModelConfigs()) {
    const Result<ModelSpec> model = ParseHfConfig(sample.text, sample.name);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ(planner::ParameterCount(*model), sample.parameters) << sample.name;
  }
}

TEST(HfFamilies, EveryKeyIsUsedOrKnownNotToMatterOrNamed) {
  for (const testing::ConfigSample& sample : testing::ModelConfigs()) {
    const Result<HfModel> read = ParseHfModel(sample.text, "c");
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(fmt::format("{}", fmt::join(read->unused, ", ")), sample.unused) << sample.name;
    std::vector<std::string> expected;
    if (*sample.unused != 0) expected.push_back(std::string("c: keys not used: ") + sample.unused);
    if (*sample.note != 0) expected.push_back(std::string("c: ") + sample.note);
    EXPECT_EQ(read->warnings, expected) << sample.name;
  }
}

TEST(HfFamilies, WhatIsWrittenIsReadBack) {
  for (const testing::ConfigSample& sample : testing::ModelConfigs()) {
    const ModelSpec model = ParseHfConfig(sample.text, sample.name).value();
    const HfModel written = ParseHfModel(WriteHfConfig(model), "written").value();
    EXPECT_EQ(written.model, model) << WriteHfConfig(model);
    EXPECT_THAT(written.unused, ::testing::IsEmpty()) << WriteHfConfig(model);
  }
  for (const char* name : {"gpt2-xl", "gpt3-175b", "llama3-405b", "mixtral-8x22b", "deepseek-v3", "megatron-1008b"}) {
    const ModelSpec model = planner::FindModelPreset(name).value();
    EXPECT_EQ(ParseHfConfig(WriteHfConfig(model), "written").value(), model) << WriteHfConfig(model);
  }
}

TEST(HfFamilies, Qwen2HasBiasesOnItsQueriesKeysAndValuesOnly) {
  const ModelSpec model = ParseHfConfig(ConfigText("qwen2-7b"), "c").value();
  EXPECT_EQ(model.architecture, Architecture::kLlama);
  EXPECT_TRUE(model.attention_bias);
  EXPECT_FALSE(model.attention_output_bias);
}

TEST(HfFamilies, Qwen3NormsItsHeads) {
  const ModelSpec model = ParseHfConfig(ConfigText("qwen3-30b-a3b"), "c").value();
  EXPECT_TRUE(model.query_key_norm);
  EXPECT_EQ(model.attention, Attention::kGroupedQuery);
  EXPECT_EQ(model.architecture, Architecture::kQwenMoe);
  EXPECT_EQ(model.experts, 128);
  EXPECT_EQ(model.MoeLayers(), 48);
}

TEST(HfFamilies, DeepSeekLiteHasNoLatentQuery) {
  const ModelSpec model = ParseHfConfig(ConfigText("deepseek-v2-lite"), "c").value();
  EXPECT_EQ(model.attention, Attention::kLatent);
  EXPECT_EQ(model.q_lora_rank, 0);
  EXPECT_EQ(model.shared_experts, 2);
  EXPECT_EQ(model.MoeLayers(), 26);
}

TEST(HfFamilies, Gpt2SaysWhetherItDropsOutAndKeepsScores) {
  const std::string text = ConfigText("gpt2");
  EXPECT_TRUE(ParseHfConfig(text, "c")->KeepsDropoutMasks());
  const std::string quiet = Replaced(Replaced(text, "\"attn_pdrop\": 0.1", "\"attn_pdrop\": 0.0"),
                                     "\"resid_pdrop\": 0.1", "\"resid_pdrop\": 0");
  EXPECT_FALSE(ParseHfConfig(quiet, "c")->KeepsDropoutMasks());
  const std::string fused = Replaced(text, "\"n_head\"", "\"_attn_implementation\": \"sdpa\", \"n_head\"");
  EXPECT_FALSE(ParseHfConfig(fused, "c")->KeepsScores());
}

TEST(HfFamilies, ConvolutionsPassOnChannelsAndExtents) {
  const ModelSpec model = ParseHfConfig(ConfigText("weft-cnn3d"), "c").value();
  ASSERT_EQ(model.layers, 5);
  EXPECT_EQ(model.name, "unet");
  EXPECT_EQ(model.max_positions, 1) << "a sample is a sequence of one, as --seq 1 says";
  EXPECT_EQ(model.cnn_layers[2].extent, (std::array<int64_t, 3>{8, 16, 16}));
  EXPECT_EQ(model.cnn_layers[2].OutputExtent(), (std::array<int64_t, 3>{16, 32, 32}));
  EXPECT_EQ(model.cnn_layers[3].in_channels, 16);
  EXPECT_EQ(model.cnn_layers[4].extent, (std::array<int64_t, 3>{16, 32, 32}));
}

TEST(HfFamilies, AGlobalPoolingLeavesOneNumberOfAChannel) {
  const ModelSpec model = ParseHfConfig(testing::kCnnClassifier, "c").value();
  EXPECT_EQ(planner::ParameterCount(model), 108 + 1280);
  EXPECT_EQ(ParseHfConfig(WriteHfConfig(model), "written").value(), model);
  EXPECT_EQ(model.cnn_layers[2].extent, (std::array<int64_t, 3>{4, 4, 4}));
  EXPECT_EQ(model.cnn_layers[2].OutputExtent(), (std::array<int64_t, 3>{1, 1, 1}));
  EXPECT_EQ(model.cnn_layers[3].InputElements(), 4);
}

struct Fault {
  const char* sample;
  const char* from;
  const char* to;
  const char* message;
};

TEST(HfFamilies, EachFaultNamesFileKeyValueAndExpectation) {
  const Fault faults[] = {
      {"mixtral-8x7b", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9",
       "key \"num_experts_per_tok\": value 9, expected at most num_local_experts = 8"},
      {"mixtral-8x7b", "\"num_experts_per_tok\": 2", "\"x\": 0", "key \"num_experts_per_tok\": missing, expected an integer from 1"},
      {"mixtral-8x7b", "\"num_local_experts\": 8", "\"num_local_experts\": 0", "key \"num_local_experts\": value 0"},
      {"mistral-7b", "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5",
       "key \"num_key_value_heads\": value 5, expected a divisor of num_attention_heads = 32"},
      {"llama-2-7b", "\"hidden_size\": 4096", "\"hidden_size\": 4100",
       "key \"num_attention_heads\": value 32, expected a divisor of hidden_size = 4100"},
      {"qwen3-8b", "\"head_dim\": 128", "\"head_dim\": -128", "key \"head_dim\": value -128, expected an integer from 1"},
      {"qwen3-30b-a3b", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3, 5]",
       "key \"mlp_only_layers\": value [3,5], expected at most 48 layers counted up from 0"},
      {"qwen1.5-moe-a2.7b", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 0",
       "key \"decoder_sparse_step\": value 0, expected an integer from 1"},
      {"deepseek-v2", "\"kv_lora_rank\": 512", "\"x\": 0", "key \"kv_lora_rank\": missing, expected an integer from 1"},
      {"deepseek-v2", "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 61",
       "key \"first_k_dense_replace\": value 61, expected an integer from 0 to 60"},
      {"deepseek-v2", "\"n_routed_experts\": 160", "\"n_routed_experts\": [160]",
       "key \"n_routed_experts\": value a JSON array, expected an integer from 1"},
      {"gpt2", "\"attn_pdrop\": 0.1", "\"attn_pdrop\": 1.5", "key \"attn_pdrop\": value 1.5, expected a number from 0 to 1"},
      {"weft-cnn3d", "\"convolution\"", "\"convolve\"",
       "key \"layers[0].type\": value \"convolve\", expected one of convolution, transposed_convolution, pooling, dense, "
       "global_pooling"},
      {"weft-cnn3d", "[16, 32, 32]", "[16, 32]",
       "key \"input.extent\": value [16,32], expected an integer from 1 to 16384, or a list of three"},
      {"weft-cnn3d", "\"stride\": 2}", "\"stride\": 0}", "key \"layers[1].stride\": value 0, expected an integer from 1"},
      {"weft-cnn3d", "\"layers\": [{", "\"layers\": [3, {", "layers[0]: a JSON number, expected an object"},
  };
  for (const Fault& fault : faults) {
    const Result<ModelSpec> model = ParseHfConfig(Replaced(ConfigText(fault.sample), fault.from, fault.to), "dir/config.json");
    ASSERT_FALSE(model) << fault.message;
    EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(model.error().message(), HasSubstr("dir/config.json: "));
    EXPECT_THAT(model.error().message(), HasSubstr(fault.message));
  }
}

TEST(HfFamilies, AModelBeyondAllBoundsIsRefused) {
  std::string text = Replaced(ConfigText("mixtral-8x7b"), "\"num_local_experts\": 8", "\"num_local_experts\": 65536");
  text = Replaced(text, "\"intermediate_size\": 14336", "\"intermediate_size\": 4194304");
  text = Replaced(text, "\"hidden_size\": 4096", "\"hidden_size\": 1048576");
  const Result<ModelSpec> model = ParseHfConfig(text, "c");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), HasSubstr("c: about 3e+19 parameters, expected fewer than 1e17"));
}

TEST(HfFamilies, ATorchScriptArchiveIsNamed) {
  const Result<ModelSpec> model = ParseHfConfig(std::string_view("PK\x03\x04\x00\x00", 6), "model.pt");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), HasSubstr("model.pt: a zip archive, perhaps of TorchScript"));
}

}  // namespace
}  // namespace weft::formats
