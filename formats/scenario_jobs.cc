#include "formats/scenario_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "formats/one_line.h"
#include "formats/scenario_fabric.h"
#include "formats/scenario_hosts.h"
#include "formats/scenario_sizes.h"
#include "formats/scenario_traffic.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

constexpr int64_t kMost = int64_t{1} << 32;
constexpr int64_t kMostJobs = 10'000;

class JobReader {
 public:
  JobReader(std::string_view source, const std::string& folder, const ScenarioCluster& cluster, ScenarioFile* file)
      : source_(source), folder_(folder), cluster_(cluster), file_(file), book_(cluster, file->scenario.seed) {}

  Status Read(const YamlValue& item, size_t index) {
    YamlFields fields(item, source_, fmt::format("jobs[{}].", index));
    JobKeys keys;
    ReadCommon(fields, &keys);
    ReadHosts(fields, &keys);
    keys.has_model = fields.Value("model") != nullptr;
    if (keys.has_model) {
      WEFT_RETURN_IF_ERROR(ReadModel(fields, &keys));
    } else {
      ReadProfile(fields, &keys);
    }
    WEFT_RETURN_IF_ERROR(fields.Finish());
    return Add(fields, std::move(keys));
  }

 private:
  void ReadCommon(YamlFields& fields, JobKeys* keys) {
    keys->job.name = fields.Text("name");
    if (!IsScenarioName(keys->job.name)) {
      fields.Reject(
          "name", fmt::format("value \"{}\", expected 1 to 63 letters, digits and -_./:", OneLine(keys->job.name, 60)));
    }
    keys->count = fields.Integer("count", 1, kMostJobs, 1);
    keys->interval = fields.Duration("interval", Seconds(0));
    keys->job.arrival = fields.Duration("arrival", Seconds(0));
    if (keys->job.arrival >= file_->scenario.duration) {
      fields.Reject("arrival", fmt::format("{} s, expected less than the duration, {} s", keys->job.arrival.count(),
                                           file_->scenario.duration.count()));
    }
    keys->job.iterations = fields.Integer("iterations", 1, kMost, 0);
    keys->job.deadline = fields.Duration("deadline", Seconds(0));
    if (fields.Value("deadline") != nullptr && keys->job.iterations == 0) fields.Reject("deadline", "expected only with iterations: the job has no end");
    keys->gpus_per_host = fields.Integer("gpus_per_host", 1, cluster_.gpus_per_host, cluster_.gpus_per_host);
  }

  void ReadHosts(YamlFields& fields, JobKeys* keys) {
    const YamlValue* hosts = fields.Value("hosts");
    keys->sizes = ReadSizes(fields, cluster_);
    if (!keys->sizes.empty()) {
      keys->hosts = keys->sizes.back();
      return;
    }
    const std::string placement = fields.Text("placement", "packed");
    const auto known = ParsePlacement(placement);
    if (!known) {
      fields.Reject("placement",
                    fmt::format("value \"{}\", expected packed, spread, random or any", OneLine(placement, 40)));
    }
    keys->placement = known.value_or(Placement::kPacked);
    if (hosts != nullptr && hosts->kind == YamlValue::Kind::kList) {
      keys->names = fields.TextList("hosts");
      if (keys->names.empty()) fields.Reject("hosts", "expected a list of at least one host");
      if (fields.Has("placement")) fields.Reject("placement", "expected only where hosts is a number");
      CheckNames(fields, "hosts", keys->names);
    } else if (hosts != nullptr) {
      keys->hosts = fields.Integer("hosts", 1, static_cast<int64_t>(cluster_.hosts.size()));
    }
  }

  /// Every name is a host's or a GPU's, and stands once.
  void CheckNames(YamlFields& fields, std::string_view key, const std::vector<std::string>& names) {
    std::set<std::string_view> seen;
    for (const std::string& name : names) {
      if (!book_.Knows(name)) RejectName(fields, key, name);
      if (!seen.insert(name).second) fields.Reject(key, fmt::format("host \"{}\" stands twice", OneLine(name, 60)));
    }
  }

  void RejectName(YamlFields& fields, std::string_view key, const std::string& name) const {
    fields.Reject(key,
                  fmt::format("unknown host \"{}\", expected one of {} hosts from \"{}\" to \"{}\"", OneLine(name, 60),
                              cluster_.hosts.size(), cluster_.hosts.front().name, cluster_.hosts.back().name));
  }

