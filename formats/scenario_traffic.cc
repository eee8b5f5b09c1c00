#include "formats/scenario_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/one_line.h"

namespace weft::formats {
namespace {

/// What `bytes` and `pattern` put between the job's hosts.
std::vector<planner::PairBytes> ReadPairs(YamlFields& fields, const JobKeys& job) {
  const Bytes bytes = fields.Amount("bytes", Bytes(0));
  if (fields.Value("bytes") == nullptr) {
    fields.Reject("bytes", "missing, expected a size such as 1GiB, or flows in its place");
  }
  const std::string name = fields.Text("pattern", "ring");
  const auto pattern = planner::ParseTrafficPattern(name);
  if (!pattern) {
    fields.Reject("pattern", fmt::format("value \"{}\", expected ring, tree or all-to-all", OneLine(name, 40)));
  }
  const int64_t ends = job.names.empty() ? job.hosts : static_cast<int64_t>(job.names.size());
  if (pattern == planner::TrafficPattern::kAllToAll && ends * ends > static_cast<int64_t>(kMostScenarioFlows)) {
    fields.Reject("pattern",
                  fmt::format("all-to-all of {} hosts, expected at most {} flows", ends, kMostScenarioFlows));
    return {};
  }
  if (!pattern || ends == 0) return {};
  return planner::PatternTraffic(*pattern, static_cast<int32_t>(ends), bytes);
}

void CheckRises(YamlFields& fields, std::string_view key, Seconds value, Seconds least, Seconds most) {
  if (value >= least && value <= most) return;
  fields.Reject(key, fmt::format("{} s, expected {} s to the compute of {} s", value.count(), least.count(), most.count()));
}

}  // namespace

void NeedHosts(YamlFields& fields, const JobKeys& keys) {
  if (fields.Value("hosts") != nullptr || !keys.sizes.empty()) return;
  fields.Reject("hosts", "missing, expected a list of hosts, or how many, or min_gpus and max_gpus");
}

void ReadPattern(YamlFields& fields, JobKeys* keys) {
  NeedHosts(fields, *keys);
  keys->pairs.back() = ReadPairs(fields, *keys);
}

void ReadBursts(YamlFields& fields, std::string_view source, JobKeys* keys) {
  NeedHosts(fields, *keys);
  keys->pairs.clear();
  planner::BurstTimes before;
  size_t pairs = 0;
  const std::vector<YamlValue>& items = fields.List("bursts");
  if (items.empty() || items.size() > planner::kMostBursts) {
    fields.Reject("bursts", fmt::format("{} bursts, expected a list of 1 to {}", items.size(), planner::kMostBursts));
    return;
  }
  for (const YamlValue& item : items) {
    YamlFields burst(item, source, fmt::format("{}bursts[{}].", fields.place(), keys->pairs.size()));
    if (burst.Value("release") == nullptr) burst.Reject("release", "missing, expected a duration such as 100ms");
    planner::BurstTimes times{.release = burst.Duration("release", Seconds(0))};
    times.needed = burst.Duration("needed", keys->job.compute);
    CheckRises(burst, "release", times.release, before.release, keys->job.compute);
    CheckRises(burst, "needed", times.needed, std::max(before.needed, times.release), keys->job.compute);
    keys->pairs.push_back(ReadPairs(burst, *keys));
    pairs += keys->pairs.back().size();
    if (pairs > kMostScenarioFlows) {
      burst.Reject("pattern", fmt::format("more than {} pairs of hosts in all bursts", kMostScenarioFlows));
      return fields.Adopt(burst.Finish().error());
    }
    keys->job.bursts.push_back(times);
    if (const Status read = burst.Finish(); !read) return fields.Adopt(read.error());
    before = times;
  }
  keys->job.release = keys->job.bursts.front().release;
}

void CheckSum(YamlFields& fields, const JobKeys& keys) {
  double sum = 0;                      // the exact one may overflow
  bool fits = true;
  Bytes left = planner::kMostJobBytes;
  for (const std::vector<planner::PairBytes>& burst : keys.pairs) {
    for (const planner::PairBytes& pair : burst) {
      sum += static_cast<double>(pair.bytes.count());
      fits &= pair.bytes <= left;
      if (fits) left -= pair.bytes;
    }
  }
  if (fits) return;
  fields.Reject(fields.Value("bursts") != nullptr ? "bursts" : fields.Value("flows") != nullptr ? "flows" : "bytes",
                fmt::format("{:.4g} bytes per iteration between all hosts, expected at most {:.4g}", sum,
                            static_cast<double>(planner::kMostJobBytes.count())));
}

std::vector<planner::ScenarioFlow> FlowsOf(const JobKeys& keys, std::span<const planner::TrafficEnd> ends) {
  return keys.job.bursts.empty() ? planner::FlowsBetween(ends, keys.pairs.front()) : planner::FlowsOfBursts(ends, keys.pairs);
}

}  // namespace weft::formats
