#include "planner/plan/data_parallel_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "planner/parallelism/data_parallel.h"
#include "planner/plan/explain.h"
#include "planner/search/best_first.h"

namespace weft::planner {
namespace {

// What this version's search varies, and what it keeps at one value.
constexpr std::array kVaried = {"dp", "micro_batch", "recompute", "bucket_bytes"};
struct Constant {
  const char* name;
  int64_t value;
};
constexpr std::array kConstants = {Constant{"tp", 1}, Constant{"pp", 1}, Constant{"cp", 1},
                                   Constant{"ep", 1}, Constant{"vpp", 1}, Constant{"zero_stage", 0}};

Status Require(bool holds, std::string_view field, int64_t value, std::string_view expected) {
  if (holds) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("{}: {}, expected {}", field, value, expected));
}

Status CheckFix(const std::map<std::string, int64_t>& fix) {
  for (const auto& [name, value] : fix) {
    const auto constant = std::find_if(kConstants.begin(), kConstants.end(),
                                       [&](const Constant& known) { return name == known.name; });
    if (constant != kConstants.end()) {
      WEFT_RETURN_IF_ERROR(Require(value == constant->value, "fix " + name, value,
                                   fmt::format("{}: weft-train splits the batch only", constant->value)));
      continue;
    }
    if (std::find(kVaried.begin(), kVaried.end(), name) == kVaried.end()) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("fix {}: unknown, expected one of dp, micro_batch, recompute, bucket_bytes, tp, pp, cp, ep, "
                              "vpp, zero_stage", name));
    }
    const bool is_recompute = name == "recompute";
    WEFT_RETURN_IF_ERROR(Require(is_recompute ? value == 0 || value == 1 : value >= 1, "fix " + name, value,
                                 is_recompute ? "0 (none) or 1 (full)" : "a positive number"));
  }
  return Ok();
}

class Search {
 public:
  Search(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options)
      : job_(job), cluster_(cluster), options_(options) {}

  PlanAnswer Run() {
    Enumerate();
    if (candidates_.empty()) return std::move(answer_);
    std::vector<double> bounds;
    lower_bound_ = Seconds(1e300);
    for (const Candidate& candidate : candidates_) {
      const Strategy& s = candidate.strategy;
      bounds.push_back(DataParallelBound(job_, cluster_, s.dp, s.recompute).count());
    }
    for (const int64_t dp : degrees_) {
      lower_bound_ = std::min(lower_bound_, DataParallelBound(job_, cluster_, dp, Recompute::kNone));
    }
    // One more than asked for: the last plan, too, is told what it beat.
    const size_t keep = static_cast<size_t>(std::max(1, options_.top)) + 1;
    const BestFirstResult found = BestFirst(bounds, keep, options_.node_budget, [&](size_t i) {
      Candidate& candidate = candidates_[i];
      candidate.time = PredictDataParallel(job_, cluster_, candidate.strategy, Fixed("bucket_bytes").has_value());
      candidate.strategy.bucket_bytes = candidate.time.bucket;
      return candidate.time.predicted.iteration.count();
    });
    answer_.evaluated = found.evaluated * Buckets();
    answer_.pruned = answer_.strategies - answer_.evaluated;
    answer_.complete = found.complete;
    if (!found.complete) answer_.pruned -= (static_cast<int64_t>(bounds.size()) - found.evaluated) * Buckets();
    const size_t wanted = std::min(found.best.size(), keep - 1);
    for (size_t i = 0; i < wanted; ++i) {
      const Candidate* next = i + 1 < found.best.size() ? &candidates_[found.best[i + 1].candidate] : nullptr;
      answer_.plans.push_back(MakePlan(candidates_[found.best[i].candidate], next));
    }
    return std::move(answer_);
  }

 private:
  std::optional<int64_t> Fixed(const char* name) const {
    const auto found = options_.fix.find(name);
    if (found == options_.fix.end()) return std::nullopt;
    return found->second;
  }

  int64_t Buckets() const { return Fixed("bucket_bytes") ? 1 : BucketChoices(); }

