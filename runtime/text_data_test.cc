#include "runtime/text_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A folder of its own that goes with the test.
class TextDataFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "weft_text_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  fs::path folder_;
};

std::string AsText(const TextData& data) { return std::string(data.bytes().begin(), data.bytes().end()); }

TextData Counting(size_t size) {
  std::vector<uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return TextData(std::move(bytes));
}

TEST_F(TextDataFiles, ADirectoryIsItsFilesInOrderOfName) {
  Write("b", "second");
  Write("a", "first ");
  fs::create_directory(folder_ / "aa");
  fs::create_symlink("b", folder_ / "c");
  const auto data = TextData::Load(folder_);
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(AsText(*data), "first second");
}

TEST_F(TextDataFiles, AFileIsItself) {
  Write("a", "text");
  const auto data = TextData::Load(folder_ / "a");
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(AsText(*data), "text");
}

TEST_F(TextDataFiles, AMissingPathIsNamed) {
  const auto data = TextData::Load(folder_ / "gone");
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().code(), Code::kNotFound);
  EXPECT_THAT(data.error().message(), HasSubstr("/gone\": no such file or directory"));
}

TEST_F(TextDataFiles, NoTextAtAllIsRefused) {
  Write("empty", "");
  const auto data = TextData::Load(folder_);
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(data.error().message(), HasSubstr("no bytes in 1 files"));
}

TEST(TextData, RanksTogetherHaveTheGlobalBatch) {
  const TextData data = Counting(200);
  const auto all = data.Samples({.seed = 3, .step = 5, .first = 0, .count = 8, .sequence = 15});
  std::vector<uint8_t> parts;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto part = data.Samples({.seed = 3, .step = 5, .first = rank * 2, .count = 2, .sequence = 15});
    parts.insert(parts.end(), part.begin(), part.end());
  }
  ASSERT_EQ(all.size(), 8u * 16u);
  EXPECT_EQ(parts, all);
}

TEST(TextData, SamplesAreRunsOfTheText) {
  const auto samples = Counting(100).Samples({.seed = 1, .step = 0, .first = 0, .count = 64, .sequence = 9});
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_LT(samples[i], 100);
    if (i % 10 != 0) {
      EXPECT_EQ(samples[i], samples[i - 1] + 1);
    }
  }
}

TEST(TextData, StepAndSeedChangeTheBatch) {
  const TextData data = Counting(250);
  const auto batch = [&](uint64_t seed, int64_t step) {
    return data.Samples({.seed = seed, .step = step, .first = 0, .count = 8, .sequence = 4});
  };
  EXPECT_EQ(batch(1, 1), batch(1, 1));
  EXPECT_NE(batch(1, 1), batch(1, 2));
  EXPECT_NE(batch(1, 1), batch(2, 1));
}

TEST(TextData, ATextOfOneSampleHasOnlyThatSample) {
  EXPECT_THAT(Counting(3).Samples({.seed = 9, .step = 7, .first = 0, .count = 2, .sequence = 2}),
              ::testing::ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(TextData, DigestTellsTextsApart) {
  // FNV-1a of the one byte 'a' is published as 0xaf63dc4c8601ec8c.
  EXPECT_EQ(TextData({'a'}).Digest(), 0xaf63dc4c8601ec8cu);
  EXPECT_NE(TextData({'a', 'b'}).Digest(), TextData({'b', 'a'}).Digest());
}

}  // namespace
}  // namespace weft::runtime
