#include "common/parse_units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace weft {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits{Unit{"B", 1},      Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20}, Unit{"GiB", 0x1p30},
                                Unit{"TiB", 0x1p40}, Unit{"kB", 1e3},   Unit{"KB", 1e3},     Unit{"MB", 1e6},
                                Unit{"GB", 1e9},   Unit{"TB", 1e12}};
constexpr std::array kRateUnits{Unit{"bit/s", 1},    Unit{"kbit/s", 1e3}, Unit{"Mbit/s", 1e6}, Unit{"Gbit/s", 1e9},
                                Unit{"Tbit/s", 1e12}, Unit{"MB/s", 8e6},  Unit{"GB/s", 8e9},   Unit{"B/s", 8}};
constexpr std::array kTimeUnits{Unit{"s", 1},    Unit{"ms", 1e-3}, Unit{"us", 1e-6},
                                Unit{"ns", 1e-9}, Unit{"min", 60}, Unit{"h", 3600}};

Result<double> Parse(std::string_view what, std::string_view text, std::span<const Unit> units, double least) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (status == std::errc()) {
    for (const Unit& candidate : units) {
      if (unit == candidate.name && number * candidate.factor >= least) return number * candidate.factor;
    }
    if (unit.empty() && number == 0 && least <= 0) return 0.0;
  }
  std::string names;
  for (const Unit& candidate : units) names += fmt::format("{}{}", names.empty() ? "" : ", ", candidate.name);
  return Fail(Code::kInvalidArgument,
              fmt::format("{} \"{}\": expected a {}number and a unit of {}", what, text,
                          least > 0 ? "positive " : "non-negative ", names));
}

}  // namespace

Result<Bytes> ParseBytes(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const double count, Parse("size", text, kByteUnits, 0));
  if (count > 0x1p62) return Fail(Code::kInvalidArgument, fmt::format("size \"{}\": above 4 EiB", text));
  return Bytes(static_cast<int64_t>(count));
}

Result<BitsPerSecond> ParseRate(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const double rate, Parse("rate", text, kRateUnits, 1e-9));
  return BitsPerSecond(rate);
}

Result<Seconds> ParseDuration(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const double time, Parse("duration", text, kTimeUnits, 0));
  return Seconds(time);
}

std::string FormatBytes(Bytes amount) {
  constexpr std::array<std::string_view, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  int64_t count = amount.count();
  size_t unit = 0;
  while (count != 0 && count % 1024 == 0 && unit + 1 < kNames.size()) {
    count /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", count, kNames[unit]);
}

std::string FormatRate(BitsPerSecond rate) {
  const double value = rate.value();
  if (value >= 1e9) return fmt::format("{:.4g} Gbit/s", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.4g} Mbit/s", value / 1e6);
  return fmt::format("{:.4g} kbit/s", value / 1e3);
}

std::string FormatDuration(Seconds time) {
  const double value = time.count();
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  if (std::isfinite(value) && value >= 2 * kDay) return fmt::format("{:.3g} d", value / kDay);
  if (std::isfinite(value) && value >= 2 * kHour) return fmt::format("{:.3g} h", value / kHour);
  if (std::isfinite(value) && value >= 1000) return fmt::format("{:.3g} min", value / kMinute);
  if (value >= 1 || value == 0) return fmt::format("{:.3g} s", value);
  if (value >= 1e-3) return fmt::format("{:.3g} ms", value * 1e3);
  return fmt::format("{:.3g} us", value * 1e6);
}

}  // namespace weft
