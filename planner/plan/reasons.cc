#include "planner/plan/reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "common/parse_units.h"
#include "planner/plan/plan_search.h"

namespace weft::planner {
namespace {

struct Part {
  const char* name;
  Seconds Estimate::* time;
};
constexpr std::array kParts = {Part{"compute", &Estimate::compute},
                               Part{"exposed tensor-parallel communication", &Estimate::tensor},
                               Part{"exposed context-parallel communication", &Estimate::context},
                               Part{"exposed expert-parallel communication", &Estimate::expert},
                               Part{"exposed gradient and parameter exchange", &Estimate::data},
                               Part{"pipeline messages", &Estimate::pipeline},
                               Part{"bubble", &Estimate::bubble},
                               Part{"optimizer", &Estimate::optimizer},
                               Part{"host overhead", &Estimate::overhead}};

/// "0.80 s more bubble, 0.10 s more compute": the two largest increases.
std::string Increases(const Estimate& from, const Estimate& to) {
  std::array<std::pair<double, const char*>, kParts.size()> increases;
  for (size_t i = 0; i < kParts.size(); ++i) {
    increases[i] = {(to.*kParts[i].time - from.*kParts[i].time).count(), kParts[i].name};
  }
  std::stable_sort(increases.begin(), increases.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < 2; ++i) {
    if (increases[i].first <= 0 || (i == 1 && increases[i].first < 0.2 * increases[0].first)) break;
    text += fmt::format(", {} more {}", FormatDuration(Seconds(increases[i].first)), increases[i].second);
  }
  return text;
}

std::string Print(const char* name, const Strategy& s) {
  const StrategyVariable* variable = FindStrategyVariable(name);
  return fmt::format("{}={}", name, variable->print(variable->get(s)));
}

}  // namespace

std::string Gibibytes(Bytes amount) {
  const auto bytes = static_cast<double>(amount.count());
  if (amount.count() < int64_t{100} << 20) return fmt::format("{:.1f} MiB", bytes / static_cast<double>(1 << 20));
  return fmt::format("{:.1f} GiB", bytes / static_cast<double>(int64_t{1} << 30));
}

std::string MemoryParts(const MemoryUse& memory) {
  return fmt::format("parameters {}, gradients {}, optimizer {}, activations {}, buffers {}, fragmentation {}, context and "
                     "communicators {}",
                     Gibibytes(memory.parameters), Gibibytes(memory.gradients), Gibibytes(memory.optimizer),
                     Gibibytes(memory.activations), Gibibytes(memory.transient), Gibibytes(memory.fragmentation),
                     Gibibytes(memory.context));
}

std::string Compared(const std::string& what, const Estimate& other, const Estimate& best) {
  const Seconds more = other.iteration - best.iteration;
  if (more.count() <= 0) return fmt::format("{}: as fast", what);
  return fmt::format("{}: +{} ({:+.1f} %){}", what, FormatDuration(more), 100 * (more / best.iteration), Increases(best, other));
}

std::string Reasons::WhoWorks() const {
  const JobSpec& job = model_.job();
  if (job.gpus == gpus_) return fmt::format("all {} GPUs", gpus_);
  return fmt::format("{} of {} GPUs work: {}", job.gpus, gpus_,
                     job.global_batch % gpus_ != 0
                         ? fmt::format("the batch of {} sequences does not divide by {}", job.global_batch, gpus_)
                         : std::string("with more, exchanging gradients costs more than it saves, or dp is fixed"));
}

void Reasons::AddBucket(const JobPlan& plan, std::vector<std::string>& why) const {
  if (Describe(space_.framework()).buckets.empty()) return;
  for (const CommunicatorUse& use : plan.communicators) {
    if (use.kind != CommunicatorKind::kData || use.size == 1 || use.seconds.count() <= 0) continue;
    why.push_back(fmt::format("{}: {} all-reduce hides {:.0f} % of {} of communication behind the backward pass",
                              Print("bucket_bytes", plan.strategy), use.algorithm,
                              100 * std::max(0.0, 1 - use.exposed / use.seconds), FormatDuration(use.seconds)));
  }
}

void Reasons::AddDoubt(std::vector<std::string>& why) const {
  const JobSpec& job = model_.job();
  if (!job.measured_compute) return;
  // The model's is of the GPUs that work; the measurement of all.
  const Seconds measured = *job.measured_compute * (static_cast<double>(job.gpus) / static_cast<double>(gpus_));
  const Seconds least(model_.model_flops().count() / (MeanPeak(model_) * static_cast<double>(gpus_)));
  if (measured >= least) return;
  why.push_back(fmt::format("measured compute of {} is less than {} needs at its peak, {}: is another device meant?",
                            FormatDuration(measured), model_.cluster().device.name, FormatDuration(least)));
}

std::vector<std::string> Reasons::WhyBest(const JobPlan& plan) const {
  const Strategy& s = plan.strategy;
  const Estimate& e = plan.predicted.parts;
  const JobSpec& job = model_.job();
  std::vector<std::string> why;
  why.push_back(fmt::format("dp={} x tp={} x pp={} x cp={}: {}; a replica takes {} of {} sequences in {} "
                            "micro-batch{} of {}", s.dp, s.tp, s.pp, s.cp, WhoWorks(), job.global_batch / s.dp,
                            job.global_batch, MicroBatches(s, job.global_batch),
                            MicroBatches(s, job.global_batch) == 1 ? "" : "es", s.micro_batch));
  if (ChangesTraining(s) || s.data_sync != DataSync::kRing) {
    why.push_back(fmt::format("gradients: summed by data_sync={}, on the wire {}{}{}", DataSyncName(s.data_sync), GradientWireName(s.gradient_wire),
                              s.local_steps > 1 ? fmt::format(", replicas average every {} steps", s.local_steps) : "",
                              ChangesTraining(s) ? ": what is trained is not the same" : ""));
  }
  AddBucket(plan, why);
  const DeviceSpec& device = model_.cluster().device;
  why.push_back(fmt::format("memory: {} of {} ({:.0f} %) on stage {} of {}, the fullest: {}", Gibibytes(e.memory.total()),
                            Gibibytes(device.memory), 100 * (e.memory.total() / device.memory), e.worst_stage + 1, s.pp,
                            MemoryParts(e.memory)));
  why.push_back(fmt::format("risk: of published runs, every source alike, {:.0f} % needed so much more than predicted that they would not "
                            "fit here; predictions up to {} are taken",
                            100 * (1 - FitProbability(device, e.memory.total())), Gibibytes(model_.usable_memory())));
  std::string time = "time:";
  for (const Part& part : kParts) {
    const Seconds spent = e.*part.time;
    if (spent / e.iteration < 0.001) continue;
    time += fmt::format("{} {} {} ({:.1f} %)", time.back() == ':' ? "" : ",", part.name, FormatDuration(spent),
                        100 * (spent / e.iteration));
  }
  why.push_back(time);
  AddDoubt(why);
  if (const FrameworkDescription& program = Describe(space_.framework()); program.runs()) {
    why.push_back(fmt::format("runs on: {}", FrameworkTitle(space_.framework())));
  } else {
    std::string runs;
    const bool split = CountOperators(plan.operators).split > 0;
    for (const Framework framework : KnownFrameworks()) {
      if (split || WhyCannotRun(framework, {job, model_.cluster(), s})) continue;
      runs += fmt::format("{}{}", runs.empty() ? "" : ", ", FrameworkTitle(framework));
    }
    why.push_back(runs.empty() ? "runs on: no program of docs/frameworks.md; without --framework the answer is one that a program runs"
                               : "runs on: " + runs);
  }
  return why;
}

std::vector<std::string> Reasons::Operators(const JobPlan& best) const {
  if (best.operators.empty()) return {};
  const OperatorCount count = CountOperators(best.operators);
  std::vector<std::string> lines = {fmt::format(
      "operators (attention, MLP, embedding, head): of {}, {} replicated, {} kept after the forward pass, {} sharded, {} "
      "in slices",
      count.total(), count.replicated, count.kept, count.sharded, count.split)};
  std::optional<Estimate> least;
  Strategy fastest;
  for (int64_t stage = 0; stage <= 3; ++stage) {
    for (const bool keep : {false, true}) {
      Strategy other = best.strategy;
      other.sharding = Sharding::kUniform;
      other.zero_stage = stage;
      other.keep_after_forward = keep;
      if (stage == 0) other.shard_group = 0;
      if ((keep && stage != 3) || !model_.IsLegal(other) || !space_.Runs(other)) continue;
      const Estimate e = model_.EvaluateSimulated(other, scratch_);
      if (!e.fits || (least && e.iteration >= least->iteration)) continue;
      least = e;
      fastest = other;
    }
  }
  if (!least) {
    lines.push_back("sharding=osdp: with these degrees no uniform sharding fits");
    return lines;
  }
  const Seconds gain = least->iteration - best.predicted.parts.iteration;
  lines.push_back(fmt::format("sharding=osdp: {} ({:.1f} %) faster than {}{}, the fastest uniform sharding that fits",
                              FormatDuration(gain), 100 * (gain / least->iteration), Print("zero_stage", fastest),
                              fastest.keep_after_forward ? " keep_after_forward=true" : ""));
  return lines;
}

std::string Reasons::Against(const std::string& what, const Strategy& other, const Estimate& best) const {
  const Estimate e = model_.EvaluateSimulated(other, scratch_);
  if (!e.fits) {
    return fmt::format("{}: does not fit, {} of {}", what, Gibibytes(e.memory.total()),
                       Gibibytes(model_.usable_memory()));
  }
  return Compared(what, e, best);
}

std::string Reasons::WhyRunnerUp(const JobPlan& best, const Strategy& other) const {
  return Against("runner-up " + DescribeStrategy(other), other, best.predicted.parts);
}

std::string Reasons::WhyLater(const JobPlan& plan, const JobPlan& best) const {
  return Against("against the best", plan.strategy, best.predicted.parts);
}

void Reasons::AddNeighbour(const std::string& what, const Strategy& other, const JobPlan& best,
                           std::vector<std::string>& lines) const {
  if (other == best.strategy || !model_.IsLegal(other) || !space_.Contains(other)) return;
  lines.push_back("not " + Against(what, other, best.predicted.parts));
}

void Reasons::AddDegrees(const JobPlan& best, std::vector<std::string>& lines) const {
  const Strategy& s = best.strategy;
  const int64_t node = model_.cluster().gpus_per_node;
  struct Degree {
    const char* name;
    int64_t Strategy::* value;
  };
  for (const Degree& degree : {Degree{"tp", &Strategy::tp}, Degree{"pp", &Strategy::pp}, Degree{"cp", &Strategy::cp}}) {
    for (const bool up : {false, true}) {
      Strategy other = s;
      if (up ? other.dp % 2 != 0 : other.*degree.value % 2 != 0) continue;
      other.*degree.value = up ? other.*degree.value * 2 : other.*degree.value / 2;
      other.dp = up ? other.dp / 2 : other.dp * 2;
      other.sequence_parallel = other.tp > 1 && (s.sequence_parallel || s.tp == 1);
      if (other.pp == 1 || s.pp == 1) other.schedule = ScheduleKind::k1F1B;
      if (other.pp == 1 || s.pp == 1) other.vpp = 1;
      const bool uniform = other.sharding == Sharding::kUniform;
      if (other.zero_stage == 3 && uniform) other.keep_after_forward = other.keep_after_forward || other.pp > 1;
      other.shard_group = 0;
      const bool crosses = degree.value == &Strategy::tp && up && other.tp > node && s.tp <= node;
      AddNeighbour(Print(degree.name, other) + (crosses ? " crosses the node" : ""), other, best, lines);
    }
  }
}

void Reasons::AddExchanges(const JobPlan& best, std::vector<std::string>& lines) const {
  const Strategy& s = best.strategy;
  for (const GradientWire wire : {GradientWire::kWhole, GradientWire::kBf16, GradientWire::kFp8}) {
    Strategy other = s;
    other.gradient_wire = wire;
    AddNeighbour(Print("gradient_wire", other), other, best, lines);
  }
  const std::span<const Bytes> buckets = space_.buckets();
  const auto above = std::ranges::upper_bound(buckets, s.bucket_bytes), from = std::ranges::lower_bound(buckets, s.bucket_bytes);
  for (const auto& bucket : {from == buckets.begin() ? buckets.end() : from - 1, above}) {
    if (bucket == buckets.end() || s.dp * s.cp == 1) continue;
    Strategy other = s;
    other.bucket_bytes = *bucket;
    AddNeighbour(Print("bucket_bytes", other), other, best, lines);
  }
  for (const int64_t steps : {int64_t{1}, kLocalSteps}) {
    Strategy other = s;
    other.local_steps = steps;
    AddNeighbour(Print("local_steps", other), other, best, lines);
  }
  // The plain ways are named only where the plan takes another.
  for (const DataSync sync : {DataSync::kRing, DataSync::kHierarchical, DataSync::kParameterServer, DataSync::kSwitch, DataSync::kGossip}) {
    Strategy other = s;
    other.data_sync = sync;
    const bool plain = s.data_sync == DataSync::kRing && sync != DataSync::kSwitch && sync != DataSync::kGossip;
    const bool levels = sync == DataSync::kRing || sync == DataSync::kHierarchical;  // what shards are summed by, too
    if (!plain && (levels || s.zero_stage == 0)) AddNeighbour(Print("data_sync", other), other, best, lines);
  }
}

std::vector<std::string> Reasons::Rejected(const JobPlan& best) const {
  std::vector<std::string> lines;
  const Strategy& s = best.strategy;
  const auto add = [&](const std::string& what, const Strategy& other) { AddNeighbour(what, other, best, lines); };
  AddDegrees(best, lines);
  for (const int64_t micro_batch : {s.micro_batch / 2, s.micro_batch * 2}) {
    Strategy other = s;
    other.micro_batch = micro_batch;
    if (micro_batch > 0) add(Print("micro_batch", other), other);
  }
  for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    Strategy other = s;
    other.recompute = kind;
    other.recompute_layers = -1;
    add(Print("recompute", other), other);
  }
  for (int64_t stage = 0; stage <= 3; ++stage) {
    Strategy other = s;
    other.zero_stage = stage;
    other.shard_group = 0;
    other.keep_after_forward = stage == 3 && s.pp > 1;
    other.sharding = Sharding::kUniform;
    const bool same = stage == s.zero_stage && s.sharding == Sharding::kUniform;
    if (!same && s.dp * s.cp > 1) add(Print("zero_stage", other), other);
  }
  AddExchanges(best, lines);
  Strategy operators = s;
  operators.zero_stage = 3;
  operators.keep_after_forward = false;
  operators.sharding = Sharding::kOperator;
  add(Print("sharding", operators), operators);
  for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kZbH1, ScheduleKind::kInterleaved}) {
    Strategy other = s;
    other.schedule = kind;
    other.vpp = kind == ScheduleKind::kInterleaved ? 2 : 1;
    if (s.pp > 1 && kind != s.schedule) add(Print("schedule", other), other);
  }
  Strategy alone;
  alone.dp = model_.job().gpus;
  if (GpuCount(s) != s.dp && model_.IsLegal(alone) && space_.Contains(alone)) add("dp only", alone);
  return lines;
}

std::string Reasons::Proof(const PlanAnswer& answer) const {
  const JobPlan& best = answer.plans.front();
  const std::string of = space_.framework() == Framework::kAny ? "" : fmt::format(" of {}", FrameworkTitle(space_.framework()));
  // How many were priced is not said: it changes with the threads' turns, and the same question shall have one answer.
  const std::string simulated = fmt::format("the {} best by their bounds of {} legal strategies{} were simulated", answer.simulated,
                                            answer.strategies, of);
  if (!answer.complete) {
    return fmt::format("not proved: the search was stopped; {}; no other can be below {}", simulated,
                       FormatDuration(best.lower_bound));
  }
  if (best.gap > 0) {
    return fmt::format("not proved: {}; another could be up to {:.2f} % faster", simulated,
                       100 * (1 - best.lower_bound / best.predicted.iteration));
  }
  return fmt::format("proved of the model, which errs (docs/fidelity.md): {}, and no other's bound is below the best; without bubble, "
                     "recomputation and exposed exchange it would be {}",
                     simulated, FormatDuration(answer.ideal));
}

}  // namespace weft::planner
