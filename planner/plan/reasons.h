// The sentences that go with a plan over the whole space: what each setting buys, what its neighbours would cost, how
// the best of other kinds compare, what does not fit. Internal to planner.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/planner.h"

namespace weft::planner {

class Reasons {
 public:
  /// All three must outlive the object. `gpus`: of the job; those beyond the model's idle.
  Reasons(const CostModel& model, const StrategySpace& space, CostModel::Scratch& scratch, int64_t gpus)
      : model_(model), space_(space), scratch_(scratch), gpus_(gpus) {}

  /// Who does what, what fills memory, where the time goes.
  std::vector<std::string> WhyBest(const JobPlan& plan) const;
  /// "runner-up ...: 3.57 s (+0.6 %), 0.02 s more bubble".
  std::string WhyRunnerUp(const JobPlan& best, const Strategy& other) const;
  std::string WhyLater(const JobPlan& plan, const JobPlan& best) const;
  /// One line for every neighbour of the plan worth a word: "tp=16 crosses the node: +0.8 s, exposed tensor ...".
  std::vector<std::string> Rejected(const JobPlan& best) const;
  /// sharding=osdp: how many operators do what, and what that gains over the fastest uniform sharding.
  std::vector<std::string> Operators(const JobPlan& best) const;
  /// How many were simulated, and whether any other could be faster.
  std::string Proof(const PlanAnswer& answer) const;

 private:
  /// "all 16 GPUs", or why fewer work.
  std::string WhoWorks() const;
  /// What buckets hide, where they are the plan's to choose.
  void AddBucket(const JobPlan& plan, std::vector<std::string>& why) const;
  /// A measurement that the device cannot have given.
  void AddDoubt(std::vector<std::string>& why) const;
  std::string Against(const std::string& what, const Strategy& other, const Estimate& best) const;
  void AddNeighbour(const std::string& what, const Strategy& other, const JobPlan& best,
                    std::vector<std::string>& lines) const;
  /// What other sums, wires and rates of exchange would cost, where they are in the space.
  void AddExchanges(const JobPlan& best, std::vector<std::string>& lines) const;
  /// What one more or one less of a degree would cost, data parallelism giving or taking.
  void AddDegrees(const JobPlan& best, std::vector<std::string>& lines) const;

  const CostModel& model_;
  const StrategySpace& space_;
  CostModel::Scratch& scratch_;
  int64_t gpus_;
};

/// "3.1 GiB"; below 100 MiB "12.5 MiB".
std::string Gibibytes(Bytes amount);
/// "parameters 3.1 GiB, gradients ...".
std::string MemoryParts(const MemoryUse& memory);
/// "tp=16: +0.8 s (+3.0 %), 0.7 s more bubble": what another strategy costs more than the best.
std::string Compared(const std::string& what, const Estimate& other, const Estimate& best);

/// Strategies per layer at `best`'s stages and micro-batches, if the model is a dense transformer, a stage has 2 to 16 GPUs
/// and they are at least 0.1 % faster than one for all layers.
std::optional<LayerComparison> CompareLayers(const JobSpec& job, const ClusterSpec& cluster, const Strategy& best);
/// "strategies per layer: ...".
std::string DescribeLayers(const LayerComparison& comparison);

/// Why a space has no strategy that fits: by how much the leanest one misses, or, where nothing is legal, the nearest
/// choice that is.
std::vector<std::string> WhyNothingFits(const CostModel& model, const StrategySpace& space, const PlanOptions& options,
                                        CostModel::Scratch& scratch);

}  // namespace weft::planner
