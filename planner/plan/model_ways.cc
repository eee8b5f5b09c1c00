#include "planner/plan/model_ways.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/plan/price_given.h"

namespace weft::planner {
namespace {

/// What a node, or a unit of a tier, gives a job where others send too: one of so many equal shares.
constexpr double kShares[] = {2, 4, 8, 16};
constexpr int kTop = 6;                 // plans of each search

/// Bytes that leave nodes, and that leave units of the first tier, in one iteration.
std::pair<double, double> Sent(const ModelWay& way, int64_t unit) {
  double nodes = 0, units = 0;
  for (const ProfileBurst& burst : way.profile.bursts) {
    for (const PairBytes& pair : burst.between) {
      const auto bytes = static_cast<double>(pair.bytes.count());
      nodes += bytes;
      if (pair.from / unit != pair.to / unit) units += bytes;
    }
  }
  return {nodes, units};
}

/// Drops all but the first way that another one beats, or equals, in time and in what it sends; then the slowest.
void DropBeaten(int64_t unit, std::vector<ModelWay>* ways) {
  std::vector<ModelWay> kept;
  for (size_t w = 0; w < ways->size(); ++w) {
    const auto beats = [&](size_t o) {
      const ModelWay &a = (*ways)[o], &b = (*ways)[w];
      const auto [a_nodes, a_units] = Sent(a, unit);
      const auto [b_nodes, b_units] = Sent(b, unit);
      const Seconds a_time = a.profile.plan.predicted.iteration, b_time = b.profile.plan.predicted.iteration;
      if (a_time > b_time || a_nodes > b_nodes || a_units > b_units) return false;
      return a_time < b_time || a_nodes < b_nodes || a_units < b_units || o < w;
    };
    bool beaten = false;
    for (size_t o = 0; o < ways->size(); ++o) beaten |= o != w && beats(o);
    if (w == 0 || !beaten) kept.push_back((*ways)[w]);
  }
  std::stable_sort(kept.begin() + 1, kept.end(), [](const ModelWay& a, const ModelWay& b) {
    return a.profile.plan.predicted.iteration < b.profile.plan.predicted.iteration;
  });
  if (kept.size() > kMostModelWays) kept.resize(kMostModelWays);
  *ways = std::move(kept);
}

}  // namespace

WayPlanner::WayPlanner(JobSpec job, ClusterSpec cluster, ModelWaysOptions options)
    : job_(std::move(job)), cluster_(std::move(cluster)), options_(std::move(options)), program_(options_.framework) {
  job_.gpus = cluster_.TotalGpus();
  options_.fix.try_emplace("sharding", static_cast<int64_t>(Sharding::kUniform));  // no program decides per operator
}

Result<const PlanAnswer*> WayPlanner::Search(const ClusterSpec& cluster) {
  std::vector<double> key{cluster.nic_rate.value()};
  for (const FabricTier& tier : cluster.tiers) key.insert(key.end(), {static_cast<double>(tier.nodes), tier.out.value()});
  const auto known = searched_.find(key);
  if (known != searched_.end()) return &known->second;
  WEFT_ASSIGN_OR_RETURN(PlanAnswer answer,
                        Plan(job_, cluster, {.top = kTop, .fix = options_.fix, .allow = options_.allow,
                                             .framework = program_.value_or(Framework::kAny), .known_programs = !program_}));
  if (!program_ && !answer.plans.empty()) program_ = answer.plans.front().framework;
  return &searched_.emplace(std::move(key), std::move(answer)).first->second;
}

/// The plans that are new, as the cluster without tiers prices them.
Status WayPlanner::Add(const PlanAnswer& found, const std::vector<int32_t>& hosts, ModelWaysAnswer* answer) {
  for (const JobPlan& plan : found.plans) {
    const bool known = std::ranges::any_of(answer->ways, [&](const ModelWay& way) {
      return way.profile.plan.strategy == plan.strategy && way.hosts == hosts;
    });
    if (known || !plan.groups.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(GivenPrice price, PriceGiven(Resized(job_, GpuCount(plan.strategy), job_.global_batch), cluster_,
                                                       FrameworkName(plan.framework), plan.strategy));
    WEFT_ASSIGN_OR_RETURN(ModelProfile profile, ProfileOf(job_, cluster_, std::move(price.plan)));
    answer->ways.push_back({std::move(profile), hosts});
  }
  return Ok();
}

Result<ModelWaysAnswer> WayPlanner::Blind() {
  if (cluster_.heterogeneous()) {
    return Fail(Code::kInvalidArgument, "cluster of several kinds of nodes, expected one kind");
  }
  ModelWaysAnswer answer;
  std::vector<int32_t> hosts(static_cast<size_t>(cluster_.nodes));
  std::iota(hosts.begin(), hosts.end(), 0);
  WEFT_ASSIGN_OR_RETURN(const PlanAnswer* found, Search(cluster_));
  answer.infeasible = found->infeasible;
  WEFT_RETURN_IF_ERROR(Add(*found, hosts, &answer));
  if (answer.ways.size() > 1) answer.ways.resize(1);
  return answer;
}

Result<ModelWaysAnswer> WayPlanner::On(const NodeTiers& fabric) {
  WEFT_ASSIGN_OR_RETURN(ModelWaysAnswer answer, Blind());
  if (answer.ways.empty() || cluster_.nodes == 1) return answer;
  ClusterSpec joined = cluster_;
  if (fabric.node_out.value() > 0) joined.nic_rate = std::min(joined.nic_rate, fabric.node_out);
  joined.tiers = fabric.tiers;
  std::vector<ClusterSpec> priced{joined};
  for (const double shares : kShares) {
    ClusterSpec& nodes = priced.emplace_back(joined);
    nodes.nic_rate = nodes.nic_rate / shares;
    ClusterSpec& tiers = priced.emplace_back(joined);
    for (FabricTier& tier : tiers.tiers) tier.out = tier.out / shares;
  }
  for (const ClusterSpec& cluster : priced) {
    WEFT_ASSIGN_OR_RETURN(const PlanAnswer* found, Search(cluster));
    WEFT_RETURN_IF_ERROR(Add(*found, fabric.order, &answer));
  }
  DropBeaten(fabric.tiers.empty() ? 1 : fabric.tiers.front().nodes, &answer.ways);
  return answer;
}

}  // namespace weft::planner
