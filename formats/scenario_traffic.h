// What a job of a scenario file says of itself, and its traffic where it says that: `bytes` by a pattern, in one burst or several.
// Internal to formats/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/scenario_hosts.h"
#include "formats/scenario_yaml.h"
#include "formats/yaml_fields.h"
#include "planner/jobs/simulate/job_traffic.h"

namespace weft::formats {

/// What the keys of one job say, before its copies get hosts.
struct JobKeys {
  planner::ScenarioJob job;             ///< without flows
  int64_t count = 1;
  Seconds interval{0};
  std::vector<std::string> names;       ///< of hosts; empty: `hosts` of them by `placement`
  int64_t hosts = 0;
  std::vector<int64_t> sizes;           ///< hosts that it can get, where which they are is open
  Placement placement = Placement::kPacked;
  int64_t gpus_per_host = 1;
  std::vector<std::vector<planner::PairBytes>> pairs = {{}};  ///< per burst
  bool has_model = false;
  ScenarioModel model;
  std::vector<ScenarioModel> size_models;  ///< of `sizes`
};

/// Rejects a job that says nothing of hosts.
void NeedHosts(YamlFields& fields, const JobKeys& keys);

/// `bytes` and `pattern` of a job of one burst.
void ReadPattern(YamlFields& fields, JobKeys* keys);

/// The key `bursts`: several per iteration, by rising release and need. Requires: the job's compute.
void ReadBursts(YamlFields& fields, std::string_view source, JobKeys* keys);

/// Rejects more bytes than a job may send in an iteration.
void CheckSum(YamlFields& fields, const JobKeys& keys);

/// Between hosts with these senders.
std::vector<planner::ScenarioFlow> FlowsOf(const JobKeys& keys, std::span<const planner::TrafficEnd> ends);

}  // namespace weft::formats
