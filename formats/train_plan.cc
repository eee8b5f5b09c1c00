#include "formats/train_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "formats/one_line.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/legality.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::OperatorDecision;
using planner::OperatorRun;
using planner::StageOperators;

constexpr int64_t kMostSlices = 64, kMostLayers = int64_t{1} << 31;

tl::unexpected<Error> Wrong(std::string_view word, std::string_view value, std::string_view expected) {
  return Fail(Code::kInvalidArgument, fmt::format("{} \"{}\": expected {}", word, OneLine(value, 80), expected));
}

std::optional<int64_t> Number(std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return std::nullopt;
  return value;
}

/// The text before the next `separator`, which goes; all of it where there is none.
std::string_view Next(std::string_view* text, char separator) {
  const size_t at = std::min(text->find(separator), text->size());
  const std::string_view piece = text->substr(0, at);
  text->remove_prefix(std::min(at + 1, text->size()));
  return piece;
}

std::string DecisionText(const OperatorDecision& d) {
  if (d.slices == 1) return d.sharded > 0 ? "s" : d.kept ? "k" : "r";
  return fmt::format("{}{}{}", d.slices, d.kept ? 'k' : 'r', d.sharded);
}

std::optional<OperatorDecision> ParseDecision(std::string_view text) {
  if (text == "s") return OperatorDecision{1, 1, false};
  if (text == "k") return OperatorDecision{1, 0, true};
  if (text == "r") return OperatorDecision{1, 0, false};
  const size_t at = text.find_first_of("kr");
  if (at == std::string_view::npos) return std::nullopt;
  const auto slices = Number(text.substr(0, at), 2, kMostSlices);
  const auto sharded = slices ? Number(text.substr(at + 1), 0, *slices) : std::nullopt;
  if (!sharded) return std::nullopt;
  return OperatorDecision{*slices, *sharded, text[at] == 'k'};
}

std::optional<OperatorRun> ParseRun(std::string_view text) {
  const auto layers = Number(Next(&text, ':'), 1, kMostLayers);
  const auto attention = ParseDecision(Next(&text, ':')), mlp = ParseDecision(text);
  if (!layers || !attention || !mlp) return std::nullopt;
  return OperatorRun{.layers = *layers, .attention = *attention, .mlp = *mlp};
}

Result<StageOperators> ParseStage(std::string_view text) {
  StageOperators stage;
  while (!text.empty()) {
    const std::string_view piece = Next(&text, '+');
    if (piece == "e") {
      stage.embedding = true;
    } else if (piece.starts_with('h')) {
      const auto slices = Number(piece.substr(1), 1, kMostSlices);
      if (!slices) return Wrong("--operators", piece, "h and the head's slices");
      stage.head = true;
      stage.head_slices = *slices;
    } else {
      const auto run = ParseRun(piece);
      if (!run) return Wrong("--operators", piece, "LAYERS:ATTENTION:MLP, each of these r, k, s, or such as 4r1");
      stage.runs.push_back(*run);
    }
  }
  return stage;
}

/// Whether every stage's decisions are of as many layers as it has.
Status CheckLayers(const planner::JobSpec& job, const planner::Strategy& s, std::span<const StageOperators> stages) {
  if (static_cast<int64_t>(stages.size()) != s.pp)
    return Fail(Code::kInvalidArgument, fmt::format("--operators: of {} stages, expected pp={}", stages.size(), s.pp));
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t has = planner::StageLayers(job.model.layers, s.pp, static_cast<int64_t>(i));
    int64_t decided = 0;
    for (const OperatorRun& run : stages[i].runs) decided += run.layers;
    if (decided != has)
      return Fail(Code::kInvalidArgument, fmt::format("--operators: of {} layers of stage {}, expected its {}", decided, i, has));
  }
  return Ok();
}

std::string DigestText(const planner::StepProgram& program) { return fmt::format("{:016x}", planner::DigestOf(program)); }

}  // namespace

std::string WriteStrategyText(const planner::Strategy& strategy) {
  const planner::Strategy plain;
  std::string text;
  for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
    const int64_t value = variable.get(strategy);
    if (value == variable.get(plain) && variable.name != "dp") continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", variable.name, variable.print(value));
  }
  return text;
}

Result<planner::Strategy> ParseStrategyText(std::string_view text) {
  if (text.empty() || text.size() > kMostStrategyText)
    return Wrong("--strategy", text, fmt::format("1 to {} characters such as dp=2,tp=4", kMostStrategyText));
  auto fixed = planner::ParseFixed(text);
  if (!fixed) return Fail(fixed.error().WithContext("--strategy"));
  planner::Strategy strategy;
  for (const auto& [name, value] : *fixed) planner::FindStrategyVariable(name)->set(strategy, value);
  return strategy;
}

std::string WriteOperatorsText(std::span<const StageOperators> stages) {
  std::string text;
  for (size_t i = 0; i < stages.size(); ++i) {
    std::vector<std::string> pieces;
    if (stages[i].embedding) pieces.emplace_back("e");
    for (const OperatorRun& run : stages[i].runs) {
      pieces.push_back(fmt::format("{}:{}:{}", run.layers, DecisionText(run.attention), DecisionText(run.mlp)));
    }
    if (stages[i].head) pieces.push_back(fmt::format("h{}", stages[i].head_slices));
    text += fmt::format("{}{}", i == 0 ? "" : "/", fmt::join(pieces, "+"));
  }
  return text;
}

Result<std::vector<StageOperators>> ParseOperatorsText(std::string_view text) {
  if (text.size() > kMostOperatorsText) return Wrong("--operators", text, fmt::format("at most {} characters", kMostOperatorsText));
  std::vector<StageOperators> stages;
  while (!text.empty()) {
    WEFT_ASSIGN_OR_RETURN(StageOperators stage, ParseStage(Next(&text, '/')));
    stages.push_back(std::move(stage));
  }
  return stages;
}

