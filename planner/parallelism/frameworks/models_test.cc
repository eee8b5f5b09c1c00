// Which program has which model's layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/framework.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

using testing::HasSubstr;

ModelSpec Preset(const char* name) { return FindModelPreset(name).value(); }
template <typename Edit>
ModelSpec With(ModelSpec model, const Edit& edit) {
  edit(model);
  return model;
}

void ScaleAsLlama31(ModelSpec& m) {
  m.numerics.rope.scaling = RopeScaling::kLlama3;
  m.numerics.rope.factor = 8;
  m.numerics.rope.original_positions = 8192;
}

TEST(MegatronLacks, NothingOfItsOwnFamilies) {
  for (const char* name : {"gpt2", "gpt3-175b", "llama3-8b", "llama3-405b", "mixtral-8x22b", "deepseek-v3"}) {
    EXPECT_EQ(MegatronLacks(Preset(name)), nullptr) << name;
  }
  EXPECT_EQ(MegatronLacks(With(Preset("llama3-8b"), ScaleAsLlama31)), nullptr) << "--use-rope-scaling";
  EXPECT_EQ(MegatronLacks(With(Preset("llama3-8b"), [](ModelSpec& m) { m.query_key_norm = true; })), nullptr) << "--qk-layernorm";
  EXPECT_EQ(MegatronLacks(With(Preset("llama3-8b"), [](ModelSpec& m) { m.attention_bias = true; })), nullptr) << "--add-qkv-bias";
  EXPECT_EQ(MegatronLacks(With(Preset("llama3-8b"), [](ModelSpec& m) {
              m.window_kind = AttentionWindow::kSliding;
              m.attention_window = 4096;
              m.local_layers.assign(32, true);
            })), nullptr) << "--window-size";
}

// megatron/training/arguments.py of both releases has no option for these; pretrain_bert.py and the vision programs are gone.
TEST(MegatronLacks, WhatNoOptionSays) {
  const struct {
    void (*edit)(ModelSpec& m);
    const char* words;
  } cases[] = {
      {[](ModelSpec& m) { m.causal = false; }, "trains decoders"},
      {[](ModelSpec& m) { m.head = HeadKind::kMaskedLanguage; }, "trains decoders"},
      {[](ModelSpec& m) { m.head = HeadKind::kClasses; }, "trains decoders"},
      {[](ModelSpec& m) { m.norm_placement = NormPlacement::kSandwich; }, "norms behind layers"},
      {[](ModelSpec& m) { m.norm_placement = NormPlacement::kPost; }, "norms behind layers"},
      {[](ModelSpec& m) { m.numerics.attention_softcap = 50; }, "soft caps"},
      {[](ModelSpec& m) { m.numerics.logit_softcap = 30; }, "soft caps"},
      {[](ModelSpec& m) { m.numerics.embedding_scale = 64; }, "scaled embeddings"},
      {[](ModelSpec& m) { m.numerics.rope.local_theta = 1e4; }, "two rotations"},
      {[](ModelSpec& m) { m.attention_sinks = true; }, "attention sinks"},
      {[](ModelSpec& m) { m.window_kind = AttentionWindow::kChunk; }, "chunks"},
      {[](ModelSpec& m) { m.numerics.query_key_l2_norm = true; }, "norms without weights"},
      {[](ModelSpec& m) { m.numerics.rope.skipped_layers.assign(32, true); }, "layers without rotation"},
      {[](ModelSpec& m) { m.numerics.attention_scale_width = 256; }, "a scale of its own"},
      {[](ModelSpec& m) { m.numerics.activation = Activation::kGeluTanh; }, "its activation"},
      {[](ModelSpec& m) { m.numerics.glu_limit = 7; }, "its activation"},
      {[](ModelSpec& m) { ScaleAsLlama31(m), m.numerics.rope.factor = 32; }, "its rope scaling"},
      {[](ModelSpec& m) { m.numerics.rope.scaling = RopeScaling::kDynamic; }, "its rope scaling"},
      {[](ModelSpec& m) { m.router_bias = true; }, "biases of router or experts"},
      {[](ModelSpec& m) { m.mlp_bias = true; }, "biases in the MLP but not behind attention"},
      {[](ModelSpec& m) { m.attention_bias = m.attention_output_bias = true; }, "biases behind attention but not in the MLP"},
  };
  for (const auto& one : cases) {
    const char* lacks = MegatronLacks(With(Preset("llama3-8b"), one.edit));
    ASSERT_NE(lacks, nullptr) << one.words;
    EXPECT_THAT(lacks, HasSubstr(one.words));
  }
  EXPECT_NE(MegatronLacks(With(Preset("deepseek-v3"), [](ModelSpec& m) { m.numerics.rope.original_positions = 8192; })), nullptr)
      << "latent attention's yarn has no option for its 4096 positions";
}

// torchtitan/models of v0.2.2: llama3 (no bias, untied, no experts), qwen3 (a norm on queries and keys), deepseek_v3 (latents).
TEST(TorchtitanFamily, IsTheOneWithTheModelsLayers) {
  const auto family = [](const char* preset, void (*edit)(ModelSpec& m)) { return TorchtitanFamily(With(Preset(preset), edit)); };
  const auto same = [](ModelSpec&) {};
  EXPECT_EQ(family("llama3-8b", same), "llama3");
  EXPECT_EQ(family("llama3-405b", ScaleAsLlama31), "llama3");
  EXPECT_EQ(family("deepseek-v3", same), "deepseek_v3");
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.query_key_norm = true; }), "qwen3");
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.query_key_norm = m.tied_embeddings = true; }), "qwen3");
  EXPECT_EQ(family("mixtral-8x7b", [](ModelSpec& m) { m.query_key_norm = true; }), "qwen3");
  EXPECT_EQ(family("mixtral-8x7b", same), "");
  EXPECT_EQ(family("gpt2", same), "");
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.tied_embeddings = true; }), "");
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.attention_bias = true; }), "") << "Qwen 2";
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.head_dim = 256; }), "") << "its heads fill the width";
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.numerics.norm_weight_plus_one = true; }), "") << "Gemma";
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.window_kind = AttentionWindow::kSliding; }), "") << "Mistral";
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.numerics.rope.scaling = RopeScaling::kYarn; }), "");
  EXPECT_EQ(family("llama3-8b", [](ModelSpec& m) { m.query_key_norm = true, ScaleAsLlama31(m); }), "");
}

TEST(HuggingFaceLacks, NothingOfDecodersAndEncodersWithPlainAttention) {
  EXPECT_EQ(HuggingFaceLacks(Preset("gpt2")), nullptr);
  EXPECT_EQ(HuggingFaceLacks(With(Preset("gpt2"), [](ModelSpec& m) { m.head = HeadKind::kMaskedLanguage; })), nullptr);
  EXPECT_STREQ(HuggingFaceLacks(With(Preset("gpt2"), [](ModelSpec& m) { m.head = HeadKind::kClasses; })),
               "expected a model that predicts tokens");
  // Gemma 2's soft caps and gpt-oss's sinks are computed unfused there, which keeps scores that the price leaves out.
  EXPECT_NE(HuggingFaceLacks(With(Preset("gpt2"), [](ModelSpec& m) { m.numerics.attention_softcap = 50; })), nullptr);
  EXPECT_NE(HuggingFaceLacks(With(Preset("gpt2"), [](ModelSpec& m) { m.attention_sinks = true; })), nullptr);
}

}  // namespace
}  // namespace weft::planner::parallelism
