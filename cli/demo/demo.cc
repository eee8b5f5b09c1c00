#include "cli/demo/demo.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <stop_token>
#include <thread>

#include "cli/demo/loopback.h"
#include "cli/demo/phases.h"
#include "cli/demo/report.h"
#include "common/exit_code.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

constexpr int kHostsPerLeaf = 5;  // two for each job, one that nobody manages
// At which the jobs communicate for about half of their time.
constexpr const char* kRate = "15Mbit/s";
constexpr const char* kComposedRate = "20Mbit/s";
constexpr Seconds kGrain{500e-6};  // messages take some ms: they leave at the rate, and wait for no super-packet of others

/// Turns SIGINT and SIGTERM into a stop request. Made before any other thread, so that all of them inherit the mask.
class Interrupt {
 public:
  Interrupt() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    watcher_ = std::jthread([this](const std::stop_token& done) {
      const timespec wait{0, 100'000'000};
      while (!done.stop_requested()) {
        if (sigtimedwait(&signals_, nullptr, &wait) > 0) source_.request_stop();
      }
    });
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  sigset_t signals_{};
  std::stop_source source_;
  std::jthread watcher_;
};

/// The folder of sockets, state and logs; removed at the end unless the user named it.
class WorkDirectory {
 public:
  static Result<WorkDirectory> Make(const std::string& keep) {
    std::error_code error;
    if (!keep.empty()) {
      std::filesystem::create_directories(keep, error);
      if (error) return Fail(Code::kInvalidArgument, fmt::format("--keep \"{}\": {}", keep, error.message()));
      return WorkDirectory(std::filesystem::absolute(keep), false);
    }
    std::string path = "/tmp/weft-demo-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return Fail(ErrnoError("make a temporary folder", errno));
    return WorkDirectory(path, true);
  }
  WorkDirectory(WorkDirectory&& other) noexcept
      : path_(std::move(other.path_)), remove_(std::exchange(other.remove_, false)) {}
  ~WorkDirectory() {
    std::error_code ignored;
    if (remove_) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  WorkDirectory(std::string path, bool remove) : path_(std::move(path)), remove_(remove) {}
  std::string path_;
  bool remove_;
};

/// The options as they were understood.
struct Plan {
  Installation installation;
  Seconds duration;
  BitsPerSecond link_rate;
  std::string work;
  JobProgram program;
};

ClusterOptions OptionsOfCluster(const DemoOptions& demo, const Plan& plan) {
  ClusterOptions options;
  options.run_dir = plan.work;
  options.controller_config = demo.controller_config;
  options.fabric.leaves = 2;
  options.fabric.spines = 2;
  options.fabric.hosts_per_leaf = kHostsPerLeaf;
  options.fabric.link_rate = plan.link_rate;
  if (plan.program == JobProgram::kComposed) options.fabric.grain = kGrain, options.fabric.fair = true;
  for (const std::vector<std::string>& hosts : DemoHosts(kHostsPerLeaf)) {
    options.managed_hosts.insert(options.managed_hosts.end(), hosts.begin(), hosts.end());
  }
  return options;
}

Result<DemoReport> RunOnFabric(const DemoOptions& options, const Plan& plan, const std::stop_token& stop) {
  const ClusterOptions cluster_options = OptionsOfCluster(options, plan);
  fmt::print(stderr, "demo: fabric, controller and {} agents coming up\n", cluster_options.managed_hosts.size());
  WEFT_ASSIGN_OR_RETURN(auto cluster, DemoCluster::Start(plan.installation, cluster_options));
  fmt::print(stderr, "demo: page at http://{}/\n", cluster->http());

  DemoReport report;
  report.leaves = 2;
  report.spines = 2;
  report.hosts = 2 * kHostsPerLeaf;
  report.link_rate = plan.link_rate;
  DemoPhases phases(*cluster,
                    {.duration = plan.duration,
                     .link_rate = plan.link_rate,
                     .data = options.data,
                     .draws = options.draws,
                     .log_dir = plan.work,
                     .at_end = options.at_end,
                     .hosts_per_leaf = kHostsPerLeaf,
                     .program = plan.program,
                     .nccl = options.nccl},
                    stop);
  WEFT_RETURN_IF_ERROR(phases.Run(report));
  return report;
}

Result<DemoReport> RunOnLoopback(const DemoOptions& options, const Plan& plan, const std::string& why,
                                 const std::stop_token& stop) {
  ClusterOptions cluster_options = OptionsOfCluster(options, plan);
  cluster_options.loopback = true;
  WEFT_ASSIGN_OR_RETURN(auto cluster, DemoCluster::Start(plan.installation, cluster_options));
  fmt::print(stderr, "demo: page at http://{}/\n", cluster->http());
  DemoReport report;
  report.fabric_real = false;
  report.hosts = static_cast<int>(cluster_options.managed_hosts.size());
  report.not_shown.push_back(why);
  WEFT_RETURN_IF_ERROR(RunLoopback(*cluster,
                                   {.duration = plan.duration,
                                    .data = options.data,
                                    .log_dir = plan.work,
                                    .at_end = options.at_end,
                                    .program = plan.program,
                                    .hosts_per_leaf = kHostsPerLeaf},
                                   stop, report));
  return report;
}

Result<DemoReport> Run(const DemoOptions& options, const std::stop_token& stop) {
  WEFT_ASSIGN_OR_RETURN(const Seconds duration, ParseDuration(options.duration));
  const bool composed = options.jobs == "composed", data_parallel = options.jobs == "data-parallel", nccl = options.jobs == "nccl";
  const std::string rate = !options.link_rate.empty() ? options.link_rate : composed ? kComposedRate : kRate;
  WEFT_ASSIGN_OR_RETURN(const BitsPerSecond link_rate, ParseRate(rate));
  if (duration < Seconds(30)) {
    return Fail(Code::kInvalidArgument, fmt::format("--duration \"{}\": expected 30s or more", options.duration));
  }
  if (options.output != "table" && options.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\": expected table or json", options.output));
  }
  if (!composed && !data_parallel && !nccl) {
    return Fail(Code::kInvalidArgument, fmt::format("--jobs \"{}\": expected composed, data-parallel or nccl", options.jobs));
  }
  if (options.draws < 1) return Fail(Code::kInvalidArgument, "--draws: expected 1 or more");
  WEFT_ASSIGN_OR_RETURN(const Installation installation, Installation::Find(nccl ? "weft-nccl-job" : "weft-train"));
  WEFT_ASSIGN_OR_RETURN(const WorkDirectory work, WorkDirectory::Make(options.keep));
  const Plan plan{installation, duration, link_rate, work.path(),
                  nccl ? JobProgram::kNccl : composed ? JobProgram::kComposed : JobProgram::kDataParallel};
  if (const Status can = testbed::CanBuildFabric(); !can) {
    if (nccl) return Fail(can.error().WithContext("--jobs nccl needs a fabric"));
    fmt::print(stderr, "demo: {}; falling back to loopback\n", can.error().message());
    return RunOnLoopback(options, plan, can.error().message(), stop);
  }
  return RunOnFabric(options, plan, stop);
}

}  // namespace

int RunDemo(const DemoOptions& options) {
  const Interrupt interrupt;
  const auto report = Run(options, interrupt.token());
  if (!report) {
    // Where it was when the signal came says nothing to the one who sent it.
    const bool interrupted = report.error().code() == Code::kCancelled;
    fmt::print(stderr, "weft demo: {}\n", interrupted ? "interrupted" : report.error().message());
    return ExitCodeOf(report.error());
  }
  if (options.output == "json") {
    PrintJson(*report);
  } else {
    PrintTable(*report);
  }
  return kExitDone;
}

}  // namespace weft::cli
