// OperatorSolver: what a stage's layers can do is worked out once; then each budget is a question to a knapsack.
#include <algorithm>
#include <memory>
#include <vector>

#include "planner/parallelism/operator_layer.h"
#include "planner/parallelism/operator_sharding.h"

namespace weft::planner::inline parallelism {
namespace {

// Stages of one strategy have few kinds of layers, and strategies that follow each other in a search share them.
constexpr size_t kKept = 16;
// The same budgets return in neighbouring stages and in strategies that differ in their schedule.
constexpr size_t kAnswers = 8;

/// What a stage's choices depend on.
bool SameLayers(const OperatorProblem& a, const OperatorProblem& b) {
  const Strategy &s = a.strategy, &t = b.strategy;
  return a.forward == b.forward && a.backward == b.backward && a.head == b.head && a.micro_batches == b.micro_batches &&
         a.dense == b.dense && a.moe == b.moe && a.splits == b.splits && s.data_sync == t.data_sync && s.dp == t.dp &&
         s.cp == t.cp && s.tp == t.tp && s.pp == t.pp && s.ep == t.ep && s.etp == t.etp && s.shard_group == t.shard_group &&
         s.rank_order == t.rank_order && s.bucket_bytes == t.bucket_bytes && s.gradient_wire == t.gradient_wire;
}

/// Whole bytes, upwards. Faster than std::ceil, which is a call.
Bytes Upwards(FractionalBytes bytes) {
  const Bytes whole = bytes.Truncated();
  return whole < bytes ? whole + Bytes(1) : whole;
}

/// The knapsack's numbers are plain ones: its loops are arithmetic over arrays of them.
Choice AsChoice(const OperatorCost& cost, int64_t micro_batches) {
  return {.time = cost.time(micro_batches).count(), .memory = Upwards(cost.memory()).count(), .peak = Upwards(cost.peak).count()};
}

/// All ways of one kind of layer, and the fastest. The undominated ones are looked for only where something is to be decided.
struct Kind {
  Kind(const OperatorProblem& problem, bool moe) : ways(problem, moe) {
    all.reserve(ways.size());
    for (size_t i = 0; i < ways.size(); ++i) all.push_back(AsChoice(ways.Cost(problem, i), problem.micro_batches));
    for (size_t i = 1; i < all.size(); ++i) {
      if (Before(i, fastest)) fastest = i;
    }
  }

  /// Uncut ways come first.
  bool Before(size_t a, size_t b) const {
    const Choice &x = all[a], &y = all[b];
    return x.time != y.time ? x.time < y.time : a < b;
  }

  /// Ascending time: what an earlier one needs no more memory and peak than is of no use.
  void Sort() {
    if (!order.empty()) return;
    std::vector<uint32_t> sorted(all.size());
    for (uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
    std::sort(sorted.begin(), sorted.end(), [this](uint32_t a, uint32_t b) { return Before(a, b); });
    for (const uint32_t i : sorted) {
      const Choice& choice = all[i];
      const bool dominated = std::any_of(choices.begin(), choices.end(), [&](const Choice& other) {
        return other.memory <= choice.memory && other.peak <= choice.peak;
      });
      if (dominated) continue;
      choices.push_back(choice);
      order.push_back(i);
    }
  }

  LayerWays ways;
  std::vector<Choice> all;
  size_t fastest = 0;
  std::vector<uint32_t> order;   // the undominated ways, ascending in time
  std::vector<Choice> choices;   // theirs
};

}  // namespace

/// The layers of a stage with all that they can do.
class OperatorSolver::Layers {
 public:
  /// `before`: others, whose layers may be the same in another number.
  Layers(const OperatorProblem& problem, std::span<const std::unique_ptr<Layers>> before) : key_(problem) {
    fastest_.feasible = true;
    fastest_.operators.head = leanest_.operators.head = key_.head > 0;
    for (const bool moe : {false, true}) {
      const int64_t layers = moe ? key_.moe.layers : key_.dense.layers;
      if (layers == 0) continue;
      std::shared_ptr<Kind>& kind = kinds_[moe ? 1 : 0];
      kind = Same(before, moe);
      if (kind == nullptr) kind = std::make_shared<Kind>(key_, moe);
      AddFastest(kind->all[kind->fastest], layers);
      Take(moe, kind->fastest, layers, fastest_);
    }
    if (key_.head <= 0) return;
    for (const int64_t slices : HeadSlices(key_.splits.head)) heads_.push_back(AsChoice(CostOfHead(key_, slices), key_.micro_batches));
    AddFastest(heads_.front(), 1);
    TakeHead(0, fastest_);
  }

  bool Has(const OperatorProblem& problem) const { return SameLayers(key_, problem); }
  bool FastestFit(Bytes budget) const { return needed_ + peak_ <= budget; }
  const OperatorStage& fastest() const { return fastest_; }
  Seconds fastest_time() const { return time_; }

  Seconds Relaxed(Bytes budget) { return Seconds(Knapsack().Relaxed(budget.count())); }

