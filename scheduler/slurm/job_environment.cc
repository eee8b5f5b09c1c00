#include "scheduler/slurm/job_environment.h"

#include <algorithm>
#include <charconv>

#include "scheduler/slurm/hostlist.h"

namespace weft::slurm {
namespace {

// Slurm hands an option's value on under its own name, with '-' as '_'.
std::string OptionVariable(std::string option) {
  std::replace(option.begin(), option.end(), '-', '_');
  return std::string("SPANK__SLURM_SPANK_OPTION_") + kPluginName + "_" + option;
}

std::string Text(const GetVariable& get, const std::string& name) {
  const char* value = get(name.c_str());
  return value == nullptr ? "" : value;
}

Result<int64_t> OptionalCount(const GetVariable& get, const char* option) {
  const std::string text = Text(get, OptionVariable(option));
  if (text.empty()) return 0;
  return ParseCount(option, text);
}

/// Slurm names the job's user by number.
Result<std::optional<uint32_t>> OptionalUser(const GetVariable& get) {
  const std::string text = Text(get, "SLURM_JOB_UID");
  if (text.empty()) return std::nullopt;
  uint32_t user = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), user);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Fail(Code::kInvalidArgument, "SLURM_JOB_UID: \"" + text + "\", expected a user's number");
  }
  return user;
}

/// Of a path, fit for a message; the path itself is nobody's business but the user's.
std::string FileName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1).substr(0, 100);
  for (char& c : name) c = c >= ' ' && c < 0x7f ? c : '?';
  return name;
}

}  // namespace

Result<HookJob> ReadHookJob(const GetVariable& get) {
  HookJob job;
  job.id = Text(get, "SLURM_JOB_ID");
  if (job.id.empty()) return Fail(Code::kInvalidArgument, "SLURM_JOB_ID: not set, expected to be started by slurmctld");
  job.name = Text(get, "SLURM_JOB_NAME");
  WEFT_ASSIGN_OR_RETURN(job.user, OptionalUser(get));
  job.model_json = Text(get, std::string("SPANK_") + kModelTextVariable);
  auto hosts = ExpandHostlist(Text(get, "SLURM_JOB_NODELIST"));
  if (!hosts) return Fail(hosts.error().WithContext("SLURM_JOB_NODELIST"));
  job.hosts = std::move(*hosts);
  WEFT_ASSIGN_OR_RETURN(job.batch, OptionalCount(get, kBatchOption));
  WEFT_ASSIGN_OR_RETURN(job.sequence, OptionalCount(get, kSequenceOption));
  WEFT_ASSIGN_OR_RETURN(job.strategy, ParseStrategyText(Text(get, std::string("SPANK_") + kStrategyVariable)));
  if (!job.strategy.empty()) job.plan = FileName(Text(get, OptionVariable(kPlanOption)));
  if (const std::string framework = Text(get, OptionVariable(kFrameworkOption)); !framework.empty()) {
    WEFT_ASSIGN_OR_RETURN(job.framework, ParseFrameworkName(framework));
  }
  return job;
}

}  // namespace weft::slurm
