#include "planner/parallelism/osdp.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "planner/parallelism/choice_knapsack.h"

namespace weft::planner {
namespace {

/// A ring over n ranks that moves S bytes `trips` times: once is an all-gather or a reduce-scatter, twice an
/// all-reduce.
double Ring(double trips, int64_t ranks, double bytes, Seconds latency, BitsPerSecond rate) {
  const auto n = static_cast<double>(ranks);
  if (ranks <= 1) return 0;
  return trips * (n - 1) * (latency.count() + bytes / n / rate.bytes_per_second());
}

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// All ways to decide about one operator, in the order of `Decisions`.
std::vector<OsdpDecision> Decisions(const OsdpProblem& problem, const OsdpOperator& op) {
  std::vector<OsdpDecision> decisions;
  const bool grouped = problem.shard_group > 1 && problem.shard_group < problem.ranks;
  for (const int64_t slices : problem.slices) {
    if (slices > std::max<int64_t>(op.parameters, 1)) continue;
    for (int64_t replicated = problem.may_replicate ? slices : 0; replicated >= 0; --replicated) {
      for (int64_t in_group = grouped ? slices - replicated : 0; in_group >= 0; --in_group) {
        decisions.push_back({.slices = slices, .replicated = replicated, .group_sharded = in_group});
      }
    }
  }
  return decisions;
}

Choice Cost(const OsdpProblem& problem, const OsdpOperator& op, const OsdpDecision& decision) {
  const int64_t elements = CeilDivide(op.parameters, decision.slices);
  const int64_t state = elements * problem.state_bytes;
  const double wire = static_cast<double>(elements * problem.element_bytes);
  const auto replicated = static_cast<double>(decision.replicated);
  const auto sharded = static_cast<double>(decision.sharded());
  const auto in_group = static_cast<double>(decision.group_sharded);
  Choice choice;
  choice.memory = decision.replicated * state + decision.sharded() * CeilDivide(state, problem.ranks);
  choice.time = replicated * Ring(2, problem.ranks, wire, problem.latency, problem.rate) +
                sharded * Ring(3, problem.ranks, wire, problem.latency, problem.rate);
  if (decision.group_sharded > 0) {
    // Gathers and reduce-scatters stay in the group; the shards are then all-reduced between the groups.
    const int64_t g = problem.shard_group;
    choice.memory += decision.group_sharded * CeilDivide(state, g);
    choice.time +=
        in_group * (Ring(3, g, wire, problem.group_latency, problem.group_rate) +
                    Ring(2, problem.ranks / g, wire / static_cast<double>(g), problem.latency, problem.rate));
  }
  if (decision.replicated < decision.slices) choice.peak = elements * problem.gathered_bytes;
  return choice;
}

Status Positive(bool holds, const std::string& field, double value, const char* expected) {
  if (holds) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("{}: {}, expected {}", field, value, expected));
}

Status Check(const OsdpProblem& problem, int64_t batch) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto number = [](const std::string& field, int64_t value, int64_t least) {
    return Positive(value >= least && value <= kMost, field, static_cast<double>(value),
                    least == 0 ? "0 or more" : "a positive number");
  };
  WEFT_RETURN_IF_ERROR(number("batch", batch, 1));
  WEFT_RETURN_IF_ERROR(number("ranks", problem.ranks, 1));
  WEFT_RETURN_IF_ERROR(number("state_bytes", problem.state_bytes, 1));
  WEFT_RETURN_IF_ERROR(Positive(problem.ranks == 1 || problem.rate.value() > 0, "rate", problem.rate.value(),
                                "a positive rate"));
  if (problem.shard_group > 1) {
    WEFT_RETURN_IF_ERROR(Positive(problem.ranks % problem.shard_group == 0, "shard_group",
                                  static_cast<double>(problem.shard_group), "a divisor of the ranks"));
    WEFT_RETURN_IF_ERROR(Positive(problem.group_rate.value() > 0, "group_rate", problem.group_rate.value(),
                                  "a positive rate"));
  }
  WEFT_RETURN_IF_ERROR(Positive(!problem.slices.empty(), "slices", 0, "at least one number of slices"));
  for (const int64_t slices : problem.slices) {
    WEFT_RETURN_IF_ERROR(Positive(slices >= 1 && slices <= 64, "slices", static_cast<double>(slices), "1 to 64"));
  }
  for (const OsdpOperator& op : problem.operators) {
    WEFT_RETURN_IF_ERROR(number(fmt::format("operator \"{}\": parameters", op.name), op.parameters, 0));
    WEFT_RETURN_IF_ERROR(number(fmt::format("operator \"{}\": count", op.name), op.count, 1));
    WEFT_RETURN_IF_ERROR(Positive(op.compute.count() >= 0, fmt::format("operator \"{}\": compute", op.name),
                                  op.compute.count(), "0 s or more"));
  }
  return Ok();
}

