// Which variables may come from the controller into a job's launch environment. Whoever has the controller, or its certificate,
// must
// not thereby run code in every job: names that load libraries, name programs or files, or change what a shell does are not on the
// list, and no value holds more than its variable needs. Agent and SPANK plugin both look.
#pragma once

#include <string_view>

namespace weft {

/// Whether NAME=value may be set. Names are listed one by one, but for WEFT_FILE_ and what follows it (capitals, digits, '_').
bool MayLaunchWith(std::string_view name, std::string_view value);

}  // namespace weft
