// Planning of a submitted job: the model's text to a strategy, its hosts to an order of ranks, and both to what the
// launcher needs. Pure, and apart from the core: its answer enters the core as the event JobSubmitted.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/job_reduction.h"
#include "controller/rank_order.h"
#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::controller {

struct JobPlannerOptions {
  /// The kind of machine that jobs run on; nodes and gpus are set per job.
  planner::ClusterSpec cluster;
  ReductionOptions reduction;               ///< what the site can sum on besides GPUs
  std::string run_dir = "/run/weft";        ///< of the agents
  int64_t node_budget = 200'000;            ///< so that the answer comes within a hook's patience
  /// For the searches of one job; past it the best until then is the answer. A tenant's model may be of any shape, of which
  /// the budget counts what is priced and not what is ruled out before.
  Seconds patience{1.5};
};

struct PlannedJob {
  v1::JobPlan plan;
  v1::JobSpec spec;                         ///< as it was asked for, with the hosts that it was given if it named none
  std::vector<std::string> order;           ///< hosts in order of rank
  std::vector<std::string> errors;          ///< why there is no strategy; rank order and environment are there anyway
};

/// Of a job's hosts, of its ranks, and of its model's text in bytes: more is refused.
inline constexpr int64_t kMostJobHosts = 1 << 16, kMostJobRanks = 1 << 18, kMostModelBytes = 1 << 20;

/// Plans `spec`, or prices the strategy that it gives. A job without a model, or with one that cannot be planned, still gets
/// rank order and environment; one that asks for hosts (job_hosts.h) gets these first. Errors: kInvalidArgument naming the field for an
/// empty job id, doubled hosts, negative numbers or more than the above; as DecideStrategy() for a given strategy that is refused; as
/// GiveHosts(). Once `stop` asks, the best until then is
/// the answer, and says so; options.patience is the caller's to keep.
[[nodiscard]] Result<PlannedJob> PlanJob(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options,
                                         const std::stop_token& stop = {});

/// What a plan has beside its strategy and that strategy's words: hosts of ranks, in `order`, collectives, and the launch environment with
/// all of it. The last to be called.
void FillJobLaunch(const std::vector<std::string>& order, const v1::JobSpec& spec, const PlacementView& view,
                   const JobPlannerOptions& options, v1::JobPlan& plan);

}  // namespace weft::controller
