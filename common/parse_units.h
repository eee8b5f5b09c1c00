// Quantities as people write them on command lines and in YAML. A bare number is refused: its unit would be a guess.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "common/units.h"

namespace weft {

/// "64KiB", "1 MiB", "4GiB", "100MB", "8B" (also the bare "0").
/// Errors: kInvalidArgument naming the text and the accepted units.
[[nodiscard]] Result<Bytes> ParseBytes(std::string_view text);

/// "400Gbit/s", "100 Mbit/s", "12.5GB/s". Must be positive. Errors: kInvalidArgument.
[[nodiscard]] Result<BitsPerSecond> ParseRate(std::string_view text);

/// "60s", "250ms", "20us", "5min", "1h". Must not be negative. Errors: kInvalidArgument.
[[nodiscard]] Result<Seconds> ParseDuration(std::string_view text);

/// "1KiB", "64MiB": the largest binary unit that divides the amount.
std::string FormatBytes(Bytes amount);
/// "100 Mbit/s", "1.5 Gbit/s": four significant digits.
std::string FormatRate(BitsPerSecond rate);
/// "7.8 us", "45.6 ms", "1.23 s", "20 min", "10.2 h", "10 d": three significant digits.
std::string FormatDuration(Seconds time);

}  // namespace weft
