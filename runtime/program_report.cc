#include "runtime/program_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/parse_units.h"

namespace weft::runtime {
namespace {

using nlohmann::json;

json PartsOf(const planner::StepParts& p) {
  return {{"compute_s", p.compute.count()}, {"exposed_communication_s", p.exposed.count()}, {"bubble_s", p.bubble.count()}};
}

json PlannedJson(const RankPlanned& r) {
  json planned = json::object();
  if (r.parts) planned = PartsOf(*r.parts);
  if (r.iteration) planned["iteration_s"] = r.iteration->count();
  if (r.peak) planned["peak_bytes"] = r.peak->count();
  return planned;
}

json RankJson(const RankFacts& r) {
  json measured = PartsOf(r.measured.parts);
  measured["iteration_s"] = r.measured.iteration.count();
  measured["peak_bytes"] = r.measured.peak.count();
  measured["busy"] = r.measured.busy;
  measured["overruns"] = r.measured.overruns;
  return {{"measured", measured}, {"planned", PlannedJson(r.planned)}};
}

std::string PartsText(const planner::StepParts& p) {
  return fmt::format("{:>12} {:>12} {:>12}", FormatDuration(p.compute), FormatDuration(p.exposed), FormatDuration(p.bubble));
}

std::string TableHead() {
  return fmt::format("{:>6} {:>8} {:>12} {:>12} {:>12} {:>12} {:>14} {:>6}", "rank", "", "iteration", "compute", "exposed", "bubble",
                     "peak bytes", "busy");
}

std::string PlannedRow(std::string_view rank, const RankPlanned& r) {
  return fmt::format("\n{:>6} {:>8} {:>12} {:>38} {:>14}", rank, "planned", r.iteration ? FormatDuration(*r.iteration) : "-",
                     r.parts ? PartsText(*r.parts) : "-", r.peak ? fmt::format("{}", r.peak->count()) : "-");
}

std::string RankTable(const std::vector<RankFacts>& ranks) {
  std::string text = "\n\n" + TableHead();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts& r = ranks[rank];
    text += fmt::format("\n{:>6} {:>8} {:>12} {} {:>14} {:>5.0f}%", rank, "measured", FormatDuration(r.measured.iteration),
                        PartsText(r.measured.parts), r.measured.peak.count(), 100 * r.measured.busy);
    if (r.planned.peak || r.planned.iteration) text += PlannedRow("", r.planned);
  }
  return text;
}

std::string Line(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

std::string ProgramLine(const ProgramFacts& f, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    return Line({{"job",
                  {{"model", f.model},
                   {"strategy", f.strategy},
                   {"schedule", f.schedule},
                   {"type", f.type},
                   {"parameters", f.parameters},
                   {"ranks", f.ranks},
                   {"micro_batches", f.micro_batches},
                   {"global_batch", f.global_batch},
                   {"sequence", f.sequence},
                   {"digest", fmt::format("{:016x}", f.digest)},
                   {"plugin", f.plugin}}}});
  }
  return fmt::format(
      "model    {} with {} parameters, {}\n"
      "program  {} ({}), {} micro-batch{}, {} sequences of {} bytes on {} rank{}\n\n"
      "{:>6} {:>9} {:>10} {:>12} {:>12}",
      f.model, f.parameters, f.type, f.strategy.empty() ? "none" : f.strategy, f.schedule, f.micro_batches,
      f.micro_batches == 1 ? "" : "es", f.global_batch, f.sequence, f.ranks, f.ranks == 1 ? "" : "s", "step", "loss", "norm",
      "iteration", "waited");
}

std::string ProgramStepLine(const ProgramStep& s, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    // Shortest text that reads back to the same number: what is trained is compared by it.
    json line = {{"step", s.step},
                 {"loss", s.loss},
                 {"learning_rate", s.learning_rate},
                 {"iteration_s", s.iteration.count()},
                 {"waited_s", s.waited.count()},
                 {"time_s", s.time.count()}};
    if (s.gradient_norm) line["gradient_norm"] = *s.gradient_norm;
    for (const std::vector<Seconds>& rank : s.computations) {
      json& times = line["computations_s"].emplace_back(json::array());
      for (const Seconds time : rank) times.push_back(std::round(time.count() * 1e9) / 1e9);
    }
    return Line(line);
  }
  const std::string norm = s.gradient_norm ? fmt::format("{:.4f}", *s.gradient_norm) : std::string("-");
  return fmt::format("{:>6} {:>9.5f} {:>10} {:>12} {:>12}", s.step, s.loss, norm, FormatDuration(s.iteration),
                     FormatDuration(s.waited));
}

