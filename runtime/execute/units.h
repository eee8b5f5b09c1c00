// Parameters, gradients and optimizer state of one rank, unit by unit, as a program has them: whole or sharded, gathered for a
// while, summed in place or into a shard. Reaches torch.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/execute/program_groups.h"
#include "runtime/model/parts.h"
#include "runtime/state/unit_state.h"

namespace weft::runtime {

/// AdamW. Source: arXiv 1711.05101; the update is LibTorch's, element for element.
struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};

/// Threads: one; but a Transfer that Prepare() made may run on another, while nobody uses the unit.
class Units {
 public:
  /// Draws the initial parameters of this rank's blocks; without a seed they are zero, for whoever brings others.
  /// Errors: kInvalidArgument where a block has another number of elements than the model's part.
  [[nodiscard]] static Result<std::unique_ptr<Units>> Create(const planner::RankClass& program, const ModelShape& shape,
                                                             const ProgramGroups& groups, std::optional<uint64_t> seed);

  /// The tensors of a slice of a part of a layer; of a tied head those of the embedding. Gradients where `gradients`: zero before
  /// the first use.
  /// Errors: kFailedPrecondition for parameters that are not gathered.
  [[nodiscard]] Result<PartParameters> Of(planner::ModelPart part, int64_t layer, int32_t slice, bool gradients);
  /// All parameters of a block that is not cut in slices, or their gradients, [1 × elements], as they lie in memory.
  /// Errors: kFailedPrecondition without a block, and as Of().
  [[nodiscard]] Result<torch::Tensor> PanelOf(planner::ModelPart part, int64_t layer, bool gradients);
  /// Units that its parameters are in; none for a part without.
  std::vector<int32_t> UnitsOf(planner::ModelPart part, int64_t layer, int32_t slice) const;

  /// The transfer that a communication of the unit is; memory that it needs is there.
  Transfer Prepare(const planner::Instruction& instruction);
  /// After it. For kReduceScatter, or the sum of shards that follows it: adds what came to the shard, and the whole gradients are
  /// zero again. `ranks` of its group.
  void Finish(const planner::Instruction& instruction, int64_t ranks);
  /// Drops gathered parameters.
  void Release(int32_t unit);

  /// Sum of squares of the gradients that this rank counts. Requires: all exchanges are over.
  double Squares() const;
  /// What of it lasts; not what narrow gradients have left out. Requires: between steps.
  RankState State();

  /// What a kMix has brought is averaged in, and one step of AdamW done on what of the unit is this rank's, gradients times
  /// `factor`; they are zero afterwards. `step` counts from 1.
  void Update(int32_t unit, const AdamOptions& options, double factor, int64_t step);

 private:
  struct Unit {
    planner::ParameterUnit plan;
    int64_t begin = 0, end = 0;  ///< this rank's elements
    bool counts = true;          ///< this rank counts its gradients
    torch::Tensor parameters;    ///< [elements]; undefined while they are released
    torch::Tensor shard;         ///< of them, [end - begin]; a view where the whole stays
    torch::Tensor gradients;     ///< [elements]; undefined while there are none
    torch::Tensor gradient_shard;
    torch::Tensor first, second;  ///< moments, [end - begin]
    torch::Tensor arriving;       ///< of a scatter under way; the neighbour's parameters of a kMix
    torch::Tensor remainder;      ///< [elements], what narrow gradients have left out so far
  };
  struct Place {
    int32_t unit = 0;
    int64_t offset = 0;  ///< in the unit
    int64_t elements = 0;
    bool counts = true;
    std::vector<std::vector<int64_t>> sizes;  ///< of the block's tensors
  };

  Units(const ModelShape& shape) : shape_(shape) {}
  Status Fill(const planner::RankClass& program, std::optional<uint64_t> seed);
  void Shard(Unit& unit);
  const Place* Find(planner::ModelPart part, int64_t layer, int32_t slice = 0) const;
  static Tensors Views(const torch::Tensor& memory, const Place& place);

  ModelShape shape_;
  std::vector<Unit> units_;
  std::vector<planner::ParameterBlock> blocks_;
  std::vector<Place> places_;  // of blocks_
  std::map<std::tuple<planner::ModelPart, int64_t, int32_t>, size_t> at_;  // by slice
};

}  // namespace weft::runtime
