// What a change of strategy in memory comes to for a running job: what the controller advises by itself (job_advice.h), and what
// somebody asks for. Ranks stay on their hosts, in their order. Pure.
#pragma once

#include <optional>

#include "common/result.h"
#include "controller/events.h"
#include "controller/job_fabric.h"
#include "controller/job_planner.h"
#include "planner/plan/price_given.h"

namespace weft::controller {

/// The fabric between the hosts of a running job, in order of rank.
JobFabric FabricOf(const AdviseRestart& question, const JobPlannerOptions& planner);

/// What links give, to two digits: what they carry changes a little all the time.
std::string DescribeFabric(const planner::ClusterSpec& cluster);

/// Two strategies of a running job by the same account, whatever they were predicted to take when each was chosen.
struct StrategyPair {
  planner::JobSpec job;               ///< gpus set
  planner::GivenPrice now, then;      ///< what runs and the other, on what links give
  bool measured = false;              ///< iteration_now_s
  double iteration_now_s = 0;         ///< measured, where it is
  double iteration_then_s = 0;        ///< in the proportion of the prices
};

/// Errors: as PriceGiven; kInvalidArgument for a plan or a model that cannot be read.
[[nodiscard]] Result<StrategyPair> PricePair(const AdviseRestart& question, const planner::ClusterSpec& now,
                                             const planner::Strategy& other);

/// From question.plan to `to`, with both iterations, the pause (what moves on what links give, and `cost`) and `to` itself. The programs are
/// made of the words that the ranks have and would get, so that what is priced is what they do. Errors: those of a plan's words
/// (formats/train_plan.h), with the reason for one without a program; as PriceChange.
[[nodiscard]] Result<v1::StrategyChange> ChangeTo(const AdviseRestart& question, const StrategyPair& pair,
                                                  const planner::ClusterSpec& now, const v1::JobPlan& to, Seconds cost);

/// The change that somebody asks for, with its plan and both figures, whether it gains or not. `wanted`: nullopt: back to asked.before; a
/// bucket_bytes of 0 is weft-train's own. Errors: kInvalidArgument with the reason: nothing to go back to, what runs already, illegal
/// for the job, not run by weft-train, no program, predicted not to fit, too long for a launch environment, something that would be
/// lost, more ranks than are looked at.
[[nodiscard]] Result<v1::StrategyChange> PriceAsked(const AskedJob& asked, const std::optional<planner::Strategy>& wanted,
                                                    const JobPlannerOptions& planner, Seconds cost);

}  // namespace weft::controller