Result<std::vector<std::string>> TrainArguments(const planner::JobSpec& job, const planner::Strategy& strategy,
                                                const planner::ProgramChoices& choices) {
  WEFT_ASSIGN_OR_RETURN(const planner::StepProgram program,
                        planner::ExpandProgram(job, strategy, planner::ElementType::kFloat32, choices));
  std::vector<std::string> words = {"--strategy",     WriteStrategyText(strategy),         "--seq", fmt::format("{}", job.sequence),
                                    "--global-batch", fmt::format("{}", job.global_batch)};
  if (choices.sums != planner::AlgorithmSpec()) words.insert(words.end(), {"--sums", planner::ToString(choices.sums)});
  if (strategy.sharding == planner::Sharding::kOperator)
    words.insert(words.end(), {"--operators", WriteOperatorsText(choices.operators)});
  words.insert(words.end(), {"--program-digest", DigestText(program)});
  return words;
}

Result<TrainWords> ParseTrainArguments(std::span<const std::string> words) {
  TrainWords out;
  std::string sequence, batch;
  const std::tuple<std::string_view, std::string*, size_t> flags[] = {{"--strategy", &out.plan.strategy, kMostStrategyText},
                                                                      {"--sums", &out.plan.sums, kMostSumsText},
                                                                      {"--operators", &out.plan.operators, kMostOperatorsText},
                                                                      {"--program-digest", &out.plan.digest, kMostSumsText},
                                                                      {"--seq", &sequence, kMostSumsText},
                                                                      {"--global-batch", &batch, kMostSumsText}};
  for (size_t i = 0; i < words.size(); i += 2) {
    const auto* const flag =
        std::find_if(std::begin(flags), std::end(flags), [&](const auto& f) { return std::get<0>(f) == words[i]; });
    if (flag == std::end(flags) || i + 1 == words.size())
      return Wrong("word", words[i], "a flag of weft plan --emit weft-train, and its value");
    const auto& [name, value, most] = *flag;
    if (!value->empty()) return Wrong("word", words[i], "each flag once");
    if (words[i + 1].empty() || words[i + 1].size() > most)
      return Wrong(name, words[i + 1], fmt::format("1 to {} characters", most));
    *value = words[i + 1];
  }
  constexpr int64_t kMostSize = int64_t{1} << 32;
  const auto parsed = Number(sequence, 1, kMostSize), sequences = Number(batch, 1, kMostSize);
  if (!parsed) return Wrong("--seq", sequence, fmt::format("1 to {}", kMostSize));
  if (!sequences) return Wrong("--global-batch", batch, fmt::format("1 to {}", kMostSize));
  if (out.plan.strategy.empty()) return Wrong("--strategy", "", "a strategy");
  out.sequence = *parsed;
  out.global_batch = *sequences;
  return out;
}

Result<planner::StepProgram> ExpandTrainPlan(const TrainPlanText& text, const planner::JobSpec& job, planner::ElementType type) {
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy strategy, ParseStrategyText(text.strategy));
  planner::ProgramChoices choices;
  if (!text.sums.empty()) {
    if (text.sums.size() > kMostSumsText) return Wrong("--sums", text.sums, fmt::format("at most {} characters", kMostSumsText));
    const Result<planner::AlgorithmSpec> sums = planner::ParseAlgorithm(text.sums);
    if (!sums) return Fail(Code::kInvalidArgument, "--sums: " + OneLine(sums.error().message(), 300));
    choices.sums = *sums;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<StageOperators> operators, ParseOperatorsText(text.operators));
  if (strategy.sharding == planner::Sharding::kOperator) {
    WEFT_RETURN_IF_ERROR(CheckLayers(job, strategy, operators));
    choices.operators = operators;
  } else if (!operators.empty()) {
    return Wrong("--operators", text.operators, "none without sharding=osdp");
  }
  if (text.digest.size() > kMostSumsText) return Wrong("--program-digest", text.digest, "16 hexadecimal digits");
  planner::JobSpec whole = job;
  constexpr int64_t kMostRanks = planner::StepProgram::kMostRanks;
  if (std::max({strategy.dp, strategy.tp, strategy.pp, strategy.cp}) > kMostRanks)
    return Wrong("--strategy", text.strategy, fmt::format("degrees of at most {}", kMostRanks));
  whole.gpus = planner::GpuCount(strategy);
  // Before anything is made: what its size follows is within bounds.
  static const planner::ClusterSpec kNoCluster{};
  if (const auto why = planner::WhyIllegal(whole, whole.gpus, strategy)) return Fail(Code::kInvalidArgument, "--strategy: " + *why);
  if (const auto why = planner::WhyCannotRun(planner::Framework::kWeftTrain, {whole, kNoCluster, strategy}))
    return Fail(Code::kInvalidArgument, "--strategy: " + *why);
  WEFT_ASSIGN_OR_RETURN(planner::StepProgram program, planner::ExpandProgram(whole, strategy, type, choices));
  if (text.digest.empty()) return program;
  std::string digest = DigestText(program);
  if (type != planner::ElementType::kFloat32) {
    WEFT_ASSIGN_OR_RETURN(const planner::StepProgram planned, planner::ExpandProgram(whole, strategy, planner::ElementType::kFloat32, choices));
    digest = DigestText(planned);
  }
  if (text.digest == digest) return program;
  return Fail(Code::kInvalidArgument,
              fmt::format("--program-digest {}: this model's program has {}: another config.json, batch, sequence or type than was "
                          "planned for, or another release of Weft planned it",
                          OneLine(text.digest, 40), digest));
}

}  // namespace weft::formats
