#include "formats/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::formats {
namespace {

using planner::ModelSpec;
using testing::HasSubstr;

// The keys of openai-community/gpt2's config.json that matter, and some that do not.
constexpr const char* kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": null,
  "n_positions": 1024, "task_specific_params": {"text-generation": {"do_sample": true}}, "vocab_size": 50257})";

constexpr const char* kLlama = R"({
  "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
  "tie_word_embeddings": false, "rope_scaling": null})";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(HfConfig, ReadsGpt2) {
  const ModelSpec model = ParseHfConfig(kGpt2, "config.json").value();
  EXPECT_EQ(model.architecture, planner::Architecture::kGpt2);
  EXPECT_EQ(model.name, "gpt2");
  EXPECT_EQ(model.layers, 12);
  EXPECT_EQ(model.hidden, 768);
  EXPECT_EQ(model.heads, 12);
  EXPECT_EQ(model.kv_heads, 12);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.ffn_hidden, 3072) << "n_inner null means four times n_embd";
  EXPECT_EQ(model.vocab, 50257);
  EXPECT_EQ(model.max_positions, 1024);
  EXPECT_TRUE(model.tied_embeddings && model.learned_positions && model.attention_bias && model.mlp_bias);
  EXPECT_FALSE(model.gated_mlp || model.rms_norm);
}

TEST(HfConfig, ReadsLlamaWithGroupedQueries) {
  const ModelSpec model = ParseHfConfig(kLlama, "config.json").value();
  EXPECT_EQ(model.architecture, planner::Architecture::kLlama);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.ffn_hidden, 14336);
  EXPECT_TRUE(model.gated_mlp && model.rms_norm);
  EXPECT_FALSE(model.tied_embeddings || model.attention_bias || model.learned_positions);
}

TEST(HfConfig, LlamaHeadWidthMayDifferFromHiddenOverHeads) {
  const std::string text = Replaced(kLlama, "\"hidden_size\": 4096", "\"hidden_size\": 3000, \"head_dim\": 96");
  EXPECT_EQ(ParseHfConfig(text, "c").value().head_dim, 96);
}

TEST(HfConfig, LlamaWithoutKeyValueHeadsHasOnePerHead) {
  const std::string text = Replaced(kLlama, "\"num_key_value_heads\": 8, ", "");
  EXPECT_EQ(ParseHfConfig(text, "c").value().kv_heads, 32);
}

struct Fault {
  const char* from;
  const char* to;
  const char* message;
};

TEST(HfConfig, EachFaultNamesFileKeyValueAndExpectation) {
  const Fault faults[] = {
      {"\"n_layer\": 12", "\"n_layer\": \"12\"", "key \"n_layer\": value \"12\", expected an integer from 1 to 10000"},
      {"\"n_layer\": 12", "\"n_layer\": 12.5", "key \"n_layer\": value 12.5, expected an integer"},
      {"\"n_layer\": 12", "\"n_layer\": 0", "key \"n_layer\": value 0, expected an integer from 1"},
      {"\"n_layer\": 12", "\"n_layer\": -3", "key \"n_layer\": value -3"},
      {"\"n_layer\": 12", "\"n_layer\": 1e30", "key \"n_layer\": value 1e+30"},
      {"\"n_layer\": 12", "\"n_layer\": 18446744073709551615", "key \"n_layer\": value 18446744073709551615"},
      {"\"n_layer\": 12, ", "", "key \"n_layer\": missing"},
      {"\"n_layer\": 12", "\"n_layer\": null", "key \"n_layer\": null"},
      {"\"n_head\": 12", "\"n_head\": 7", "key \"n_head\": value 7, expected a divisor of n_embd = 768"},
      {"\"vocab_size\"", "\"tie_word_embeddings\": 1, \"vocab_size\"", "value 1, expected true or false"},
      {"\"n_layer\": 12", "\"n_layer\": 12, \"n_layer\": 13", "key \"n_layer\": stands twice"},
      {"\"gpt2\"", "\"t5\"", "key \"model_type\": value \"t5\", expected one of gpt2, llama"},
      {"\"model_type\": \"gpt2\", ", "", "key \"model_type\": missing, expected one of gpt2, llama"},
      {"\"n_ctx\": 1024,", "\"n_ctx\": 1024,,", "parse error at line 3, column 39"},
  };
  for (const Fault& fault : faults) {
    const Result<ModelSpec> model = ParseHfConfig(Replaced(kGpt2, fault.from, fault.to), "dir/config.json");
    ASSERT_FALSE(model) << fault.message;
    EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(model.error().message(), HasSubstr("dir/config.json: "));
    EXPECT_THAT(model.error().message(), HasSubstr(fault.message));
  }
}

TEST(HfConfig, RefusesWhatIsNoObject) {
  for (const char* text : {"[1, 2]", "3", "\"gpt2\"", "null"}) {
    const Result<ModelSpec> model = ParseHfConfig(text, "c");
    ASSERT_FALSE(model) << text;
    EXPECT_THAT(model.error().message(), HasSubstr("expected an object"));
  }
  for (const char* text : {"", "{", "{\"model_type\": \"gpt2\"", "\xff\xfe", "{\"a\": \"\xff\"}"}) {
    const Result<ModelSpec> model = ParseHfConfig(text, "c");
    ASSERT_FALSE(model) << text;
    EXPECT_THAT(model.error().message(), HasSubstr("parse error at line 1, column"));
  }
}

TEST(HfConfig, WhatIsWrittenIsReadBack) {
  for (const char* name : {"gpt2", "llama3-8b", "llama3-70b"}) {
    const ModelSpec model = ResolveModel(name).value();
    EXPECT_EQ(ParseHfConfig(WriteHfConfig(model), "c").value(), model);
  }
}

TEST(HfConfig, AnUnknownModelIsNotFoundWithThePresets) {
  const Result<ModelSpec> model = ResolveModel("gpt17");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kNotFound);
  EXPECT_THAT(model.error().message(), HasSubstr("expected a config.json or one of gpt2, gpt2-medium, "));
}

TEST(HfConfig, AMissingFileIsNotFound) {
  const Result<ModelSpec> model = ReadHfConfig("/nonexistent/config.json");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kNotFound);
  EXPECT_THAT(model.error().message(), HasSubstr("/nonexistent/config.json: no such file"));
}

TEST(HfConfig, AFolderIsRefused) {
  const Result<ModelSpec> model = ReadHfConfig("/tmp");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), HasSubstr("/tmp: is a directory"));
}

}  // namespace
}  // namespace weft::formats