struct Totals {
  Seconds compute{0};   // one sample
  Bytes activations;    // one sample
};
Totals Sum(const OsdpProblem& problem) {
  Totals totals;
  for (const OsdpOperator& op : problem.operators) {
    totals.compute += op.compute * static_cast<double>(op.count);
    totals.activations += op.activations * op.count;
  }
  return totals;
}

/// The choices of a problem, made once for all batches.
class Prepared {
 public:
  explicit Prepared(const OsdpProblem& problem) : problem_(problem), totals_(Sum(problem)) {
    for (const OsdpOperator& op : problem.operators) {
      decisions_.push_back(Decisions(problem, op));
      ChoiceGroup group{.choices = {}, .count = op.count};
      for (const OsdpDecision& decision : decisions_.back()) group.choices.push_back(Cost(problem, op, decision));
      groups_.push_back(std::move(group));
    }
  }

  Seconds Compute(int64_t batch) const {
    return problem_.fixed_compute + totals_.compute * static_cast<double>(batch);
  }
  int64_t Spare(int64_t batch) const { return (problem_.budget - totals_.activations * batch).count(); }
  /// No plan with this batch takes less; +infinity where none fits.
  double Bound(int64_t batch) const { return Compute(batch).count() + RelaxedKnapsack(groups_, Spare(batch)); }

  OsdpPlan Solve(int64_t batch, double tolerance, double upper) const {
    OsdpPlan plan{.batch = batch};
    const double compute = Compute(batch).count();
    const KnapsackAnswer answer =
        SolveChoiceKnapsack(groups_, Spare(batch), {.tolerance = tolerance, .upper = upper - compute});
    plan.feasible = answer.feasible;
    plan.complete = answer.complete;
    plan.lower_bound = Seconds(compute + answer.lower_bound);
    if (!answer.feasible) return plan;
    plan.communication = Seconds(answer.time);
    plan.iteration = Seconds(compute + answer.time);
    plan.memory = Bytes(answer.memory) + totals_.activations * batch;
    for (size_t g = 0; g < groups_.size(); ++g) {
      plan.decisions.emplace_back();
      for (size_t k = 0; k < decisions_[g].size(); ++k) {
        if (answer.taken[g][k] == 0) continue;
        plan.decisions.back().push_back(decisions_[g][k]);
        plan.decisions.back().back().count = answer.taken[g][k];
      }
    }
    return plan;
  }

 private:
  const OsdpProblem& problem_;
  Totals totals_;
  std::vector<std::vector<OsdpDecision>> decisions_;
  std::vector<ChoiceGroup> groups_;
};

}  // namespace

Result<OsdpPlan> PlanOperators(const OsdpProblem& problem, int64_t batch, double tolerance) {
  WEFT_RETURN_IF_ERROR(Check(problem, batch));
  return Prepared(problem).Solve(batch, tolerance, 1e300);
}

Result<OsdpPlan> MostThroughput(const OsdpProblem& problem, int64_t most_per_rank, double tolerance) {
  WEFT_RETURN_IF_ERROR(Check(problem, most_per_rank));
  const Prepared prepared(problem);
  OsdpPlan best;
  bool complete = true;
  for (int64_t batch = 1; batch <= most_per_rank; ++batch) {
    const double bound = prepared.Bound(batch);
    if (bound == std::numeric_limits<double>::infinity()) break;  // a larger batch needs no less memory
    // Only a time below this beats the best samples per second.
    const double upper = best.feasible ? best.iteration.count() * static_cast<double>(batch) /
                                             static_cast<double>(best.batch)
                                       : 1e300;
    if (bound >= upper * (1 - tolerance)) continue;
    OsdpPlan plan = prepared.Solve(batch, tolerance, upper);
    complete = complete && plan.complete;
    if (plan.feasible) best = std::move(plan);
  }
  best.complete = complete;
  return best;
}

double ReplicatedShare(const OsdpProblem& problem, int64_t batch) {
  double state = 0, gathered = 0;
  const auto finest = static_cast<double>(*std::max_element(problem.slices.begin(), problem.slices.end()));
  for (const OsdpOperator& op : problem.operators) {
    state += static_cast<double>(op.parameters * op.count * problem.state_bytes);
    gathered = std::max(gathered, static_cast<double>(op.parameters * problem.gathered_bytes) / finest);
  }
  const auto n = static_cast<double>(problem.ranks);
  const double spare = static_cast<double>((problem.budget - Sum(problem).activations * batch).count());
  if (spare >= state) return 1;
  const double share = (spare - gathered - state / n) / (state * (1 - 1 / n));
  return share < 0 ? -1 : std::min(share, 1.0);
}

}  // namespace weft::planner
