#include "cli/perf_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "common/parse_units.h"
#include "planner/collectives/ring.h"

namespace weft::cli {
namespace {

struct Figures {
  double median_s, p99_s, most_s, least_s, algbw_bps, busbw_bps;
};

/// algbw = size of the full buffer / time; busbw corrects for what the collective must move, as nccl-tests do, and is
/// that of all flows together for sendrecv.
Figures FiguresOf(const PerfPlan& plan, const PerfResult& result) {
  Figures figures{};
  figures.median_s = Percentile(result.times_s, 0.5);
  figures.p99_s = Percentile(result.times_s, 0.99);
  figures.most_s = result.times_s.back();
  figures.least_s = result.times_s.front();
  figures.algbw_bps = figures.median_s > 0 ? static_cast<double>(result.bytes) * 8 / figures.median_s : 0;
  figures.busbw_bps = figures.algbw_bps * planner::BusBandwidthFactor(plan.schedule.collective, plan.ranks) *
                      static_cast<double>(ConcurrentFlows(plan));
  return figures;
}

/// Nothing when nothing was sent: one rank, or messages of no bytes.
std::optional<double> CpuSecondsPerGigabyte(const PerfResult& result) {
  if (result.sent == 0) return std::nullopt;
  return result.cpu_s / (static_cast<double>(result.sent) * 1e-9);
}

std::string_view PatternName(FlowPattern pattern) {
  switch (pattern) {
    case FlowPattern::kOneWay: return "one way";
    case FlowPattern::kBothWays: return "both ways";
    case FlowPattern::kPingPong: return "ping-pong";
  }
  return "";
}

/// What is particular to a sendrecv, for people.
std::string FlowsOf(const PerfPlan& plan) {
  if (plan.schedule.collective != planner::Collective::kSendRecv) return "";
  return fmt::format(", {}, {} connection{} per pair, {} message{} per run", PatternName(plan.pattern),
                     plan.connections, plan.connections == 1 ? "" : "s", plan.messages,
                     plan.messages == 1 ? "" : "s");
}

}  // namespace

double Percentile(const std::vector<double>& ascending, double share) {
  const double place = std::ceil(share * static_cast<double>(ascending.size())) - 1;
  return ascending[static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(ascending.size() - 1)))];
}

std::string PerfTableHead(const PerfPlan& plan, const PerfReport& report) {
  return fmt::format(
      "# {} ({}), {} ranks{}, {} runs after {}, plugin {} (net v{}) {}\n"
      "{:>12} {:>12} {:>12} {:>12} {:>14} {:>14} {:>10} {:>8}\n",
      planner::CollectiveName(plan.schedule.collective), plan.schedule.algorithm, plan.ranks, FlowsOf(plan),
      plan.iterations, plan.warmup, report.plugin_name, report.net_version, report.plugin_path, "bytes", "median us",
      "p99 us", "max us", "algbw Gbit/s", "busbw Gbit/s", "CPU s/GB", "wrong");
}

std::string PerfTableRow(const PerfPlan& plan, const PerfResult& result) {
  const Figures figures = FiguresOf(plan, result);
  const auto cpu = CpuSecondsPerGigabyte(result);
  return fmt::format("{:>12} {:>12.1f} {:>12.1f} {:>12.1f} {:>14.3f} {:>14.3f} {:>10} {:>8}\n", result.bytes,
                     figures.median_s * 1e6, figures.p99_s * 1e6, figures.most_s * 1e6, figures.algbw_bps / 1e9,
                     figures.busbw_bps / 1e9, cpu ? fmt::format("{:.3f}", *cpu) : "-",
                     plan.check ? fmt::to_string(result.wrong) : "-");
}

std::string PerfJson(const PerfPlan& plan, const PerfReport& report) {
  nlohmann::ordered_json json;
  json["plugin"] = {{"name", report.plugin_name}, {"path", report.plugin_path}, {"net_version", report.net_version}};
  json["collective"] = std::string(planner::CollectiveName(plan.schedule.collective));
  json["algorithm"] = plan.schedule.algorithm;
  json["ranks"] = plan.ranks;
  if (plan.schedule.collective == planner::Collective::kSendRecv) {
    json["pattern"] = std::string(PatternName(plan.pattern));
    json["connections"] = plan.connections;
    json["messages"] = plan.messages;
  }
  json["iterations"] = plan.iterations;
  json["warmup"] = plan.warmup;
  json["slice_bytes"] = plan.slice.count();
  json["checked"] = plan.check;
  json["results"] = nlohmann::ordered_json::array();
  for (const PerfResult& result : report.results) {
    const Figures figures = FiguresOf(plan, result);
    nlohmann::ordered_json row;
    row["bytes"] = result.bytes;
    row["time_us_median"] = figures.median_s * 1e6;
    row["time_us_p99"] = figures.p99_s * 1e6;
    row["time_us_max"] = figures.most_s * 1e6;
    row["time_us_min"] = figures.least_s * 1e6;
    row["algbw_bps"] = figures.algbw_bps;
    row["busbw_bps"] = figures.busbw_bps;
    const auto cpu = CpuSecondsPerGigabyte(result);
    row["sent_bytes"] = result.sent;
    row["cpu_s_per_gb"] = cpu ? nlohmann::ordered_json(*cpu) : nlohmann::ordered_json(nullptr);
    row["wrong"] = plan.check ? nlohmann::ordered_json(result.wrong) : nlohmann::ordered_json(nullptr);
    json["results"].push_back(std::move(row));
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
