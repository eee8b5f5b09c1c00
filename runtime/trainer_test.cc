#include "runtime/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "planner/parallelism/program/testing/small_models.h"
#include "runtime/bucket_exchange.h"
#include "runtime/text_data.h"

namespace weft::runtime {
namespace {

using ::testing::HasSubstr;

planner::ModelSpec TinyGpt() {
  return {.name = "tiny",
          .layers = 2,
          .hidden = 32,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = 16,
          .ffn_hidden = 128,
          .vocab = 256,
          .max_positions = 32};
}

/// Wide enough for untrained attention to matter.
planner::ModelSpec WideGpt() {
  planner::ModelSpec model = TinyGpt();
  model.hidden = 256;
  model.ffn_hidden = 1024;
  return model;
}

std::vector<uint8_t> Pattern(int64_t samples, int64_t length) {
  std::vector<uint8_t> bytes(static_cast<size_t>(samples * length));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>('a' + i % 7);
  return bytes;
}

/// A trainer with gradient memory of its own and a record of which gradients became ready.
struct Bench {
  static Bench Make(const TrainerOptions& options) {
    Bench bench;
    auto trainer = Trainer::Create(options);
    if (!trainer) return bench;
    bench.trainer = std::move(*trainer);
    bench.learning_rate = options.learning_rate;
    for (const int64_t elements : bench.trainer->gradient_elements()) {
      bench.storage.emplace_back(static_cast<size_t>(elements), 0.0f);
    }
    std::vector<std::span<float>> spans(bench.storage.begin(), bench.storage.end());
    auto* ready = bench.ready.get();
    bench.trainer->BindGradients(spans, [ready](size_t i) { ready->push_back(i); });
    return bench;
  }

  double Step(const std::vector<uint8_t>& samples) {
    for (auto& gradient : storage) std::fill(gradient.begin(), gradient.end(), 0.0f);
    ready->clear();
    const auto loss = trainer->Forward(samples);
    EXPECT_TRUE(loss) << loss.error().message();
    EXPECT_TRUE(trainer->Backward());
    EXPECT_TRUE(trainer->Update(learning_rate));
    return loss.value_or(0);
  }

