#include "formats/collectives_csv.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <utility>

#include "formats/validation_csv.h"
#include "planner/collectives/ring.h"

namespace weft::formats {
namespace {

using planner::Collective;

constexpr std::pair<std::string_view, Collective> kCollectives[] = {
    {"all_reduce", Collective::kAllReduce},         {"all_gather", Collective::kAllGather},
    {"reduce_scatter", Collective::kReduceScatter}, {"alltoall", Collective::kAllToAll},
    {"sendrecv", Collective::kSendRecv},            {"broadcast", Collective::kBroadcast},
};

/// What the column intra_link says, as the planner names it.
constexpr std::pair<std::string_view, std::string_view> kLinks[] = {
    {"NVLink3-NVSwitch", "nvlink3-switch"}, {"NVLink4-NVSwitch", "nvlink4-switch"},
    {"NVLink5-NVSwitch", "nvlink5-switch"}, {"NVLink3", "nvlink3"},
    {"xGMI", "xgmi"},                       {"PCIe", "pcie"},
    {"none", "none"},
};

/// One row by column name; `place` is "FILE:LINE".
class Cells {
 public:
  Cells(const std::map<std::string, size_t, std::less<>>& columns, const std::vector<std::string>& cells, std::string place)
      : columns_(columns), cells_(cells), place_(std::move(place)) {}

  Result<std::string> Text(std::string_view column) const {
    const auto at = columns_.find(column);
    if (at == columns_.end()) return Fail(Code::kInvalidArgument, fmt::format("{}: column {} is missing", place_, column));
    return cells_[at->second];
  }

  Result<double> Number(std::string_view column, double least, double most) const {
    WEFT_ASSIGN_OR_RETURN(const std::string text, Text(column));
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
    return Bad(column, text, fmt::format("a number of {:g} to {:g}", least, most));
  }

  Result<int32_t> Count(std::string_view column, int32_t least) const {
    WEFT_ASSIGN_OR_RETURN(const double value, Number(column, least, 1e6));
    if (value == static_cast<int32_t>(value)) return static_cast<int32_t>(value);
    return Bad(column, fmt::to_string(value), "a whole number");
  }

  tl::unexpected<Error> Bad(std::string_view column, std::string_view value, std::string_view expected) const {
    return Fail(Code::kInvalidArgument, fmt::format("{}: {}: \"{}\", expected {}", place_, column, value, expected));
  }

 private:
  const std::map<std::string, size_t, std::less<>>& columns_;
  const std::vector<std::string>& cells_;
  std::string place_;
};

Result<Collective> CollectiveOf(const Cells& cells) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, cells.Text("collective"));
  for (const auto& [name, collective] : kCollectives) {
    if (name == text) return collective;
  }
  return cells.Bad("collective", text, "all_reduce, all_gather, reduce_scatter, alltoall, sendrecv or broadcast");
}

Result<planner::HostLinkConstants> LinkOf(const Cells& cells) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, cells.Text("intra_link"));
  for (const auto& [written, name] : kLinks) {
    // Remarks stand in parentheses behind a blank.
    if (text == written || text.starts_with(std::string(written).append(" "))) return planner::FindHostLink(name);
  }
  if (text == "NVLink2") return planner::FindHostLink("nvlink3");  // only in rows of degraded systems
  return cells.Bad("intra_link", text, "NVLink3 to NVLink5 with or without -NVSwitch, xGMI, PCIe or none");
}

/// busbw = algbw · factor and algbw = bytes / time; GB/s and us.
Result<Seconds> TimeOf(const Cells& cells, const CollectiveRow& row) {
  WEFT_ASSIGN_OR_RETURN(const double value, cells.Number("value", 1e-9, 1e12));
  WEFT_ASSIGN_OR_RETURN(const std::string metric, cells.Text("metric"));
  const double factor = planner::BusBandwidthFactor(row.collective, row.communicator.ranks());
  if (metric == "time_us") return Seconds(value * 1e-6);
  if (metric == "algbw") return row.bytes / GigabytesPerSecond(value);
  if (metric == "busbw") return (row.bytes / GigabytesPerSecond(value)) * factor;
  return cells.Bad("metric", metric, "time_us, algbw or busbw");
}

