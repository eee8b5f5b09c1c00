// Traces made by hand, of the shapes that trace.cc would see.
#include "runtime/profile/recognise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::runtime {
namespace {

using ::testing::HasSubstr;

struct Trace {
  TracedModel model;

  size_t Parameter(const std::string& name, Shape shape) {
    model.parameters.push_back({.name = name, .shape = std::move(shape)});
    return model.parameters.size() - 1;
  }

  TracedOperator& Add(const std::string& kind, std::vector<size_t> parameters, std::vector<Shape> inputs, Shape output,
                      double flops = 0) {
    TracedOperator& o = model.operators.emplace_back();
    o.kind = kind;
    o.parameters = std::move(parameters);
    o.inputs = std::move(inputs);
    o.output = std::move(output);
    o.flops = flops;
    return o;
  }

  /// With a bias.
  void Linear(const std::string& name, const Shape& input, int64_t rows, int64_t out) {
    const int64_t in = input.back();
    const size_t weight = Parameter(name + ".weight", {out, in}), bias = Parameter(name + ".bias", {out});
    Shape output = input;
    output.back() = out;
    Add("linear", {weight, bias}, {input, {out, in}, {out}}, output, 2.0 * static_cast<double>(rows * in * out));
  }

  void Norm(const std::string& name, const Shape& input) {
    const size_t weight = Parameter(name + ".weight", {input.back()}), bias = Parameter(name + ".bias", {input.back()});
    Add("layer_norm", {weight, bias}, {input, {input.back()}, {input.back()}}, input);
  }

  TracedOperator& Find(const std::string& kind, int which = 0) {
    for (TracedOperator& o : model.operators) {
      if (o.kind == kind && which-- == 0) return o;
    }
    ADD_FAILURE() << "no " << kind;
    return model.operators.front();
  }
};

/// GPT-2 of 2 layers, 16 wide, 2 heads of 8, 32 tokens, of a batch of 2 samples of 8.
Trace Gpt() {
  Trace t;
  t.model.name = "gpt";
  t.model.input = {2, 8};
  const Shape x = {2, 8, 16}, heads = {2, 2, 8, 8};
  const double core = 2.0 * 2 * 2 * 8 * 8 * 8;
  const size_t tokens = t.Parameter("wte.weight", {32, 16}), positions = t.Parameter("wpe.weight", {8, 16});
  t.Add("embedding", {tokens}, {{2, 8}, {32, 16}}, x).reads_model_input = true;
  t.Add("embedding", {positions}, {{8}, {8, 16}}, {8, 16});
  t.Add("add", {}, {x, {8, 16}}, x);
  for (const std::string layer : {"h.0.", "h.1."}) {
    t.Norm(layer + "ln_1", x);
    t.Linear(layer + "c_attn", x, 16, 48);
    t.Add("matmul", {}, {heads, heads}, heads, core);
    t.Add("softmax", {}, {heads}, heads);
    t.Add("matmul", {}, {heads, heads}, heads, core);
    t.Linear(layer + "c_proj", x, 16, 16);
    t.Norm(layer + "ln_2", x);
    t.Linear(layer + "c_fc", x, 16, 64);
    t.Add("gelu", {}, {{2, 8, 64}}, {2, 8, 64}).word = "tanh";
    t.Linear(layer + "c_out", {2, 8, 64}, 16, 16);
  }
  t.Norm("ln_f", x);
  t.Add("matmul", {tokens}, {x, {16, 32}}, {2, 8, 32}, 2.0 * 16 * 16 * 32);
  return t;
}

/// Two dense layers of a batch of 2: 12 to 4 to 3.
Trace Dense() {
  Trace t;
  t.model.name = "dense";
  t.model.input = {2, 12};
  t.Linear("first", {2, 12}, 2, 4);
  t.Add("relu", {}, {{2, 4}}, {2, 4});
  t.Linear("second", {2, 4}, 2, 3);
  return t;
}

/// 3 channels of 8 × 8 become 4, then a quarter of the places.
Trace Convolution() {
  Trace t;
  t.model.name = "convolution";
  t.model.input = {1, 3, 8, 8};
  const size_t filter = t.Parameter("conv.weight", {4, 3, 3, 3});
  t.Add("conv2d", {filter}, {{1, 3, 8, 8}, {4, 3, 3, 3}}, {1, 4, 8, 8}, 2.0 * 4 * 64 * 27).numbers = {1, 1};
  t.Add("max_pool2d", {}, {{1, 4, 8, 8}}, {1, 4, 4, 4}).numbers = {2, 2};
  return t;
}

void ExpectRefused(const Trace& trace, const std::string& piece) {
  const auto found = Recognise(trace.model);
  ASSERT_FALSE(found) << piece;
  EXPECT_EQ(found.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(found.error().message(), HasSubstr(piece));
}

TEST(Recognise, ADecoderIsReadByItsShapes) {
  const auto found = Recognise(Gpt().model);
  ASSERT_TRUE(found) << found.error().message();
  const planner::ModelSpec& m = found->model;
  EXPECT_EQ(m.architecture, planner::Architecture::kGpt2);
  EXPECT_EQ(m.layers, 2);
  EXPECT_EQ(m.hidden, 16);
  EXPECT_EQ(m.heads, 2);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.head_dim, 8);
  EXPECT_EQ(m.ffn_hidden, 64);
  EXPECT_EQ(m.vocab, 32);
  EXPECT_EQ(m.max_positions, 8);
  EXPECT_EQ(m.numerics.activation, planner::Activation::kGeluTanh);
}

TEST(Recognise, DenseLayersAreReadByTheirShapes) {
  const auto found = Recognise(Dense().model);
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->model.cnn_layers.size(), 2u);
  EXPECT_EQ(found->model.cnn_layers[0].in_channels, 12);
  EXPECT_EQ(found->model.cnn_layers[1].out_channels, 3);
}

