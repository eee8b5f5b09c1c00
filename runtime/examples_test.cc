// The example configurations are the published models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hf_config.h"

namespace weft::runtime {
namespace {

TEST(Examples, HaveTheParametersOfThePublishedModels) {
  // Source: parameter counts of the published gpt2 and distilgpt2 checkpoints, tied head counted once.
  const std::pair<const char*, int64_t> published[] = {{"gpt2", 124439808}, {"distilgpt2", 81912576}};
  for (const auto& [name, parameters] : published) {
    const auto model = formats::ReadHfConfig(std::string(WEFT_EXAMPLES) + "/" + name + ".json");
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ(model->name, name);
    EXPECT_EQ(planner::ParameterCount(*model), parameters);
  }
}

}  // namespace
}  // namespace weft::runtime
