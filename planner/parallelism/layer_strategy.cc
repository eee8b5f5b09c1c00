#include "planner/parallelism/layer_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/collective_time.h"
#include "planner/parallelism/divisors.h"
#include "planner/parallelism/data_time.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/layer_chain.h"
#include "planner/parallelism/layer_time.h"
#include "planner/parallelism/memory_model.h"
#include "planner/parallelism/memory_risk.h"

namespace weft::planner::inline parallelism {
namespace {

/// What a layer, or the embedding and head, costs under one strategy.
struct Priced {
  LayerStrategy strategy;
  Seconds pass{0};         // one micro-batch, forward and backward
  Seconds exchange{0};     // once per iteration
  FractionalBytes state, kept, peak;  // always; per micro-batch in flight; while it runs
};

/// The model's parts at one width of a stage and one number of micro-batches.
class StageCosts {
 public:
  StageCosts(const JobSpec& job, const CalibratedHardware& hardware, const SoftwareStack& stack, int64_t gpus,
             int64_t micro_batches)
      : job_(job),
        hardware_(hardware),
        stack_(stack),
        state_(StateBytesOf(stack.state, job.precision, stack.gradients_16bit)),
        micro_batches_(micro_batches) {
    const int64_t share = job.global_batch / micro_batches;
    for (const int64_t tp : Divisors(gpus)) {
      for (const int64_t cp : Divisors(gpus / tp)) {
        const int64_t dp = gpus / tp / cp;
        if (share % dp != 0 || !Fits(tp, cp)) continue;
        Strategy s;
        s.tp = tp;
        s.cp = cp;
        s.dp = dp;
        s.micro_batch = share / dp;
        s.sequence_parallel = tp > 1;
        s.context_mode = ContextMode::kUlysses;
        layouts_.push_back(s);
      }
    }
    for (const Strategy& s : layouts_) Price(s);
    Relayouts();
  }

  /// The same with one strategy for all layers; embedding and head keep its layout and sharding.
  StageCosts Only(const LayerStrategy& strategy) const {
    StageCosts costs = *this;
    const auto others = [&](std::vector<Priced>& parts, bool with_recomputation) {
      std::erase_if(parts, [&](const Priced& part) {
        LayerStrategy wanted = strategy;
        wanted.recomputed = with_recomputation && wanted.recomputed;
        return part.strategy != wanted;
      });
    };
    others(costs.layers_, true);
    others(costs.first_, false);
    others(costs.last_, false);
    return costs;
  }

  size_t layouts() const { return layouts_.size(); }
  const std::vector<Priced>& layers() const { return layers_; }
  const std::vector<Priced>& first() const { return first_; }
  const std::vector<Priced>& last() const { return last_; }
  const std::vector<double>& relayout() const { return relayout_; }
  size_t LayoutOf(const LayerStrategy& strategy) const {
    const auto found = std::find_if(layouts_.begin(), layouts_.end(), [&](const Strategy& s) {
      return s.tp == strategy.tp && s.cp == strategy.cp;
    });
    return static_cast<size_t>(found - layouts_.begin());
  }

 private:
  bool Fits(int64_t tp, int64_t cp) const {
    const ModelSpec& model = job_.model;
    const bool heads = model.heads % (tp * cp) == 0 && (model.kv_heads % tp == 0 || tp % model.kv_heads == 0);
    return heads && model.ffn_hidden % tp == 0 && job_.sequence % cp == 0;
  }