TEST(Recognise, AConvolutionAndAPoolingAreReadByTheirShapes) {
  const auto found = Recognise(Convolution().model);
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->model.cnn_layers.size(), 2u);
  EXPECT_EQ(found->model.cnn_layers[0].out_channels, 4);
  EXPECT_EQ(found->model.cnn_layers[1].stride[2], 2);
}

TEST(Recognise, AMeanOverAllPlacesIsAGlobalPooling) {
  const std::tuple<std::string, Shape, planner::Cnn3dKind> cases[] = {
      {"adaptive_avg_pool2d", {1, 4, 1, 1}, planner::Cnn3dKind::kGlobalPooling},
      {"mean", {1, 4}, planner::Cnn3dKind::kGlobalPooling},
      {"adaptive_avg_pool2d", {1, 4, 2, 2}, planner::Cnn3dKind::kPooling},
      {"adaptive_max_pool2d", {1, 4, 1, 1}, planner::Cnn3dKind::kPooling}};
  for (const auto& [kind, output, expected] : cases) {
    Trace t = Convolution();
    t.Add(kind, {}, {{1, 4, 4, 4}}, output);
    const auto found = Recognise(t.model);
    ASSERT_TRUE(found) << kind << ": " << found.error().message();
    ASSERT_EQ(found->model.cnn_layers.size(), 3u) << kind;
    EXPECT_EQ(found->model.cnn_layers[2].kind, expected) << kind;
    EXPECT_EQ(found->model.cnn_layers[2].extent, (std::array<int64_t, 3>{1, 4, 4})) << kind;
  }
}

TEST(Recognise, AnEmbeddingOverABufferHasNoParameter) {
  Trace trace = Gpt();
  trace.Find("embedding").parameters.clear();
  ExpectRefused(trace, "no embedding of the input's tokens");
}

TEST(Recognise, AParameterWithoutElementsIsRefused) {
  Trace trace = Gpt();
  trace.Parameter("h.0.experts", {0, 4, 4});
  ExpectRefused(trace, "parameter h.0.experts of shape 0x4x4");
}

TEST(Recognise, AModelOfOtherProductsThanItsSizesMakeIsRefused) {
  Trace more = Gpt();
  for (int layer = 0; layer < 2; ++layer) more.Find("linear", 4 * layer).flops *= 2;  // 49152 on 229376
  ExpectRefused(more, "expected the same within 1 %");
  Trace unknown = Convolution();
  unknown.Find("conv2d").flops = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(unknown, "expected the same within 1 %");
}

TEST(Recognise, DecodersWithProductsWithoutDimensionsAreRefused) {
  for (int product = 0; product < 8; ++product) {
    Trace nothing = Gpt(), empty = Gpt(), alone = Gpt();
    nothing.Find("linear", product).output = {};
    ExpectRefused(nothing, "without elements or dimensions");
    empty.Find("linear", product).inputs.front() = {2, 8, 0};
    ExpectRefused(empty, "without elements or dimensions");
    alone.Find("linear", product).inputs.clear();
    ExpectRefused(alone, "without elements or dimensions");
  }
  Trace head = Gpt(), core = Gpt(), choice = Gpt();
  head.Find("matmul", 4).output = {};
  ExpectRefused(head, "without elements or dimensions");
  core.Find("matmul").inputs.front() = {2, 2, 8, 0};
  ExpectRefused(core, "without elements or dimensions");
  choice.Find("gelu").kind = "topk";
  choice.Find("topk").output = {};
  ExpectRefused(choice, "topk of or to something without elements or dimensions");
}

TEST(Recognise, DenseLayersWithoutDimensionsAreRefused) {
  for (int product = 0; product < 2; ++product) {
    Trace nothing = Dense(), scalar = Dense(), alone = Dense();
    nothing.Find("linear", product).output = {};
    ExpectRefused(nothing, "without elements or dimensions");
    scalar.Find("linear", product).inputs.front() = {};
    ExpectRefused(scalar, "without elements or dimensions");
    alone.Find("linear", product).inputs.clear();
    ExpectRefused(alone, "without elements or dimensions");
  }
}

TEST(Recognise, ConvolutionsAndPoolingsOfOtherDimensionsAreRefused) {
  for (const Shape& output : {Shape{}, Shape{1}, Shape{1, 4, 0, 8}, Shape{1, 4, 8, 8, 1, 1}}) {
    Trace convolution = Convolution(), pooling = Convolution();
    convolution.Find("conv2d").output = output;
    ExpectRefused(convolution, "a convolution without a batch, or of more than three dimensions");
    pooling.Find("max_pool2d").output = output;
    ExpectRefused(pooling, "a pooling of other dimensions");
  }
  Trace filter = Convolution(), alone = Convolution();
  filter.Find("conv2d").inputs[1] = {4, 0, 3, 3};
  ExpectRefused(filter, "a convolution without a batch");
  alone.Find("max_pool2d").inputs.clear();
  ExpectRefused(alone, "a pooling of other dimensions");
}

}  // namespace
}  // namespace weft::runtime
