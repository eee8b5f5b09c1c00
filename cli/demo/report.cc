#include "cli/demo/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/parse_units.h"

namespace weft::cli {
namespace {

constexpr double kLinkDisagreement = 0.025;  // of the line rate: 5 % of a link that is half used

using nlohmann::json;

std::string Time(Seconds time) { return time.count() > 0 ? fmt::format("{:.3f} s", time.count()) : "-"; }

std::string Share(double share) { return share > 0 ? fmt::format("{:.0f} %", share * 100) : "-"; }

/// "+4.2 % (+1.0 to +6.3)", the interval where there is one.
std::string OverBound(const Ratio& ratio) {
  if (ratio.value <= 0) return "-";
  const auto over = [](double value) { return (value - 1) * 100; };
  const std::string value = fmt::format("{:+.1f} %", over(ratio.value));
  return ratio.low <= 0 ? value : fmt::format("{} ({:+.1f} to {:+.1f})", value, over(ratio.low), over(ratio.high));
}

/// null for what was not measured.
json Number(double value) { return value > 0 ? json(value) : json(nullptr); }
json Number(Seconds time) { return Number(time.count()); }

/// Loopback has no second path: nothing can collide there, and nothing can be moved.
json Counted(const DemoReport& report, int64_t count) { return report.fabric_real ? json(count) : json(nullptr); }

json RatioJson(const Ratio& ratio) {
  return {{"value", Number(ratio.value)}, {"low", Number(ratio.low)}, {"high", Number(ratio.high)}, {"blocks", ratio.blocks}};
}

/// What is promised, and whether it was kept.
json JudgedJson(const Ratio& ratio) {
  json made = RatioJson(ratio);
  made["verdict"] = ToString(Judge(ratio));
  return made;
}

json JobJson(const JobReport& job) {
  json draws = json::array();
  for (const Seconds draw : job.default_draws) draws.push_back(draw.count());
  return {{"name", job.name},
          {"ranks", job.ranks},
          {"model", job.model},
          {"scaling", job.scaling},
          {"compute_s", Number(job.compute)},
          {"communication_share", Number(job.communication_share)},
          {"alone_s", Number(job.alone)},
          {"default_s", Number(job.default_mean())},
          {"default_draws_s", draws},
          {"weft_s", Number(job.weft)},
          {"bound_s", Number(job.bound)},
          {"weft_after_fault_s", Number(job.weft_faulted)},
          {"bound_after_fault_s", Number(job.bound_faulted)},
          {"ratio",
           {{"alone", RatioJson(job.alone_ratio)},
            {"default", RatioJson(job.default_ratio)},
            {"weft", JudgedJson(job.weft_ratio)},
            {"weft_after_fault", JudgedJson(job.faulted_ratio)}}},
          {"steps", job.steps},
          {"bytes_sent", job.bytes_sent > 0 ? json(job.bytes_sent) : json(nullptr)},
          {"first_loss", Number(job.first_loss)},
          {"final_loss", Number(job.final_loss)},
          {"bound_formula", job.bound_formula},
          {"bound_formula_after_fault", job.bound_formula_faulted}};
}

void PrintJobs(const DemoReport& report) {
  fmt::print("\n{:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>24} | {:>10} {:>9} {:>24} | {:>6} {:>15}\n", "job", "compute",
             "alone", "default", "Weft", "bound", "over it (with 95 %)", "Weft fault", "bound", "over it (with 95 %)",
             "comm", "loss");
  for (const JobReport& job : report.jobs) {
    fmt::print("{:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>24} | {:>10} {:>9} {:>24} | {:>6} {:>15}\n",
               job.name, Time(job.compute), Time(job.alone), Time(job.default_mean()), Time(job.weft),
               Time(job.bound), OverBound(job.weft_ratio), Time(job.weft_faulted), Time(job.bound_faulted),
               OverBound(job.faulted_ratio), Share(job.communication_share),
               job.first_loss > 0 ? fmt::format("{:.3f} -> {:.3f}", job.first_loss, job.final_loss) : "-");
  }
  for (const JobReport& job : report.jobs) {
    std::string draws;
    for (const Seconds draw : job.default_draws) draws += fmt::format("{}{}", draws.empty() ? "" : ", ", Time(draw));
    fmt::print("{}: default draws {}; model {}, {}\n", job.name, draws, job.model, fmt::join(job.scaling, ", "));
  }
  if (!report.fabric_real) return;
  for (const JobReport& job : report.jobs) {
    fmt::print("{}: over its bound alone {}, default {}\n", job.name, OverBound(job.alone_ratio), OverBound(job.default_ratio));
  }
  fmt::print("\nbound\n");
  for (const JobReport& job : report.jobs) {
    fmt::print("  {}\n  after the faults: {}\n", job.bound_formula, job.bound_formula_faulted);
  }
}

void PrintLinks(const DemoReport& report) {
  fmt::print("\nlinks between switches (use by the agents' flow counters, of the line rate)\n");
  std::vector<std::string> phases;
  for (const auto& link : report.links) {
    if (std::find(phases.begin(), phases.end(), link.phase) == phases.end()) phases.push_back(link.phase);
  }
  for (const auto& phase : phases) {
    fmt::print("  {:<14}", phase);
    for (const auto& link : report.links) {
      if (link.phase == phase) fmt::print(" {}->{} {:.0f} %", link.from, link.to, link.measured_utilisation * 100);
    }
    fmt::print("\n");
  }
  fmt::print("  against the switches' own counters: {}{}\n",
             report.links_compared ? fmt::format("at worst {:.1f} % of the line rate apart", report.worst_link_disagreement * 100) : "unknown",
             report.not_compared.empty() ? "" : fmt::format("; not compared, as not all ways were known: {}", fmt::join(report.not_compared, ", ")));
}

/// One line for each promise with this verdict.
std::vector<std::string> Judged(const DemoReport& report, Verdict verdict) {
  std::vector<std::string> lines;
  if (!report.fabric_real) return lines;
  for (const JobReport& job : report.jobs) {
    for (const auto& [what, ratio] : {std::pair("with Weft", &job.weft_ratio),
                                      std::pair("with Weft after the faults", &job.faulted_ratio)}) {
      if (Judge(*ratio) != verdict) continue;
      lines.push_back(verdict == Verdict::kNotMeasured
                          ? fmt::format("{} {}: not measured", job.name, what)
                          : fmt::format("{} {}: {} over the bound in {} blocks, promised 10 %", job.name, what,
                                        OverBound(*ratio), ratio->blocks));
    }
  }
  return lines;
}

}  // namespace

Seconds JobReport::default_mean() const {
  Seconds sum{0};
  for (const Seconds draw : default_draws) sum += draw;
  return default_draws.empty() ? sum : sum / static_cast<double>(default_draws.size());
}

void PrintTable(const DemoReport& report) {
  if (report.fabric_real) {
    fmt::print("\nfabric: {} leaves x {} spines, {} hosts, links of {}, goodput of one flow {}\n", report.leaves,
               report.spines, report.hosts, FormatRate(report.link_rate), FormatRate(report.goodput));
  } else {
    fmt::print("\nno fabric: {} hosts on loopback; \"default\" is both jobs together\n", report.hosts);
  }
  for (const auto& line : report.not_shown) fmt::print("not shown: {}\n", line);
  PrintJobs(report);
  if (!report.links.empty()) PrintLinks(report);
  if (!report.events.empty()) {
    fmt::print("\n{}\n", report.fabric_real ? "what was done to the fabric" : "what the controller saw");
  }
  for (const auto& event : report.events) fmt::print("  {}\n", event);
  if (!report.decisions.empty()) fmt::print("\nwhat Weft decided, and why\n");
  for (const auto& decision : report.decisions) {
    fmt::print("  {:7.2f} s {:<9} {:<8} {}\n", decision.time_s, decision.kind, decision.job, decision.reason);
  }
  const std::string replans = report.fabric_real ? fmt::format("{} re-plans ({} after the faults), ", report.replans,
                                                               report.replans_after_fault)
                                                 : "";
  fmt::print("\n{}{} policy epochs, {} metrics scraped\npage: {}\n", replans, report.policy_epochs,
             report.metrics_scraped, report.page.empty() ? "-" : report.page);
  for (const auto& line : Undecided(report)) fmt::print("cannot tell: {}\n", line);
  for (const auto& line : Shortfalls(report)) fmt::print("fell short: {}\n", line);
}

void PrintJson(const DemoReport& report) {
  json jobs = json::array(), links = json::array(), decisions = json::array();
  for (const auto& job : report.jobs) jobs.push_back(JobJson(job));
  for (const auto& link : report.links) {
    links.push_back({{"phase", link.phase},
                     {"from", link.from},
                     {"to", link.to},
                     {"utilisation", link.measured_utilisation},
                     {"measured_bytes", link.measured_bytes},
                     {"switch_bytes", link.switch_bytes}});
  }
  for (const auto& decision : report.decisions) {
    decisions.push_back({{"time_s", decision.time_s},
                         {"job", decision.job},
                         {"kind", decision.kind},
                         {"reason", decision.reason}});
  }
  const json out = {
      {"fabric",
       {{"leaves", report.leaves},
        {"spines", report.spines},
        {"hosts", report.hosts},
        {"link_bps", Number(report.link_rate.value())},
        {"goodput_bps", Number(report.goodput.value())},
        {"namespaces", report.fabric_real}}},
      {"jobs", jobs},
      {"links", links},
      {"link_disagreement", report.links_compared ? json(report.worst_link_disagreement) : json(nullptr)},
      {"links_not_compared", report.not_compared},
      {"events", report.events},
      {"decisions", decisions},
      {"controller",
       {{"replans", Counted(report, report.replans)},
        {"replans_after_fault", Counted(report, report.replans_after_fault)},
        {"policy_epochs", report.policy_epochs},
        {"page", report.page}}},
      {"metrics_scraped", report.metrics_scraped},
      {"not_shown", report.not_shown},
      {"undecided", Undecided(report)},
      {"shortfalls", Shortfalls(report)}};
  fmt::print("{}\n", out.dump(2));
}

std::vector<std::string> Undecided(const DemoReport& report) {
  return Judged(report, Verdict::kCannotTell);
}

std::vector<std::string> Shortfalls(const DemoReport& report) {
  std::vector<std::string> lines = Judged(report, Verdict::kNotMeasured);
  for (std::string& line : Judged(report, Verdict::kFellShort)) lines.push_back(std::move(line));
  for (const JobReport& job : report.jobs) {
    if (job.first_loss > 0 && job.final_loss >= job.first_loss) {
      lines.push_back(fmt::format("{}: loss went from {} to {}", job.name, job.first_loss, job.final_loss));
    }
    if (report.fabric_real && (job.communication_share < 0.4 || job.communication_share > 0.7)) {
      lines.push_back(fmt::format("{}: communication is {:.0f} % of an iteration alone, wanted 40 to 70 %", job.name,
                                  job.communication_share * 100));
    }
  }
  if (!report.fabric_real) return lines;
  if (report.replans_after_fault < 1) lines.push_back("no re-plan moved a live connection after the faults");
  if (!report.links_compared) lines.push_back("link use was compared with the switches' counters in no phase: not all ways were known");
  if (report.worst_link_disagreement > kLinkDisagreement) {
    lines.push_back(fmt::format("link use is {:.1f} % of the line rate off the switches' counters, promised {} %",
                                report.worst_link_disagreement * 100, kLinkDisagreement * 100));
  }
  return lines;
}

}  // namespace weft::cli
