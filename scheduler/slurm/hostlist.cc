#include "scheduler/slurm/hostlist.h"

#include <charconv>

namespace weft::slurm {
namespace {

std::string Quoted(std::string_view text) { return std::string(1, '"').append(text).append(1, '"'); }

Error Bad(std::string_view text, std::string_view what) {
  return Error(Code::kInvalidArgument, "hostlist \"" + std::string(text) + "\": " + std::string(what));
}

Result<uint64_t> ParseIndex(std::string_view digits, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
    return Fail(Bad(text, Quoted(digits) + " in brackets, expected a number or a range"));
  }
  return value;
}

std::string Padded(uint64_t value, size_t width) {
  std::string digits = std::to_string(value);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

// "1-4,07-09" -> 1 2 3 4 07 08 09. The padding of a range is the width of its first number.
Result<std::vector<std::string>> ExpandRanges(std::string_view ranges, std::string_view text) {
  std::vector<std::string> numbers;
  for (size_t begin = 0; begin <= ranges.size();) {
    const size_t comma = std::min(ranges.find(',', begin), ranges.size());
    const std::string_view range = ranges.substr(begin, comma - begin);
    const size_t dash = range.find('-');
    const std::string_view first_digits = range.substr(0, dash);
    WEFT_ASSIGN_OR_RETURN(const uint64_t first, ParseIndex(first_digits, text));
    uint64_t last = first;
    if (dash != std::string_view::npos) {
      WEFT_ASSIGN_OR_RETURN(last, ParseIndex(range.substr(dash + 1), text));
    }
    if (last < first) return Fail(Bad(text, "range " + Quoted(range) + " runs backwards"));
    if (last - first >= kMaxHosts - std::min(numbers.size(), kMaxHosts)) {
      return Fail(Bad(text, "more than " + std::to_string(kMaxHosts) + " hosts"));
    }
    for (uint64_t value = first; value <= last; ++value) numbers.push_back(Padded(value, first_digits.size()));
    begin = comma + 1;
  }
  return numbers;
}

// One word without top-level commas: literal text and brackets in turn.
Result<std::vector<std::string>> ExpandWord(std::string_view word, std::string_view text) {
  std::vector<std::string> hosts = {""};
  for (size_t at = 0; at < word.size();) {
    const size_t open = std::min(word.find('[', at), word.size());
    for (std::string& host : hosts) host += word.substr(at, open - at);
    if (open == word.size()) break;
    const size_t close = word.find(']', open);
    WEFT_ASSIGN_OR_RETURN(const auto numbers, ExpandRanges(word.substr(open + 1, close - open - 1), text));
    if (hosts.size() * numbers.size() > kMaxHosts) {
      return Fail(Bad(text, "more than " + std::to_string(kMaxHosts) + " hosts"));
    }
    std::vector<std::string> product;
    product.reserve(hosts.size() * numbers.size());
    for (const std::string& host : hosts) {
      for (const std::string& number : numbers) product.push_back(host + number);
    }
    hosts = std::move(product);
    at = close + 1;
  }
  return hosts;
}

// Splits at the commas outside brackets; brackets are balanced and not nested in what it returns.
Result<std::vector<std::string_view>> SplitWords(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  bool inside = false;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    if (c == '[' && inside) return Fail(Bad(text, "'[' inside brackets"));
    if (c == ']' && !inside) return Fail(Bad(text, "']' without '['"));
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (at == text.size() && inside) return Fail(Bad(text, "'[' without ']'"));
    if (c != ',' || inside) continue;
    if (at == begin) return Fail(Bad(text, "an empty name at character " + std::to_string(at + 1)));
    words.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return words;
}

}  // namespace

Result<std::vector<std::string>> ExpandHostlist(std::string_view text) {
  std::vector<std::string> hosts;
  if (text.empty()) return hosts;
  WEFT_ASSIGN_OR_RETURN(const auto words, SplitWords(text));
  for (const std::string_view word : words) {
    WEFT_ASSIGN_OR_RETURN(auto expanded, ExpandWord(word, text));
    if (hosts.size() + expanded.size() > kMaxHosts) {
      return Fail(Bad(text, "more than " + std::to_string(kMaxHosts) + " hosts"));
    }
    for (std::string& host : expanded) hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace weft::slurm