Result<CollectiveRow> MeasuredRow(const Cells& cells, int64_t line) {
  CollectiveRow row{.line = line};
  planner::NcclCommunicator& communicator = row.communicator;
  WEFT_ASSIGN_OR_RETURN(row.source, cells.Text("source"));
  WEFT_ASSIGN_OR_RETURN(const std::string gpu, cells.Text("gpu"));
  WEFT_ASSIGN_OR_RETURN(communicator.hosts, cells.Count("nodes", 1));
  WEFT_ASSIGN_OR_RETURN(communicator.gpus_per_host, cells.Count("gpus_per_node", 1));
  WEFT_ASSIGN_OR_RETURN(communicator.nics_per_host, cells.Count("nics_per_node", communicator.hosts > 1 ? 1 : 0));
  WEFT_ASSIGN_OR_RETURN(const double gbps, cells.Number("nic_gbps", communicator.hosts > 1 ? 0.001 : 0, 1e6));
  communicator.nic_rate = GigabitsPerSecond(gbps);
  WEFT_ASSIGN_OR_RETURN(communicator.link, LinkOf(cells));
  WEFT_ASSIGN_OR_RETURN(row.collective, CollectiveOf(cells));
  WEFT_ASSIGN_OR_RETURN(const double bytes, cells.Number("bytes", 1, 1e15));
  row.bytes = Bytes(static_cast<int64_t>(bytes));
  WEFT_ASSIGN_OR_RETURN(const std::string notes, cells.Text("notes"));
  const bool roce = notes.find("RoCE") != std::string::npos || row.source.find("Spectrum-X") != std::string::npos;
  WEFT_ASSIGN_OR_RETURN(communicator.network, planner::FindNetwork(roce ? "roce" : "infiniband"));
  row.degraded = notes.find("degraded") != std::string::npos;
  row.system = fmt::format("{} x {} {}", communicator.hosts, communicator.gpus_per_host, gpu);
  WEFT_ASSIGN_OR_RETURN(row.time, TimeOf(cells, row));
  return row;
}

Result<EfficiencyRow> ShareRow(const Cells& cells, int64_t line) {
  EfficiencyRow row{.line = line};
  WEFT_ASSIGN_OR_RETURN(row.source, cells.Text("source"));
  WEFT_ASSIGN_OR_RETURN(row.fabric, cells.Text("fabric"));
  WEFT_ASSIGN_OR_RETURN(const std::string kind, cells.Text("collective_class"));
  row.all_to_all = kind == "alltoall";
  if (!row.all_to_all && !kind.starts_with("ring-type")) return cells.Bad("collective_class", kind, "ring-type or alltoall");
  WEFT_ASSIGN_OR_RETURN(row.nodes, cells.Count("nodes", 1));
  WEFT_ASSIGN_OR_RETURN(row.gpus, cells.Count("gpus", 1));
  WEFT_ASSIGN_OR_RETURN(const double bytes, cells.Number("bytes", 1, 1e15));
  row.bytes = Bytes(static_cast<int64_t>(bytes));
  WEFT_ASSIGN_OR_RETURN(row.efficiency, cells.Number("efficiency", 1e-9, 1e3));
  return row;
}

bool HasColumn(std::string_view header, std::string_view column) { return header.find(column) != std::string_view::npos; }

}  // namespace

bool IsCollectiveTable(std::string_view text) {
  const std::string_view header = text.substr(0, text.find('\n'));
  return HasColumn(header, "intra_link") || (HasColumn(header, "collective_class") && HasColumn(header, "efficiency"));
}

Result<CollectiveTable> ParseCollectiveTable(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const auto rows, ParseCsv(text, source));
  if (rows.empty()) return Fail(Code::kInvalidArgument, fmt::format("{}: empty, expected a header line", source));
  std::map<std::string, size_t, std::less<>> columns;
  for (size_t i = 0; i < rows[0].size(); ++i) columns.emplace(rows[0][i], i);
  CollectiveTable table;
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto line = static_cast<int64_t>(i + 1);
    if (rows[i].size() == 1 && rows[i][0].empty()) continue;
    const std::string place = fmt::format("{}:{}", source, line);
    if (rows[i].size() != rows[0].size()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: {} fields, expected {} as in the header", place, rows[i].size(),
                                                      rows[0].size()));
    }
    const Cells cells(columns, rows[i], place);
    if (columns.contains("collective_class")) {
      WEFT_ASSIGN_OR_RETURN(EfficiencyRow row, ShareRow(cells, line));
      table.efficiencies.push_back(std::move(row));
    } else {
      WEFT_ASSIGN_OR_RETURN(CollectiveRow row, MeasuredRow(cells, line));
      table.measured.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace weft::formats
