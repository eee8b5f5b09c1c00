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

/// What the column intra_link says, in GB/s per GPU and direction. Source: data sheets: 6, 12, 18 and 18 NVLinks of 25, 25, 25 and
/// 50 GB/s; seven xGMI links of 64 GB/s (MI300X); PCIe 5.0 x16.
constexpr std::pair<std::string_view, double> kLinks[] = {
    {"NVLink2", 150}, {"NVLink3-NVSwitch", 300}, {"NVLink4-NVSwitch", 450}, {"NVLink5-NVSwitch", 900},
    {"NVLink3", 300}, {"NVLink4", 450},          {"xGMI", 448},             {"PCIe", 63},              {"none", 1},
};

/// How the column gpu begins, and the device; those that the planner has not are known by their links alone.
constexpr std::pair<std::string_view, std::string_view> kGpus[] = {
    {"A100-SXM4-40GB", "a100-40"}, {"A100", "a100-80"},   {"H100", "h100-80"},           {"B200", "b200"},
    {"V100", "v100-32"},           {"MI300X", "mi300x"}, {"Blackwell PCIe", "rtx-blackwell"}, {"H200", "h200"},
    {"GB200", "gb200"},            {"GH200", "gh200"},
};
constexpr double kPcie5 = 63;  // GB/s of x16: the slot of those that the planner has not

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

Result<BitsPerSecond> LinkOf(const Cells& cells) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, cells.Text("intra_link"));
  for (const auto& [written, gigabytes] : kLinks) {
    // Remarks stand in parentheses behind a blank.
    if (text == written || text.starts_with(std::string(written).append(" "))) return GigabytesPerSecond(gigabytes);
  }
  return cells.Bad("intra_link", text, "NVLink2 to NVLink5 with or without -NVSwitch, xGMI, PCIe or none");
}

Result<planner::DeviceSpec> DeviceOf(const Cells& cells) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, cells.Text("gpu"));
  for (const auto& [written, name] : kGpus) {
    if (!text.starts_with(written)) continue;
    if (auto device = planner::FindDevice(name)) return *std::move(device);
    planner::DeviceSpec device;
    device.name = std::string(name);
    device.slot_rate = GigabytesPerSecond(kPcie5);
    return device;
  }
  return cells.Bad("gpu", text, "A100, H100, H200, B200, GB200, GH200, V100, MI300X or Blackwell PCIe at its beginning");
}

/// "auto" and "auto (…)" are the library's own choice.
Result<std::optional<planner::Algorithm>> AlgorithmOf(const Cells& cells) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, cells.Text("algo"));
  if (text.starts_with("auto")) return std::nullopt;
  if (text == "Tree") return planner::Algorithm::kTree;
  if (text == "Ring") return planner::Algorithm::kRing;
  return cells.Bad("algo", text, "auto, Tree or Ring");
}

/// busbw = algbw · factor and algbw = bytes / time; GB/s and us.
Result<Seconds> TimeOf(const Cells& cells, const CollectiveRow& row) {
  WEFT_ASSIGN_OR_RETURN(const double value, cells.Number("value", 1e-9, 1e12));
  WEFT_ASSIGN_OR_RETURN(const std::string metric, cells.Text("metric"));
  const double factor = planner::BusBandwidthFactor(row.collective, static_cast<int32_t>(row.cluster.TotalGpus()));
  if (metric == "time_us") return Seconds(value * 1e-6);
  if (metric == "algbw") return row.bytes / GigabytesPerSecond(value);
  if (metric == "busbw") return (row.bytes / GigabytesPerSecond(value)) * factor;
  return cells.Bad("metric", metric, "time_us, algbw or busbw");
}

Result<CollectiveRow> MeasuredRow(const Cells& cells, int64_t line) {
  CollectiveRow row{.line = line};
  planner::ClusterSpec& cluster = row.cluster;
  WEFT_ASSIGN_OR_RETURN(row.source, cells.Text("source"));
  WEFT_ASSIGN_OR_RETURN(const std::string gpu, cells.Text("gpu"));
  WEFT_ASSIGN_OR_RETURN(cluster.nodes, cells.Count("nodes", 1));
  WEFT_ASSIGN_OR_RETURN(cluster.gpus_per_node, cells.Count("gpus_per_node", 1));
  WEFT_ASSIGN_OR_RETURN(const int32_t nics, cells.Count("nics_per_node", cluster.nodes > 1 ? 1 : 0));
  WEFT_ASSIGN_OR_RETURN(const double gbps, cells.Number("nic_gbps", cluster.nodes > 1 ? 0.001 : 0, 1e6));
  WEFT_ASSIGN_OR_RETURN(cluster.device, DeviceOf(cells));
  WEFT_ASSIGN_OR_RETURN(cluster.intra_node_rate, LinkOf(cells));
  cluster.name = row.system = fmt::format("{} x {} {}", cluster.nodes, cluster.gpus_per_node, gpu);
  cluster.nic_rate = GigabitsPerSecond(gbps * nics);
  cluster.nics_per_node = nics;
  cluster.intra_latency = Seconds(4e-6);  // as the presets have it
  cluster.nic_latency = Seconds(12e-6);
  WEFT_ASSIGN_OR_RETURN(row.algorithm, AlgorithmOf(cells));
  WEFT_ASSIGN_OR_RETURN(row.collective, CollectiveOf(cells));
  WEFT_ASSIGN_OR_RETURN(const double bytes, cells.Number("bytes", 1, 1e15));
  row.bytes = Bytes(static_cast<int64_t>(bytes));
  WEFT_ASSIGN_OR_RETURN(const std::string notes, cells.Text("notes"));
  cluster.nic_kind = NicKindOf(notes);
  row.degraded = notes.find("degraded") != std::string::npos;
  WEFT_ASSIGN_OR_RETURN(row.time, TimeOf(cells, row));
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
      table.shares.push_back(line);
    } else {
      WEFT_ASSIGN_OR_RETURN(CollectiveRow row, MeasuredRow(cells, line));
      table.measured.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace weft::formats
