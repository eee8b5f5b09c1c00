// Tables of published measurements of collectives: one with times or bandwidths (nccl-tests and the like), one with shares of
// a peak bandwidth that it does not state. RFC 4180, one header line, columns in any order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/algorithm_kind.h"
#include "planner/collectives/schedule.h"
#include "planner/fabric/cluster_spec.h"

namespace weft::formats {

/// One measured collective over all GPUs of a cluster.
struct CollectiveRow {
  int64_t line = 0;            ///< of the file, from 1
  std::string source;
  std::string system;          ///< "2 x 8 H100-SXM5-80GB"
  planner::ClusterSpec cluster;    ///< its GPUs, links and NICs at their data sheets' rates
  planner::Collective collective = planner::Collective::kAllReduce;
  std::optional<planner::Algorithm> algorithm;  ///< that the library was told to use; none: its own choice
  Bytes bytes;                 ///< the full buffer
  Seconds time{0};             ///< from the row's time, bus bandwidth or algorithm bandwidth
  bool degraded = false;       ///< the source reports it as a badly configured system
};

struct CollectiveTable {
  std::vector<CollectiveRow> measured;
  std::vector<int64_t> shares;  ///< lines of rows that state a share of a peak, and not of which links
};

/// Whether the header of `text` is that of one of the two.
bool IsCollectiveTable(std::string_view text);

/// Errors: kInvalidArgument as "SOURCE:LINE: column …" for a missing column, a row of another length, a cell that is no number
/// where one is expected, or a GPU, link, collective, algorithm or metric that nobody knows.
[[nodiscard]] Result<CollectiveTable> ParseCollectiveTable(std::string_view text, std::string_view source);

}  // namespace weft::formats
