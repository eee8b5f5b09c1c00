// CostModel::LowerBound and EvaluateSimulated.
#include <algorithm>
#include <limits>

#include "planner/parallelism/cost_tables.h"

namespace weft::planner {

Seconds CostModel::LowerBound(const Strategy& prefix, DecidedMask decided, Scratch& scratch) const {
  const Impl& impl = *impl_;
  const double gpus = static_cast<double>(impl.job.gpus);
  const auto has = [decided](Decided variable) { return (decided & Bit(variable)) != 0; };
  // All arithmetic at the best rate that any kernel reaches, spread evenly over all GPUs; causal attention skips half.
  const double rate = std::max({impl.machine.gemm_rate, impl.machine.gemm16_rate, impl.machine.flash_rate});
  double bound = impl.least_flops / rate / gpus + impl.machine.step_host;
  const bool layer_known = has(Decided::kTp) && has(Decided::kCp) && has(Decided::kMicroBatch) && has(Decided::kEp) &&
                           has(Decided::kEtp) && !impl.job.model.IsCnn();
  if (layer_known && has(Decided::kDp) && has(Decided::kPp)) {
    // The layers' own times; recomputation, messages, bubbles, exchange and optimizer can only add. Without sequence
    // parallelism decided, the cheaper of the two.
    double least = std::numeric_limits<double>::infinity();
    for (const bool split : {false, true}) {
      Strategy s = prefix;
      s.sequence_parallel = split && s.tp > 1;
      const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
      const double mixtures = static_cast<double>(impl.mixtures_before.back());
      const double dense = static_cast<double>(impl.job.model.layers) - mixtures;
      const auto total = [](const LayerTime& t) {
        return t.forward.total() + t.backward_data.total() + t.backward_weight.total();
      };
      double all = dense * total(entry.dense) + mixtures * total(entry.mixture);
      all += entry.edge.embedding_forward.total() + entry.edge.embedding_backward.total() + entry.edge.head_forward.total() +
             entry.edge.head_backward_data.total() + entry.edge.head_backward_weight.total();
      if (has(Decided::kRecompute) && s.recompute == Recompute::kFull && s.recompute_layers < 0) {
        all += dense * entry.dense.forward.total() + mixtures * entry.mixture.forward.total();
      }
      least = std::min(least, all);
    }
    const double micro_batches = static_cast<double>(MicroBatches(prefix, impl.job.global_batch));
    bound = std::max(bound, micro_batches * (least / static_cast<double>(prefix.pp) + impl.machine.micro_batch_host) +
                                impl.machine.step_host);
  }
  return Seconds(bound);
}

Estimate CostModel::EvaluateSimulated(const Strategy& s, Scratch& scratch) const {
  const Impl& impl = *impl_;
  Estimate estimate = Evaluate(s, scratch);
  if (s.pp == 1) return estimate;
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  std::vector<StageTime>& stages = scratch.tables_->stages;
  stages.clear();
  double most = 0;
  const double chunks = static_cast<double>(s.vpp);
  for (int64_t i = 0; i < s.pp; ++i) {
    const StagePasses passes = impl.Passes(s, entry, i);
    most = std::max(most, passes.F() + passes.B());
    const StageTime chunk{Seconds(passes.F() / chunks), Seconds((passes.B() - passes.weight) / chunks),
                          Seconds(passes.weight / chunks)};
    stages.insert(stages.end(), static_cast<size_t>(s.vpp), chunk);
  }
  const Seconds hop(impl.HopTime(s));
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  const auto simulated = SimulatePipeline({.schedule = s.schedule, .stages = stages, .micro_batches = micro_batches,
                                           .chunks = s.vpp, .hops = std::span(&hop, 1),
                                           .blocking_sends = BlockingSends(impl.stack, s.schedule)},
                                          scratch.tables_->pipeline);
  // Shapes that the simulator has no order for (interleaving with p not dividing m) keep the closed form.
  if (!simulated) return estimate;
  const Seconds before = Seconds(static_cast<double>(micro_batches) * most) + estimate.bubble + estimate.pipeline;
  estimate.bubble = simulated->iteration - Seconds(static_cast<double>(micro_batches) * most);
  estimate.pipeline = Seconds(0);  // part of the bubble: the simulation does not tell them apart
  estimate.iteration += simulated->iteration - before;
  return estimate;
}

}  // namespace weft::planner
