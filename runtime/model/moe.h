// The parts of an MoE layer: who goes to which expert, the experts' products, and what comes back; forward and backward.
// Experts take so many rows of each capacity group, as planner/tasks/step_program.h has it, and the balance loss is
//
//   aux_loss · Σ over layers of the mean over groups of E · Σ_e f_e · P_e
//
// with f_e the share of the group's tokens that choose expert e (they sum to K), dropped or not, and P_e its mean probability.
// Source: GShard, arXiv 2006.16668, section 2.2; Switch Transformer, arXiv 2101.03961, section 2.2; Mixtral, arXiv 2401.04088.
#pragma once

#include "runtime/model/parts.h"

namespace weft::runtime {

/// n, scores → rows for the experts.
torch::Tensor DispatchForward(const PartCall& call, PartState* state);
/// Of n alone.
torch::Tensor DispatchBackward(const PartCall& call, PartState& state);

/// Rows → rows.
torch::Tensor ExpertsForward(const PartCall& call, PartState* state);
torch::Tensor ExpertsBackward(const PartCall& call, PartState& state);
void AddExpertsGradient(const PartCall& call, PartState& state);

/// Rows, scores → tokens.
torch::Tensor CombineForward(const PartCall& call, PartState* state);
/// Of the rows and, with the balance loss, of the scores.
Tensors CombineBackward(const PartCall& call, PartState& state);

}  // namespace weft::runtime