  void Price(const Strategy& from) {
    const LayerKey key = KeyOf(from);
    const LayerTime time = ComputeLayerTime(job_, hardware_, stack_, key, false);
    const EdgeTime edge = ComputeEdgeTime(job_, hardware_, stack_, key);
    const LayerBytes bytes = ComputeLayerBytes(job_, stack_, key, false);
    const auto t = static_cast<double>(from.tp);
    const LayerParameters counts = LayerParametersOf(job_.model, 0);
    const double parameters =
        static_cast<double>(counts.attention + counts.mlp) / t + static_cast<double>(counts.norms);
    const Seconds forward = time.forward.total();
    const Seconds backward = time.backward_data.total() + time.backward_weight.total();
    const double table = static_cast<double>(job_.model.vocab * job_.model.hidden) / t;
    const double tokens = static_cast<double>(from.micro_batch * job_.sequence) / static_cast<double>(from.cp);
    const FractionalBytes logits(tokens * static_cast<double>(job_.model.vocab) / t * 6);
    for (const bool sharded : {false, true}) {
      if (sharded && from.dp * from.cp == 1) continue;
      for (const bool recomputed : {false, true}) {
        Priced layer = Part(from, sharded, parameters, forward, backward + (recomputed ? forward : Seconds(0)));
        layer.strategy.recomputed = recomputed;
        layer.kept = recomputed ? bytes.full : bytes.none;
        if (recomputed) layer.peak += bytes.none - bytes.full;
        layers_.push_back(layer);
      }
      first_.push_back(Part(from, sharded, table, edge.embedding_forward.total(), edge.embedding_backward.total()));
      last_.push_back(Part(from, sharded, table, edge.head_forward.total(),
                           edge.head_backward_data.total() + edge.head_backward_weight.total()));
      last_.back().peak += logits;
    }
  }

  Priced Part(const Strategy& from, bool sharded, double parameters, Seconds forward, Seconds backward) const {
    Strategy s = from;
    s.zero_stage = sharded ? 3 : 0;
    Priced part{.strategy = {from.tp, from.cp, from.dp, sharded, false}, .pass = forward + backward};
    const double replicas = sharded ? static_cast<double>(from.dp * from.cp) : 1;
    part.state = parameters * (state_.parameter + state_.gradient + state_.optimizer) / replicas;
    StageShape shape;
    shape.dense_parameters = shape.unit_parameters = parameters;
    const DataTime data = ComputeDataTime(hardware_, stack_, s, state_, shape);
    part.exchange = data.optimizer;
    if (sharded) {
      const UnitTime unit = ComputeUnitTime(hardware_, stack_, s, state_, parameters);
      part.pass += std::max(Seconds(0), unit.gather - forward) + std::max(Seconds(0), unit.gather + unit.scatter - backward);
      part.peak = UnitPeak(stack_, state_, parameters, parameters);
    } else {
      part.exchange += std::max(Seconds(0), data.gradients - backward);
    }
    return part;
  }

  /// Once forward and once backward per micro-batch: whoever needs more of the batch gathers it.
  void Relayouts() {
    const size_t n = layouts_.size();
    relayout_.assign(n * n, 0);
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        if (a == b) continue;
        const int64_t more = std::max(layouts_[a].dp, layouts_[b].dp), fewer = std::min(layouts_[a].dp, layouts_[b].dp);
        const FractionalBytes width = static_cast<double>(job_.model.hidden) * hardware_.element;
        const double tokens = static_cast<double>(job_.global_batch / micro_batches_ / fewer * job_.sequence);
        const int64_t ranks = std::max<int64_t>(2, more / fewer);
        const Group group{ranks, std::max<int64_t>(1, layouts_[a].tp)};
        relayout_[a * n + b] = static_cast<double>(micro_batches_) * GatherTime(hardware_.network, group, tokens * width).count();
      }
    }
    // Two steps may be cheaper than one.
    for (size_t k = 0; k < n; ++k) {
      for (size_t a = 0; a < n; ++a) {
        for (size_t b = 0; b < n; ++b) {
          relayout_[a * n + b] = std::min(relayout_[a * n + b], relayout_[a * n + k] + relayout_[k * n + b]);
        }
      }
    }
  }

  const JobSpec& job_;
  const CalibratedHardware& hardware_;
  const SoftwareStack& stack_;
  StateBytes state_;
  int64_t micro_batches_;
  std::vector<Strategy> layouts_;
  std::vector<Priced> layers_, first_, last_;
  std::vector<double> relayout_;  // s, as ChainProblem has them
};