  void ReadProfile(YamlFields& fields, JobKeys* keys) {
    if (keys->sizes.size() > 1) {
      fields.Reject("model", "missing, expected one for a job of several sizes: its times depend on them");
    }
    ReadPhases(fields, keys);
    if (fields.Value("bursts") != nullptr) {
      for (const char* other : {"bytes", "pattern", "flows", "release"}) {
        if (fields.Value(other) != nullptr) fields.Reject(other, "expected only without bursts");
      }
      ReadBursts(fields, source_, keys);
    } else if (fields.Value("flows") != nullptr) {
      for (const char* other : {"bytes", "pattern"}) {
        if (fields.Value(other) != nullptr) fields.Reject(other, "expected only without flows");
      }
      ReadFlows(fields, keys);
    } else {
      ReadPattern(fields, keys);
    }
    CheckSum(fields, *keys);
    const bool sends = std::ranges::any_of(keys->pairs, [](const std::vector<planner::PairBytes>& burst) {
      return std::ranges::any_of(burst, [](const planner::PairBytes& pair) { return pair.bytes.count() > 0; });
    });
    if (keys->job.compute.count() == 0 && !sends) {
      fields.Reject("compute", "0 s and nothing to send, expected one of both");
    }
  }

  void ReadPhases(YamlFields& fields, JobKeys* keys) {
    if (fields.Value("compute") == nullptr) {
      fields.Reject("compute", "missing, expected a duration such as 100ms, or a model in its place");
    }
    keys->job.compute = fields.Duration("compute", Seconds(0));
    keys->job.release = fields.Duration("release", keys->job.compute);
    if (keys->job.release > keys->job.compute) {
      fields.Reject("release", fmt::format("{} s, expected at most compute, {} s", keys->job.release.count(),
                                           keys->job.compute.count()));
    }
  }

  void ReadFlows(YamlFields& fields, JobKeys* keys) {
    const bool listed = !keys->names.empty();
    std::unordered_map<std::string, int32_t> ends;
    for (const std::string& name : keys->names) ends.emplace(name, static_cast<int32_t>(ends.size()));
    if (keys->hosts > 0) fields.Reject("hosts", "a number, expected a list of hosts, or none, where there are flows");
    for (const YamlValue& item : fields.List("flows")) {
      YamlFields flow(item, source_, fmt::format("{}flows[{}].", fields.place(), keys->pairs.back().size()));
      planner::PairBytes pair;
      for (const auto& [key, end] : {std::pair("from", &pair.from), std::pair("to", &pair.to)}) {
        const std::string name = flow.Text(key);
        if (listed && !ends.contains(name)) {
          flow.Reject(key, fmt::format("host \"{}\", expected one of the job's hosts", OneLine(name, 60)));
        }
        const auto [found, added] = ends.emplace(name, static_cast<int32_t>(ends.size()));
        if (added) keys->names.push_back(name);
        *end = found->second;
      }
      if (pair.from == pair.to) flow.Reject("to", "expected another host than from");
      if (flow.Value("bytes") == nullptr) flow.Reject("bytes", "missing, expected a size such as 1GiB");
      pair.bytes = flow.Amount("bytes", Bytes(0));
      if (const Status read = flow.Finish(); !read) return fields.Adopt(read.error());
      keys->pairs.back().push_back(pair);
    }
    if (keys->pairs.back().empty()) return fields.Reject("flows", "expected a list of at least one flow");
    if (!listed) CheckNames(fields, "flows", keys->names);
  }

