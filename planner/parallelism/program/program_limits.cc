#include "planner/parallelism/program/program_limits.h"

#include <algorithm>

#include "planner/parallelism/tensor_grid.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline parallelism {
namespace {

/// Of one layer and micro-batch; upper bounds of what stage_program.cc writes.
struct LayerInstructions {
  double forward = 0, backward = 0;  ///< with what the tensor, context and expert ranks exchange
  double exchange = 0;               ///< of replicas: gathered and released for both passes, scattered
};

LayerInstructions OfLayer(const JobSpec& job, const Strategy& s, double slices) {
  const double tensor = s.tp > 1 ? 2 : 0, rows = s.sequence_parallel ? 2 : 0;
  const double context = s.cp > 1 ? 6 + 2 * static_cast<double>(s.cp) : 0;
  const double experts = job.model.IsMoe() ? 12 : 0;
  // Four products with so many steps, two norms, and what lies between.
  const RankGrid grid = GridOf(s);
  const double steps = grid.exists() ? static_cast<double>(grid.side) : 0, fixed = grid.exists() ? 25 : 0;
  LayerInstructions n;
  n.forward = 3 + 4 * slices + tensor + rows + context + experts + 12 * steps + fixed;
  n.backward = 3 + 8 * slices + tensor + (2 + 3 * slices) * rows / 2 + 2 * (context + experts) + 24 * steps + fixed;
  n.exchange = s.dp * s.cp > 1 ? 14 * (1 + slices) : 0;
  return n;
}

}  // namespace

bool RunsInSlices(const JobSpec& job, const Strategy& s, int64_t attention, int64_t mlp) {
  const ModelSpec& m = job.model;
  const auto whole = [&](int64_t size, int64_t slices) { return size % (s.tp * slices) == 0; };
  if (attention == 1 && mlp == 1) return true;
  if (s.sequence_parallel || (s.cp > 1 && attention > 1)) return false;
  return whole(m.kv_heads, attention) && whole(m.hidden, std::max(attention, mlp)) && whole(m.ffn_hidden, mlp);
}

bool RunsHeadInSlices(const JobSpec& job, const Strategy& s, int64_t slices) {
  return slices == 1 || (!job.model.tied_embeddings && job.model.vocab % (s.tp * slices) == 0);
}

OperatorSplits ProgramSplits(const JobSpec& job, const Strategy& s) {
  OperatorSplits splits{.attention = false, .mlp = false, .head = 1};
  if (MostInstructions(job, s, kOperatorSlices) > static_cast<double>(StepProgram::kMostInstructions)) return splits;
  splits.attention = RunsInSlices(job, s, kOperatorSlices, 1);
  splits.mlp = RunsInSlices(job, s, 1, kOperatorSlices);
  for (const int64_t slices : HeadSlices(kMostHeadSlices)) {
    if (RunsHeadInSlices(job, s, slices)) splits.head = slices;
  }
  return splits;
}

double MostInstructions(const JobSpec& job, const Strategy& s, int64_t slices) {
  const auto layers = static_cast<double>(job.model.layers), most = static_cast<double>(slices);
  const auto micro_batches = static_cast<double>(MicroBatches(s, job.global_batch));
  const LayerInstructions n = OfLayer(job, s, most);
  // Embedding, head and loss; the head in as many slices as it is ever cut in, where anything is.
  const double head = slices > 1 ? static_cast<double>(std::max<int64_t>(kMostHeadSlices, slices)) : 1, edges = 40 + 10 * head;
  const double messages = s.pp > 1 ? 8 * (layers + 2) : 0;  // a chunk has a layer, embedding or head
  const double units = 8 * most * layers + 8 + head;
  // Full recomputation runs a forward pass twice. A unit is gathered, updated, averaged and released once per step.
  return micro_batches * (layers * (2 * n.forward + n.backward + n.exchange) + edges + messages) + 10 * units +
         20 * static_cast<double>(s.pp);
}

}  // namespace weft::planner::parallelism