/// One stage: its chain, solved for every peak that could matter.
struct SolvedStage {
  bool feasible = false, complete = true;
  LayerStage stage;
  Seconds pass{0};      // of one micro-batch
  int64_t problems = 0;
};

class StageSolver {
 public:
  StageSolver(const StageCosts& costs, int64_t micro_batches, double tolerance)
      : costs_(costs), micro_batches_(micro_batches), tolerance_(tolerance) {}

  SolvedStage Solve(int64_t layers, double in_flight, bool first, bool last, Bytes budget) const {
    std::vector<std::pair<const std::vector<Priced>*, int64_t>> runs;
    if (first) runs.emplace_back(&costs_.first(), 1);
    runs.emplace_back(&costs_.layers(), layers);
    if (last) runs.emplace_back(&costs_.last(), 1);
    std::vector<FractionalBytes> peaks;
    for (const auto& [parts, count] : runs) {
      for (const Priced& part : *parts) peaks.push_back(part.peak);
    }
    std::sort(peaks.begin(), peaks.end(), std::greater<>());
    peaks.erase(std::unique(peaks.begin(), peaks.end()), peaks.end());
    SolvedStage best;
    double upper = 1e300;
    for (const FractionalBytes peak : peaks) {
      const ChainProblem problem = Chain(runs, in_flight, peak, budget);
      if (problem.runs.empty()) break;  // a smaller peak leaves some part without a choice
      const ChainAnswer answer = SolveLayerChain(problem, {.tolerance = tolerance_, .upper = upper});
      ++best.problems;
      best.complete = best.complete && answer.complete;
      if (!answer.feasible || answer.time >= upper) continue;
      upper = answer.time;
      best.feasible = true;
      Describe(runs, answer, peak, best);
    }
    return best;
  }

 private:
  using Runs = std::vector<std::pair<const std::vector<Priced>*, int64_t>>;

  ChainProblem Chain(const Runs& runs, double in_flight, FractionalBytes peak, Bytes budget) const {
    ChainProblem problem{.runs = {}, .layouts = costs_.layouts(), .relayout = costs_.relayout(),
                         .budget = (budget - peak.Truncated()).count()};
    for (const auto& [parts, count] : runs) {
      LayerRun run{.options = {}, .count = count};
      for (const Priced& part : *parts) {
        if (part.peak > peak) continue;
        run.options.push_back({(static_cast<double>(micro_batches_) * part.pass + part.exchange).count(),
                               (part.state + in_flight * part.kept).Truncated().count(),
                               costs_.LayoutOf(part.strategy)});
      }
      if (run.options.empty()) return {};
      problem.runs.push_back(std::move(run));
    }
    return problem;
  }

  void Describe(const Runs& runs, const ChainAnswer& answer, FractionalBytes peak, SolvedStage& best) const {
    best.stage = {};
    best.stage.time = Seconds(answer.time);
    best.stage.memory = Bytes(answer.memory) + peak.Truncated();
    best.pass = Seconds(0);
    size_t at = 0;
    for (const auto& [parts, count] : runs) {
      std::vector<const Priced*> allowed;
      for (const Priced& part : *parts) {
        if (part.peak <= peak) allowed.push_back(&part);
      }
      for (int64_t i = 0; i < count; ++i, ++at) {
        const Priced& part = *allowed[answer.option[at]];
        best.pass += part.pass;
        if (parts != &costs_.layers()) continue;
        if (best.stage.runs.empty() || best.stage.runs.back().strategy != part.strategy) {
          best.stage.runs.push_back({part.strategy, 0});
        }
        ++best.stage.runs.back().layers;
      }
    }
  }

  const StageCosts& costs_;
  int64_t micro_batches_;
  double tolerance_;
};

