// What the demo found, and how it is printed: a table for people, JSON with DESIGN's keys for scripts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/demo/estimate.h"
#include "common/units.h"

namespace weft::cli {

/// One job over all phases. Iteration times are medians of its ordinary steps; 0: not measured, which JSON says as null.
/// Bounds are medians over the blocks of the phase that they judge (estimate.h).
struct JobReport {
  std::string name, model;
  int ranks = 0;
  Seconds compute{0};      ///< without exchange: in the phase of `weft`; on loopback with communication off
  Seconds alone{0};
  std::vector<Seconds> default_draws;  ///< one per draw of kernel-chosen ports
  Seconds weft{0};         ///< before the faults
  Seconds bound{0};
  Seconds weft_faulted{0}; ///< after the cable was slowed, the background flow started, and Weft re-planned
  Seconds bound_faulted{0};
  Ratio alone_ratio, weft_ratio, faulted_ratio;  ///< over the bound
  Ratio default_ratio;  ///< mean of the draws over the bound of their median compute; a draw is too short for one of its own
  double communication_share = 0;  ///< communication time of one iteration over `alone`
  int64_t steps = 0;       ///< of the Weft run
  int64_t bytes_sent = 0;  ///< of the Weft run, all ranks; 0: the program does not say
  double first_loss = 0, final_loss = 0;  ///< both 0: nothing was trained
  std::vector<std::string> scaling;
  std::string bound_formula, bound_formula_faulted;

  Seconds default_mean() const;
};

/// One directed switch-to-switch link in one phase.
struct LinkReport {
  std::string phase, from, to;
  double measured_utilisation = 0;  ///< by the agents' flow counters, of the line rate, over the phase
  int64_t measured_bytes = 0;       ///< by the agents' flow counters
  int64_t switch_bytes = 0;         ///< by the switch's own counter
};

struct DecisionReport {
  double time_s = 0;
  std::string job, kind, reason;
};

struct DemoReport {
  bool fabric_real = true;          ///< false: loopback fall-back
  std::vector<std::string> not_shown;
  int leaves = 0, spines = 0, hosts = 0;
  BitsPerSecond link_rate, goodput;
  std::vector<JobReport> jobs;
  std::vector<LinkReport> links;
  bool links_compared = false;         ///< in some phase, with the switches' counters
  double worst_link_disagreement = 0;  ///< of use, as a share of the line rate
  std::vector<std::string> not_compared;  ///< phases in which flows carried bytes over ways that the controller did not know
  std::vector<DecisionReport> decisions;
  int64_t replans = 0, replans_after_fault = 0, policy_epochs = 0;
  int64_t metrics_scraped = 0;
  std::string page;
  std::vector<std::string> events;  ///< what was done to the fabric; on loopback what the controller saw of the jobs
};

void PrintTable(const DemoReport& report);
void PrintJson(const DemoReport& report);

/// What fell short of the promises, one line each; empty when all was met.
/// A ratio to the bound falls short where its whole interval is over what was promised.
std::vector<std::string> Shortfalls(const DemoReport& report);
/// Of which promises the measurements do not say whether they were met, one line each.
std::vector<std::string> Undecided(const DemoReport& report);

}  // namespace weft::cli
