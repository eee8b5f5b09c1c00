// All ways of one layer's operators, priced. An operator's decision is priced by itself once; a way of the layer puts two
// together, with the times of what travels uncut, of which there are few. Internal to operator_*.cc.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/fractional_bytes.h"
#include "common/units.h"
#include "planner/parallelism/data_time.h"
#include "planner/parallelism/operator_sharding.h"

namespace weft::planner::inline parallelism {

/// What one operator does by itself.
struct OperatorPart {
  FractionalBytes parameters, gradients, optimizer_state;
  Seconds optimizer{0};
  Seconds gather{0}, scatter{0};         ///< per pass, of slices
  Seconds reduce{0}, fetch{0};           ///< per iteration
  double slice = 0;                      ///< parameters gathered one by one
  double flat_gather = 0, flat_scatter = 0;  ///< parameters that travel with the other operator's, uncut
};

/// `norms`: of `parameters`, what is never cut. `operations`: where its exchanges are written, if not null. Requires: slices that
/// divide the operator, 0 ≤ sharded ≤ slices.
OperatorPart PartOf(const OperatorProblem& problem, bool experts, double parameters, double norms, const OperatorDecision& decision,
                    std::vector<Operation>* operations = nullptr);

/// Gather and scatter of parameters that travel uncut; nothing where there are none.
UnitTime UncutTime(const OperatorProblem& problem, double parameters);

/// What a layer's communication adds up to.
struct LayerSums {
  Seconds gather{0}, scatter{0};  ///< per pass
  Seconds reduce{0}, fetch{0};    ///< per iteration
};
LayerSums SumsOf(const OperatorPart& attention, const OperatorPart& mlp, Seconds flat_gather, Seconds flat_scatter);

/// Of two parts, with the times of their uncut gather and scatter in `sums`.
OperatorCost CostOfParts(const OperatorProblem& problem, const OperatorPart& attention, const OperatorPart& mlp, const LayerSums& sums);

/// All ways of one kind of layer.
class LayerWays {
 public:
  LayerWays(const OperatorProblem& problem, bool moe);

  /// How many there are; way i is attention's decision i / n with the MLP's i % n, of n.
  size_t size() const { return decisions_[0].size() * decisions_[1].size(); }
  const OperatorDecision& attention(size_t way) const { return decisions_[0][way / decisions_[1].size()]; }
  const OperatorDecision& mlp(size_t way) const { return decisions_[1][way % decisions_[1].size()]; }
  /// As CostOfLayer().
  OperatorCost Cost(const OperatorProblem& problem, size_t way) const;

 private:
  // Uncut parameters come in quarters of an operator.
  static constexpr size_t kQuarters = 5;

  std::array<std::span<const OperatorDecision>, 2> decisions_;  // attention, MLP
  std::array<std::array<OperatorPart, 10>, 2> parts_;  // attention, MLP
  std::array<std::array<uint8_t, 10>, 2> quarters_ = {};  // of flat_scatter
  std::array<Seconds, 4> gather_ = {};                 // neither, the MLP, attention, both
  std::array<Seconds, kQuarters * kQuarters> scatter_ = {};
};

}  // namespace weft::planner::parallelism
