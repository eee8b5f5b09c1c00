#include "planner/flows/path_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/parse_units.h"
#include "planner/flows/even_split.h"
#include "planner/flows/fractional.h"
#include "planner/flows/instance.h"
#include "planner/flows/local_search.h"
#include "planner/flows/repair.h"

namespace weft::planner::inline flows {
namespace {

constexpr int32_t kFineUnits = 192;      // all of kSplitUnits divide it
constexpr double kRoundingLoss = 0.02;   // of the fractional rates, that coarser splits may cost
constexpr double kRevertLoss = 0.01;     // of the chosen rates, that leaving a flow where it is may cost
constexpr double kSparseSlack = 1.005;
constexpr double kBoundGap = 0.01;       // a looser certificate makes the answer incomplete
constexpr double kAnyGain = 1e-3;
constexpr size_t kQuickSweeps = 4;       // for the bound of a quick plan
constexpr double kRateGain = 0.01;

/// Shares with what they are judged by.
struct Answer {
  Shares shares;
  std::vector<double> served;
};

class PathChooser {
 public:
  PathChooser(const FlowProblem& problem, const std::stop_token& stop)
      : problem_(problem), instance_(MakeInstance(problem)), budget_{problem.node_budget, stop},
        all_(problem.flows.size(), true) {}

  FlowPlan Run() {
    FlowPlan plan;
    const Answer keep = Keep();
    if (problem_.quick) return RunQuick(keep);
    const Answer whole = Whole(keep);
    FractionalResult fractional;
    if (!problem_.whole_only) fractional = FractionalOptimum(instance_, whole.shares, 4 * int64_t{problem_.node_budget}, budget_.stop);
    plan.bottleneck_bound = fractional.bound;
    const Answer best = Polish(problem_.whole_only ? whole : Split(whole, fractional));
    Answer chosen = best;
    bool any_present = false;
    for (const FlowDemand& flow : problem_.flows) any_present |= !flow.present_shares.empty();
    const bool worth_it = ClearlyBetter(keep.served, best.served, problem_.switching_gain);
    if (any_present) chosen = worth_it ? RevertIdleMoves(best) : keep;
    if (!problem_.whole_only && (!any_present || worth_it)) chosen = EvenOut(std::move(chosen));
    plan.complete = !budget_.exhausted() && fractional.bottleneck <= fractional.bound * (1 + kBoundGap) + 1e-9;  // of whole_only 0 <= 0
    Finish(keep, best, chosen, &plan);
    return plan;
  }

  FlowPlan RunQuick(const Answer& keep) {
    FlowPlan plan;
    const Answer best = Judge(Repaired(instance_, keep.shares, &budget_));
    const Answer& chosen = ClearlyBetter(keep.served, best.served, problem_.switching_gain) ? best : keep;
    const auto updates = static_cast<int64_t>(kQuickSweeps * problem_.flows.size());
    if (!problem_.whole_only) plan.bottleneck_bound = FractionalOptimum(instance_, chosen.shares, updates, budget_.stop).bound;
    plan.complete = !budget_.exhausted() && Bottleneck(instance_, chosen.shares) <= plan.bottleneck_bound * (1 + kBoundGap) + 1e-9;
    Finish(keep, best, chosen, &plan);
    return plan;
  }

 private:
  void Finish(const Answer& keep, const Answer& best, const Answer& chosen, FlowPlan* plan) const {
    plan->bottleneck_before = Bottleneck(instance_, Present());
    plan->bottleneck_after = Bottleneck(instance_, chosen.shares);
    plan->bottleneck_bound = std::min(plan->bottleneck_bound, plan->bottleneck_after);
    Describe(keep, best, chosen, plan);
  }

