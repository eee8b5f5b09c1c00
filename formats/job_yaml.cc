#include "formats/job_yaml.h"

#include <fmt/format.h>

#include <utility>

#include "formats/hf_config.h"
#include "formats/one_line.h"
#include "formats/read_file.h"
#include "formats/yaml_fields.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

constexpr int64_t kMost = int64_t{1} << 32;

/// A path as the job's file means it: relative to its folder.
std::string PathFrom(const std::string& folder, const std::string& name) {
  return name.starts_with('/') || folder.empty() ? name : folder + "/" + name;
}

/// The keys of a strategy that the user gives.
void ReadGiven(YamlFields& fields, std::string_view source_name, const std::string& folder, JobFile* file) {
  if (const YamlValue* map = fields.Value("strategy")) {
    const Result<planner::Strategy> strategy = ReadStrategyMap(*map, source_name, "strategy");
    if (!strategy) fields.Adopt(strategy.error());
    const size_t slash = source_name.rfind('/');
    const std::string_view name = slash == source_name.npos ? source_name : source_name.substr(slash + 1);
    file->strategy = {strategy.value_or(planner::Strategy()), OneLine(fmt::format("{}, key strategy", name), 200)};
    if (fields.Has("plan")) fields.Reject("plan", "stands beside \"strategy\", expected one of the two");
  }
  if (const std::string plan = fields.Has("plan") ? fields.Text("plan") : fields.Text("plan", ""); !plan.empty()) {
    file->plan = PathFrom(folder, plan);
  }
  file->plan_index = fields.Integer("plan_index", 0, kMostPlanIndex, 0);
  if (fields.Has("plan_index") && !fields.Has("plan")) fields.Reject("plan_index", "without \"plan\", expected both or neither");
}

/// The keys of a job that leaves its hosts to the controller, and of when it ends.
void ReadSize(YamlFields& fields, JobFile* file) {
  const bool range = fields.Has("min_gpus") || fields.Has("max_gpus");
  file->min_gpus = fields.Integer("min_gpus", 1, kMost, range ? 1 : 0);
  file->max_gpus = fields.Integer("max_gpus", 1, kMost, 0);
  file->iterations = fields.Integer("iterations", 1, kMost, 0);
  file->deadline = fields.Duration("deadline", Seconds(0));
  if (file->max_gpus > 0 && file->min_gpus > file->max_gpus) {
    fields.Reject("min_gpus", fmt::format("value {}, expected at most max_gpus, {}", file->min_gpus, file->max_gpus));
  }
  for (const char* key : {"hosts", "gpus"}) {
    if (range && fields.Has(key)) fields.Reject(key, "stands beside min_gpus or max_gpus, expected one of them");
  }
  if (fields.Has("deadline") && !range) {
    fields.Reject("deadline", "without min_gpus or max_gpus: nothing is chosen by it, expected one of them, or no deadline");
  }
  if (fields.Has("deadline") && file->iterations == 0) {
    fields.Reject("deadline", "without iterations: when the job ends cannot be told, expected both");
  }
}

/// The model's spec and config.json text, from a preset's name or a file beside the job's.
Status ReadModel(const std::string& name, const std::string& folder, JobFile* file) {
  if (const auto preset = planner::FindModelPreset(name)) {
    file->job.model = *preset;
    file->model_config_json = WriteHfConfig(*preset);
    return Ok();
  }
  const std::string path = PathFrom(folder, name);
  WEFT_ASSIGN_OR_RETURN(file->model_config_json, ReadFile(path));
  WEFT_ASSIGN_OR_RETURN(HfModel read, ParseHfModel(file->model_config_json, path));
  file->job.model = std::move(read.model);
  file->warnings = std::move(read.warnings);
  return Ok();
}

/// The key of a job whose strategy may change while it runs.
void ReadReshard(YamlFields& fields, JobFile* file) {
  const std::string word = fields.Text("reshard", "off");
  file->reshard = word == "on" || word == "true";
  if (!file->reshard && word != "off" && word != "false") {
    fields.Reject("reshard", fmt::format("value \"{}\", expected on or off", OneLine(word, 40)));
  }
  if (file->reshard && planner::ParseFramework(file->framework) != planner::Framework::kWeftTrain) {
    fields.Reject("reshard", fmt::format("with framework \"{}\", expected weft-train: no other program changes its strategy while it runs",
                                         OneLine(file->framework, 40)));
  }
}

}  // namespace

