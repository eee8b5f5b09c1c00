// What `weft plan` prints: the contract's JSON, or a table that says in words what its columns mean.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/units.h"
#include "planner/planner.h"

namespace weft::cli {

struct PlanReport {
  const planner::JobSpec& job;
  const planner::ClusterSpec& cluster;
  const planner::PlanAnswer& answer;
  Seconds time{0};                ///< the search took
  int threads = 1;
  std::vector<std::pair<std::string, std::string>> emitted;  ///< target, text
  std::vector<std::string> emitted_files;                    ///< of --emit-dir
};

std::string PlanJsonText(const PlanReport& report);
std::string PlanTableText(const PlanReport& report);
/// What was emitted; several targets each under a comment line with its name.
std::string EmittedText(const PlanReport& report);
/// One line for stderr: how much was searched, and how fast.
std::string SearchLine(const PlanReport& report);

}  // namespace weft::cli