  /// Present shares, made to sum to exactly one; new flows spread evenly.
  Shares Present() const {
    Shares shares;
    for (const FlowDemand& flow : problem_.flows) {
      std::vector<double> row = flow.present_shares;
      const double sum = std::accumulate(row.begin(), row.end(), 0.0);
      if (!(sum > 0)) row.assign(flow.paths.size(), 1.0);
      const double total = sum > 0 ? sum : static_cast<double>(row.size());
      for (double& share : row) share /= total;
      shares.push_back(std::move(row));
    }
    return shares;
  }

  bool IsNew(size_t f) const { return problem_.flows[f].present_shares.empty(); }

  Answer Judge(Shares shares) const {
    std::vector<double> served = Served(instance_, shares);
    return {std::move(shares), std::move(served)};
  }

  /// Everything stays; new flows take the best whole paths that are left.
  Answer Keep() {
    const Shares present = Present();
    std::vector<std::vector<int32_t>> start = RoundShares(present, kFineUnits);
    std::vector<bool> is_new(start.size());
    for (size_t f = 0; f < start.size(); ++f) {
      is_new[f] = IsNew(f);
      if (is_new[f]) start[f].assign(start[f].size(), 0);
    }
    LocalSearch search(instance_, kFineUnits, kFineUnits, std::move(start));
    for (const size_t f : instance_.order) {
      if (is_new[f]) search.Place(f);
    }
    search.Descend(is_new, &budget_);
    Shares shares = search.AsShares();
    for (size_t f = 0; f < shares.size(); ++f) {
      if (!is_new[f]) shares[f] = present[f];
    }
    return Judge(std::move(shares));
  }

  /// The best answer with unsplit flows: descent from the present paths, or from a fresh placement if that ends better.
  Answer Whole(const Answer& keep) {
    LocalSearch from_present(instance_, 1, 1, RoundShares(keep.shares, 1));
    from_present.Descend(all_, &budget_);
    Answer first = Judge(from_present.AsShares());
    std::vector<std::vector<int32_t>> nothing;
    for (const InstanceFlow& flow : instance_.flows) nothing.emplace_back(flow.paths.size(), 0);
    LocalSearch fresh(instance_, 1, 1, std::move(nothing));
    for (const size_t f : instance_.order) fresh.Place(f);
    fresh.Descend(all_, &budget_);
    Answer second = Judge(fresh.AsShares());
    return ClearlyBetter(first.served, second.served, kAnyGain) ? second : first;
  }

  /// `whole`, or the fractional solution in small integers where that serves clearly better.
  Answer Split(const Answer& whole, const FractionalResult& fractional) {
    // Compared by the fullest link, not by what flows get: a stray sliver of a fractional share can hold its flow to the
    // rate of a crowded link, and says nothing about the same split without it.
    const auto reaches = [&](const Answer& answer, double gain) {
      return Bottleneck(instance_, answer.shares) <= fractional.bottleneck * (1 + gain);
    };
    if (reaches(whole, problem_.split_gain)) return whole;
    const Answer ideal = Judge(fractional.shares);
    Answer best = whole;
    for (const int32_t units : kSplitUnits) {
      LocalSearch search(instance_, units, 1, RoundShares(fractional.shares, units));
      search.Sparsify(kSparseSlack, &budget_);
      search.Descend(all_, &budget_);
      search.Sparsify(kSparseSlack, &budget_);
      Answer split = Judge(search.AsShares());
      if (ClearlyBetter(best.served, split.served, kAnyGain)) best = std::move(split);
      Answer even = Judge(Evened(instance_, search.AsShares(), units));
      if (ClearlyBetter(best.served, even.served, problem_.split_gain)) best = std::move(even);
      if (reaches(best, kRoundingLoss) && !ClearlyBetter(best.served, ideal.served, kRoundingLoss)) break;
    }
    return ClearlyBetter(whole.served, best.served, problem_.split_gain / 2) ? best : whole;
  }

