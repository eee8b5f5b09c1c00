#include "runtime/model_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

planner::ModelSpec Gpt2() {
  return {.name = "gpt2",
          .layers = 12,
          .hidden = 768,
          .heads = 12,
          .kv_heads = 12,
          .head_dim = 64,
          .ffn_hidden = 3072,
          .vocab = 50257,
          .max_positions = 1024};
}

TEST(ScaleModel, OnlyTheVocabularyChangesUnasked) {
  const auto scaled = ScaleModel(Gpt2(), {});
  ASSERT_TRUE(scaled);
  planner::ModelSpec expected = Gpt2();
  expected.vocab = 256;
  EXPECT_EQ(scaled->model, expected);
  EXPECT_THAT(scaled->changes, ElementsAre("vocabulary 50257 -> 256 (bytes)"));
}

TEST(ScaleModel, EveryChangeIsSaid) {
  const auto scaled = ScaleModel(Gpt2(), {.layers = 2, .width = 128, .heads = 4});
  ASSERT_TRUE(scaled);
  EXPECT_EQ(scaled->model.layers, 2);
  EXPECT_EQ(scaled->model.hidden, 128);
  EXPECT_EQ(scaled->model.head_dim, 32);
  EXPECT_EQ(scaled->model.kv_heads, 4);
  EXPECT_EQ(scaled->model.ffn_hidden, 512);
  EXPECT_THAT(scaled->changes, ElementsAre("layers 12 -> 2", "width 768 -> 128", "MLP width 3072 -> 512",
                                           "heads 12 -> 4", "vocabulary 50257 -> 256 (bytes)"));
}

TEST(ScaleModel, HeadsMustDivideTheWidth) {
  const auto scaled = ScaleModel(Gpt2(), {.width = 128});
  ASSERT_FALSE(scaled);
  EXPECT_EQ(scaled.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(scaled.error().message(), HasSubstr("width 128 cannot be cut into 12 equal heads"));
}

TEST(ScaleModel, NegativeValuesAreRefused) {
  const auto scaled = ScaleModel(Gpt2(), {.layers = -1});
  ASSERT_FALSE(scaled);
  EXPECT_EQ(scaled.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(scaled.error().message(), HasSubstr("must be positive"));
}

}  // namespace
}  // namespace weft::runtime
