// The variables of a Strategy by name: for fixing some of them, for messages and for tables. One list serves all.
//
//   WEFT_ASSIGN_OR_RETURN(const FixedVariables fixed, ParseFixed("tp=8,recompute=full"));
//   if (Agrees(strategy, fixed)) ...
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "planner/parallelism/strategy.h"

namespace weft::planner::inline parallelism {

struct StrategyVariable {
  std::string_view name;
  std::string_view values;                                 ///< what may stand behind "name=", for messages
  int64_t least, most;                                     ///< range of the value
  int64_t (*get)(const Strategy&);
  void (*set)(Strategy&, int64_t);
  std::optional<int64_t> (*parse)(std::string_view text);  ///< nullopt: no such word
  std::string (*print)(int64_t value);
};

/// "none", "selective" or "full".
std::string_view RecomputeName(Recompute recompute);

/// All of them, in the order in which a strategy is described.
std::span<const StrategyVariable> StrategyVariables();
const StrategyVariable* FindStrategyVariable(std::string_view name);
/// "dp, tp, pp, ...", for messages.
std::string StrategyVariableNames();

/// Variable -> value; words of an enumeration are their numbers.
using FixedVariables = std::map<std::string, int64_t>;

/// Reads "tp=8,pp=4,recompute=full,schedule=1f1b,bucket_bytes=25MiB". Errors: kInvalidArgument naming the item, and the
/// values that its variable may have.
[[nodiscard]] Result<FixedVariables> ParseFixed(std::string_view text);

/// Errors: kInvalidArgument for an unknown name or a value outside its variable's range.
[[nodiscard]] Status CheckFixed(const FixedVariables& fixed);

/// Whether all fixed variables have their values.
bool Agrees(const Strategy& strategy, const FixedVariables& fixed);

/// Whether a variable may have the value.
inline bool Keeps(const FixedVariables& fixed, const char* name, int64_t value) {
  if (fixed.empty()) return true;  // the common case, a million times
  const auto found = fixed.find(name);
  return found == fixed.end() || found->second == value;
}

/// "tp=8 pp=4 dp=16 micro_batch=2 ...": what differs from doing nothing, and dp and micro_batch always;
/// never bucket_bytes.
std::string DescribeStrategy(const Strategy& strategy);

}  // namespace weft::planner::parallelism