  /// Legal degrees, largest first: ties between plans go to more ranks.
  std::vector<int64_t> Degrees() {
    std::vector<int64_t> degrees;
    for (const int64_t dp : Divisors(job_.gpus)) {
      if (job_.global_batch % dp == 0 && Fixed("dp").value_or(dp) == dp) degrees.push_back(dp);
    }
    std::reverse(degrees.begin(), degrees.end());
    if (degrees.empty()) {
      const int64_t dp = *Fixed("dp");
      answer_.infeasible.push_back(fmt::format("batch: dp={} does not divide both the {} GPUs and the {} sequences", dp,
                                               job_.gpus, job_.global_batch));
    }
    return degrees;
  }

  /// Fills candidates_ with what is legal and fits, or says why nothing is.
  void Enumerate() {
    degrees_ = Degrees();
    std::optional<Candidate> smallest;
    bool any_micro_batch = false;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      const int64_t number = recompute == Recompute::kFull ? 1 : 0;
      if (Fixed("recompute").value_or(number) != number) continue;
      for (const int64_t dp : degrees_) {
        for (const int64_t micro_batch : Divisors(job_.global_batch / dp)) {
          if (Fixed("micro_batch").value_or(micro_batch) != micro_batch) continue;
          any_micro_batch = true;
          answer_.strategies += Buckets();
          Candidate candidate;
          candidate.memory = DataParallelMemory(job_, micro_batch, recompute);
          candidate.strategy.dp = dp;
          candidate.strategy.micro_batch = micro_batch;
          candidate.strategy.recompute = recompute;
          candidate.strategy.bucket_bytes = Bytes(Fixed("bucket_bytes").value_or(Strategy().bucket_bytes.count()));
          if (candidate.memory.total() <= UsableMemory(cluster_.device)) {
            candidates_.push_back(std::move(candidate));
          } else if (!smallest || candidate.memory.total() < smallest->memory.total()) {
            smallest = std::move(candidate);
          }
        }
      }
    }
    if (!candidates_.empty() || degrees_.empty()) return;
    if (!any_micro_batch) {
      answer_.infeasible.push_back(fmt::format("batch: micro_batch={} divides the share of no data-parallel degree of the "
                                               "{} sequences", *Fixed("micro_batch"), job_.global_batch));
    } else {
      answer_.pruned = answer_.strategies;
      answer_.infeasible.push_back(TooLarge(cluster_, smallest->strategy, smallest->memory));
      answer_.infeasible.push_back("data parallelism keeps the whole model on every GPU: more GPUs do not help; a smaller "
                                   "model, a shorter sequence or GPUs with more memory do");
    }
  }

  JobPlan MakePlan(const Candidate& candidate, const Candidate* runner_up) const {
    JobPlan plan;
    plan.strategy = candidate.strategy;
    const IterationPrediction& predicted = candidate.time.predicted;
    plan.predicted.iteration = predicted.iteration;
    plan.predicted.tokens_per_s =
        static_cast<double>(job_.global_batch) * static_cast<double>(job_.sequence) / predicted.iteration.count();
    const double flops =
        ModelFlops(job_).count() / predicted.iteration.count() / static_cast<double>(job_.gpus);
    plan.predicted.tflops_per_gpu = flops / 1e12;
    plan.predicted.mfu = flops / PeakRate(cluster_.device, job_.precision).value();
    plan.predicted.exposed_communication = predicted.exposed_communication;
    plan.predicted.memory = candidate.memory;
    plan.lower_bound = std::min(lower_bound_, predicted.iteration);
    plan.gap = predicted.iteration / plan.lower_bound - 1;
    plan.why = Why(job_, cluster_, candidate, runner_up, plan.lower_bound);
    return plan;
  }

  const JobSpec& job_;
  const ClusterSpec& cluster_;
  const PlanOptions& options_;
  PlanAnswer answer_;
  std::vector<int64_t> degrees_;
  std::vector<Candidate> candidates_;
  Seconds lower_bound_{0};
};

}  // namespace

Result<PlanAnswer> PlanDataParallel(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckFix(options.fix));
  JobSpec whole = job;
  if (whole.gpus == 0) whole.gpus = cluster.nodes * cluster.gpus_per_node;
  return Search(whole, cluster, options).Run();
}

}  // namespace weft::planner