  Status ReadModel(YamlFields& fields, JobKeys* keys) {
    planner::JobSpec& spec = keys->model.spec;
    spec.name = keys->job.name;
    const std::string name = fields.Text("model");
    spec.global_batch = fields.Integer("global_batch", 1, kMost);
    spec.sequence = fields.Integer("sequence", 1, kMost);
    const Result<planner::Precision> precision = ParsePrecision(fields.Text("precision", "bf16"));
    if (!precision) fields.Reject("precision", precision.error().message());
    spec.precision = precision.value_or(planner::Precision::kBf16);
    Result<planner::FixedVariables> fix = planner::ParseFixed(fields.Text("fix", ""));
    if (!fix) fields.Reject("fix", OneLine(fix.error().message()));
    if (fix) keys->model.options.fix = std::move(*fix);
    const std::string framework = fields.Text("framework", "");
    if (!framework.empty()) {
      keys->model.options.framework = planner::ParseFramework(framework);
      if (!keys->model.options.framework) {
        fields.Reject("framework", fmt::format("value \"{}\", expected one of {}", OneLine(framework, 40), planner::FrameworkNames()));
      }
    }
    if (const std::vector<std::string> allow = ReadAllow(fields, framework); !allow.empty()) {
      keys->model.options.allow = *planner::ParseTrainingChanges(fmt::format("{}", fmt::join(allow, ",")));
      keys->model.options.framework = planner::Framework::kAny;  // what is allowed is looked for in the whole space
    }
    const std::string strategy = fields.Text("strategy", "joint");
    keys->job.joint = strategy == "joint";
    if (strategy != "joint" && strategy != "alone") {
      fields.Reject("strategy", fmt::format("value \"{}\", expected joint or alone; fix says what is fixed", OneLine(strategy, 40)));
    }
    NeedHosts(fields, *keys);
    if (!cluster_.machine) {
      fields.Reject("model", fmt::format("value \"{}\", expected cluster.device to say what it runs on, one of {}",
                                         OneLine(name, 60), planner::DeviceNames()));
    }
    WEFT_RETURN_IF_ERROR(fields.Finish());
    keys->model.place = fmt::format("{}:{}: key \"{}model\"", source_, fields.Value("model")->line, fields.place());
    const bool preset = planner::FindModelPreset(name).has_value() || name.starts_with('/') || folder_.empty();
    Result<planner::ModelSpec> model = ResolveModel(preset ? name : folder_ + "/" + name);
    if (!model) return Fail(model.error().WithContext(keys->model.place));
    spec.model = std::move(*model);
    return Ok();
  }

  std::vector<JobHost> TakeHosts(const JobKeys& keys) {
    if (keys.names.empty()) return book_.Place(keys.hosts, keys.placement, keys.gpus_per_host);
    std::vector<JobHost> hosts;
    for (const std::string& name : keys.names) hosts.push_back(*book_.Take(name, keys.gpus_per_host));
    return hosts;
  }

  /// The machines that a model is planned on: the job's hosts, the slowest of them where they differ, over all copies
  /// since one plan serves them all.
  Status SetCluster(YamlFields& fields, const std::vector<JobHost>& hosts, ScenarioModel* model) const {
    const BitsPerSecond before = model->cluster.nic_rate;
    model->cluster = *cluster_.machine;
    model->cluster.nodes = static_cast<int64_t>(hosts.size());
    model->cluster.gpus_per_node = hosts.front().gpus;
    BitsPerSecond rate = cluster_.hosts[hosts.front().host].rate;
    for (const JobHost& host : hosts) rate = std::min(rate, cluster_.hosts[host.host].rate);
    // A host without network (a single server) still needs a positive rate to be a cluster of one.
    if (!(rate.value() > 0)) rate = cluster_.machine->intra_node_rate;
    model->cluster.nic_rate = model->jobs.empty() ? rate : std::min(before, rate);
    for (const JobHost& host : hosts) {
      if (host.gpus == hosts.front().gpus) continue;
      fields.Reject("hosts",
                    fmt::format("{} and {} GPUs, expected hosts alike for a model", hosts.front().gpus, host.gpus));
      return fields.Finish();
    }
    return Ok();
  }

  Status Add(YamlFields& fields, JobKeys keys) {
    for (int64_t copy = 0; copy < keys.count; ++copy) {
      planner::ScenarioJob job = keys.job;
      if (keys.count > 1) job.name += fmt::format("-{}", copy + 1);
      job.arrival += keys.interval * static_cast<double>(copy);
      if (job.arrival >= file_->scenario.duration) {
        fields.Reject("interval", fmt::format("copy {} arrives at {} s, expected less than the duration, {} s",
                                              copy + 1, job.arrival.count(), file_->scenario.duration.count()));
        return fields.Finish();
      }
      if (!names_.insert(job.name).second) {
        fields.Reject("name", fmt::format("job \"{}\" stands twice", job.name));
        return fields.Finish();
      }
      WEFT_RETURN_IF_ERROR(keys.sizes.empty() ? SetHosts(fields, &keys, &job) : SetSizes(fields, &keys, &job));
      flows_ += job.flows.size();
      if (!job.sizes.empty() && !job.sizes[0].ways.empty()) flows_ += job.sizes[0].ways[0].flows.size();
      if (flows_ > kMostScenarioFlows || file_->scenario.jobs.size() >= static_cast<size_t>(kMostJobs)) {
        fields.Reject("name",
                      fmt::format("more than {} jobs or {} flows with this one", kMostJobs, kMostScenarioFlows));
        return fields.Finish();
      }
      file_->scenario.jobs.push_back(std::move(job));
    }
    if (keys.has_model && keys.sizes.empty()) file_->models.push_back(std::move(keys.model));
    for (ScenarioModel& model : keys.size_models) file_->models.push_back(std::move(model));
    return Ok();
  }

