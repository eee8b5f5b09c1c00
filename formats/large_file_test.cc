// Files that are far too large: one clear line. Broken files of every kind: tests/fuzz/.
#include <gtest/gtest.h>

#include "formats/hf_config.h"
#include "formats/testing/config_corpus.h"

namespace weft::formats {
namespace {

using testing::Noise;

/// `head`, then `piece` over and over for about ten megabytes, then `tail`.
std::string Long(std::string_view head, std::string_view piece, std::string_view tail) {
  std::string text(head);
  while (text.size() < size_t{10} << 20) text += piece;
  text += tail;
  return text;
}

TEST(HfConfig, TenMegabytesOfGarbageAreOneClearLine) {
  Noise noise(4);
  std::string random(size_t{10} << 20, ' ');
  for (char& c : random) c = static_cast<char>(noise.Below(256));
  const std::vector<std::string> garbage = {random,
                                            Long("{\"model_type\": \"", "a", "\"}"),
                                            Long("", "[", ""),
                                            Long("", "{\"model_type\":", ""),
                                            Long("{", "\"model_type\":\"gpt2\",", ""),
                                            Long("", std::string_view("\0", 1), "")};
  for (const std::string& text : garbage) {
    const Result<planner::ModelSpec> model = ParseHfConfig(text, "fuzz");
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
    EXPECT_TRUE(model.error().message().starts_with("fuzz")) << model.error().message();
    EXPECT_LT(model.error().message().size(), 600u) << text.substr(0, 40);
  }
}

}  // namespace
}  // namespace weft::formats
