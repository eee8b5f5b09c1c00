#include "cli/calibrate.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "cli/calibrate_runs.h"
#include "cli/link_times.h"
#include "cli/sibling.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/cluster_yaml.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

using planner::MeasuredConstant;

/// What the cluster's rates and latencies are multiplied by to be what was measured.
std::vector<MeasuredConstant> Shares(const planner::ClusterSpec& cluster, const LinkTimes& times, bool local) {
  if (local) {
    const std::string link = fmt::format("link.{}", planner::LinkKindOf(cluster));
    return {{link + ".efficiency", times.rate / cluster.intra_node_rate},
            {link + ".latency", times.message / cluster.intra_latency}};
  }
  // One rank had all of the NICs; what several of a node make of them is their number's doing.
  return {{"link.nic.efficiency", times.rate / cluster.nic_rate},
          {"link.nic.shared", 1},
          {"link.nic.steps", times.message / cluster.nic_latency}};
}

Result<std::vector<MeasuredConstant>> CalibrateLink(const CalibrateOptions& o) {
  if (o.cluster.empty())
    return Fail(Code::kInvalidArgument, "--link: expected --cluster too, whose rates and latencies its constants are shares of");
  WEFT_ASSIGN_OR_RETURN(const planner::ClusterSpec cluster, formats::ResolveCluster(o.cluster));
  const bool local = o.link == "local";
  if (local && planner::LinkKindOf(cluster) != "cpu") {
    return Fail(
        Code::kInvalidArgument,
        fmt::format("--link local: between ranks on host memory, expected a cluster of device cpu, not {}", cluster.device.name));
  }
  if (cluster.nic_kind != planner::NicKind::kPlain) {
    return Fail(Code::kInvalidArgument,
                "--link: of nic_kind plain only: what other NICs start with is the library's, not this plugin's");
  }
  if (local && o.rank != 0)
    return Fail(Code::kInvalidArgument, fmt::format("--rank {}: with --link local there is no other, expected HOST:PORT", o.rank));
  fmt::print(stderr, "weft calibrate: two ranks {}\n", local ? "on this machine" : "over " + o.link);
  auto times = MeasureLink({.plugin = o.plugin, .rendezvous = local ? "" : o.link, .rank = o.rank});
  if (!times) return Fail(times.error().WithContext(fmt::format("--link {}", o.link)));
  if (!local && o.rank == 1) return std::vector<MeasuredConstant>{};  // rank 0 has timed it
  fmt::print(stderr, "weft calibrate: a message {}, long ones {}\n", FormatDuration(times->message), FormatRate(times->rate));
  return Shares(cluster, *times, local);
}

Status Run(const CalibrateOptions& o) {
  if (!o.runs.empty()) return CalibrateFromRuns({.tables = o.runs, .calibration = o.calibration, .out = o.out});
  if (!o.calibration.empty()) return Fail(Code::kInvalidArgument, "--calibration: what to begin with, expected --runs too");
  if (o.threads < 1 || o.threads > 1024)
    return Fail(Code::kInvalidArgument, fmt::format("--threads {}: expected 1 to 1024", o.threads));
  if (o.rank < 0 || o.rank > 1) return Fail(Code::kInvalidArgument, fmt::format("--rank {}: expected 0 or 1", o.rank));
  if (o.link.empty() && (o.rank != 0 || !o.cluster.empty()))
    return Fail(Code::kInvalidArgument, "--rank and --cluster: expected --link too");
  WEFT_ASSIGN_OR_RETURN(const Seconds duration, ParseDuration(o.duration));
  if (!(duration > Seconds(0) && duration <= Seconds(3600))) {
    return Fail(Code::kInvalidArgument, fmt::format("--duration {}: expected up to an hour", o.duration));
  }
  std::vector<MeasuredConstant> links;
  if (!o.link.empty()) {
    WEFT_ASSIGN_OR_RETURN(links, CalibrateLink(o));
    if (o.rank == 1) return Ok();
  }
  std::vector<std::string> arguments = {"calibrate", "--threads", std::to_string(o.threads), "--seconds",
                                        fmt::format("{}", duration.count())};
  if (!o.out.empty()) arguments.insert(arguments.end(), {"--out", o.out});
  for (const MeasuredConstant& link : links)
    arguments.insert(arguments.end(), {"--link", fmt::format("{}={:.9g}", link.name, link.value)});
  return BecomeSibling("weft-torch", arguments);
}

}  // namespace

int RunCalibrate(const CalibrateOptions& options) {
  const Status status = Run(options);
  if (status) return kExitDone;
  fmt::print(stderr, "weft calibrate: {}\n", status.error().message());
  return ExitCodeOf(status.error());
}

}  // namespace weft::cli
