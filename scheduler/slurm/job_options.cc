#include "scheduler/slurm/job_options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "common/unique_fd.h"

namespace weft::slurm {
namespace {

using nlohmann::json;

constexpr char kPlanText[] = "what weft plan --output json prints";
constexpr size_t kMaxWord = 63;

Error Bad(std::string_view option, std::string_view text, std::string_view expected) {
  return Error(Code::kInvalidArgument, "--" + std::string(option) + "=" + std::string(text) + ": " +
                                           std::string(expected));
}

/// The bytes of a file that an option names.
Result<std::string> ReadOptionFile(std::string_view option, const std::string& path, const char* what, size_t most,
                                   const char* expected) {
  const auto fail = [&](int errno_value) {
    return Fail(ErrnoError("--" + std::string(option) + "=" + path + ": read " + what, errno_value));
  };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block the command
  if (!file) return fail(errno);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return fail(errno);
  if (!S_ISREG(status.st_mode)) return Fail(Bad(option, path, "expected a regular file"));
  std::string text(most + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > most) {
    return Fail(Bad(option, path, "larger than " + std::to_string(most) + " bytes, expected " + expected));
  }
  text.resize(size);
  return text;
}

/// What may stand for a variable, a value or a framework: nothing that an environment or a message could trip over.
bool IsWord(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kMaxWord && std::all_of(text.begin(), text.end(), good);
}

/// What somebody wrote, fit for a message.
std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, kMaxWord));
  for (char& c : shown) c = c >= ' ' && c < 0x7f ? c : '?';
  return shown + (text.size() > kMaxWord ? "..." : "");
}

/// A value as `--fix` has it; empty for what is no scalar. Sizes have a unit there.
std::string WordOf(const std::string& name, const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number_integer()) return value.dump() + (name.ends_with("_bytes") ? "B" : "");
  return "";
}

}  // namespace

Result<int64_t> ParseCount(std::string_view option, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    return Fail(Bad(option, text, "expected a whole number of at least 1"));
  }
  return value;
}

Result<std::string> ReadModelFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::string text,
                        ReadOptionFile(kModelOption, path, "the model file", kMaxModelBytes, "a Hugging Face config.json"));
  const size_t first = text.find_first_not_of(" \t\r\n");
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{' || text[last] != '}' || text.find('\0') != std::string::npos) {
    return Fail(Bad(kModelOption, path, "not a JSON object, expected a Hugging Face config.json"));
  }
  return text;
}

Result<std::string> ReadPlanFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadOptionFile(kPlanOption, path, "the plan", kMaxPlanBytes, kPlanText));
  return StrategyText(text, path);
}

Result<std::string> StrategyText(std::string_view json_text, const std::string& path) {
  const auto bad = [&](const std::string& what) { return Fail(Bad(kPlanOption, path, what)); };
  std::vector<std::set<std::string>> keys;
  std::string doubled;  // which of the two a reader takes is its own choice
  const json root = json::parse(json_text, [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event != json::parse_event_t::key) return true;
    if (!keys.back().insert(value.get<std::string>()).second) doubled = value.get<std::string>();
    return true;
  }, /*allow_exceptions=*/false);
  if (!doubled.empty()) return bad("key \"" + Shown(doubled) + "\": stands twice");
  if (!root.is_object()) return bad(std::string("not a JSON object, expected ") + kPlanText);
  const auto plans = root.find("plans");
  if (plans == root.end() || !plans->is_array() || plans->empty() || !plans->front().is_object()) {
    return bad(std::string("key \"plans\": no plan in it, expected ") + kPlanText);
  }
  const json& plan = plans->front();
  if (const auto groups = plan.find("groups"); groups != plan.end() && !groups->empty()) {
    return bad("key \"plans[0].groups\": a strategy for each group of machines, expected one for the whole job");
  }
  const auto strategy = plan.find("strategy");
  if (strategy == plan.end() || !strategy->is_object() || strategy->empty()) {
    return bad(std::string("key \"plans[0].strategy\": not there, expected ") + kPlanText);
  }
  std::string text;
  for (const auto& [name, value] : strategy->items()) {
    const std::string word = WordOf(name, value);
    if (!IsWord(name) || !IsWord(word)) {
      return bad("key \"plans[0].strategy." + Shown(name) + "\": expected a name, and a word or a whole number as its value");
    }
    text += (text.empty() ? "" : ",") + name + "=" + word;
    if (text.size() > kMaxStrategyText) return bad("key \"plans[0].strategy\": more than 4096 characters, expected a strategy");
  }
  return text;
}

Result<StrategyValues> ParseStrategyText(std::string_view text) {
  StrategyValues values;
  if (text.size() > kMaxStrategyText) return Fail(Code::kInvalidArgument, "strategy: more than 4096 characters");
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || !IsWord(item.substr(0, equals)) || !IsWord(item.substr(equals + 1))) {
      return Fail(Code::kInvalidArgument, "strategy: \"" + Shown(item) + "\", expected NAME=VALUE");
    }
    values.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return values;
}

Result<std::string> ParseFrameworkName(std::string_view text) {
  if (IsWord(text)) return std::string(text);
  return Fail(Bad(kFrameworkOption, Shown(text), "expected a name such as megatron, torchtitan or deepspeed"));
}

}  // namespace weft::slurm
