// What a change of strategy in a running job comes to, for people: in the controller's decisions and in `weft explain` alike.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace weft::proto {

/// "an iteration takes 1.5 s in place of 3 s, as …; the pause is 6 s, in which 1 MiB move between ranks".
std::string ChangeFigures(const v1::StrategyChange& change);

}  // namespace weft::proto