  const OperatorStage& Solve(Bytes budget, double tolerance) {
    if (!Knapsack().Fits(budget.count())) return Leanest();
    for (const Answer& answer : answers_) {
      if (answer.budget == budget) return answer.stage;
    }
    const KnapsackAnswer solved = knapsack_.Solve(budget.count(), {.tolerance = tolerance});
    if (!solved.feasible) return Leanest();
    if (answers_.size() < kAnswers) answers_.emplace_back();
    Answer& answer = answers_[next_++ % kAnswers];
    answer.budget = budget;
    answer.stage = {};
    answer.stage.feasible = true;
    answer.stage.operators.head = key_.head > 0;
    for (const bool moe : {false, true}) {
      const std::vector<int64_t>& taken = solved.taken[moe ? 1 : 0];
      for (size_t i = 0; kinds_[moe ? 1 : 0] != nullptr && i < taken.size(); ++i) {
        if (taken[i] > 0) Take(moe, kinds_[moe ? 1 : 0]->order[i], taken[i], answer.stage);
      }
    }
    for (size_t i = 0; i < heads_.size(); ++i) {
      if (solved.taken[2][i] > 0) TakeHead(i, answer.stage);
    }
    return answer.stage;
  }

 private:
  struct Answer {
    Bytes budget;
    OperatorStage stage;
  };

  /// The same layer of another stage.
  std::shared_ptr<Kind> Same(std::span<const std::unique_ptr<Layers>> before, bool moe) const {
    for (const std::unique_ptr<Layers>& other : before) {
      const std::shared_ptr<Kind>& kind = other->kinds_[moe ? 1 : 0];
      if (kind == nullptr || (moe ? other->key_.moe : other->key_.dense).parts != (moe ? key_.moe : key_.dense).parts) continue;
      OperatorProblem same = other->key_;
      same.dense = key_.dense;
      same.moe = key_.moe;
      same.head = key_.head;
      if (SameLayers(same, key_)) return kind;
    }
    return nullptr;
  }

  void AddFastest(const Choice& choice, int64_t count) {
    needed_ += Bytes(count * choice.memory);
    peak_ = std::max(peak_, Bytes(choice.peak));
    time_ += Seconds(static_cast<double>(count) * choice.time);
  }

  void Take(bool moe, size_t way, int64_t count, OperatorStage& stage) const {
    const LayerWays& ways = kinds_[moe ? 1 : 0]->ways;
    stage.operators.runs.push_back({count, moe, ways.attention(way), ways.mlp(way)});
    AddCost(ways.Cost(key_, way), count, stage.cost);
  }

  void TakeHead(size_t i, OperatorStage& stage) const {
    stage.operators.head_slices = HeadSlices(key_.splits.head)[i];
    AddCost(CostOfHead(key_, stage.operators.head_slices), 1, stage.cost);
  }

  ChoiceKnapsack& Knapsack() {
    if (prepared_) return knapsack_;
    std::array<ChoiceGroup, 3> groups;
    for (size_t kind = 0; kind < 2; ++kind) {
      groups[kind].count = kind == 1 ? key_.moe.layers : key_.dense.layers;
      if (kinds_[kind] == nullptr) continue;
      kinds_[kind]->Sort();
      groups[kind].choices = kinds_[kind]->choices;
    }
    groups[2] = {heads_, heads_.empty() ? 0 : 1};
    knapsack_.Prepare(groups);
    prepared_ = true;
    return knapsack_;
  }

  const OperatorStage& Leanest() {
    if (!leanest_known_) leanest_.cost = LeanestOperators(key_);
    leanest_known_ = true;
    return leanest_;
  }

  OperatorProblem key_;
  std::array<std::shared_ptr<Kind>, 2> kinds_;  // dense, MoE
  std::vector<Choice> heads_;
  ChoiceKnapsack knapsack_;
  bool prepared_ = false, leanest_known_ = false;
  Bytes needed_, peak_;  // of the fastest
  Seconds time_{0};
  OperatorStage fastest_, leanest_;
  std::vector<Answer> answers_;
  size_t next_ = 0;
};

OperatorSolver::OperatorSolver(double tolerance) : tolerance_(tolerance) {}
OperatorSolver::~OperatorSolver() = default;
OperatorSolver::OperatorSolver(OperatorSolver&&) noexcept = default;
OperatorSolver& OperatorSolver::operator=(OperatorSolver&&) noexcept = default;

void OperatorSolver::Clear() { kept_.clear(); }

OperatorSolver::Layers& OperatorSolver::LayersOf(const OperatorProblem& problem) {
  const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const auto& layers) { return layers->Has(problem); });
  if (same == kept_.end()) {
    auto made = std::make_unique<Layers>(problem, kept_);
    if (kept_.size() == kKept) kept_.pop_back();
    kept_.insert(kept_.begin(), std::move(made));
  } else {
    std::rotate(kept_.begin(), same, same + 1);
  }
  return *kept_.front();
}

const OperatorStage& OperatorSolver::Solve(const OperatorProblem& problem) {
  Layers& layers = LayersOf(problem);
  return layers.FastestFit(problem.budget) ? layers.fastest() : layers.Solve(problem.budget, tolerance_);
}

Seconds OperatorSolver::Relaxed(const OperatorProblem& problem) {
  Layers& layers = LayersOf(problem);
  return layers.FastestFit(problem.budget) ? layers.fastest_time() : layers.Relaxed(problem.budget);
}

}  // namespace weft::planner::parallelism
