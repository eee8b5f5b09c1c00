// Tables of published measurements of collectives: one with times or bandwidths (nccl-tests and the like), one with shares of
// the peak bandwidth. RFC 4180, one header line, columns in any order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/measured_nccl.h"

namespace weft::formats {

/// One measured collective.
struct CollectiveRow {
  int64_t line = 0;            ///< of the file, from 1
  std::string source;
  std::string system;          ///< "2 x 8 H100-SXM5-80GB"
  planner::NcclCommunicator communicator;
  planner::Collective collective = planner::Collective::kAllReduce;
  Bytes bytes;                 ///< the full buffer
  Seconds time{0};             ///< from the row's time, bus bandwidth or algorithm bandwidth
  bool degraded = false;       ///< the source reports it as a badly configured system
};

/// One share of the peak bandwidth.
struct EfficiencyRow {
  int64_t line = 0;
  std::string source;
  std::string fabric;
  bool all_to_all = false;
  int32_t nodes = 1, gpus = 1;
  Bytes bytes;
  double efficiency = 0;
};

struct CollectiveTable {
  std::vector<CollectiveRow> measured;
  std::vector<EfficiencyRow> efficiencies;
};

/// Whether the header of `text` is that of one of the two.
bool IsCollectiveTable(std::string_view text);

/// Errors: kInvalidArgument as "SOURCE:LINE: column …" for a missing column, a row of another length, a cell that is no number
/// where one is expected, or a link, collective or metric that nobody knows.
[[nodiscard]] Result<CollectiveTable> ParseCollectiveTable(std::string_view text, std::string_view source);

}  // namespace weft::formats
