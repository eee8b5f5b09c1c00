// weft-slurm-prolog, and by the name weft-slurm-epilog its counterpart: the programs of PrologSlurmctld and
// EpilogSlurmctld. The one plans a job that asked for Weft, the other releases it. Whatever happens, they exit 0 within
// 3 s and write one line about it: a hook that fails would make Slurm requeue the job.
//
// Slurm starts them without arguments, so a site writes a file, whose keys are the long options:
//
//   # /etc/weft/slurm.conf
//   controller = "controller.example:7070"
//   log = "/var/log/weft/slurm.log"
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/parse_units.h"
#include "common/unique_fd.h"
#include "scheduler/slurm/controller_client.h"
#include "scheduler/slurm/hook_config.h"
#include "scheduler/slurm/job_environment.h"
#include "scheduler/slurm/job_options.h"

namespace weft::slurm {
namespace {

constexpr char kConfigPath[] = "/etc/weft/slurm.conf";

/// Largest time that a hook takes, whatever is configured: the job waits for it.
constexpr Seconds kLongestHook{3};

class Hook {
 public:
  explicit Hook(bool epilog) : epilog_(epilog) {}

  /// Reads flags and file, then does the hook's work. Never throws, never fails.
  void Run(int argc, char** argv);

 private:
  /// One line to stderr and, where configured, to the log.
  void Say(const char* level, const std::string& text) const;
  void SayUnchanged(const std::string& job, const std::string& why) const;
  Status CheckConfig();
  void HandleJob();

  bool epilog_;
  std::string timeout_text_ = "2.5s";
  HookConfig config_;
};

std::string Timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return text;
}

void Hook::Say(const char* level, const std::string& text) const {
  // One write, so that lines of hooks that run at the same time do not mix.
  const std::string line = Timestamp() + " " + level + (epilog_ ? " slurm-epilog " : " slurm-prolog ") + text + "\n";
  [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
  if (config_.log.empty()) return;
  const UniqueFd file(::open(config_.log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640));
  if (file) ignored = ::write(file.get(), line.data(), line.size());
}

void Hook::SayUnchanged(const std::string& job, const std::string& why) const {
  Say("warn", "job " + job + (epilog_ ? " is not released: " : " is launched unchanged: ") + why);
}

// Last resort, should a name server or a file system hang where no deadline reaches.
template <bool kEpilog>
void OnTimeIsUp(int) {
  constexpr std::string_view kLine = kEpilog ? "weft slurm epilog: time is up, the job is not released\n"
                                             : "weft slurm prolog: time is up, the job is launched unchanged\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  ::_exit(0);
}

void StartWatchdog(bool epilog) {
  ::signal(SIGALRM, epilog ? OnTimeIsUp<true> : OnTimeIsUp<false>);
  itimerval timer = {};
  timer.it_value.tv_sec = static_cast<time_t>(kLongestHook.count()) - 1;
  timer.it_value.tv_usec = 900'000;
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

Status Hook::CheckConfig() {
  WEFT_ASSIGN_OR_RETURN(config_.timeout, ParseDuration(timeout_text_));
  if (config_.timeout.count() <= 0 || config_.timeout >= kLongestHook) {
    return Fail(Code::kInvalidArgument, "timeout " + timeout_text_ + ", expected more than 0s and less than 3s");
  }
  if (config_.ranks_per_host < 1) {
    return Fail(Code::kInvalidArgument, "ranks-per-host " + std::to_string(config_.ranks_per_host) +
                                            ", expected at least 1");
  }
  if (!config_.framework.empty()) {
    WEFT_RETURN_IF_ERROR(ParseFrameworkName(config_.framework));
  }
  if (config_.controller.empty()) {
    return Fail(Code::kInvalidArgument, std::string("no controller configured, expected \"controller = HOST:PORT\" in ") +
                                            kConfigPath);
  }
  return Ok();
}

void Hook::HandleJob() {
  const auto job = ReadHookJob([](const char* name) { return std::getenv(name); });
  if (!job) return SayUnchanged("?", job.error().message());
  if (job->model_json.empty()) return;  // a job that did not ask for Weft costs no call
  if (const Status status = CheckConfig(); !status) return SayUnchanged(job->id, status.error().message());
  if (epilog_) {
    const Status released = ReleaseJob(config_, job->id);
    if (!released) return SayUnchanged(job->id, released.error().message());
    return Say("info", "job " + job->id + " is released");
  }
  const auto planned = SubmitJob(config_, *job);
  if (!planned) return SayUnchanged(job->id, planned.error().message());
  Say("info", "job " + job->id + " is " + *planned);
}

void Hook::Run(int argc, char** argv) {
  CLI::App app("tells Weft's controller about the Slurm job in the environment; always exits 0");
  app.set_config("--config", kConfigPath, "file whose keys are these options");
  app.allow_config_extras(false);
  app.add_option("--controller", config_.controller, "HOST:PORT of the controller");
  app.add_option("--timeout", timeout_text_, "for the conversation with the controller, less than 3s")
      ->capture_default_str();
  app.add_option("--log", config_.log, "file that gets one line per job");
  app.add_option("--ranks-per-host", config_.ranks_per_host, "ranks, and GPUs, of each host")->capture_default_str();
  app.add_option("--precision", config_.precision, "bf16 or fp32")->capture_default_str();
  app.add_option("--framework", config_.framework, "what runs jobs that do not say --weft-framework: megatron, torchtitan, deepspeed ...");
  app.add_option("--tls-certificate", config_.tls_certificate, "PEM file");
  app.add_option("--tls-key", config_.tls_key, "PEM file");
  app.add_option("--tls-authority", config_.tls_authority, "PEM file");
  try {
    app.parse(argc, argv);
    HandleJob();
  } catch (const CLI::Success& asked) {
    app.exit(asked);  // --help
  } catch (const std::exception& error) {
    const char* id = std::getenv("SLURM_JOB_ID");
    SayUnchanged(id == nullptr ? "?" : id, error.what());
  }
}

}  // namespace
}  // namespace weft::slurm

int main(int argc, char** argv) {
  const bool epilog = std::filesystem::path(argv[0]).filename().string().find("epilog") != std::string::npos;
  weft::slurm::StartWatchdog(epilog);
  weft::slurm::Hook(epilog).Run(argc, argv);
  return 0;
}
