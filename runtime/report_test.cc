#include "runtime/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <limits>

namespace weft::runtime {
namespace {

using ::testing::HasSubstr;

JobFacts Job() {
  return {.model = "gpt2",
          .scaling = {"layers 12 -> 2", "width \"768\""},
          .parameters = 10,
          .gradient_bytes = Bytes(40),
          .bucket_bytes = {Bytes(16), Bytes(24)},
          .ranks = 4,
          .global_batch = 8,
          .sequence = 128,
          .text = Bytes(1000)};
}

TEST(MedianIteration, LeavesTheWarmUpOut) {
  EXPECT_EQ(MedianIteration({Seconds(100), Seconds(100), Seconds(3), Seconds(1), Seconds(2)}), Seconds(2));
  EXPECT_EQ(MedianIteration({Seconds(100), Seconds(100), Seconds(1), Seconds(2)}), Seconds(1.5));
}

TEST(MedianIteration, OfFewStepsTakesAll) {
  EXPECT_EQ(MedianIteration({Seconds(4), Seconds(2)}), Seconds(3));
  EXPECT_EQ(MedianIteration({}), Seconds(0));
}

TEST(JobLine, JsonHasTheContractsKeys) {
  EXPECT_EQ(JobLine(Job(), OutputFormat::kJson),
            R"({"job":{"model":"gpt2","parameters":10,"gradient_bytes":40,"bucket_bytes":[16,24],"ranks":4,"global_batch":8,)"
            R"("sequence":128,"text_bytes":1000,"communication":true,"plugin":"","collectives":"",)"
            R"("scaling":["layers 12 -> 2","width \"768\""]}})");
}

TEST(JobLine, TableSaysTheScaling) {
  EXPECT_THAT(JobLine(Job(), OutputFormat::kTable), HasSubstr("scaled: layers 12 -> 2, width \"768\""));
}

TEST(JobLine, ANameThatIsNotUtf8IsPrinted) {
  JobFacts job = Job();
  job.model.assign(1, static_cast<char>(0xff));
  EXPECT_THAT(JobLine(job, OutputFormat::kJson), HasSubstr("\"model\":\"\xef\xbf\xbd\""));
}

TEST(StepLine, TheLossKeepsEveryBit) {
  // 9 significant digits tell any two floats apart.
  const StepFacts step{.step = 3,
                       .loss = std::nextafter(1.0f, 2.0f),
                       .iteration = Seconds(0.25),
                       .forward = Seconds(0.0625),
                       .backward = Seconds(0.125),
                       .update = Seconds(0.0125),
                       .compute = Seconds(0.2),
                       .exposed = Seconds(0.05),
                       .time = Seconds(12.5),
                       .ready = {Seconds(0.125), Seconds(0.1875)}};
  EXPECT_EQ(StepLine(step, OutputFormat::kJson),
            R"({"step":3,"loss":1.00000012,"iteration_s":0.250000000,"forward_s":0.062500000,)"
            R"("backward_s":0.125000000,"update_s":0.012500000,"compute_s":0.200000000,"exposed_s":0.050000000,"time_s":12.500000000,)"
            R"("ready_s":[0.125000000,0.187500000]})");
}

TEST(StepLine, ALossThatIsNotANumberIsNullInJson) {
  EXPECT_THAT(StepLine({.loss = std::numeric_limits<float>::quiet_NaN()}, OutputFormat::kJson),
              HasSubstr("\"loss\":null"));
}

TEST(Report, TheSummaryHasFirstAndLastLossAndTheMedian) {
  Report report(Job(), OutputFormat::kJson, nullptr);
  const double times[] = {9, 9, 1, 2, 3};
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(report.Step({.step = i, .loss = 5.0f - static_cast<float>(i), .iteration = Seconds(times[i])}));
  }
  EXPECT_EQ(report.SummaryLine(Bytes(77)),
            R"({"summary":{"steps":5,"ranks":4,"model":"gpt2","iteration_s_median":2.000000000,"first_loss":5,)"
            R"("final_loss":1,"bytes_sent":77,"gradient_bytes":40}})");
}

TEST(Report, AFullDiskIsAnError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  const Status printed = Report(Job(), OutputFormat::kTable, full).Start();
  std::fclose(full);
  ASSERT_FALSE(printed);
  EXPECT_EQ(printed.error().code(), ErrnoError("", ENOSPC).code());
  EXPECT_THAT(printed.error().message(), HasSubstr("write the report: No space left"));
}

}  // namespace
}  // namespace weft::runtime
