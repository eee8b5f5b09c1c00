// The example configurations are the published models, and a CNN that can be trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hf_config.h"
#include "planner/planner.h"

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

TEST(Examples, TheCnnHasAProgramOnSlabs) {
  const planner::ModelSpec model = formats::ReadHfConfig(std::string(WEFT_EXAMPLES) + "/cnn3d.json").value();
  EXPECT_EQ(planner::ParameterCount(model), (2 * 27 * 8 + 8) + (8 * 27 * 16 + 16) + (16 * 256 + 256));
  const planner::Strategy s{.dp = 2, .tp = 2};
  const planner::JobSpec job{.name = "j", .model = model, .global_batch = 8, .sequence = 1,
                             .precision = planner::Precision::kFp32, .gpus = 4};
  const auto program = planner::ExpandProgram(job, s, planner::ElementType::kFloat32);
  EXPECT_TRUE(program) << program.error().message();
}

}  // namespace
}  // namespace weft::runtime
