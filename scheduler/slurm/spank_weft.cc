// The SPANK plugin: adds --weft-model and the options that go with it, and puts the plan's environment into the job's.
// It lives in sbatch, srun, slurmd and slurmstepd: no gRPC, no exception across its edge, nothing exported but the
// callbacks, and it never waits longer than 300 ms.
//
//   plugstack.conf:  optional /usr/lib/weft/spank_weft.so run_dir=/run/weft
//
// `run_dir` is the agent's --run-dir; "%n" in it stands for the node's name.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <utility>

// Slurm 22.05 declares the callbacks outside of its extern "C" block.
extern "C" {
#include <slurm/spank.h>
}

#include "agent/ask/agent_request.h"
#include "common/unique_fd.h"
#include "netplugin/abi/agent_socket.h"
#include "scheduler/slurm/job_options.h"
#include "scheduler/slurm/rank_order.h"

#define WEFT_SPANK_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_SPANK_EXPORT const char plugin_name[] = "weft";
WEFT_SPANK_EXPORT const char plugin_type[] = "spank";
WEFT_SPANK_EXPORT const unsigned int plugin_version = SLURM_VERSION_NUMBER;
WEFT_SPANK_EXPORT const unsigned int spank_plugin_version = 1;

namespace weft::slurm {
namespace {

using agent::Environment;
using agent::ExpandNodeName;
using agent::RequestEnvironment;
using agent::TakeForbidden;

constexpr int kRejected = -1;
constexpr std::chrono::milliseconds kAgentTimeout{300};
constexpr uint32_t kBatchStep = 0xfffffffb;   // SLURM_BATCH_SCRIPT
constexpr uint32_t kExternStep = 0xfffffffc;  // SLURM_EXTERN_CONT: holds a job's stray processes, launches nothing

// "<job>:<names set, with commas>", set where a job's environment has been decided: once, in the batch script or, where
// there is none, in the step. Without it a step could get the plan on one host and not on another, whose agent is away.
constexpr char kDecided[] = "WEFT_SLURM_LAUNCH";

// Where the plugin finds its host's agent. The plan names one place for all hosts; plugstack.conf knows this one's.
constexpr char kRunDir[] = "WEFT_RUN_DIR";

// Set to "off" by a user who wants Slurm's own order of ranks.
constexpr char kRankOrder[] = "WEFT_RANK_ORDER";

struct State {
  std::string run_dir = "/run/weft";
  std::string host_file;  // to remove at the end of the batch step
  std::string model_text;
  std::string strategy_text;  // of --weft-plan
  bool model = false;
  const char* other = nullptr;  // the first option beside the model's, which all need it
};

// Their places in Options().
enum Option { kModel, kBatch, kSequence, kPlan, kFramework, kOptionCount };

State& TheState() {
  static State* state = new State;  // never destroyed: callbacks may come while the process ends
  return *state;
}

// Nested in a job (srun in a batch script), options are inherited: their files were read where the job was submitted.
bool Submitting() {
  return spank_context() == S_CTX_ALLOCATOR || (spank_context() == S_CTX_LOCAL && std::getenv("SLURM_JOB_ID") == nullptr);
}

int Reject(const Error& error) {
  slurm_error("weft: %s", error.message().c_str());
  return kRejected;
}

// Keeps what the option's file says, or where.
Status TakeOption(int which, const std::string& text, State& state) {
  if (which == kModel) {
    WEFT_ASSIGN_OR_RETURN(state.model_text, ReadModelFile(text));
    state.model = true;
    return Ok();
  }
  constexpr const char* kNames[kOptionCount] = {kModelOption, kBatchOption, kSequenceOption, kPlanOption, kFrameworkOption};
  if (state.other == nullptr) state.other = kNames[which];
  if (which == kPlan) {
    WEFT_ASSIGN_OR_RETURN(state.strategy_text, ReadPlanFile(text));
  } else if (which == kFramework) {
    WEFT_RETURN_IF_ERROR(ParseFrameworkName(text));
  } else {
    WEFT_RETURN_IF_ERROR(ParseCount(kNames[which], text));
  }
  return Ok();
}

int OnOption(int which, const char* argument, int remote) {
  if (remote != 0 || !Submitting()) return 0;
  const Status taken = TakeOption(which, argument == nullptr ? "" : argument, TheState());
  return taken ? 0 : Reject(taken.error());
}

// Foreign code must not see an exception; the only ones that can come are of the kind of bad_alloc.
template <typename Function>
int Guarded(int on_exception, Function function) noexcept {
  try {
    return function();
  } catch (const std::exception& exception) {
    slurm_error("weft: %s", exception.what());
  } catch (...) {
    slurm_error("weft: unknown exception");
  }
  return on_exception;
}

int OptionCallback(int which, const char* argument, int remote) {
  return Guarded(kRejected, [&] { return OnOption(which, argument, remote); });
}

spank_option* Options() {
  static char model[] = "weft-model", batch[] = "weft-batch", sequence[] = "weft-seq", plan[] = "weft-plan",
              framework[] = "weft-framework";
  static char path[] = "PATH", count[] = "N", name[] = "NAME";
  static char model_usage[] = "let Weft plan the job's communication for this model (a Hugging Face config.json)";
  static char batch_usage[] = "sequences per optimizer step, of the whole job";
  static char sequence_usage[] = "tokens per sequence";
  static char plan_usage[] = "your own strategy: the first plan in the JSON of weft plan";
  static char framework_usage[] = "what the job runs on: megatron, torchtitan, deepspeed ...";
  static spank_option options[kOptionCount] = {{model, path, model_usage, 1, kModel, OptionCallback},
                                               {batch, count, batch_usage, 1, kBatch, OptionCallback},
                                               {sequence, count, sequence_usage, 1, kSequence, OptionCallback},
                                               {plan, path, plan_usage, 1, kPlan, OptionCallback},
                                               {framework, name, framework_usage, 1, kFramework, OptionCallback}};
  return options;
}

int Initialise(spank_t spank, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    if (std::strncmp(argv[i], "run_dir=", 8) != 0 || argv[i][8] != '/') {
      slurm_error("weft: plugstack.conf: argument \"%s\", expected run_dir=/ABSOLUTE/PATH", argv[i]);
      return kRejected;
    }
    TheState().run_dir = argv[i] + 8;
  }
  for (int i = 0; i < kOptionCount; ++i) {
    if (spank_option_register(spank, &Options()[i]) != ESPANK_SUCCESS) {
      slurm_error("weft: cannot register the option --%s", Options()[i].name);
      return kRejected;
    }
  }
  return 0;
}

// After all options are known, where the job is submitted: the texts of model and strategy go with the job.
int FinishSubmission(spank_t spank) {
  const State& state = TheState();
  if (!Submitting()) return 0;
  if (!state.model && state.other != nullptr) {
    return Reject(Error(Code::kInvalidArgument, std::string("--") + state.other + ": needs --" + kModelOption + " too"));
  }
  if (!state.model) return 0;
  const std::pair<const char*, const std::string*> texts[] = {{kModelTextVariable, &state.model_text},
                                                              {kStrategyVariable, &state.strategy_text}};
  for (const auto& [name, text] : texts) {
    if (text->empty()) continue;
    const auto status = spank_job_control_setenv(spank, name, text->c_str(), 1);
    if (status == ESPANK_SUCCESS) continue;
    slurm_error("weft: hand %s to the job: %s", name, spank_strerror(status));
    return kRejected;
  }
  return 0;
}

// A variable of the job's environment; nullopt if it is not set.
std::optional<std::string> JobVariable(spank_t spank, const char* name) {
  std::string value(16384, '\0');
  const auto status = spank_getenv(spank, name, value.data(), static_cast<int>(value.size()));
  if (status != ESPANK_SUCCESS && status != ESPANK_NOSPACE) return std::nullopt;
  value.resize(::strnlen(value.data(), value.size()));
  return value;
}

// This node's name as Slurm knows it: from slurmstepd's own environment. The job's environment would name the node that
// srun ran on, and the machine's name is another one where several nodes share it.
std::string NodeName() {
  if (const char* name = std::getenv("SLURMD_NODENAME")) return name;
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return std::string(name, std::strcspn(name, "."));
}

// The variable kDecided of the job's environment, taken apart.
struct Decided {
  std::string job;
  std::set<std::string> names;
};

Decided ReadDecided(spank_t spank) {
  const std::string text = JobVariable(spank, kDecided).value_or("");
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {};
  Decided decided{.job = text.substr(0, colon), .names = {}};
  for (size_t begin = colon + 1; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    decided.names.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return decided;
}

std::string Joined(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

struct Applied {
  std::set<std::string> set, kept;
};

// `outer`: what this plugin set in an outer job whose environment leaked into this one (sbatch inside a batch script).
// Those are not the user's own, so they do not win, and what this plan does not set again must not steer this job.
Applied Apply(spank_t spank, const Environment& environment, const std::set<std::string>& outer,
              const std::string& run_dir) {
  Applied applied;
  for (const std::string& name : outer) spank_unsetenv(spank, name.c_str());
  for (const auto& [name, planned] : environment) {
    const std::string& value = name == kRunDir ? run_dir : planned;
    const auto present = JobVariable(spank, name.c_str());
    if (present && *present != value) {
      applied.kept.insert(name);
    } else if (spank_setenv(spank, name.c_str(), value.c_str(), 1) == ESPANK_SUCCESS) {
      applied.set.insert(name);
    }
  }
  return applied;
}

// The job's own file; its user's, and nobody else's, because the step has taken the user's rights by now.
Result<std::string> WriteHostFile(const std::string& job, const std::string& text) {
  const std::string path = "/tmp/weft-ranks-" + job;
  ::unlink(path.c_str());  // of the same job before it was requeued
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Fail(ErrnoError("write \"" + path + "\"", errno));
  }
  return path;
}

// srun takes an order of hosts only by a host file, which these two variables give to every srun of the batch script.
void ApplyRankOrder(spank_t spank, const std::string& job, const std::string& order, Applied* applied) {
  if (JobVariable(spank, kRankOrder).value_or("") == "off") return;
  for (const char* own : {"SLURM_HOSTFILE", "SLURM_DISTRIBUTION"}) {
    if (!JobVariable(spank, own)) continue;
    applied->kept.insert(own);
    return;
  }
  const auto text = MakeHostFile(order, {.nodes = JobVariable(spank, "SLURM_JOB_NODELIST").value_or(""),
                                         .tasks_per_node = JobVariable(spank, "SLURM_NTASKS_PER_NODE").value_or(""),
                                         .tasks = JobVariable(spank, "SLURM_NTASKS").value_or("")});
  const auto path = text ? WriteHostFile(job, *text) : Fail(text.error());
  if (!path) {
    slurm_spank_log("weft: job %s: ranks keep Slurm's order: %s", job.c_str(), path.error().message().c_str());
    return;
  }
  TheState().host_file = *path;
  spank_setenv(spank, "SLURM_HOSTFILE", path->c_str(), 1);
  spank_setenv(spank, "SLURM_DISTRIBUTION", "arbitrary", 1);
  applied->set.insert({"SLURM_HOSTFILE", "SLURM_DISTRIBUTION"});
  slurm_spank_log("weft: job %s: ranks are on %s in this order; %s=off keeps Slurm's", job.c_str(), order.c_str(), kRankOrder);
}

int PrepareStep(spank_t spank) {
  uint32_t job = 0, step = 0, node_index = 0;
  char* unused = nullptr;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == kExternStep) return 0;
  spank_get_item(spank, S_JOB_NODEID, &node_index);
  const std::string id = std::to_string(job);
  const Decided decided = ReadDecided(spank);
  const std::string node = NodeName();
  const std::string run_dir = ExpandNodeName(TheState().run_dir, node);
  if (decided.job == id) {
    // The batch script's host has written its own path; where hosts share a machine, paths differ.
    const bool differs = TheState().run_dir.find("%n") != std::string::npos;
    if (differs && decided.names.contains(kRunDir)) spank_setenv(spank, kRunDir, run_dir.c_str(), 1);
    return 0;
  }
  if (spank_option_getopt(spank, &Options()[0], &unused) != ESPANK_SUCCESS) {
    Apply(spank, {}, decided.names, run_dir);
    return 0;
  }

  const std::string socket_path = run_dir + "/" + abi::kSocketName;
  auto environment = RequestEnvironment({.socket_path = socket_path, .job = id, .host = node}, kAgentTimeout);
  for (const std::string& name : environment ? TakeForbidden(&*environment) : std::vector<std::string>()) {
    slurm_spank_log("weft: job %s: refused %s: it may not come from a controller", id.c_str(), name.substr(0, 64).c_str());
  }
  Applied applied = Apply(spank, environment.value_or(Environment{}), decided.names, run_dir);
  if (const auto order = JobVariable(spank, kHostOrder); step == kBatchStep && order && applied.set.contains(kHostOrder)) {
    ApplyRankOrder(spank, id, *order, &applied);
  }
  const std::string set = Joined(applied.set), kept = Joined(applied.kept);
  spank_setenv(spank, kDecided, (id + ":" + set).c_str(), 1);
  if (!environment) {
    const bool unknown = environment.error().code() == Code::kNotFound;  // refused, or the prolog had no answer in time
    slurm_spank_log("weft: job %s on %s is launched unchanged: %s%s", id.c_str(), node.c_str(),
                    environment.error().message().c_str(), unknown ? "; the log of weft-slurm-prolog says why" : "");
  } else if (!kept.empty() && node_index == 0) {
    slurm_spank_log("weft: job %s: your own setting wins over the plan's: %s", id.c_str(), kept.c_str());
  }
  slurm_info("weft: job %s: set \"%s\", kept \"%s\"", id.c_str(), set.c_str(), kept.c_str());
  return 0;
}

}  // namespace
}  // namespace weft::slurm

using namespace weft::slurm;

WEFT_SPANK_EXPORT int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return Guarded(kRejected, [&] { return Initialise(spank, argc, argv); });
}

WEFT_SPANK_EXPORT int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  return Guarded(kRejected, [&] { return FinishSubmission(spank); });
}

// Never fails a launch: whatever happens here, the job runs as its user wrote it.
WEFT_SPANK_EXPORT int slurm_spank_user_init(spank_t spank, int, char**) {
  return Guarded(0, [&] { return PrepareStep(spank); });
}

WEFT_SPANK_EXPORT int slurm_spank_exit(spank_t, int, char**) {
  return Guarded(0, [] {
    if (!TheState().host_file.empty()) ::unlink(TheState().host_file.c_str());
    return 0;
  });
}
