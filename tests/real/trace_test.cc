#include "tests/real/trace.h"

#include <gmock/gmock.h>

namespace weft::real {
namespace {

using ::testing::HasSubstr;

/// Two ports looked at every second, in bytes.
Trace Make(std::vector<int64_t> a, std::vector<int64_t> b) {
  Trace trace{.names = {"a", "b"}, .begin_s = 10, .time_s = {}, .bytes = {}};
  for (size_t k = 0; k < a.size(); ++k) trace.time_s.push_back(11 + static_cast<double>(k));
  trace.bytes = {std::move(a), std::move(b)};
  return trace;
}

TEST(Trace, PortsThatTakeTurnsShareNothing) {
  const std::vector<std::vector<size_t>> one_wire = {{0, 1}};
  EXPECT_DOUBLE_EQ(SharedBytes(Make({100, 0, 100}, {0, 50, 0}), one_wire), 0);
  EXPECT_DOUBLE_EQ(SharedBytes(Make({50, 50}, {50, 50}), one_wire), 0.5) << "two that always send alike";
  EXPECT_DOUBLE_EQ(SharedBytes(Make({100, 0}, {25, 75}), one_wire), 25.0 / 200);
  EXPECT_DOUBLE_EQ(SharedBytes(Make({0}, {0}), one_wire), 0) << "nothing was sent";
  EXPECT_DOUBLE_EQ(SharedBytes(Make({50, 50}, {50, 50}), {{0}, {1}}), 0) << "each has a wire of its own";
}

TEST(Trace, APartHasTheIntervalsThatLieWithin) {
  const Trace part = Between(Make({1, 2, 3, 4}, {5, 6, 7, 8}), 11, 13.5);
  EXPECT_EQ(part.begin_s, 11);
  EXPECT_EQ(part.time_s, (std::vector<double>{12, 13}));
  EXPECT_EQ(part.bytes[0], (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(part.bytes[1], (std::vector<int64_t>{6, 7}));
}

TEST(Trace, AsTextHasRatesAndShades) {
  const Trace trace = Make({1000, 0}, {250, 500});
  EXPECT_EQ(Csv(trace), "time_s,a,b\n1.0000,8000,2000\n2.0000,0,4000\n");
  EXPECT_EQ(Ascii(trace, BitsPerSecond(8000), 2), "a     |# |\nb     |.:|\n");
}

TEST(Trace, AsAPictureHasOneStripPerPort) {
  const std::string svg = Svg({{"before", Make({1000}, {0})}, {"after", Make({0}, {1000})}}, BitsPerSecond(8000));
  EXPECT_THAT(svg, HasSubstr(">before</text>"));
  EXPECT_THAT(svg, HasSubstr(">after</text>"));
  size_t strips = 0;
  for (size_t at = svg.find("<path fill"); at != std::string::npos; at = svg.find("<path fill", at + 1)) ++strips;
  EXPECT_EQ(strips, 4u);
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

}  // namespace
}  // namespace weft::real
