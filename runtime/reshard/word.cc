#include "runtime/reshard/word.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "common/launch_variable.h"
#include "formats/one_line.h"
#include "formats/train_plan.h"
#include "planner/tasks/state_change.h"

namespace weft::runtime {
namespace {

constexpr int64_t kMostSteps = 1'000'000;
constexpr size_t kMostArguments = 8192;  // more than an agent hands on

tl::unexpected<Error> Wrong(std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); }

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The text before the next blank, which goes.
std::string_view NextWord(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

}  // namespace

std::optional<Word> WordOf(const agent::Environment& environment) {
  Word word;
  for (const auto& [name, value] : environment) {
    if (name == kReshardEpochVariable) word.epoch = NumberOf<uint64_t>(value).value_or(0);
    if (name == kArgumentsVariable) word.arguments = value;
  }
  if (word.epoch == 0 || word.epoch > INT64_MAX) return std::nullopt;
  return word;
}

Result<planner::StepProgram> ProgramOfWord(const Word& word, const planner::ModelSpec& model, const planner::StepProgram& running,
                                           int64_t world) {
  if (word.arguments.size() > kMostArguments)
    return Wrong(fmt::format("a word of {} bytes, expected at most {}", word.arguments.size(), kMostArguments));
  std::vector<std::string> words;
  for (std::string_view left = word.arguments; !left.empty();) {
    if (const std::string_view one = NextWord(&left); !one.empty()) words.emplace_back(one);
  }
  WEFT_ASSIGN_OR_RETURN(const formats::TrainWords said, formats::ParseTrainArguments(words));
  if (said.plan.digest.empty()) return Wrong("no --program-digest, expected that of the program");
  if (said.sequence != running.sequence || said.global_batch != running.global_batch) {
    return Wrong(fmt::format("{} sequences of {}, expected the {} of {} that this run has", said.global_batch, said.sequence,
                             running.global_batch, running.sequence));
  }
  const planner::JobSpec job{.name = model.name, .model = model, .global_batch = said.global_batch, .sequence = said.sequence,
                             .precision = planner::Precision::kFp32};
  WEFT_ASSIGN_OR_RETURN(planner::StepProgram program, formats::ExpandTrainPlan(said.plan, job, running.type));
  if (static_cast<int64_t>(program.ranks.size()) != world) {
    return Wrong(fmt::format("{}: made for {} ranks, this run has {}", program.strategy, program.ranks.size(), world));
  }
  for (const planner::StepProgram* one : {&running, static_cast<const planner::StepProgram*>(&program)}) {
    if (const std::string left = planner::LeftBehind(*one); !left.empty())
      return Wrong(fmt::format("{}: {} would be lost", one->strategy, left));
  }
  return program;
}

uint64_t DigestOfWord(const Word& word) {
  uint64_t digest = 0;
  std::string_view left = word.arguments;
  while (!left.empty()) {
    if (NextWord(&left) != "--program-digest") continue;
    const std::string_view text = NextWord(&left);
    std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  }
  return digest;
}

std::string MeetingText(int64_t steps, const Word& word) { return fmt::format("{} {} {}", steps, word.epoch, word.arguments); }

Result<MeetingSaid> ParseMeetingText(const std::string& text) {
  std::string_view left = text;
  const auto steps = NumberOf<int64_t>(NextWord(&left));
  const auto epoch = NumberOf<uint64_t>(NextWord(&left));
  if (!steps || *steps < 1 || *steps > kMostSteps || !epoch)
    return Wrong(fmt::format("rank 0 said \"{}\" of the next meeting, expected STEPS EPOCH ARGUMENTS", formats::OneLine(text, 80)));
  return MeetingSaid{.steps = *steps, .word = {.epoch = *epoch, .arguments = std::string(left)}};
}

}  // namespace weft::runtime
