#include "planner/plan/explain.h"

#include <fmt/format.h>

#include "common/parse_units.h"

namespace weft::planner {
namespace {

std::string Gibibytes(Bytes amount) {
  return fmt::format("{:.1f} GiB", static_cast<double>(amount.count()) / static_cast<double>(int64_t{1} << 30));
}

std::string WhyDegree(const JobSpec& job, const Candidate& chosen) {
  const int64_t dp = chosen.strategy.dp;
  if (dp == job.gpus) {
    return fmt::format("dp={}: all GPUs of the job; each takes {} of {} sequences", dp, job.global_batch / dp,
                       job.global_batch);
  }
  return fmt::format("dp={}: {} of {} GPUs work: {}", dp, dp, job.gpus,
                     job.global_batch % job.gpus != 0
                         ? fmt::format("the batch of {} sequences does not divide by {}", job.global_batch, job.gpus)
                         : std::string("with more, exchanging gradients costs more than it saves, or dp is fixed"));
}

std::string WhyRecompute(const JobSpec& job, const ClusterSpec& cluster, const Candidate& chosen) {
  const Bytes usable = UsableMemory(cluster.device);
  if (chosen.strategy.recompute == Recompute::kNone) {
    return fmt::format("recompute=none: {} of {} usable {} fit with activations kept", Gibibytes(chosen.memory.total()),
                       Gibibytes(usable), cluster.device.name);
  }
  const MemoryUse kept = DataParallelMemory(job, chosen.strategy.micro_batch, Recompute::kNone);
  return fmt::format("recompute=full: keeping activations would need {} of {}; recomputing them needs {}",
                     Gibibytes(kept.total()), Gibibytes(usable), Gibibytes(chosen.memory.total()));
}

std::string WhyBucket(const ClusterSpec& cluster, const Candidate& chosen) {
  const IterationPrediction& predicted = chosen.time.predicted;
  if (chosen.strategy.dp == 1) return "bucket: one rank exchanges nothing";
  const double hidden = predicted.communication.count() > 0
                            ? 1 - predicted.exposed_communication / predicted.communication
                            : 1;
  return fmt::format("bucket={}: {} all-reduce at {} hides {:.0f} % of {} of communication behind backward",
                     FormatBytes(chosen.strategy.bucket_bytes),
                     chosen.time.all_reduce.hierarchical
                         ? fmt::format("hierarchical ({} GPUs per node first)", cluster.gpus_per_node)
                         : std::string("ring"),
                     FormatRate(chosen.time.all_reduce.rate), 100 * std::max(0.0, hidden),
                     FormatDuration(predicted.communication));
}

std::string WhyNotRunnerUp(const Candidate& chosen, const Candidate& other) {
  const Seconds mine = chosen.time.predicted.iteration, its = other.time.predicted.iteration;
  const Seconds compute = other.time.compute - chosen.time.compute;
  const Seconds exposed =
      other.time.predicted.exposed_communication - chosen.time.predicted.exposed_communication;
  if (its <= mine) {
    return fmt::format("runner-up {}: as fast; this one stands first: less recomputation, more ranks, smaller micro-batch",
                       Describe(other.strategy));
  }
  std::string reason;
  if (compute.count() > 0) reason += fmt::format(", {} more compute", FormatDuration(compute));
  if (exposed.count() > 0) reason += fmt::format(", {} more exposed communication", FormatDuration(exposed));
  return fmt::format("runner-up {}: {} ({:+.1f} %){}", Describe(other.strategy), FormatDuration(its),
                     100 * (its / mine - 1), reason);
}

}  // namespace

std::string Describe(const Strategy& strategy) {
  return fmt::format("dp={}, micro_batch={}, recompute={}, bucket={}", strategy.dp, strategy.micro_batch,
                     RecomputeName(strategy.recompute), FormatBytes(strategy.bucket_bytes));
}

std::vector<std::string> Why(const JobSpec& job, const ClusterSpec& cluster, const Candidate& chosen,
                             const Candidate* runner_up, Seconds lower_bound) {
  std::vector<std::string> why = {WhyDegree(job, chosen)};
  why.push_back(fmt::format("micro_batch={}: {} per iteration, gradients exchanged behind the last",
                            chosen.strategy.micro_batch,
                            job.global_batch / (chosen.strategy.dp * chosen.strategy.micro_batch)));
  why.push_back(WhyRecompute(job, cluster, chosen));
  why.push_back(WhyBucket(cluster, chosen));
  why.push_back(fmt::format("lower bound {}: the larger of compute at {:.0f} % of the device's peak{} and of gradient "
                            "bytes over the slowest cut, over all legal degrees",
                            FormatDuration(lower_bound), 100 * cluster.device.gemm_efficiency,
                            job.measured_compute ? " (as measured)" : ""));
  if (runner_up != nullptr) why.push_back(WhyNotRunnerUp(chosen, *runner_up));
  const Seconds least = ModelFlops(job) / (PeakRate(cluster.device, job.precision) * static_cast<double>(job.gpus));
  if (job.measured_compute && *job.measured_compute < least) {
    why.push_back(fmt::format("measured compute of {} is less than {} needs at its peak, {}: is another device meant?",
                              FormatDuration(*job.measured_compute), cluster.device.name, FormatDuration(least)));
  }
  return why;
}

std::string TooLarge(const ClusterSpec& cluster, const Strategy& strategy, const MemoryUse& memory) {
  return fmt::format("memory: micro_batch={}, recompute={} needs {} of {} ({} of {} are reserved): parameters {}, "
                     "gradients {}, optimizer {}, activations {}",
                     strategy.micro_batch, RecomputeName(strategy.recompute), Gibibytes(memory.total()),
                     Gibibytes(UsableMemory(cluster.device)), Gibibytes(cluster.device.reserved), cluster.device.name,
                     Gibibytes(memory.parameters), Gibibytes(memory.gradients), Gibibytes(memory.optimizer),
                     Gibibytes(memory.activations));
}

}  // namespace weft::planner
