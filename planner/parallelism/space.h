// The whole space of strategies for one job on one cluster, as a tree for search/branch_and_bound.h:
//   degrees, tensor and context mode, experts, micro-batch, sequence parallelism    (the roots)
//   schedule, chunks, rank order
//   recomputation, one sharding for all operators or one for each
//   ZeRO stage, shard group, gradient exchange                                      (the leaves)
//   what each operator does, if they differ (OSDP): one leaf, bounded twice before it is priced, after all others
// All leaves are legal (legality.h). Where every variable is fixed the one strategy that they make is the whole space, if it
// is legal and the framework runs it. Beyond legality all other spaces are bounded: at least 512 tokens of a sequence per
// context-parallel rank, experts split by tp or not at all inside an expert, interleaving in whole chunks and with
// micro-batches that the stages divide, zero-bubble schedules with enough micro-batches to fill their warm-up, shard
// groups of a node or of 4 or 16 nodes.
//
// Bounds: a subtree's least time is that without recomputation, without exposed gradient exchange and, for a root,
// without bubble; a subtree in which nothing fits the memory is unbounded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/strategy.h"
#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {

/// Ways of exchange that change what is trained: in the space only where somebody allows them, or fixes their variable.
struct TrainingChanges {
  bool low_precision = false;  ///< gradient_wire: bf16, fp8
  bool local_steps = false;    ///< local_steps: 16
  bool gossip = false;         ///< data_sync: gossip
};
inline constexpr int64_t kLocalSteps = 16;

/// Reads "low_precision,gossip". Errors: kInvalidArgument naming the word and those that are known.
[[nodiscard]] Result<TrainingChanges> ParseTrainingChanges(std::string_view text);

struct SpaceOptions {
  FixedVariables fixed;
  TrainingChanges allow = {};
  Framework framework = Framework::kAny;  ///< what it cannot run is no strategy
};

class StrategySpace {
 public:
  using Scratch = CostModel::Scratch;
  struct Node {
    Strategy strategy;        ///< what is not decided yet has the value that costs least
    uint8_t level = 0;        ///< 1 to 4: root to leaf; 5 and 6: operators' decisions, bounded and priced
    int32_t passes = 0;       ///< choices of the second and third level below a root
    int32_t recomputes = 0;   ///< of the third below a schedule
    int32_t exchanges = 0;    ///< of the fourth, below a uniform third one
    int32_t operators = 0;    ///< of the fourth, below one that decides per operator
  };

  struct Value {
    double value = 0;         ///< seconds per iteration
    double second = 0;        ///< bytes on the worst stage
    bool feasible = true;     ///< every stage fits
  };

  /// The model must outlive the space.
  StrategySpace(const CostModel& model, const SpaceOptions& options);

  void Roots(std::vector<Node>& out) const;
  bool IsLeaf(const Node& node) const {
    return node.level == (node.strategy.sharding == Sharding::kUniform ? 4 : 6);
  }
  /// Decisions per operator are dear to bound and to price: last.
  bool Late(const Node& node) const { return node.level == 3 && node.strategy.sharding == Sharding::kOperator; }
  void Children(const Node& node, std::vector<Node>& out) const;
  double Bound(const Node& node, Scratch& scratch) const;
  Value Evaluate(const Node& leaf, Scratch& scratch) const;
  int64_t Leaves(const Node& node) const;
  /// Fewer ways of splitting first: pp, tp, cp, ep, recomputation, ZeRO, then all variables.
  bool Before(const Node& a, const Node& b) const;

  /// Whether a legal strategy is one that the fixed variables and the framework allow.
  bool Contains(const Strategy& strategy) const {
    return Runs(strategy) && Agrees(strategy, options_.fixed) && Allows(strategy);
  }
  /// Whether the framework can run a legal strategy, whatever is fixed.
  bool Runs(const Strategy& strategy) const {
    return planner::Runs(options_.framework, {.job = model_.job(), .cluster = model_.cluster(), .strategy = strategy});
  }
  Framework framework() const { return options_.framework; }
  /// Buckets of gradients that it has strategies with, ascending; none where the bucket is no choice.
  std::span<const Bytes> buckets() const { return buckets_; }
  /// The strategy of the space that needs least memory; nullopt if the space is empty. For saying by how much nothing
  /// fits.
  std::optional<Strategy> Leanest(Scratch& scratch) const;

 private:
  bool Allowed(const Strategy& strategy, SearchStage decided) const;
  /// Whether what it changes of the training is allowed, or fixed.
  bool Allows(const Strategy& s) const {
    return (s.gradient_wire == GradientWire::kWhole || wires_) && (s.local_steps == 1 || steps_) &&
           (s.data_sync != DataSync::kGossip || gossips_);
  }
  bool Fixed(std::string_view name) const { return options_.fixed.contains(std::string(name)); }
  /// The strategy of which every variable is fixed; nullopt if one is free.
  std::optional<Strategy> TheOne() const;
  void Schedules(const Node& node, std::vector<Node>& out) const;
  void Recomputes(const Strategy& s, std::vector<Strategy>& out) const;
  int32_t CountRecomputes(const Strategy& s) const;
  int32_t CountPartial(const Strategy& s) const;
  void Exchanges(const Strategy& s, std::vector<Strategy>& out) const;
  /// The same with narrower wires and fewer exchanges, where they are allowed, and in each of the buckets.
  void AddChanges(const Strategy& exchange, std::vector<Strategy>& out) const;
  std::vector<Node> Stages(Strategy s) const;
  void AddExperts(Strategy s, const std::vector<Node>& stages, std::vector<Node>& out) const;
  void AddModes(const Strategy& s, const std::vector<Node>& stages, std::vector<Node>& out) const;
  void AddBatches(const Strategy& from, const std::vector<Node>& stages, std::vector<Node>& out) const;
  template <typename Use>
  void ForEachSchedule(const Strategy& root, const Use& use) const;
  int32_t CountPasses(const Strategy& root) const;
  Bytes Bucket(const Strategy& s) const;
  /// With one kind of sharding, or either.
  bool AnyExchangeFits(const Strategy& s, std::optional<Sharding> sharding, Scratch& scratch) const;

  const CostModel& model_;
  SpaceOptions options_;
  const FrameworkDescription& description_;
  bool restricted_ = true;   ///< the framework has rules
  // What is allowed, or fixed by its variable.
  bool wires_ = false, steps_ = false, gossips_ = false;
  int64_t local_steps_ = kLocalSteps;
  std::vector<Bytes> buckets_;  ///< that the program's launch may be told; none: its own, or the fixed one
  int64_t gpus_ = 0;
};

}  // namespace weft::planner::parallelism
