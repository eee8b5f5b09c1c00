#include "controller/sample_parts.h"

#include <gtest/gtest.h>

namespace weft::controller {
namespace {

v1::HostSample Part(uint64_t flow, bool more) {
  v1::HostSample part;
  part.set_time_s(7);
  part.add_counters()->set_flow(flow);
  part.set_more(more);
  return part;
}

TEST(SampleParts, AreOneSampleWhenTheLastHasCome) {
  SampleParts parts;
  v1::HostSample sample = Part(1, false);
  EXPECT_TRUE(parts.Complete("h1", &sample)) << "one that came whole";
  sample = Part(1, true);
  EXPECT_FALSE(parts.Complete("h1", &sample));
  v1::HostSample other = Part(9, false);
  EXPECT_TRUE(parts.Complete("h2", &other)) << "hosts know nothing of each other";
  EXPECT_EQ(other.counters_size(), 1);
  sample = Part(2, true);
  EXPECT_FALSE(parts.Complete("h1", &sample));
  sample = Part(3, false);
  sample.add_closed(5);
  ASSERT_TRUE(parts.Complete("h1", &sample));
  ASSERT_EQ(sample.counters_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sample.counters(i).flow(), static_cast<uint64_t>(i + 1));
  EXPECT_EQ(sample.closed_size(), 1);
  EXPECT_EQ(sample.time_s(), 7);
}

TEST(SampleParts, OfASessionThatEndedAreForgotten) {
  SampleParts parts;
  v1::HostSample sample = Part(1, true);
  EXPECT_FALSE(parts.Complete("h1", &sample));
  parts.Forget("h1");
  sample = Part(2, false);
  ASSERT_TRUE(parts.Complete("h1", &sample));
  EXPECT_EQ(sample.counters_size(), 1);
}

TEST(SampleParts, ASampleWithoutEndIsHandedOn) {
  SampleParts parts(100);
  int whole = 0, counters = 0;
  for (uint64_t i = 1; i <= 1000; ++i) {
    v1::HostSample sample = Part(i, true);
    if (!parts.Complete("h1", &sample)) continue;
    ++whole;
    counters += sample.counters_size();
    EXPECT_LE(sample.ByteSizeLong(), 200u);
  }
  EXPECT_GT(whole, 50);
  EXPECT_GT(counters, 900) << "nothing is lost but what waits";
}

}  // namespace
}  // namespace weft::controller
