// Programs that stand beside `weft`.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace weft::cli {

/// Becomes the program `name` that lies beside this one: on success it does not return. `arguments` without the program's name.
/// Errors: kNotFound naming where it was looked for; kUnavailable where it cannot be started.
[[nodiscard]] Status BecomeSibling(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace weft::cli
