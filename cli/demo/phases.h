// The demo's phases on a running cluster, in order; each adds what it measured to the report.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "cli/demo/bound.h"
#include "cli/demo/cluster.h"
#include "cli/demo/estimate.h"
#include "cli/demo/jobs.h"
#include "cli/demo/report.h"
#include "cli/demo/training_job.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::cli {

struct PhaseOptions {
  Seconds duration{60};
  BitsPerSecond link_rate;
  std::string data;
  int draws = 3;
  std::string log_dir;
  std::string at_end;
  int hosts_per_leaf = 5;
  JobProgram program = JobProgram::kComposed;
  std::string nccl;  ///< NCCL's library, for JobProgram::kNccl
};

/// The job as it is submitted to the controller: the scaled model, the strategy that it has, and its measured compute time.
v1::JobSpec SpecOf(const DemoJob& job, Seconds compute);

class DemoPhases {
 public:
  DemoPhases(DemoCluster& cluster, PhaseOptions options, std::stop_token stop);

  /// All phases. Errors: the first failure, with the phase's name in front; kCancelled.
  [[nodiscard]] Status Run(DemoReport& report);

 private:
  using Jobs = std::vector<std::unique_ptr<TrainingJob>>;

  Status MeasureGoodput();
  Status RunAlone();
  /// What the job is, for report and bound, from its first run.
  void Describe(size_t job, const TrainingSummary& summary);
  BoundFabric FabricOfBound() const;
  Status RunDefault(int draw);
  /// False: too few iterations while both jobs trained.
  Result<bool> TryDefault(int draw, Seconds length);
  void JudgeDefault();
  Status SubmitJobs();
  Status RunWeft();
  /// `share` of the duration; longer, up to twice that, where steps `slower` times as long as alone need it after `lead`.
  Seconds PhaseLength(double share, Seconds lead, double slower) const;
  /// The phase's ratios, from the steps in [training + settle, calm) and [fault + recover, end).
  void JudgeWeft(const Jobs& running, Seconds training, Seconds calm, Seconds fault, Seconds end);
  Status BreakFabric();
  Status FillDecisions(double fault_time_s);
  Result<std::unique_ptr<TrainingJob>> Launch(size_t job, const std::string& suffix, Seconds duration);
  Result<std::vector<TrainingSummary>> FinishAll(Jobs& jobs);
  /// Link use since `before`; compared with the switches since `compare_since`, if given (the links must be quiet).
  Status AddLinks(const std::string& phase, const LinkBytes& before, Seconds wall, const LinkBytes* compare_since);
  Status WaitUntil(Seconds time);
  void Progress(const std::string& text);

  DemoCluster& cluster_;
  PhaseOptions options_;
  std::stop_token stop_;
  std::vector<DemoJob> jobs_;
  DemoReport* report_ = nullptr;
  std::vector<BoundJob> bound_jobs_;  ///< without compute, which each phase times for itself
  std::vector<std::vector<Block>> timed_blocks_;  ///< of each job, before Weft: what its spec says of compute
  std::vector<std::vector<Block>> default_blocks_;  ///< those of the default draws
  std::vector<CableFactor> cables_;
  std::vector<BackgroundFlow> background_;
  std::vector<testbed::Process> background_processes_;
  int next_port_ = 29500;
  Seconds start_{0};
};

}  // namespace weft::cli
