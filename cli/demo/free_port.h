// A port for a program that cannot choose one itself.
#pragma once

#include <string>

#include "common/result.h"

namespace weft::cli {

/// A TCP port that is free at `address` (IPv4) now; somebody else may take it before it is used.
/// Errors: as bind(2) says, naming the address.
[[nodiscard]] Result<int> FreePort(const std::string& address);

}  // namespace weft::cli
