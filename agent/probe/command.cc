#include "agent/probe/command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "agent/probe/prober.h"
#include "common/clock.h"

namespace weft::agent {
namespace {

std::string HopName(Ipv4 hop) { return hop == 0 ? "" : FormatIpv4(hop); }

std::string ToJson(const ProbeCommand& command, const TraceReport& report) {
  nlohmann::ordered_json paths = nlohmann::ordered_json::array();
  for (const TracedPath& path : report.paths) {
    nlohmann::ordered_json hops = nlohmann::ordered_json::array();
    for (const Ipv4 hop : path.hops) hops.push_back(HopName(hop));
    paths.push_back({{"source_port", path.source_port}, {"hops", hops}, {"complete", path.complete}});
  }
  const nlohmann::ordered_json all = {{"source", command.source},       {"destination", command.destination},
                                      {"port", command.port},           {"hop_count", report.hop_count},
                                      {"paths", paths}};
  return all.dump(2) + "\n";
}

std::string ToTable(const TraceReport& report) {
  std::string text = fmt::format("{:>11}  path ({} switches)\n", "source port", report.hop_count);
  for (const TracedPath& path : report.paths) {
    text += fmt::format("{:>11} ", path.source_port);
    for (const Ipv4 hop : path.hops) text += fmt::format(" {:<15}", hop == 0 ? "?" : HopName(hop));
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

Result<TraceTarget> TargetOf(const ProbeCommand& command) {
  const std::optional<Ipv4> source = ParseIpv4(command.source);
  const std::optional<Ipv4> destination = ParseIpv4(command.destination);
  if (!source) return Fail(Code::kInvalidArgument, fmt::format("source \"{}\" is not an IPv4 address", command.source));
  if (!destination) {
    return Fail(Code::kInvalidArgument, fmt::format("destination \"{}\" is not an IPv4 address", command.destination));
  }
  if (!PortIsFree(*source, 0)) {
    return Fail(Code::kInvalidArgument, fmt::format("source {} is not an address of this host", command.source));
  }
  if (command.port == 0 || command.ports.empty()) {
    return Fail(Code::kInvalidArgument, "a destination port and at least one source port are needed");
  }
  if (command.output != "table" && command.output != "json") {
    return Fail(Code::kInvalidArgument,
                fmt::format("output \"{}\" is unknown, expected table or json", command.output));
  }
  return TraceTarget{.flow = 1,
                     .source = *source,
                     .destination = *destination,
                     .destination_port = command.port,
                     .candidates = command.ports};
}

}  // namespace

Result<std::string> RunProbeCommand(const ProbeCommand& command) {
  WEFT_ASSIGN_OR_RETURN(TraceTarget target, TargetOf(command));
  WEFT_ASSIGN_OR_RETURN(ProbeSockets sockets, ProbeSockets::Open());
  TracerOptions options;
  options.exhaustive = true;
  PathTracer tracer(options, std::random_device{}());
  const SystemClock clock;
  tracer.Track(std::move(target), clock.Now());
  for (;;) {
    WEFT_RETURN_IF_ERROR(ProbeTurn(tracer, sockets, -1, Seconds(1)));
    for (const TraceReport& report : tracer.TakeReports(clock.Now())) {
      if (report.finished) return command.output == "json" ? ToJson(command, report) : ToTable(report);
    }
    if (tracer.counters().silent_destinations > 0) {
      return Fail(Code::kDeadlineExceeded,
                  fmt::format("{} did not answer {} probes to a closed port", command.destination, options.attempts));
    }
  }
}

}  // namespace weft::agent
