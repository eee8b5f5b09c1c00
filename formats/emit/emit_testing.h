// What the tests of the writers share: jobs, clusters, and the options that a text has.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "formats/emit/emit.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {

inline planner::JobSpec EmitJob(planner::ModelSpec model, int64_t batch, int64_t sequence) {
  return {.name = "job", .model = std::move(model), .global_batch = batch, .sequence = sequence};
}

inline planner::JobSpec EmitJob(const char* preset, int64_t batch, int64_t sequence) {
  return EmitJob(planner::FindModelPreset(preset).value(), batch, sequence);
}

inline planner::ClusterSpec EmitCluster(const char* preset, int64_t nodes) {
  return planner::FindClusterPreset(preset, nodes).value();
}

inline Result<std::string> TryEmit(EmitTarget target, planner::JobSpec job, const planner::ClusterSpec& cluster,
                                   const planner::Strategy& strategy,
                                   planner::Framework framework = planner::Framework::kAny) {
  job.gpus = planner::GpuCount(strategy);
  return Emit(target, {.job = job, .cluster = cluster, .strategy = strategy, .framework = framework});
}

inline std::string EmitText(EmitTarget target, const planner::JobSpec& job, const planner::ClusterSpec& cluster,
                            const planner::Strategy& strategy, planner::Framework framework = planner::Framework::kAny) {
  const Result<std::string> text = TryEmit(target, job, cluster, strategy, framework);
  EXPECT_TRUE(text) << text.error().message();
  return text.value_or("");
}

/// All first groups of `pattern` in the lines of `text` that are no comments.
inline std::set<std::string> OptionsOf(const std::string& text, const char* pattern) {
  std::set<std::string> found;
  std::istringstream lines(text);
  const std::regex regex(pattern);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    for (std::sregex_iterator at(line.begin(), line.end(), regex), end; at != end; ++at) found.insert((*at)[1]);
  }
  return found;
}

inline void ExpectSubset(const std::set<std::string>& options, const std::set<std::string>& known) {
  EXPECT_FALSE(options.empty());
  for (const std::string& option : options) EXPECT_TRUE(known.contains(option)) << option;
}

}  // namespace weft::formats
