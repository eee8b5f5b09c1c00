// Which variables may come from the controller into a job's launch environment. Whoever has the controller, or its certificate,
// must not thereby run code in every job: names that load libraries, name programs or files, or change what a shell does are not
// on the list, and no value holds more than its variable needs. Agent and SPANK plugin both look. Names that controller and ranks
// both use are here.
#pragma once

#include <string_view>

namespace weft {

/// Launch arguments, parted by spaces: none of them has one, or quotes.
inline constexpr char kArgumentsVariable[] = "WEFT_ARGUMENTS";
/// "on": ranks ask their agent for the word of another strategy while they run, which is the launch environment itself, with ...
inline constexpr char kReshardVariable[] = "WEFT_RESHARD";
/// ... the number of the word, from 1 on.
inline constexpr char kReshardEpochVariable[] = "WEFT_RESHARD_EPOCH";

/// Whether NAME=value may be set. Names are listed one by one, but for WEFT_FILE_ and what follows it (capitals, digits, '_').
bool MayLaunchWith(std::string_view name, std::string_view value);

}  // namespace weft
