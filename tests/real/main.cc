// real-fabric: three replayed jobs on a namespace fabric under plain ECMP, chosen paths, priorities and time shifts;
// measured iteration times next to those of the planner's simulator, and the bursts before and after the shift.
//
//   real-fabric                          the ctest entry: 5 s per policy
//   real-fabric --bursts                 jobs of three bursts per iteration
//   real-fabric --scenario mix.yaml      a mix of models in miniature, under four policies: bench/job_mixes.py --miniature writes some
//   real-fabric --train joint.yaml       jobs of models that weft-train trains: runtime/joint_test.py writes one
//   real-fabric --phase 40s --draws 5 --out DIR    for docs/performance.md: also traces as CSV and SVG
//
// Exits with 77 where no fabric can be built, 1 where a fact does not hold. No fact is about time: the errors against the
// simulator are printed for people, since another program on the machine may spoil them.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "common/exit_code.h"
#include "common/parse_units.h"
#include "testbed/require_fabric.h"
#include "tests/real/mix.h"
#include "tests/real/report.h"
#include "tests/real/training.h"

namespace weft::real {
namespace {

namespace fs = std::filesystem;

constexpr int kSkipped = 77;
constexpr double kPromise = 0.10;
constexpr double kTie = 0.01;              // of goodput: policies that are no further apart are in no order
constexpr size_t kTogether = 0, kApart = 1;  // of Policies(): the same jobs on the same paths
constexpr BitsPerSecond kLinkRate = MegabitsPerSecond(30);

/// Three jobs of two hosts each, one on either leaf. Alone they communicate for 27 to 31 % of an iteration: on one spine
/// their bursts just fit one after another.
std::vector<JobSpec> Jobs() {
  return {{.name = "a", .hosts = {"h1", "h4"}, .compute = Seconds(0.62), .bytes = Bytes(920'000)},
          {.name = "b", .hosts = {"h2", "h5"}, .compute = Seconds(0.66), .bytes = Bytes(850'000)},
          {.name = "c", .hosts = {"h3", "h6"}, .compute = Seconds(0.58), .bytes = Bytes(990'000)}};
}

/// The same jobs with three bursts per iteration, as a list of operations has them: one hides behind what is computed next, for
/// one the computation waits, one ends the iteration. All begin within half a period, as long as a window is open.
std::vector<JobSpec> JobsWithBursts() {
  std::vector<JobSpec> jobs = Jobs();
  for (JobSpec& job : jobs) {
    const Seconds hidden = job.compute * 0.72, waited = job.compute * 0.87;
    const Bytes third = job.bytes / 3;
    job.bursts = {{{hidden, waited}, third}, {{waited, waited}, third}, {{job.compute, job.compute}, job.bytes - third * 2}};
  }
  return jobs;
}

struct Policy {
  std::string name;
  Decision decision;
};

/// Plain ECMP stands for the draw that puts all three jobs on one spine, one of four; forced, so that every run measures
/// the same.
std::vector<Policy> Policies(const Model& model) {
  const std::vector<int32_t> alike(model.jobs.size(), 1);
  const planner::JobPaths drawn = AllOver(model, 1);
  const planner::JobPaths planned = planner::PlanJobPaths(model.topology, model.jobs).paths;
  return {{"ecmp", {drawn, alike, std::nullopt}},
          {"ecmp+shifts", {drawn, alike, PlanShifts(model, drawn)}},
          {"ecmp+priorities", {drawn, PlanClasses(model, drawn), std::nullopt}},
          {"paths", {planned, alike, std::nullopt}},
          {"paths+priorities", {planned, PlanClasses(model, planned), std::nullopt}},
          {"paths+shifts", {planned, alike, PlanShifts(model, planned)}}};
}

Result<std::vector<std::string>> RunAll(const Installation& installation, Seconds phase, int draws, bool bursts,
                                        const std::string& out) {
  ExperimentOptions options;
  options.fabric.hosts_per_leaf = 3;
  options.fabric.link_rate = kLinkRate;
  options.jobs = bursts ? JobsWithBursts() : Jobs();
  options.installation = installation;
  options.phase = phase;
  options.draws = draws;
  options.phases = 6;
  WEFT_ASSIGN_OR_RETURN(const auto experiment, Experiment::Start(options));
  fmt::print("goodput of one flow alone {}, links {}\n", FormatRate(experiment->goodput()), FormatRate(kLinkRate));
  WEFT_RETURN_IF_ERROR(experiment->Launch());
  std::vector<Outcome> outcomes;
  for (const Policy& policy : Policies(experiment->model())) {
    WEFT_ASSIGN_OR_RETURN(Outcome outcome, experiment->Run(policy.name, policy.decision));
    fmt::print(stderr, "{}: measured\n", policy.name);
    outcomes.push_back(std::move(outcome));
  }
  WEFT_ASSIGN_OR_RETURN(const Ending ending, experiment->Finish());
  fmt::print("\n{}\n{}\n{}", Table(outcomes), Errors(outcomes, kPromise), Bursts(outcomes, kLinkRate, 100));
  if (!out.empty()) WEFT_RETURN_IF_ERROR(WriteTraces(out, outcomes, kLinkRate));
  return BrokenFacts(outcomes, kTogether, kApart, ending, !bursts);
}

Result<std::vector<planner::SimulationPolicy>> PoliciesOf(const std::vector<std::string>& names) {
  std::vector<planner::SimulationPolicy> policies;
  for (const std::string& name : names) {
    const auto policy = planner::ParsePolicy(name);
    if (!policy) return Fail(Code::kInvalidArgument, fmt::format("--policy \"{}\": expected {}", name, planner::PolicyNames()));
    policies.push_back(*policy);
  }
  return policies;
}

Result<std::vector<std::string>> RunTrained(const TrainingOptions& options) {
  std::vector<std::string> broken;
  const auto measured = [&](const MixOutcome& one) {
    fmt::print("{}", TrainingLine(one));
    std::fflush(stdout);
    const std::vector<std::string> more = BrokenFacts(one);
    broken.insert(broken.end(), more.begin(), more.end());
  };
  WEFT_RETURN_IF_ERROR(RunTraining(options, measured));
  return broken;
}

Result<std::vector<std::string>> RunScenario(const MixOptions& options) {
  std::vector<Outcome> all;
  const auto measured = [&](const MixOutcome& one) {
    fmt::print(stderr, "{}: measured\n", one.outcome.policy);
    all.push_back(one.outcome);
  };
  WEFT_ASSIGN_OR_RETURN(const std::vector<MixOutcome> outcomes, RunMix(options, measured));
  fmt::print("{}{}", MixText(outcomes, kTie), Errors(all, kPromise));
  std::vector<std::string> broken;
  for (const MixOutcome& one : outcomes) {
    for (const JobOutcome& job : one.outcome.jobs) {
      if (job.iterations == 0) broken.push_back(fmt::format("{}: job {} made no iteration", one.outcome.policy, job.name));
    }
  }
  return broken;
}

int Fails(const Error& error) {
  fmt::print(stderr, "real-fabric: {}\n", error.message());
  return ExitCodeOf(error);
}

/// What the experiment started is told to die when it dies, and may until then still write here: tried again for a second.
void RemoveFolder(const fs::path& folder) {
  std::error_code error;
  for (int attempt = 0; attempt < 50; ++attempt) {
    fs::remove_all(folder, error);
    if (!error) return;
    ::usleep(20'000);
  }
  fmt::print(stderr, "real-fabric: left behind {}: {}\n", folder.string(), error.message());
}

/// Runs `work` in a child, with a folder that is gone afterwards however the child ends: by itself, by a signal that this
/// process gets, by a crash. A fabric looks after itself when its owner dies. Returns the exit status.
int InChild(const std::function<int(const std::string& folder)>& work) {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &before);
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "weft-real-XXXXXX").string();
  if (error) return Fails(Error(Code::kInvalidArgument, fmt::format("folder for temporary files: {}", error.message())));
  if (::mkdtemp(folder.data()) == nullptr) return Fails(ErrnoError("make the folder " + folder, errno));
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const int status = work(folder);
    std::fflush(nullptr);
    ::_exit(status);
  }
  int signal = SIGCHLD, status = 0;
  if (child > 0) {
    while (sigwait(&signals, &signal) != 0) {
    }
    if (signal != SIGCHLD) ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  RemoveFolder(folder);
  if (child < 0) return Fails(ErrnoError("fork", errno));
  if (signal != SIGCHLD) return 128 + signal;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  fmt::print(stderr, "real-fabric: killed by signal {}\n", WTERMSIG(status));
  return kExitFailed;
}

int Main(int argc, char** argv) {
  CLI::App app("Replayed jobs on a namespace fabric: measured against simulated", "real-fabric");
  std::string phase_text = "5s", out;
  app.add_option("--phase", phase_text, "measured time of each policy")->capture_default_str();
  int draws = 1;
  app.add_option("--draws", draws, "of the phases between jobs, where no window sets them; the measured time is shared out")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  bool bursts = false;
  app.add_flag("--bursts", bursts, "three bursts per iteration in place of one");
  std::string scenario;
  std::vector<std::string> policies = {"layers-apart", "vertical", "horizontal", "weft"};
  app.add_option("--scenario", scenario, "a mix of models on two hosts each, in miniature, in place of these three jobs")->check(CLI::ExistingFile);
  app.add_option("--policy", policies, "of the mix, or of --train")->delimiter(',');
  TrainingOptions training{.data = "/usr/share/common-licenses"};
  std::string link_rate = "100Mbit/s";
  auto* train = app.add_option("--train", training.scenario, "jobs of models that weft-train trains, in place of these three")
                    ->check(CLI::ExistingFile);
  app.add_option("--link-rate", link_rate, "with --train: of hosts' links")->needs(train)->capture_default_str();
  app.add_option("--stretch", training.stretch, "with --train: computations last so many times as long as alone")
      ->needs(train)
      ->check(CLI::Range(1.0, 1e4));
  auto* calibration = app.add_option("--calibration", training.calibration, "with --train: what weft calibrate wrote")
                          ->needs(train)
                          ->check(CLI::ExistingFile);
  train->needs(calibration);
  app.add_option("--data", training.data, "with --train: text")->needs(train)->capture_default_str();
  app.add_option("--out", out, "folder for the traces: CSV per policy, and bursts.svg")->check(CLI::ExistingDirectory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help
    return Fails(Error(Code::kInvalidArgument, error.what()));
  }
  const auto phase = ParseDuration(phase_text);
  if (!phase) return Fails(phase.error());
  const auto chosen = PoliciesOf(policies);
  if (!chosen) return Fails(chosen.error());
  const auto rate = ParseRate(link_rate);
  if (!rate) return Fails(rate.error().WithContext("--link-rate"));
  if (const Status can = testbed::CanBuildFabric(); !can) {
    fmt::print("skipped: {}\n", can.error().message());
    return testbed::IsRequired("fabric") ? kExitFailed : kSkipped;
  }
  return InChild([&](const std::string& folder) -> int {
    const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
    const Installation installation{bin, bin.parent_path() / "lib/libnccl-net-weft.so", folder};
    training.policies = *chosen, training.installation = installation, training.link_rate = *rate, training.phase = *phase;
    const auto broken = !training.scenario.empty() ? RunTrained(training)
                        : scenario.empty()         ? RunAll(installation, *phase, draws, bursts, out)
                                                   : RunScenario({scenario, *chosen, installation, *phase, draws});
    if (!broken) return Fails(broken.error());
    for (const std::string& fact : *broken) fmt::print("FAIL: {}\n", fact);
    return broken->empty() ? kExitDone : kExitFailed;
  });
}

}  // namespace
}  // namespace weft::real

int main(int argc, char** argv) { return weft::real::Main(argc, argv); }
