#include "planner/plan/model_ways.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/plan/price_given.h"

namespace weft::planner {
namespace {

/// What a node, or a unit of a tier, gives a job where others send too: one of so many equal shares.
constexpr double kShares[] = {2, 4, 8, 16};
constexpr size_t kMostCandidates = 100;  // of all searches
constexpr int kTop = 6;                 // plans of each search

/// What a way takes and sends in one iteration.
struct Figures {
  double seconds = 0;
  double nodes = 0, units = 0;          // bytes that leave nodes, and units of the first tier
  bool Beats(const Figures& other) const {
    return seconds <= other.seconds && nodes <= other.nodes && units <= other.units;
  }
  bool Same(const Figures& other) const { return seconds == other.seconds && nodes == other.nodes && units == other.units; }
};

/// The unit of the first tier that every host of the job is in.
std::vector<int64_t> UnitsOf(const NodeTiers& fabric) {
  const int64_t nodes = fabric.tiers.empty() ? 1 : fabric.tiers.front().nodes;
  std::vector<int64_t> unit(fabric.order.size());
  for (size_t place = 0; place < fabric.order.size(); ++place) {
    unit[static_cast<size_t>(fabric.order[place])] = static_cast<int64_t>(place) / nodes;
  }
  return unit;
}

Figures FiguresOf(const ModelWay& way, const std::vector<int64_t>& unit) {
  Figures figures{.seconds = way.profile.plan.predicted.iteration.count()};
  const auto unit_of = [&](int32_t place) { return unit[static_cast<size_t>(way.hosts[static_cast<size_t>(place)])]; };
  for (const ProfileBurst& burst : way.profile.bursts) {
    for (const PairBytes& pair : burst.between) {
      const auto bytes = static_cast<double>(pair.bytes.count());
      figures.nodes += bytes;
      if (unit_of(pair.from) != unit_of(pair.to)) figures.units += bytes;
    }
  }
  return figures;
}

/// Drops every way that another one beats or equals, but never the first; then the slowest beyond kMostModelWays.
void DropBeaten(const NodeTiers& fabric, std::vector<ModelWay>* ways) {
  const std::vector<int64_t> unit = UnitsOf(fabric);
  std::vector<Figures> figures;
  for (const ModelWay& way : *ways) figures.push_back(FiguresOf(way, unit));
  std::vector<ModelWay> kept;
  for (size_t w = 0; w < ways->size(); ++w) {
    bool beaten = false;
    for (size_t o = 0; o < ways->size(); ++o) {
      beaten |= o != w && figures[o].Beats(figures[w]) && (!figures[o].Same(figures[w]) || o < w);
    }
    if (w == 0 || !beaten) kept.push_back(std::move((*ways)[w]));
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
Status WayPlanner::Add(const PlanAnswer& found, const std::vector<int32_t>& hosts, size_t most, ModelWaysAnswer* answer) {
  for (const JobPlan& plan : found.plans) {
    if (answer->ways.size() >= most) break;
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
  WEFT_RETURN_IF_ERROR(Add(*found, hosts, 1, &answer));
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
    WEFT_RETURN_IF_ERROR(Add(*found, fabric.order, kMostCandidates, &answer));
  }
  DropBeaten(fabric, &answer.ways);
  return answer;
}

}  // namespace weft::planner
