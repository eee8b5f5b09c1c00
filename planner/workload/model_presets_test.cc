#include "planner/workload/model_presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>


namespace weft::planner::inline workload {
namespace {

ModelSpec Preset(const char* name) { return FindModelPreset(name).value(); }

// transformers' counts; arXiv 2401.04088 (46.7 and 12.9 B), mistralai's 140.6 and 39 B; arXiv 2412.19437: 671 and 37 B, here
// with embeddings and without the multi-token prediction module.
TEST(ModelPresets, HaveTheirPublishedParameterCounts) {
  EXPECT_EQ(ParameterCount(Preset("gpt2")), 124'439'808);
  EXPECT_EQ(ParameterCount(Preset("gpt2-xl")), 1'557'611'200);
  EXPECT_EQ(ParameterCount(Preset("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(ParameterCount(Preset("llama3-70b")), 70'553'706'496);
  EXPECT_EQ(ParameterCount(Preset("llama3-405b")), 405'853'388'800);
  EXPECT_EQ(ParameterCount(Preset("mixtral-8x7b")), 46'702'792'704);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Preset("mixtral-8x22b"))), 140.630e9, 5e5);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Preset("deepseek-v3"))), 671.026e9, 5e5);
}

TEST(ModelPresets, HaveTheirPublishedActiveParameterCounts) {
  EXPECT_EQ(ActiveParameterCount(Preset("mixtral-8x7b")), 12'879'925'248);
  EXPECT_NEAR(static_cast<double>(ActiveParameterCount(Preset("mixtral-8x22b"))), 39.161e9, 5e5);
  EXPECT_NEAR(static_cast<double>(ActiveParameterCount(Preset("deepseek-v3"))), 37.552e9, 5e5);
  EXPECT_EQ(ActiveParameterCount(Preset("llama3-8b")), ParameterCount(Preset("llama3-8b")));
}

// arXiv 2104.04473: equation (2), and the sizes in table 1 to one decimal of a billion.
TEST(ModelPresets, MegatronModelsHaveTheSizesOfTheirTable) {
  const std::pair<const char*, double> table[] = {
      {"1.7b", 1.7},   {"3.6b", 3.6},     {"7.5b", 7.5},     {"18.4b", 18.4},   {"39.1b", 39.1},
      {"76.1b", 76.1}, {"145.6b", 145.6}, {"310.1b", 310.1}, {"529.6b", 529.6}, {"1008b", 1008.0}};
  for (const auto& [size, billions] : table) {
    const ModelSpec model = Preset((std::string("megatron-") + size).c_str());
    const auto L = static_cast<double>(model.layers), h = static_cast<double>(model.hidden);
    const double formula = 12 * L * h * h * (1 + 13 / (12 * h) + (51200 + 2048) / (12 * L * h));
    const auto count = static_cast<double>(ParameterCount(model));
    EXPECT_NEAR(count, formula + 2 * h, formula * 1e-12) << size;  // the formula leaves out the final norm
    EXPECT_NEAR(count / 1e9, billions, 0.051) << size;
  }
}

TEST(ModelPresets, EachNameIsFoundAndListed) {
  for (const char* name : {"gpt2", "gpt3-175b", "llama3-405b", "mixtral-8x7b", "deepseek-v3", "megatron-1008b"}) {
    EXPECT_EQ(Preset(name).name, name);
    EXPECT_THAT(ModelPresetNames(), testing::HasSubstr(name));
  }
  EXPECT_FALSE(FindModelPreset("gpt9"));
}

// Three dense layers, then 58 MoE layers; each dense MLP 3·7168·18432, each MoE 257 experts of 3·7168·2048 and a router.
TEST(ModelPresets, DeepSeekStartsWithDenseLayers) {
  const ModelSpec model = Preset("deepseek-v3");
  EXPECT_EQ(model.MoeLayers(), 58);
  EXPECT_EQ(LayerParametersOf(model, 2).mlp, 3 * int64_t{7168} * 18432);
  EXPECT_EQ(LayerParametersOf(model, 2).routed, 0);
  EXPECT_EQ(LayerParametersOf(model, 3).mlp, 0);
  EXPECT_EQ(LayerParametersOf(model, 3).routed, 256 * 3 * int64_t{7168} * 2048);
  EXPECT_EQ(LayerParametersOf(model, 3).shared, 3 * int64_t{7168} * 2048);
  EXPECT_EQ(LayerParametersOf(model, 3).router, 7168 * 256);
  // 7168·1536 + 1536·128·192 + 7168·(512+64) + 512·128·256 + 128·128·7168
  EXPECT_EQ(LayerParametersOf(model, 3).attention, 11010048 + 37748736 + 4128768 + 16777216 + 117440512);
  EXPECT_EQ(LayerParametersOf(model, 3).norms, 2 * 7168 + 1536 + 512);
}

TEST(ModelSpec, MixtureLayersFollowTheirFamilysPeriod) {
  ModelSpec model = Preset("mixtral-8x7b");
  model.layers = 8;
  model.moe_layer_period = 2;
  EXPECT_FALSE(model.IsMoeLayer(0));  // qwen: layers 1, 3, 5, 7
  EXPECT_TRUE(model.IsMoeLayer(1));
  model.architecture = Architecture::kDeepSeek;
  model.first_dense_layers = 1;       // deepseek: layers 2, 4, 6
  EXPECT_FALSE(model.IsMoeLayer(0));
  EXPECT_FALSE(model.IsMoeLayer(1));
  EXPECT_TRUE(model.IsMoeLayer(2));
  EXPECT_EQ(model.MoeLayers(), 3);
}

}  // namespace
}  // namespace weft::planner::workload
