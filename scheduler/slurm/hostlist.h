// Slurm's hostlist notation, expanded: "n[1-3,07],login" -> n1 n2 n3 n07 login. Several brackets in one word multiply,
// the last one fastest. Leaves out what Slurm only accepts on command lines ("^file", "n[1-9:2]").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::slurm {

/// Largest number of hosts that an expression may stand for.
inline constexpr size_t kMaxHosts = 65536;

/// The hosts in the order written, zero padding kept; duplicates stay. Empty text gives no hosts.
/// Errors: kInvalidArgument naming the expression and what is wrong with it.
/// Complexity: linear in the text and the hosts.
[[nodiscard]] Result<std::vector<std::string>> ExpandHostlist(std::string_view text);

}  // namespace weft::slurm