std::string PredictionLine(const std::vector<RankPlanned>& ranks, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    json prediction = {{"ranks", json::array()}};
    std::optional<Seconds> slowest;
    for (const RankPlanned& rank : ranks) {
      prediction["ranks"].push_back(PlannedJson(rank));
      if (rank.iteration) slowest = std::max(slowest.value_or(Seconds(0)), *rank.iteration);
    }
    if (slowest) prediction["iteration_s"] = slowest->count();
    return Line({{"prediction", prediction}});
  }
  std::string text = TableHead();
  for (size_t rank = 0; rank < ranks.size(); ++rank) text += PlannedRow(std::to_string(rank), ranks[rank]);
  return text;
}

std::string ReshardLine(const ReshardFacts& r, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    return Line({{"reshard",
                  {{"before_step", r.step},
                   {"strategy", r.strategy},
                   {"ranks", r.ranks},
                   {"planned_bytes", r.planned.count()},
                   {"sent_bytes", r.sent.count()},
                   {"moving_s", r.moving.count()},
                   {"took_s", r.took.count()}}}});
  }
  return fmt::format("changed to {} on {} rank{}: {} bytes in {}", r.strategy, r.ranks, r.ranks == 1 ? "" : "s", r.sent.count(),
                     FormatDuration(r.took));
}

std::string RefusalLine(const RefusalFacts& r, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    return Line({{"reshard_refused", {{"before_step", r.step}, {"epoch", r.epoch}, {"strategy", r.strategy}, {"reason", r.why}}}});
  }
  return fmt::format("{} goes on, word {} of another strategy is refused: {}", r.strategy, r.epoch, r.why);
}

std::string CheckpointLine(const CheckpointFacts& c, OutputFormat format) {
  if (format == OutputFormat::kJson && c.read) return Line({{"resumed", {{"step", c.step}, {"took_s", c.took.count()}}}});
  if (format == OutputFormat::kJson)
    return Line({{"checkpoint", {{"step", c.step}, {"bytes", c.bytes.count()}, {"took_s", c.took.count()}}}});
  if (c.read) return fmt::format("resumed after {} steps, read in {}", c.step, FormatDuration(c.took));
  return fmt::format("checkpoint after {} steps: {} bytes in {}", c.step, c.bytes.count(), FormatDuration(c.took));
}

std::string ProgramSummaryLine(const std::vector<ProgramStep>& steps, const std::vector<MeasuredVolume>& volumes,
                               const std::vector<RankFacts>& ranks, OutputFormat format) {
  std::vector<Seconds> iterations;
  for (const ProgramStep& s : steps) iterations.push_back(s.iteration);
  const Seconds median = MedianIteration(iterations);
  if (format == OutputFormat::kJson) {
    json list = json::array();
    for (const MeasuredVolume& v : volumes) {
      list.push_back({{"communicator", planner::CommunicatorKindName(v.kind)},
                      {"kind", planner::ActionName(v.action)},
                      {"planned_calls", v.planned_calls},
                      {"calls", v.calls},
                      {"planned_bytes", v.planned_bytes},
                      {"sent_bytes", v.bytes}});
    }
    json of_ranks = json::array();
    for (const RankFacts& rank : ranks) of_ranks.push_back(RankJson(rank));
    return Line({{"summary",
                  {{"steps", steps.size()},
                   {"iteration_s_median", median.count()},
                   {"first_loss", steps.front().loss},
                   {"final_loss", steps.back().loss},
                   {"volumes", list},
                   {"ranks", of_ranks}}}});
  }
  std::string text = fmt::format("\n{} step{}, median iteration {}, loss {:.5f} -> {:.5f}", steps.size(),
                                 steps.size() == 1 ? "" : "s", FormatDuration(median), steps.front().loss, steps.back().loss);
  if (!ranks.empty()) text += RankTable(ranks);
  if (volumes.empty()) return text;
  text +=
      fmt::format("\n\n{:>14} {:>16} {:>10} {:>16} {:>16}", "communicator", "operation", "calls", "planned bytes", "sent bytes");
  for (const MeasuredVolume& v : volumes) {
    text += fmt::format("\n{:>14} {:>16} {:>10} {:>16} {:>16}", planner::CommunicatorKindName(v.kind),
                        planner::ActionName(v.action), v.calls, v.planned_bytes, v.bytes);
  }
  return text;
}

}  // namespace weft::runtime
