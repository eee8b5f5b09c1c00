#include "planner/parallelism/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "common/parse_units.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string PrintNumber(int64_t value) { return fmt::format("{}", value); }

std::optional<int64_t> ParseFlag(std::string_view text) {
  if (text == "true" || text == "1") return 1;
  if (text == "false" || text == "0") return 0;
  return std::nullopt;
}
std::string PrintFlag(int64_t value) { return value != 0 ? "true" : "false"; }

std::optional<int64_t> ParseAmount(std::string_view text) {
  const Result<Bytes> bytes = ParseBytes(text);
  if (!bytes) return std::nullopt;
  return bytes->count();
}
std::string PrintAmount(int64_t value) { return FormatBytes(Bytes(value)); }

std::optional<int64_t> ParseRecompute(std::string_view text) {
  for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (text == RecomputeName(kind)) return static_cast<int64_t>(kind);
  }
  return std::nullopt;
}
std::string PrintRecompute(int64_t value) { return std::string(RecomputeName(static_cast<Recompute>(value))); }

std::optional<int64_t> ParseScheduleWord(std::string_view text) {
  const Result<ScheduleKind> kind = ParseSchedule(text);
  if (!kind) return std::nullopt;
  return static_cast<int64_t>(*kind);
}
std::string PrintSchedule(int64_t value) { return std::string(ScheduleName(static_cast<ScheduleKind>(value))); }

/// Number of an enumeration's word, by the enumeration's own parser.
template <auto parse>
std::optional<int64_t> ParseWord(std::string_view text) {
  const auto value = parse(text);
  if (!value) return std::nullopt;
  return static_cast<int64_t>(*value);
}
template <typename Enum, auto name>
std::string PrintWord(int64_t value) {
  return std::string(name(static_cast<Enum>(value)));
}

template <auto member>
int64_t Get(const Strategy& s) {
  return static_cast<int64_t>(s.*member);
}
template <auto member>
void Set(Strategy& s, int64_t value) {
  s.*member = static_cast<std::remove_cvref_t<decltype(s.*member)>>(value);
}

template <auto member>
constexpr StrategyVariable Degree(std::string_view name) {
  return {name, "a number of at least 1", 1, kMost, Get<member>, Set<member>, ParseNumber, PrintNumber};
}

constexpr std::array kVariables = {
    Degree<&Strategy::dp>("dp"),
    Degree<&Strategy::tp>("tp"),
    Degree<&Strategy::pp>("pp"),
    Degree<&Strategy::cp>("cp"),
    Degree<&Strategy::ep>("ep"),
    Degree<&Strategy::etp>("etp"),
    Degree<&Strategy::vpp>("vpp"),
    Degree<&Strategy::micro_batch>("micro_batch"),
    StrategyVariable{"zero_stage", "0, 1, 2 or 3", 0, 3, Get<&Strategy::zero_stage>, Set<&Strategy::zero_stage>,
                     ParseNumber, PrintNumber},
    StrategyVariable{"shard_group", "0 (all replicas) or a number of ranks", 0, kMost, Get<&Strategy::shard_group>,
                     Set<&Strategy::shard_group>, ParseNumber, PrintNumber},
    StrategyVariable{"keep_after_forward", "true or false", 0, 1, Get<&Strategy::keep_after_forward>,
                     Set<&Strategy::keep_after_forward>, ParseFlag, PrintFlag},
    StrategyVariable{"recompute", "none, selective or full", 0, 2, Get<&Strategy::recompute>, Set<&Strategy::recompute>,
                     ParseRecompute, PrintRecompute},
    StrategyVariable{"recompute_layers", "-1 (all) or a number of layers per stage", -1, kMost,
                     Get<&Strategy::recompute_layers>, Set<&Strategy::recompute_layers>, ParseNumber, PrintNumber},
    StrategyVariable{"sequence_parallel", "true or false", 0, 1, Get<&Strategy::sequence_parallel>,
                     Set<&Strategy::sequence_parallel>, ParseFlag, PrintFlag},
    StrategyVariable{"schedule", "gpipe, 1f1b, eager-1f1b, interleaved, zb-h1, zb-h2 or zb-v", 0,
                     kAllSchedules.size() - 1, Get<&Strategy::schedule>, Set<&Strategy::schedule>, ParseScheduleWord,
                     PrintSchedule},
    StrategyVariable{"tensor_mode", "1d, 2d, 2.5d or 3d", 0, 3, Get<&Strategy::tensor_mode>,
                     Set<&Strategy::tensor_mode>, ParseWord<ParseTensorMode>, PrintWord<TensorMode, TensorModeName>},
    Degree<&Strategy::tensor_depth>("tensor_depth"),
    StrategyVariable{"context_mode", "ring, all-gather or ulysses", 0, 2, Get<&Strategy::context_mode>,
                     Set<&Strategy::context_mode>, ParseWord<ParseContextMode>,
                     PrintWord<ContextMode, ContextModeName>},
    StrategyVariable{"data_sync", "ring, hierarchical, parameter-server, switch or gossip", 0, 4, Get<&Strategy::data_sync>,
                     Set<&Strategy::data_sync>, ParseWord<ParseDataSync>, PrintWord<DataSync, DataSyncName>},
    StrategyVariable{"rank_order", "tp-cp-ep-dp-pp or tp-cp-pp-dp", 0, 1, Get<&Strategy::rank_order>,
                     Set<&Strategy::rank_order>, ParseWord<ParseRankOrder>, PrintWord<RankOrder, RankOrderName>},
    StrategyVariable{"sharding", "uniform or osdp", 0, 1, Get<&Strategy::sharding>, Set<&Strategy::sharding>,
                     ParseWord<ParseSharding>, PrintWord<Sharding, ShardingName>},
    StrategyVariable{"gradient_wire", "whole, bf16 or fp8", 0, 2, Get<&Strategy::gradient_wire>, Set<&Strategy::gradient_wire>,
                     ParseWord<ParseGradientWire>, PrintWord<GradientWire, GradientWireName>},
    Degree<&Strategy::local_steps>("local_steps"),
    StrategyVariable{"bucket_bytes", "an amount such as 25MiB", 1, kMost,
                     [](const Strategy& s) { return s.bucket_bytes.count(); },
                     [](Strategy& s, int64_t value) { s.bucket_bytes = Bytes(value); }, ParseAmount, PrintAmount},
};

}  // namespace