  /// Hosts of its own.
  Status SetHosts(YamlFields& fields, JobKeys* keys, planner::ScenarioJob* job) {
    const std::vector<JobHost> hosts = TakeHosts(*keys);
    std::vector<planner::TrafficEnd> ends;
    job->gpus = 0;
    for (const JobHost& host : hosts) {
      job->gpus += static_cast<double>(host.gpus);
      job->places.push_back(host.host);
      ends.push_back(host.senders);
    }
    std::ranges::sort(job->places);
    job->places.erase(std::ranges::unique(job->places).begin(), job->places.end());
    job->flows = FlowsOf(*keys, ends);
    return keys->has_model ? AddToModel(fields, hosts, std::move(ends), &keys->model) : Ok();
  }

  /// Hosts that the policy chooses: those that stand for them.
  Status SetSizes(YamlFields& fields, JobKeys* keys, planner::ScenarioJob* job) {
    for (size_t s = 0; s < keys->sizes.size(); ++s) {
      const int64_t count = keys->sizes[s];
      const std::vector<planner::TrafficEnd> ends = FirstEnds(cluster_, count);
      planner::ScenarioSize size{.hosts = static_cast<int32_t>(count), .gpus = static_cast<double>(count * cluster_.gpus_per_host), .ways = {}};
      job->gpus = size.gpus;
      if (keys->has_model) {
        if (keys->size_models.size() <= s) keys->size_models.emplace_back(keys->model).size = s;
        std::vector<JobHost> hosts;
        for (size_t h = 0; h < ends.size(); ++h) hosts.push_back({.host = h, .senders = ends[h], .gpus = cluster_.gpus_per_host});
        WEFT_RETURN_IF_ERROR(AddToModel(fields, hosts, ends, &keys->size_models[s]));
      } else {
        size.ways = {{.name = "", .compute = job->compute, .release = job->release, .flows = FlowsOf(*keys, ends), .bursts = job->bursts}};
      }
      job->sizes.push_back(std::move(size));
    }
    if (!keys->has_model) job->compute = job->release = Seconds(0), job->bursts.clear();
    return Ok();
  }

  /// The job that is read, on these hosts, is one of the model's.
  Status AddToModel(YamlFields& fields, const std::vector<JobHost>& hosts, std::vector<planner::TrafficEnd> ends, ScenarioModel* model) const {
    WEFT_RETURN_IF_ERROR(SetCluster(fields, hosts, model));
    model->jobs.push_back(file_->scenario.jobs.size());
    model->ends.push_back(std::move(ends));
    return Ok();
  }

  std::string source_;
  const std::string& folder_;
  const ScenarioCluster& cluster_;
  ScenarioFile* file_;
  HostBook book_;
  std::set<std::string> names_;
  size_t flows_ = 0;
};

}  // namespace

Status ReadScenarioJobs(const std::vector<YamlValue>& items, std::string_view source, const std::string& folder,
                        const ScenarioCluster& cluster, ScenarioFile* file) {
  JobReader reader(source, folder, cluster, file);
  for (size_t i = 0; i < items.size(); ++i) WEFT_RETURN_IF_ERROR(reader.Read(items[i], i));
  if (std::ranges::any_of(file->scenario.jobs, [](const planner::ScenarioJob& job) { return !job.sizes.empty(); })) {
    file->scenario.places = PlacesOf(cluster);
  } else {
    for (planner::ScenarioJob& job : file->scenario.jobs) job.places.clear();
  }
  return Ok();
}

}  // namespace weft::formats
