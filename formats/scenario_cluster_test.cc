// Clusters of scenario files whose parts differ from each other, or are named like what the reader adds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "formats/scenario_yaml.h"

namespace weft::formats {
namespace {

using ::testing::SizeIs;

constexpr const char* kTwoSpeeds = R"(version: 1
name: speeds
duration: 60s
cluster:
  fabric: links
  hosts: [HOSTS]
  gpus_per_host: 2
  device: a100-80
  intra_node_rate: 300GB/s
  links:
    - {from: slow1, to: s, rate: 10Gbit/s}
    - {from: slow2, to: s, rate: 10Gbit/s}
    - {from: fast1, to: s, rate: 100Gbit/s}
    - {from: fast2, to: s, rate: 100Gbit/s}
jobs: [{name: gpt, hosts: 2, count: 2, model: gpt2, global_batch: 64, sequence: 1024}]
)";

TEST(ScenarioCluster, CopiesOfAModelArePlannedOnTheSlowestHostsOfAll) {
  for (const char* hosts : {"slow1, slow2, fast1, fast2", "fast1, fast2, slow1, slow2"}) {
    std::string text = kTwoSpeeds;
    text.replace(text.find("HOSTS"), 5, hosts);
    const Result<ScenarioFile> read = ParseScenarioYaml(text, "s.yaml", "");
    ASSERT_TRUE(read) << read.error().message();
    ASSERT_THAT(read->models, SizeIs(1));
    EXPECT_THAT(read->models[0].jobs, SizeIs(2));
    EXPECT_EQ(read->models[0].cluster.nodes, 2);
    EXPECT_EQ(read->models[0].cluster.nic_rate, GigabitsPerSecond(10)) << hosts;
  }
}

}  // namespace
}  // namespace weft::formats