  /// Moves whole flows by predicted rates. The local search counts every flow with its full demand, also one that is held
  /// elsewhere; here it counts with what it gets. Left out where it would take more than the budget: F² · paths rates.
  Answer Polish(Answer answer) const {
    int64_t cost = 0;
    for (const InstanceFlow& flow : instance_.flows) cost += static_cast<int64_t>(flow.usable.size());
    cost *= static_cast<int64_t>(instance_.flows.size());
    int64_t left = problem_.node_budget;
    for (bool improved = true; improved && (left -= cost) >= 0;) {
      improved = false;
      for (const size_t f : instance_.order) {
        for (const size_t to : instance_.flows[f].usable) {
          if (answer.shares[f][to] == 1) continue;
          Shares trial = answer.shares;
          trial[f].assign(trial[f].size(), 0);
          trial[f][to] = 1;
          Answer moved = Judge(std::move(trial));
          if (!ClearlyBetter(answer.served, moved.served, kRateGain)) continue;
          answer = std::move(moved);
          improved = true;
        }
      }
    }
    return answer;
  }

  /// See even_split.h. Only flows that move anyway, and those between the same places as them, are touched.
  Answer EvenOut(Answer answer) const {
    std::vector<bool> moves;
    for (size_t f = 0; f < problem_.flows.size(); ++f) {
      moves.push_back(IsNew(f) || Differ(answer.shares[f], problem_.flows[f].present_shares));
    }
    return Judge(SplitAlike(instance_, std::move(answer.shares), moves, problem_.split_gain, problem_.node_budget));
  }

  /// Leaves flows where they are if the answer is as good with them there: a move has a cost.
  Answer RevertIdleMoves(const Answer& best) {
    Answer chosen = best;
    const Shares present = Present();
    for (size_t f = 0; f < present.size(); ++f) {
      if (IsNew(f) || chosen.shares[f] == present[f]) continue;
      budget_.left -= static_cast<int64_t>(present.size());
      if (budget_.exhausted()) break;
      Shares trial = chosen.shares;
      trial[f] = present[f];
      Answer reverted = Judge(std::move(trial));
      if (!ClearlyBetter(reverted.served, best.served, kRevertLoss)) chosen = std::move(reverted);
    }
    return chosen;
  }

  /// The smallest integers in the ratio of `shares`.
  static std::vector<int32_t> Weights(const std::vector<double>& shares) {
    std::vector<int32_t> weights = RoundShares({shares}, kFineUnits).front();
    for (size_t p = 0; p < shares.size(); ++p) {
      if (std::abs(shares[p] * kFineUnits - weights[p]) > 1e-6) {  // not a split of ours
        weights = RoundShares({shares}, 64).front();
        break;
      }
    }
    int32_t divisor = 0;
    for (const int32_t weight : weights) divisor = std::gcd(divisor, weight);
    for (int32_t& weight : weights) weight /= std::max(1, divisor);
    return weights;
  }

  static bool Differ(const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t p = 0; p < a.size(); ++p) {
      if (std::abs(a[p] - b[p]) > 1e-9) return true;
    }
    return false;
  }

  /// The first link that tells the path from the flow's others.
  std::string PathName(size_t f, size_t path) const {
    const auto& paths = problem_.flows[f].paths;
    for (const LinkId link : paths[path].links) {
      const bool everywhere = std::all_of(paths.begin(), paths.end(), [&](const CandidatePath& other) {
        return std::find(other.links.begin(), other.links.end(), link) != other.links.end();
      });
      if (!everywhere) return problem_.topology.LinkName(link);
    }
    return "its only path";
  }

  /// "leaf1->spine1", or "1:5 over leaf1->spine1 and leaf1->spine2".
  std::string Route(size_t f, const std::vector<double>& shares) const {
    const std::vector<int32_t> weights = Weights(shares);
    std::string ratio, names;
    int lanes = 0;
    for (size_t p = 0; p < shares.size(); ++p) {
      if (weights[p] == 0) continue;
      ratio += fmt::format("{}{}", lanes > 0 ? ":" : "", weights[p]);
      names += (lanes > 0 ? " and " : "") + PathName(f, p);
      ++lanes;
    }
    return lanes > 1 ? ratio + " over " + names : names;
  }