  std::unique_ptr<Trainer> trainer;
  double learning_rate = 0;
  std::vector<std::vector<float>> storage;
  std::unique_ptr<std::vector<size_t>> ready = std::make_unique<std::vector<size_t>>();
};

TEST(Trainer, HasTheParametersThatThePlannerCounts) {
  const auto trainer = Trainer::Create({.model = TinyGpt(), .sequence = 16});
  ASSERT_TRUE(trainer) << trainer.error().message();
  const auto& elements = (*trainer)->gradient_elements();
  EXPECT_EQ(std::accumulate(elements.begin(), elements.end(), int64_t{0}), planner::ParameterCount(TinyGpt()));
}

TEST(Trainer, AnUntrainedModelKnowsNothing) {
  // Small random weights give nearly equal logits: the loss is close to log(256) = 5.545 nats per byte.
  Bench bench = Bench::Make({.model = TinyGpt(), .batch = 4, .sequence = 16});
  ASSERT_TRUE(bench.trainer);
  EXPECT_NEAR(bench.Step(Pattern(4, 17)), std::log(256.0), 0.1);
}

TEST(Trainer, TheLossGoesDownOverTwentySteps) {
  Bench bench = Bench::Make({.model = TinyGpt(), .batch = 4, .sequence = 16, .learning_rate = 1e-2});
  ASSERT_TRUE(bench.trainer);
  const auto samples = Pattern(4, 17);
  const double first = bench.Step(samples);
  double last = first;
  for (int i = 0; i < 20; ++i) last = bench.Step(samples);
  EXPECT_LT(last, first / 2);
}

TEST(Trainer, EveryGradientIsReadyOnceAndTheTiedEmbeddingLast) {
  Bench bench = Bench::Make({.model = TinyGpt(), .batch = 1, .sequence = 16});
  ASSERT_TRUE(bench.trainer);
  for (int step = 0; step < 2; ++step) {
    bench.Step(Pattern(1, 17));
    std::vector<size_t> sorted = *bench.ready;
    std::sort(sorted.begin(), sorted.end());
    std::vector<size_t> all(bench.trainer->gradient_elements().size());
    std::iota(all.begin(), all.end(), size_t{0});
    EXPECT_EQ(sorted, all);
    // The last layer's come before the first layer's: that is what lets the exchange overlap.
    EXPECT_LT(bench.ready->front(), 2u);
    EXPECT_GE(bench.ready->back(), all.size() - 2);
  }
}

TEST(Trainer, GradientsAreTheSlopeOfTheLoss) {
  // Along its gradient g a small step h·g of all parameters lowers the loss by h·|g|². AdamW's first step is the sign
  // of the gradient times the rate: the loss must fall by about rate · |g|₁.
  const double rate = 1e-5;
  Bench bench = Bench::Make({.model = TinyGpt(), .batch = 4, .sequence = 16, .learning_rate = rate});
  ASSERT_TRUE(bench.trainer);
  const auto samples = Pattern(4, 17);
  const double before = bench.Step(samples);
  double slope = 0;
  for (const auto& gradient : bench.storage) {
    for (const float value : gradient) slope += std::abs(value);
  }
  const double after = bench.Step(samples);
  EXPECT_NEAR((before - after) / (rate * slope), 1.0, 0.05);
}

TEST(Trainer, TheMeanOfTwoHalvesIsTheGradientOfTheWhole) {
  Bench whole = Bench::Make({.model = TinyGpt(), .batch = 4, .sequence = 16});
  Bench half = Bench::Make({.model = TinyGpt(), .batch = 2, .sequence = 16});
  Bench other = Bench::Make({.model = TinyGpt(), .batch = 2, .sequence = 16});
  ASSERT_TRUE(whole.trainer && half.trainer && other.trainer);
  std::vector<uint8_t> samples(4 * 17);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<uint8_t>(i * i);
  const float loss = whole.Step(samples);
  const float first = half.Step({samples.begin(), samples.begin() + 34});
  const float second = other.Step({samples.begin() + 34, samples.end()});
  EXPECT_NEAR((first + second) / 2, loss, 1e-6);
  for (size_t i = 0; i < whole.storage.size(); ++i) {
    for (size_t j = 0; j < whole.storage[i].size(); ++j) {
      ASSERT_NEAR((half.storage[i][j] + other.storage[i][j]) / 2, whole.storage[i][j], 1e-6) << i << " " << j;
    }
  }
}

TEST(Trainer, TheSameSeedGivesTheSameBitsAndAnotherSeedDoesNot) {
  const auto run = [](uint64_t seed) {
    Bench bench = Bench::Make({.model = TinyGpt(), .batch = 2, .sequence = 16, .seed = seed});
    std::vector<float> losses;
    for (int i = 0; i < 5; ++i) losses.push_back(bench.Step(Pattern(2, 17)));
    return losses;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Trainer, NoByteSeesTheFuture) {
  // Let S(T) be the sum of the losses of T positions. If no position sees later ones, S(16) = S(15) + l(y), where l(y) is
  // the loss of the 16th target y, minus the log of its probability; over all 256 bytes y the probabilities add to 1:
  //   sum over y of exp(S(15) - S(16, y)) = 1.
  // A position that sees a later input changes the sum's first 15 terms, and the equation fails.
  const auto longer = Trainer::Create({.model = WideGpt(), .batch = 1, .sequence = 16});
  const auto shorter = Trainer::Create({.model = WideGpt(), .batch = 1, .sequence = 15});
  ASSERT_TRUE(longer && shorter);
  std::vector<uint8_t> text = Pattern(1, 17);
  text[15] = 'z';
  const double first = 15.0 * *(*shorter)->Forward({text.data(), 16});
  double sum = 0;
  for (int y = 0; y < 256; ++y) {
    text[16] = static_cast<uint8_t>(y);
    sum += std::exp(first - 16.0 * *(*longer)->Forward(text));
  }
  EXPECT_NEAR(sum, 1, 1e-4);
}

TEST(Trainer, WrongOptionsAreNamed) {
  struct Case {
    TrainerOptions options;
    const char* piece;
  };
  planner::ModelSpec mixture = TinyGpt(), words = TinyGpt(), heads = TinyGpt();
  mixture.architecture = planner::Architecture::kDeepSeek;
  words.vocab = 50257;
  heads.heads = 3;
  const Case cases[] = {
      {{.model = mixture}, "not of the gpt2, llama or mixtral family"},
      {{.model = words}, "vocabulary 50257, must be 256"},
      {{.model = heads, .sequence = 16}, "width 32 cannot be cut into 3 equal heads"},
      {{.model = TinyGpt(), .sequence = 33}, "sequence 33, must be 1 to 32"},
      {{.model = planner::SmallCnn(), .sequence = 16}, "the sequence 1: a volume is one"},
  };
  for (const Case& c : cases) {
    const auto trainer = Trainer::Create(c.options);
    ASSERT_FALSE(trainer) << c.piece;
    EXPECT_EQ(trainer.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(trainer.error().message(), HasSubstr(c.piece));
  }
}

}  // namespace
}  // namespace weft::runtime
