// Host-Net and Intra-Inter decisions for a submitted job: where its gradients are summed (GPUs, host CPUs, spare machines,
// the switches' few trees) and in how many levels on the links that probes have shown.
//
// A tree in the switches is a quota: it is given to a job when it is planned, through NCCL_COLLNET_ENABLE in its launch
// environment, and held until the job is released, since a communicator keeps its algorithm. Sums on spare machines and on
// hosts' CPUs need a library that does them; for NCCL they are said and not done. Levels go into the collective table
// (job_collectives.h) of our own runtime.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/rank_order.h"
#include "planner/collectives/grouping.h"
#include "planner/collectives/reduction_place.h"
#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::controller {

inline constexpr char kTreeVariable[] = "NCCL_COLLNET_ENABLE";  ///< "1": the job holds a tree of the switches

/// What the site has besides GPUs to sum on.
struct ReductionOptions {
  BitsPerSecond cpu_sum;                ///< that one host's CPUs sum; 0: they may not be used
  int32_t spare_machines = 0;           ///< with NICs and CPUs like the hosts'
  planner::SwitchReduction switches;    ///< `trees`: of the whole fabric, for all jobs together; 0: none
};

struct ReductionJob {
  int32_t hosts = 0;
  int32_t ranks_per_host = 1;
  bool nccl = true;                     ///< else our own runtime
  Bytes gradients;                      ///< summed per iteration
  planner::ClusterSpec cluster;
  std::optional<BitsPerSecond> node_rate;  ///< of a host's NICs together, as probes have shown it; none: as the cluster has them
  int32_t trees_held = 0;               ///< by other jobs
};

struct ReductionDecision {
  bool has_switches = false;            ///< the site has trees, and the job could use one
  bool tree = false;                    ///< it gets one
  std::vector<std::string> why;
};

/// Errors: those of PlaceReduction. Requires: hosts ≥ 2, ranks_per_host ≥ 1.
[[nodiscard]] Result<ReductionDecision> DecideReduction(const ReductionJob& job, const ReductionOptions& options);

/// Takes the tree back that `plan` gives to the job, if by now other `holders` have all of the site's `trees`.
void KeepTreeQuota(const std::string& job_id, const std::set<std::string>& holders, int32_t trees, v1::JobPlan* plan);

/// The fabric as probes have shown it with the ranks of `hosts` on it, `per_host` on each in order; ranks of one host are
/// joined by its inner links.
struct RankFabric {
  planner::Topology topology;
  std::vector<NodeId> ranks;
};
/// Errors: kNotFound naming a host that no probe has shown.
[[nodiscard]] Result<RankFabric> PlaceRanks(const planner::Topology& fabric, const std::vector<std::string>& hosts, int64_t per_host,
                                            const planner::ClusterSpec& cluster);

}  // namespace weft::controller