Status Check(const JobSpec& job, const ClusterSpec& cluster, int64_t gpus) {
  if (job.model.IsMoe() || job.model.IsCnn()) {
    return Fail(Code::kInvalidArgument, fmt::format("model \"{}\": expected a dense transformer", job.model.name));
  }
  if (job.model.layers < 1 || job.global_batch < 1 || job.sequence < 1) {
    return Fail(Code::kInvalidArgument,
                fmt::format("layers {}, global_batch {}, sequence {}: expected positive numbers", job.model.layers,
                            job.global_batch, job.sequence));
  }
  if (gpus < 1 || gpus > cluster.TotalGpus()) {
    return Fail(Code::kInvalidArgument, fmt::format("gpus: {}, expected 1 to the {} of cluster {}", gpus,
                                                    cluster.TotalGpus(), cluster.name));
  }
  return Ok();
}

/// All stages of one pipeline degree and number of micro-batches.
LayerPlan PlanPipeline(const JobSpec& job, const StageCosts& costs, int64_t pp, int64_t micro_batches, Bytes budget,
                       double tolerance) {
  LayerPlan plan{.feasible = true, .pp = pp, .micro_batches = micro_batches};
  const StageSolver solver(costs, micro_batches, tolerance);
  Seconds slowest{0}, slowest_pass{0}, passes{0};
  for (int64_t stage = 0; stage < pp && plan.feasible; ++stage) {
    // Earlier stages take what does not divide; the last one has the head.
    const int64_t layers = job.model.layers / pp + (stage < job.model.layers % pp ? 1 : 0);
    const auto in_flight = static_cast<double>(std::min(micro_batches, pp - stage));
    SolvedStage solved = solver.Solve(layers, in_flight, stage == 0, stage == pp - 1, budget);
    plan.problems += solved.problems;
    plan.complete = plan.complete && solved.complete;
    plan.feasible = solved.feasible;
    passes += solved.pass;
    if (solved.stage.time > slowest) {
      slowest = solved.stage.time;
      slowest_pass = solved.pass;
    }
    plan.stages.push_back(std::move(solved.stage));
  }
  plan.iteration = slowest + std::max(Seconds(0), passes - slowest_pass);
  return plan;
}

}  // namespace

Result<LayerPlan> PlanLayers(const JobSpec& job, const ClusterSpec& cluster, const Calibration& calibration,
                             const LayerPlanOptions& options) {
  const int64_t gpus = job.gpus > 0 ? job.gpus : cluster.TotalGpus();
  WEFT_RETURN_IF_ERROR(Check(job, cluster, gpus));
  const SoftwareStack stack = StackOf(Framework::kAny);
  WEFT_ASSIGN_OR_RETURN(const CalibratedHardware hardware, MakeCalibratedHardware(cluster, job.precision, stack, calibration));
  const Bytes budget = (FractionalBytes(MemoryAllowance(cluster.device, kDefaultRisk)) - hardware.context_bytes).Truncated();
  LayerPlan best;
  int64_t problems = 0;
  bool complete = true;
  for (const int64_t pp : Divisors(gpus)) {
    if ((options.pp != 0 && pp != options.pp) || pp > job.model.layers) continue;
    for (const int64_t micro_batches : Divisors(job.global_batch)) {
      if (options.micro_batches != 0 && micro_batches != options.micro_batches) continue;
      const StageCosts costs(job, hardware, stack, gpus / pp, micro_batches);
      if (costs.layouts() == 0) continue;
      const auto offer = [&](const StageCosts& offered) {
        LayerPlan plan = PlanPipeline(job, offered, pp, micro_batches, budget, options.tolerance);
        problems += plan.problems;
        complete = complete && plan.complete;
        if (plan.feasible && (!best.feasible || plan.iteration < best.iteration)) best = std::move(plan);
      };
      if (!options.uniform) {
        offer(costs);
        continue;
      }
      for (const Priced& layer : costs.layers()) offer(costs.Only(layer.strategy));
    }
  }
  best.problems = problems;
  best.complete = complete;
  return best;
}

}  // namespace weft::planner::parallelism