  /// The most loaded link that the flow uses, and its load over capacity.
  std::pair<double, size_t> WorstLink(size_t f, const Shares& shares, const std::vector<double>& load) const {
    std::pair<double, size_t> worst{0, 0};
    for (size_t p = 0; p < shares[f].size(); ++p) {
      if (shares[f][p] <= 0) continue;
      for (const int32_t link : instance_.flows[f].paths[p]) {
        const size_t l = static_cast<size_t>(link);
        const double use = instance_.capacity[l] > 0 ? load[l] / instance_.capacity[l] : 0;
        if (use > worst.first) worst = {use, l};
      }
    }
    return worst;
  }

  /// Relative gain of `best` over `keep` at the first flow, worst served first, that differs.
  static double Gain(const Answer& keep, const Answer& best) {
    for (size_t i = 0; i < keep.served.size(); ++i) {
      if (best.served[i] > keep.served[i] * (1 + kAnyGain)) return best.served[i] / keep.served[i] - 1;
    }
    return 0;
  }

  std::string WhyStays(size_t f, const Answer& keep, const Answer& best, const Answer& chosen) const {
    if (instance_.flows[f].usable.size() == 1) return "it has no other path";
    if (!IsNew(f) && !Differ(chosen.shares[f], keep.shares[f]) && Differ(best.shares[f], chosen.shares[f])) {
      const double gain = Gain(keep, best);
      if (gain < problem_.switching_gain) {
        return fmt::format("moving gains {:.1f} %, less than {:.1f} %", 100 * gain, 100 * problem_.switching_gain);
      }
      return "moving it would help nobody";
    }
    return "every other way is as loaded";
  }

  void Describe(const Answer& keep, const Answer& best, const Answer& chosen, FlowPlan* plan) const {
    const std::vector<double> before = StripedRates(instance_, keep.shares);
    const std::vector<double> after = StripedRates(instance_, chosen.shares);
    const std::vector<double> load = Loads(instance_, chosen.shares);
    for (size_t f = 0; f < problem_.flows.size(); ++f) {
      const FlowDemand& flow = problem_.flows[f];
      const std::vector<double>& shares = chosen.shares[f];
      plan->flows.push_back({flow.key, shares, Weights(shares), BitsPerSecond(after[f])});
      const std::string who = fmt::format("job {}, flow {:x}: ", flow.job, flow.key);
      const std::string rate = FormatRate(BitsPerSecond(after[f]));
      if (IsNew(f)) {
        plan->changed = true;
        plan->why.push_back(fmt::format("{}placed on {}: {}", who, Route(f, shares), rate));
        continue;
      }
      const std::vector<double>& present = keep.shares[f];
      if (Differ(present, shares)) {
        plan->changed = true;
        plan->why.push_back(fmt::format("{}moved from {} to {}: {}, was {}", who, Route(f, present), Route(f, shares),
                                        rate, FormatRate(BitsPerSecond(before[f]))));
      } else if (instance_.flows[f].usable.empty()) {
        plan->why.push_back(who + "stays where it is: every path has a dead link");
      } else if (const auto [use, link] = WorstLink(f, chosen.shares, load); use > 1 + 1e-6) {
        plan->why.push_back(fmt::format("{}stays on {}, where {} is asked for {:.2f} times its capacity: {}: {}", who,
                                        Route(f, shares), problem_.topology.LinkName(LinkId(static_cast<int32_t>(link))),
                                        use, rate, WhyStays(f, keep, best, chosen)));
      }
    }
  }

  const FlowProblem& problem_;
  const Instance instance_;
  Budget budget_;
  const std::vector<bool> all_;
};

}  // namespace

FlowPlan ChoosePaths(const FlowProblem& problem, const std::stop_token& stop) { return PathChooser(problem, stop).Run(); }

}  // namespace weft::planner::flows
