// What a config.json says besides shapes: rotations, windows, routers, activations, and what is said about the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hf_config.h"
#include "formats/testing/config_corpus.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ConfigText;
using testing::Replaced;
using planner::Activation;
using planner::AttentionWindow;
using planner::ModelNumerics;
using planner::ModelSpec;
using planner::RopeScaling;
using planner::RouterScore;

ModelSpec Model(std::string_view name) { return ParseHfConfig(ConfigText(name), name).value(); }

TEST(HfNumerics, LlamaStretchesItsRotations) {
  const ModelNumerics numerics = Model("llama-3.2-1b").numerics;
  EXPECT_EQ(numerics.activation, Activation::kSilu);
  EXPECT_EQ(numerics.norm_epsilon, 1e-5);
  EXPECT_EQ(numerics.rope.theta, 500'000);
  EXPECT_EQ(numerics.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(numerics.rope.factor, 32);
  EXPECT_EQ(numerics.rope.low_frequency_factor, 1);
  EXPECT_EQ(numerics.rope.high_frequency_factor, 4);
  EXPECT_EQ(numerics.rope.original_positions, 8192);
}

TEST(HfNumerics, DeepSeekRoutesByGroups) {
  const ModelNumerics v2 = Model("deepseek-v2").numerics, v3 = Model("deepseek-v3").numerics;
  EXPECT_EQ(v2.router.score, RouterScore::kSoftmax);
  EXPECT_TRUE(v2.router.PreSoftmax());
  EXPECT_FALSE(v2.router.expert_bias);
  EXPECT_EQ(v2.router.groups, 8);
  EXPECT_EQ(v2.router.groups_per_token, 3);
  EXPECT_EQ(v2.router.scaling_factor, 16);
  EXPECT_EQ(v3.router.score, RouterScore::kSigmoid);
  EXPECT_FALSE(v3.router.PreSoftmax());
  EXPECT_TRUE(v3.router.normalise_top_k && v3.router.expert_bias && v3.router.aux_loss_per_sequence);
  EXPECT_EQ(v3.router.groups_per_token, 4);
  EXPECT_EQ(v3.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(v3.rope.mscale_all_dim, 1);
  EXPECT_EQ(v3.mtp_layers, 1);
  EXPECT_EQ(v3, planner::FindModelPreset("deepseek-v3")->numerics);
  EXPECT_EQ(Model("deepseek-v2-lite").numerics.router.groups, 1) << "greedy";
}

TEST(HfNumerics, MixturesSayHowTheirChoiceIsWeighed) {
  EXPECT_FALSE(Model("mixtral-8x7b").numerics.router.PreSoftmax());
  EXPECT_EQ(Model("mixtral-8x7b").numerics, planner::FindModelPreset("mixtral-8x7b")->numerics);
  EXPECT_FALSE(Model("qwen1.5-moe-a2.7b").numerics.router.normalise_top_k);
  EXPECT_TRUE(Model("qwen3-30b-a3b").numerics.router.normalise_top_k);
  const ModelNumerics scout = Model("llama-4-scout").numerics;
  EXPECT_EQ(scout.router.score, RouterScore::kSigmoid);
  EXPECT_TRUE(scout.router.scores_on_input && scout.query_key_l2_norm);
  EXPECT_EQ(scout.temperature_floor, 8192);
  EXPECT_FALSE(Model("llama-4-maverick").numerics.query_key_l2_norm);
}

TEST(HfNumerics, GptOssHasSinksBiasesAndItsOwnActivation) {
  const ModelSpec model = Model("gpt-oss-20b");
  EXPECT_TRUE(model.attention_sinks && model.router_bias && model.expert_mlp_bias && model.attention_output_bias);
  EXPECT_EQ(model.numerics.activation, Activation::kQuickGelu);
  EXPECT_EQ(model.numerics.glu_limit, 7);
  EXPECT_EQ(model.numerics.glu_offset, 1);
  EXPECT_FALSE(model.numerics.rope.truncate);
  std::string silent = ConfigText("gpt-oss-20b");
  const size_t begin = silent.find("\"rope_scaling\""), end = silent.find("},", begin);
  silent.erase(begin, end + 2 - begin);
  EXPECT_EQ(ParseHfConfig(silent, "c")->numerics, model.numerics) << "the class's own";
  EXPECT_EQ(model.attention_window, 128);
  EXPECT_TRUE(model.IsLocalLayer(0));
  EXPECT_FALSE(model.IsLocalLayer(1));
}

TEST(HfNumerics, GemmaHasWindowsCapsAndTwoThetas) {
  const ModelSpec two = Model("gemma-2-27b"), three = Model("gemma-3-27b");
  EXPECT_EQ(two.numerics.attention_softcap, 50);
  EXPECT_EQ(two.numerics.logit_softcap, 30);
  EXPECT_EQ(two.numerics.attention_scale_width, 144);
  EXPECT_DOUBLE_EQ(two.numerics.embedding_scale * two.numerics.embedding_scale, 4608);
  EXPECT_EQ(two.numerics.activation, Activation::kGeluTanh);
  EXPECT_TRUE(two.IsLocalLayer(0) && !two.IsLocalLayer(1) && two.tied_embeddings);
  EXPECT_EQ(three.numerics.attention_softcap, 0);
  EXPECT_EQ(three.numerics.rope.theta, 1e6);
  EXPECT_EQ(three.numerics.rope.local_theta, 1e4);
  EXPECT_EQ(three.numerics.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(three.attention_window, 1024);
  EXPECT_TRUE(three.IsLocalLayer(4) && !three.IsLocalLayer(5) && three.query_key_norm);
}

TEST(HfNumerics, Llama4RotatesThreeLayersOfFour) {
  const ModelSpec model = Model("llama-4-maverick");
  EXPECT_EQ(model.window_kind, AttentionWindow::kChunk);
  EXPECT_EQ(model.attention_window, 8192);
  EXPECT_TRUE(model.numerics.rope.skipped_layers[3] && !model.numerics.rope.skipped_layers[4]);
  EXPECT_TRUE(model.IsLocalLayer(2) && !model.IsLocalLayer(3));
  EXPECT_EQ(model.MoeLayers(), 24);
  EXPECT_EQ(model.ffn_hidden, 16384);
}

TEST(HfNumerics, AWindowMustBeSwitchedOnInQwen) {
  EXPECT_EQ(Model("qwen2-7b").window_kind, AttentionWindow::kNone);
  const std::string text = Replaced(Replaced(ConfigText("qwen2-7b"), "\"use_sliding_window\": false", "\"use_sliding_window\": true"),
                                    "\"max_window_layers\": 28", "\"max_window_layers\": 21");
  const ModelSpec model = ParseHfConfig(text, "c").value();
  EXPECT_EQ(model.attention_window, 131072);
  EXPECT_FALSE(model.IsLocalLayer(20));
  EXPECT_TRUE(model.IsLocalLayer(21));
}

TEST(HfNumerics, PhiRotatesAPartWithAFactorForEveryPair) {
  const planner::RopeNumerics rope = Model("phi-4-mini").numerics.rope;
  EXPECT_EQ(rope.fraction, 0.75);
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.long_factors.size(), 48u) << "3/4 of 128, in pairs";
  EXPECT_EQ(rope.factor, 32) << "131072 / 4096";
}

TEST(HfNumerics, TheNewFormOfRotationsIsTheOldOne) {
  const std::string old = ConfigText("gemma-3-1b");
  const std::string text = Replaced(
      Replaced(Replaced(old, "\"rope_local_base_freq\": 10000, ", ""), "\"rope_theta\": 1000000, ", ""),
      "\"rope_scaling\": null",
      R"("rope_parameters": {"full_attention": {"rope_theta": 1000000, "rope_type": "linear", "factor": 8},
                             "sliding_attention": {"rope_theta": 20000, "rope_type": "default"}})");
  const HfModel read = ParseHfModel(text, "c").value();
  EXPECT_THAT(read.unused, ElementsAre());
  EXPECT_EQ(read.model.numerics.rope.theta, 1e6);
  EXPECT_EQ(read.model.numerics.rope.local_theta, 2e4);
  EXPECT_EQ(read.model.numerics.rope.factor, 8);
  EXPECT_EQ(Model("qwen3-1.7b").numerics.rope.theta, 1e6) << "flat";
}

TEST(HfNumerics, EncodersSeeBothSides) {
  const ModelSpec bert = Model("bert-base-uncased"), roberta = Model("roberta-base"), vit = Model("vit-base-patch16-224");
  EXPECT_FALSE(bert.causal || vit.causal);
  EXPECT_EQ(bert.norm_placement, planner::NormPlacement::kPost);
  EXPECT_TRUE(bert.KeepsDropoutMasks());
  EXPECT_EQ(roberta.UsablePositions(), 512);
  EXPECT_EQ(vit.image_tokens, 14 * 14 + 1);
  EXPECT_EQ(Model("dit-xl-2-512").image_tokens, 32 * 32);
}

TEST(HfNumerics, KeysWithoutMeaningHereAreNamedInOneWarning) {
  const std::string text =
      Replaced(ConfigText("llama-3.2-1b"), "\"rope_scaling\": {", "\"muon\": 1, \"altogether_new\": [2], \"rope_scaling\": {\"beta\": 3, ");
  const HfModel read = ParseHfModel(text, "dir/config.json").value();
  EXPECT_THAT(read.unused, ElementsAre("altogether_new", "muon", "rope_scaling.beta"));
  EXPECT_THAT(read.warnings, ElementsAre("dir/config.json: keys not used: altogether_new, muon, rope_scaling.beta"));
}

TEST(HfNumerics, AValueThatIsPlannedOtherwiseIsNamed) {
  const std::string text = Replaced(ConfigText("gpt2"), "\"n_ctx\"", "\"scale_attn_by_inverse_layer_idx\": true, \"n_ctx\"");
  EXPECT_THAT(ParseHfModel(text, "c")->warnings,
              ElementsAre("c: key \"scale_attn_by_inverse_layer_idx\": value true, planned as false"));
}

TEST(HfNumerics, SequencesBeyondRotationsAreWarnedOf) {
  const ModelSpec model = planner::FindModelPreset("llama3-8b").value();
  EXPECT_FALSE(PositionsWarning(model, 8192));
  EXPECT_EQ(PositionsWarning(model, 20'000).value_or(""),
            "llama3-8b: sequences of 20000 tokens, made for max_position_embeddings = 8192: expected rope_scaling, such as "
            "yarn, by a factor of 3");
  EXPECT_THAT(PositionsWarning(Model("llama-3.2-1b"), 200'000).value_or(""), HasSubstr("rope_scaling to stretch further"));
  EXPECT_FALSE(PositionsWarning(Model("gpt2"), 2048)) << "the planner refuses it";
}

struct Fault {
  const char* sample;
  const char* from;
  const char* to;
  const char* message;
};

TEST(HfNumerics, EachFaultNamesFileKeyValueAndExpectation) {
  const Fault faults[] = {
      {"llama-2-7b", "\"silu\"", "\"mish\"", "key \"hidden_act\": value \"mish\", expected one of gelu, gelu_pytorch_tanh"},
      {"llama-3.2-1b", "\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\"",
       "key \"rope_scaling.rope_type\": value \"spiral\", expected one of default, linear"},
      {"llama-3.2-1b", "\"factor\": 32.0", "\"factor\": \"much\"",
       "key \"rope_scaling.factor\": value \"much\", expected a number from"},
      {"phi-4-mini", "\"partial_rotary_factor\": 0.75", "\"partial_rotary_factor\": 0.5",
       "key \"rope_scaling.short_factor\": 48 numbers, expected 32, one for every rotated pair of a head"},
      {"gemma-3-270m", "\"full_attention\"", "\"cross_attention\"",
       "key \"layer_types\": entry 5: value \"cross_attention\", expected \"sliding_attention\" or \"full_attention\""},
      {"gpt-oss-20b", "\"num_hidden_layers\": 24", "\"num_hidden_layers\": 12",
       "key \"layer_types\": 24 entries, expected one for each of 12 layers"},
      {"gpt-oss-20b", "\"sliding_window\": 128", "\"sliding_window\": null",
       "key \"sliding_window\": no window, expected its size: layer_types has layers with one"},
      {"deepseek-v3", "\"topk_method\": \"noaux_tc\"", "\"topk_method\": \"best\"",
       "key \"topk_method\": value \"best\", expected noaux_tc, group_limited_greedy or greedy"},
      {"deepseek-v3", "\"n_group\": 8", "\"n_group\": 7", "key \"n_group\": value 7, expected a divisor of n_routed_experts = 256"},
      {"deepseek-v3", "\"topk_group\": 4", "\"topk_group\": 9", "key \"topk_group\": value 9, expected at most n_group = 8"},
      {"llama-4-maverick", "\"interleave_moe_layer_step\": 2", "\"interleave_moe_layer_step\": 3",
       "key \"text_config.moe_layers\": 24 layers, expected every layer that interleave_moe_layer_step = 3 counts up to"},
      {"llama-4-scout", "\"text_config\": {", "\"text_config\": 3, \"x\": {",
       "key \"text_config\": value 3, expected an object"},
      {"bert-base-uncased", "\"absolute\"", "\"relative_key\"",
       "key \"position_embedding_type\": value \"relative_key\", expected \"absolute\""},
      {"vit-base-patch16-224", "\"image_size\": 224", "\"image_size\": 225",
       "key \"patch_size\": value 16, expected a divisor of image_size = 225"},
      {"dit-xl-2-256", "\"norm_type\": \"ada_norm_zero\"", "\"norm_type\": \"ada_norm_single\"",
       "key \"model_type\": missing, expected one of gpt2, llama"},
  };
  for (const Fault& fault : faults) {
    const Result<ModelSpec> model = ParseHfConfig(Replaced(ConfigText(fault.sample), fault.from, fault.to), "dir/config.json");
    ASSERT_FALSE(model) << fault.message;
    EXPECT_THAT(model.error().message(), HasSubstr("dir/config.json: "));
    EXPECT_THAT(model.error().message(), HasSubstr(fault.message));
  }
}

}  // namespace
}  // namespace weft::formats