Result<planner::Precision> ParsePrecision(std::string_view text) {
  if (const auto precision = planner::FindPrecision(text)) return *precision;
  return Fail(Code::kInvalidArgument,
              fmt::format("precision \"{}\", expected one of {}", OneLine(text, 40), planner::PrecisionNames()));
}

std::vector<std::string> ReadAllow(YamlFields& fields, std::string_view framework) {
  if (!fields.Has("allow")) return {};
  std::vector<std::string> words = fields.TextList("allow");
  for (const std::string& word : words) {
    const Result<planner::TrainingChanges> allow = planner::ParseTrainingChanges(word);
    if (allow && word.find(',') == word.npos) continue;
    fields.Reject("allow", fmt::format("value \"{}\", expected some of low_precision, local_steps, gossip", OneLine(word, 40)));
    return {};
  }
  const std::optional<planner::Framework> named = planner::ParseFramework(framework);
  const bool does = named && (*named == planner::Framework::kAny || planner::Describe(*named).changes_training);
  if (!words.empty() && !framework.empty() && !does) {
    fields.Reject("allow", fmt::format("with framework {}: expected only without framework, with any or weft-train: no other exchanges so",
                                       OneLine(framework, 40)));
    return {};
  }
  return words;
}

Result<JobFile> ParseJobYaml(std::string_view text, std::string_view source_name, const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, source_name));
  YamlFields fields(root, source_name);
  JobFile file;
  file.job.name = fields.Text("name");
  const std::string model = fields.Text("model");
  file.job.global_batch = fields.Integer("global_batch", 1, kMost);
  file.job.sequence = fields.Integer("sequence", 1, kMost);
  const Result<planner::Precision> precision = ParsePrecision(fields.Text("precision", "bf16"));
  if (!precision) fields.Reject("precision", precision.error().message());
  file.job.precision = precision.value_or(planner::Precision::kBf16);
  file.hosts = fields.TextList("hosts");
  file.ranks_per_host = fields.Integer("ranks_per_host", 1, 1024, 1);
  const int64_t ranks = static_cast<int64_t>(file.hosts.size()) * file.ranks_per_host;
  file.job.gpus = fields.Integer("gpus", 1, kMost, ranks);
  if (ranks > 0 && file.job.gpus != ranks) {
    fields.Reject("gpus", fmt::format("value {}, expected {}: {} hosts with {} ranks each", file.job.gpus, ranks,
                                      file.hosts.size(), file.ranks_per_host));
  }
  ReadSize(fields, &file);
  file.framework = fields.Text("framework", "");
  ReadReshard(fields, &file);
  file.allow = ReadAllow(fields, file.framework);
  if (const Seconds measured = fields.Duration("measured_compute", Seconds(0)); measured.count() > 0) {
    file.job.measured_compute = measured;
  }
  ReadGiven(fields, source_name, folder, &file);
  if (!file.allow.empty() && (file.strategy || !file.plan.empty())) {
    fields.Reject("allow", "expected only without strategy and plan: what is given is not searched");
  }
  WEFT_RETURN_IF_ERROR(fields.Finish());
  if (Status read = ReadModel(model, folder, &file); !read) {
    return Fail(read.error().WithContext(fmt::format("{}: key \"model\"", source_name)));
  }
  if (auto warning = PositionsWarning(file.job.model, file.job.sequence)) file.warnings.push_back(std::move(*warning));
  return file;
}

Result<JobFile> ReadJobYaml(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const size_t slash = path.rfind('/');
  return ParseJobYaml(text, path, slash == path.npos ? "" : path.substr(0, slash));
}

Result<std::optional<GivenStrategy>> StrategyOf(const JobFile& file) {
  if (file.plan.empty()) return file.strategy;
  WEFT_ASSIGN_OR_RETURN(GivenStrategy given, ReadPlanJson(file.plan, file.plan_index));
  return std::optional<GivenStrategy>(std::move(given));
}

}  // namespace weft::formats
