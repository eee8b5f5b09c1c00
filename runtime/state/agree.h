// All ranks learn how each of them fared, before any goes on.
#pragma once

#include <string>

#include "collectives/bootstrap.h"
#include "common/result.h"

namespace weft::runtime {

/// Success if all ranks bring it; else this rank's own error or, where it has none, that of the first rank that has, with the
/// rank in front. Collective; `bootstrap` is null for one rank. Errors: as Bootstrap::AllGather, too.
[[nodiscard]] Status Agree(collectives::Bootstrap* bootstrap, const Status& mine);

/// Rank 0's text on all ranks. Collective; `bootstrap` is null for one rank. Errors: as Bootstrap::AllGather.
[[nodiscard]] Result<std::string> OfFirst(collectives::Bootstrap* bootstrap, const std::string& mine);

}  // namespace weft::runtime
