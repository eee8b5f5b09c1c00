#include "formats/plan_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace weft::formats {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 48;
constexpr std::string_view kSpace = " \t\r";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace), end = text.find_last_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

}  // namespace

Result<std::vector<PlannedProgram>> ParsePlanSequence(std::string_view text, std::string_view source) {
  std::vector<PlannedProgram> programs;
  const auto wrong = [&](size_t line, std::string_view what) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: line {}: {}", source, line, what));
  };
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view entry = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (entry.empty() || entry.front() == '#') continue;
    int64_t step = -1;
    const auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), step);
    const std::string_view path = Trimmed(entry.substr(static_cast<size_t>(rest - entry.data())));
    const bool apart = rest != entry.data() + entry.size() && kSpace.find(*rest) != std::string_view::npos;
    const bool good = std::all_of(path.begin(), path.end(), [](unsigned char c) { return c >= ' ' && c != 0x7f; });
    if (error != std::errc() || step < 0 || step > kMostSteps || !apart || path.empty() || !good)
      return wrong(line, "expected a step and the file of a program");
    if (programs.empty() && step != 0) return wrong(line, fmt::format("step {}, expected the first program at 0", step));
    if (!programs.empty() && step <= programs.back().step)
      return wrong(line, fmt::format("step {}, expected more than {}", step, programs.back().step));
    if (programs.size() == kMostPlannedPrograms)
      return wrong(line, fmt::format("expected at most {} programs", kMostPlannedPrograms));
    programs.push_back({step, std::string(path)});
  }
  if (programs.empty()) return Fail(Code::kInvalidArgument, fmt::format("{}: expected at least one program", source));
  return programs;
}

}  // namespace weft::formats