std::string_view RecomputeName(Recompute recompute) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "selective", "full"};
  return kNames[static_cast<size_t>(recompute)];
}

std::span<const StrategyVariable> StrategyVariables() { return kVariables; }

const StrategyVariable* FindStrategyVariable(std::string_view name) {
  const auto found = std::find_if(kVariables.begin(), kVariables.end(),
                                  [&](const StrategyVariable& variable) { return variable.name == name; });
  return found == kVariables.end() ? nullptr : &*found;
}

std::string StrategyVariableNames() {
  std::string names;
  for (const StrategyVariable& variable : kVariables) {
    names += names.empty() ? "" : ", ";
    names += variable.name;
  }
  return names;
}

Result<FixedVariables> ParseFixed(std::string_view text) {
  FixedVariables fixed;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Fail(Code::kInvalidArgument, fmt::format("fix \"{}\": expected NAME=VALUE, e.g. tp=8", item));
    }
    const StrategyVariable* variable = FindStrategyVariable(item.substr(0, equals));
    if (variable == nullptr) {
      return Fail(Code::kInvalidArgument, fmt::format("fix \"{}\": unknown name, expected one of {}", item,
                                                      StrategyVariableNames()));
    }
    const auto value = variable->parse(item.substr(equals + 1));
    if (!value || *value < variable->least || *value > variable->most) {
      return Fail(Code::kInvalidArgument, fmt::format("fix \"{}\": expected {}", item, variable->values));
    }
    if (!fixed.emplace(variable->name, *value).second) {
      return Fail(Code::kInvalidArgument, fmt::format("fix \"{}\": named twice", item));
    }
  }
  return fixed;
}

Status CheckFixed(const FixedVariables& fixed) {
  for (const auto& [name, value] : fixed) {
    const StrategyVariable* variable = FindStrategyVariable(name);
    if (variable == nullptr) {
      return Fail(Code::kInvalidArgument, fmt::format("fix {}: unknown, expected one of {}", name,
                                                      StrategyVariableNames()));
    }
    if (value < variable->least || value > variable->most) {
      return Fail(Code::kInvalidArgument, fmt::format("fix {}: {}, expected {}", name, value, variable->values));
    }
  }
  return Ok();
}

bool Agrees(const Strategy& strategy, const FixedVariables& fixed) {
  return std::all_of(fixed.begin(), fixed.end(), [&](const auto& item) {
    const StrategyVariable* variable = FindStrategyVariable(item.first);
    return variable != nullptr && variable->get(strategy) == item.second;
  });
}

std::string DescribeStrategy(const Strategy& strategy) {
  const Strategy plain;
  std::string text;
  for (const StrategyVariable& variable : kVariables) {
    const int64_t value = variable.get(strategy);
    const bool always = variable.name == "dp" || variable.name == "micro_batch";
    // Buckets are the program's own unless somebody asks for others: no word of what was decided.
    if (variable.name == "bucket_bytes" || (!always && value == variable.get(plain))) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", variable.name, variable.print(value));
  }
  return text;
}

}  // namespace weft::planner::parallelism
