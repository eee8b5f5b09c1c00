#include "cli/simulate_trace.h"

#include <fmt/format.h>

#include <vector>

#include "common/parse_units.h"
#include "formats/trace_writer.h"

namespace weft::cli {
namespace {

using formats::TraceWriter;

constexpr int kLinks = 1, kJobs = 2;   // process ids

void AddCounter(TraceWriter& writer, const std::string& quoted, Seconds at, double rate) {
  writer.Add(fmt::format(R"({{"ph": "C", "name": {}, "pid": {}, "tid": 0, "ts": {}, "args": {{"bit/s": {:.17g}}}}})",
                         quoted, kLinks, TraceWriter::Stamp(at), rate));
}

void AddLinks(TraceWriter& writer, const planner::Scenario& scenario, const planner::SimulationReport& report) {
  std::vector<std::string> names(scenario.topology.links().size());
  for (const planner::LinkSample& sample : report.link_samples) {
    std::string& name = names[sample.link.index()];
    if (name.empty()) {
      name = TraceWriter::Quoted(scenario.topology.LinkName(sample.link));
      if (sample.at.count() > 0) AddCounter(writer, name, Seconds(0), 0);
    }
    AddCounter(writer, name, sample.at, sample.rate.value());
  }
  for (const std::string& name : names) {
    if (!name.empty()) AddCounter(writer, name, scenario.duration, 0);
  }
}

std::string_view PhaseName(planner::PhaseKind kind) {
  switch (kind) {
    case planner::PhaseKind::kWaiting: return "wait";
    case planner::PhaseKind::kComputing: return "compute";
    case planner::PhaseKind::kSending: return "communicate";
  }
  return "";
}

void AddJobs(TraceWriter& writer, const planner::Scenario& scenario, const planner::SimulationReport& report) {
  for (size_t j = 0; j < scenario.jobs.size(); ++j) writer.AddName("thread_name", kJobs, j + 1, scenario.jobs[j].name);
  for (const planner::JobPhase& phase : report.phases) {
    writer.Add(fmt::format(
        R"({{"ph": "X", "name": "{}", "cat": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"iteration": {}}}}})",
        PhaseName(phase.kind), PhaseName(phase.kind), kJobs, phase.job + 1, TraceWriter::Stamp(phase.begin),
        TraceWriter::Stamp(phase.end - phase.begin), phase.iteration));
  }
}

}  // namespace

std::string ChromeTraceText(const planner::Scenario& scenario, const planner::SimulationReport& report) {
  TraceWriter writer;
  writer.AddName("process_name", kLinks, 0, "links");
  writer.AddName("process_name", kJobs, 0, "jobs");
  AddLinks(writer, scenario, report);
  AddJobs(writer, scenario, report);
  for (const planner::ScenarioFault& fault : scenario.faults) {
    const std::string what = fault.capacity.value() > 0 ? FormatRate(fault.capacity) : "down";
    writer.Add(fmt::format(R"({{"ph": "i", "s": "g", "name": {}, "cat": "fault", "pid": {}, "tid": 0, "ts": {}}})",
                           TraceWriter::Quoted(scenario.topology.LinkName(fault.link) + " " + what), kLinks,
                           TraceWriter::Stamp(fault.at)));
  }
  return writer.Take();
}

}  // namespace weft::cli
