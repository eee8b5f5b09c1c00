// Several ways to run one model on given hosts, for a planner of all jobs to choose from: they differ in what they send.
//
//   WayPlanner planner(job, cluster, options);
//   const Result<ModelWaysAnswer> answer = planner.On(FindNodeTiers(topology, hosts));
//   answer->ways[0]   // what a planner finds that does not look at the fabric
//
// The others are what the search finds when bytes have a price: on the fabric as it is, and with what leaves a node or a unit of a
// tier at a fraction of its rate, as it is when others send there too. A price of bytes over a link is a lower rate of it, so that
// this is column generation with a fixed list of prices. Each strategy is then priced without any of that: what the network takes
// is the simulation's to say. Ways that neither are faster nor send less between hosts than another one are dropped.
//
// Leaves out: prices that follow the other jobs (the list is fixed), groups of different machines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/plan/model_profile.h"

namespace weft::planner {

struct ModelWay {
  ModelProfile profile;               ///< hosts by their place in `hosts`
  std::vector<int32_t> hosts;         ///< in order of rank: numbers among the job's hosts as given
};

/// No ways: no strategy fits, and why.
struct ModelWaysAnswer {
  std::vector<ModelWay> ways;         ///< of the first: hosts as given
  std::vector<std::string> infeasible;
};

struct ModelWaysOptions {
  FixedVariables fix;                         ///< of all ways
  std::optional<Framework> framework;         ///< what runs it; nullopt: the fastest of the known programs, as `weft plan` chooses
  TrainingChanges allow = {};                 ///< as PlanOptions::allow
};

inline constexpr size_t kMostModelWays = 16;

/// The ways of one job on any hosts of `cluster`: searches are remembered, so that copies of a job cost one.
class WayPlanner {
 public:
  /// Requires: a cluster without tiers.
  WayPlanner(JobSpec job, ClusterSpec cluster, ModelWaysOptions options);

  /// The first way alone: what `weft plan` chooses. Errors: as Plan(); kInvalidArgument for a cluster of several kinds of nodes.
  [[nodiscard]] Result<ModelWaysAnswer> Blind();
  /// All of them, on hosts that `fabric` joins. Errors: as Blind().
  [[nodiscard]] Result<ModelWaysAnswer> On(const NodeTiers& fabric);

 private:
  [[nodiscard]] Result<const PlanAnswer*> Search(const ClusterSpec& cluster);
  [[nodiscard]] Status Add(const PlanAnswer& found, const std::vector<int32_t>& hosts, ModelWaysAnswer* answer);

  JobSpec job_;
  ClusterSpec cluster_;
  ModelWaysOptions options_;
  std::optional<Framework> program_;            // what ran the first way
  std::map<std::vector<double>, PlanAnswer> searched_;  // by rates of nodes and tiers
};

}  // namespace weft::planner
