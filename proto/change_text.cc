#include "proto/change_text.h"

#include <fmt/format.h>

#include "common/parse_units.h"

namespace weft::proto {

std::string ChangeFigures(const v1::StrategyChange& change) {
  return fmt::format("an iteration takes {} in place of {}, as {}; the pause is {}, in which {} move between ranks",
                     FormatDuration(Seconds(change.iteration_then_s())), FormatDuration(Seconds(change.iteration_now_s())),
                     change.fabric(), FormatDuration(Seconds(change.pause_s())), FormatBytes(Bytes(change.moved_bytes())));
}

}  // namespace weft::proto
