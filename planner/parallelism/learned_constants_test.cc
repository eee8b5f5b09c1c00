#include "planner/parallelism/learned_constants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft::planner::inline parallelism {
namespace {

// Runs of a made-up site: computation, which follows one constant, and messages, which follow another, in different shares.
class Site {
 public:
  Site(double gemm, double nic) : gemm_(gemm), nic_(nic) {}
  static std::vector<double> Times(double gemm, double nic) {
    std::vector<double> times;
    for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9}) times.push_back((1 - share) * 0.6 / gemm + share * 0.8 / nic);
    return times;
  }
  std::vector<double> Measured() const { return Times(gemm_, nic_); }
  static Result<std::vector<double>> Predict(const Calibration& constants) {
    return Times(constants.Get("gpu", "gemm16"), constants.Get("link.nic", "efficiency"));
  }

 private:
  double gemm_, nic_;
};

Calibration Base() {
  return Calibration({{.name = "gpu.gemm16", .value = 0.6, .least = 0.3, .most = 0.97},
                      {.name = "link.nic.efficiency", .value = 0.8, .least = 0.3, .most = 1},
                      {.name = "link.multicast", .value = 0, .least = 0, .most = 1},
                      {.name = "host.step", .value = 0.02, .least = 0, .most = 0.5}});
}

double ValueOf(const LearnedConstants& learned, const std::string& name) {
  for (const CalibrationConstant& c : learned.moved) {
    if (c.name == name) return c.value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// What differs is found, and nothing else moves: neither what no run depends on nor what is on its bound.
TEST(LearnConstants, FindsTheConstantThatDiffers) {
  const auto learned = LearnConstants(Base(), Site(0.6, 0.56).Measured(), &Site::Predict);
  ASSERT_TRUE(learned) << learned.error().message();
  EXPECT_NEAR(ValueOf(*learned, "link.nic.efficiency"), 0.56, 0.03);
  for (const CalibrationConstant& c : learned->moved) {
    EXPECT_TRUE(c.name == "link.nic.efficiency" || c.name == "gpu.gemm16") << c.name;
    if (c.name == "gpu.gemm16") {
      EXPECT_NEAR(c.value, 0.6, 0.03);
    }
  }
  for (size_t i = 0; i < learned->after.size(); ++i) EXPECT_NEAR(learned->after[i], Site(0.6, 0.56).Measured()[i], 0.04);
  EXPECT_EQ(learned->before, Site::Times(0.6, 0.8));
}

// Runs as predicted move nothing.
TEST(LearnConstants, LeavesWhatFits) {
  const auto learned = LearnConstants(Base(), Site(0.6, 0.8).Measured(), &Site::Predict);
  ASSERT_TRUE(learned);
  EXPECT_TRUE(learned->moved.empty());
}

// A run that took ten times as long, beside four that fit, is an accident.
TEST(LearnConstants, AnAccidentCountsLittle) {
  std::vector<double> measured = Site(0.6, 0.8).Measured();
  measured[3] *= 10;
  const auto learned = LearnConstants(Base(), measured, &Site::Predict);
  ASSERT_TRUE(learned);
  for (size_t i = 0; i < measured.size(); ++i) EXPECT_NEAR(learned->after[i] / learned->before[i], 1, 0.03) << i;
}

// Few runs move a constant less far than many.
TEST(LearnConstants, FewRunsSayLess) {
  const std::vector<double> all = Site(0.45, 0.8).Measured();
  const auto first = [](const Calibration& constants) -> Result<std::vector<double>> {
    return std::vector<double>{Site::Times(constants.Get("gpu", "gemm16"), constants.Get("link.nic", "efficiency"))[0]};
  };
  const auto one = LearnConstants(Base(), std::vector<double>{all[0]}, first);
  const auto five = LearnConstants(Base(), all, &Site::Predict);
  ASSERT_TRUE(one && five);
  EXPECT_LT(ValueOf(*five, "gpu.gemm16"), ValueOf(*one, "gpu.gemm16"));
  EXPECT_LT(ValueOf(*one, "gpu.gemm16"), 0.6);
  EXPECT_GT(ValueOf(*five, "gpu.gemm16"), 0.45);
}

TEST(LearnConstants, PassesErrorsOn) {
  const auto learned = LearnConstants(Base(), std::vector<double>{1}, [](const Calibration&) -> Result<std::vector<double>> {
    return Fail(Code::kNotFound, "gone");
  });
  ASSERT_FALSE(learned);
  EXPECT_EQ(learned.error().message(), "gone");
}

}  // namespace
}  // namespace weft::planner::parallelism
