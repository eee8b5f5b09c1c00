#include "planner/parallelism/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "planner/parallelism/cost_tables.h"
#include "planner/parallelism/divisors.h"
#include "planner/parallelism/halo_exchange_time.h"
#include "planner/parallelism/legality.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

Status CheckSizes(const JobSpec& job, const ClusterSpec& cluster) {
  const ModelSpec& model = job.model;
  struct Size {
    const char* name;
    int64_t value;
  };
  const Size sizes[] = {{"model layers", model.layers},       {"model hidden width", model.hidden},
                        {"model heads", model.heads},         {"model key/value heads", model.kv_heads},
                        {"model head width", model.head_dim}, {"model vocabulary", model.vocab},
                        {"global_batch", job.global_batch},   {"sequence", job.sequence},
                        {"cluster nodes", cluster.nodes},     {"cluster GPUs per node", cluster.gpus_per_node}};
  for (const Size& size : sizes) {
    const bool of_transformer = std::string_view(size.name).starts_with("model ") && size.value != model.layers;
    if (model.IsCnn() && of_transformer) continue;
    if (model.IsImage() && std::string_view(size.name) == "model vocabulary") continue;
    if (size.value < 1 || size.value > kMost) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: {}, expected a positive number", size.name, size.value));
    }
  }
  if (job.measured_compute && !(job.measured_compute->count() > 0 && std::isfinite(job.measured_compute->count()))) {
    return Fail(Code::kInvalidArgument, fmt::format("measured_compute: {} s, expected a positive time", job.measured_compute->count()));
  }
  return Ok();
}

/// Work of one layer, forward, one sequence; attention counted whole. Source: arXiv 2205.05198 appendix A.
Flops LayerFlops(const ModelSpec& model, int64_t layer, double sequence) {
  const LayerParameters p = LayerParametersOf(model, layer);
  double active = static_cast<double>(p.attention + p.mlp + p.router + p.shared);
  if (p.routed > 0) {
    active += static_cast<double>(p.routed) * static_cast<double>(model.experts_per_token) / static_cast<double>(model.experts);
  }
  const double pairs = sequence * CountedKeys(model, layer, sequence);
  return Flops(2 * sequence * active + 2 * pairs * static_cast<double>(model.QueryWidth() + model.ValueWidth()));
}

}  // namespace

CostModel::Scratch::Scratch() : tables_(std::make_unique<Tables>()) {}
CostModel::Scratch::~Scratch() = default;
CostModel::Scratch::Scratch(Scratch&&) noexcept = default;
CostModel::Scratch& CostModel::Scratch::operator=(Scratch&&) noexcept = default;

void CostModel::Scratch::Clear() {
  for (LayerEntry& slot : tables_->slots) slot.used = false;
  tables_->operators.Clear();
}

OperatorCuts CutsOf(Framework framework) {
  if (framework == Framework::kAny) return OperatorCuts::kAny;
  return framework == Framework::kWeftTrain ? OperatorCuts::kPrograms : OperatorCuts::kNone;
}

CostModel::CostModel(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;
CostModel::~CostModel() = default;

Result<CostModel> CostModel::Make(const JobSpec& job, const ClusterSpec& cluster, const Calibration& calibration,
                                  const CostOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckSizes(job, cluster));
  if (options.risk && !(*options.risk > 0 && *options.risk < 1)) {
    return Fail(Code::kInvalidArgument, fmt::format("risk: {}, expected a probability above 0 and below 1", *options.risk));
  }
  const SoftwareStack stack = StackOf(options.framework);
  auto impl = std::make_unique<Impl>();
  impl->job = job;
  if (impl->job.gpus == 0) impl->job.gpus = cluster.TotalGpus();
  impl->cluster = cluster;
  impl->framework = options.framework;
  impl->stack = stack;
  WEFT_ASSIGN_OR_RETURN(impl->hardware, MakeCalibratedHardware(cluster, job.precision, stack, calibration));
  impl->state = StateBytesOf(stack.state, job.precision, stack.gradients_16bit);
  impl->stage_layers = options.stage_layers;
  impl->cuts = options.cuts;
  impl->usable = FractionalBytes(MemoryAllowance(cluster.device, options.risk));
  impl->moe_layers_before.assign(1, 0);
  const double sequence = static_cast<double>(job.sequence);
  const double positions = HeadOnOnePosition(job.model) ? 1 : sequence;
  Flops flops(2 * positions * static_cast<double>(job.model.hidden * HeadOutputs(job.model)));
  if (job.model.IsCnn()) {
    for (const Cnn3dLayer& layer : job.model.cnn_layers) flops += CnnForwardFlops(layer);
    impl->moe_layers_before.assign(static_cast<size_t>(job.model.layers + 1), 0);
  }
  for (int64_t layer = 0; !job.model.IsCnn() && layer < job.model.layers; ++layer) {
    impl->moe_layers_before.push_back(impl->moe_layers_before.back() + (job.model.IsMoeLayer(layer) ? 1 : 0));
    flops += LayerFlops(job.model, layer, sequence);
  }
  impl->model_flops = 3 * flops * static_cast<double>(job.global_batch);
  if (job.measured_compute) impl->hardware.TakeLonger(*job.measured_compute / impl->ReferenceCompute());
  return CostModel(std::move(impl));
}

Seconds CostModel::Impl::ReferenceCompute() const {
  constexpr Seconds kInfinity(std::numeric_limits<double>::infinity());
  const bool divides = job.global_batch % job.gpus == 0;
  const double share = static_cast<double>(job.global_batch) / static_cast<double>(job.gpus);
  Seconds least = kInfinity, least_that_fits = kInfinity;
  for (const int64_t micro_batch : divides ? Divisors(job.global_batch / job.gpus) : std::vector<int64_t>{1}) {
    const Strategy s{.dp = job.gpus, .micro_batch = micro_batch};
    const LayerEntry entry = MakeEntry(KeyOf(s));
    const StagePasses passes = Passes(s, entry, 0);
    const Seconds pass = passes.forward.compute + passes.backward.compute;
    const Seconds optimizer = ComputeDataTime(hardware, stack, s, state, Shape(s, entry, 0), job.model.IsCnn()).optimizer;
    const Seconds seconds = share / static_cast<double>(micro_batch) * pass + optimizer + hardware.step_host;
    least = std::min(least, seconds);
    if (Memory(s, entry, 0, 1).total() <= cluster.device.memory) least_that_fits = std::min(least_that_fits, seconds);
  }
  return least_that_fits < kInfinity ? least_that_fits : least;
}

std::optional<std::string> CostModel::WhyIllegal(const Strategy& strategy) const {
  if (strategy.data_sync == DataSync::kSwitch && !impl_->cluster.switch_sums) {
    return "data_sync=switch: the cluster's switches do not sum, expected switch_sums: true in its file";
  }
  return planner::WhyIllegal(impl_->job, impl_->job.gpus, strategy);
}

bool CostModel::IsLegal(const Strategy& strategy) const {
  if (strategy.data_sync == DataSync::kSwitch && !impl_->cluster.switch_sums) return false;
  return CheckLegal(impl_->job, impl_->job.gpus, strategy) == Rule::kLegal;
}

void CostModel::EvaluateMemory(const Strategy& s, std::span<MemoryUse> stages, Scratch& scratch) const {
  const LayerEntry& entry = scratch.tables_->Find(*impl_, KeyOf(s));
  const int64_t m = MicroBatches(s, impl_->job.global_batch);
  for (int64_t i = 0; i < s.pp; ++i) {
    stages[static_cast<size_t>(i)] = impl_->Cost(s, entry, i, m, scratch.tables_->operators).memory;
  }
}

bool CostModel::Fits(const Strategy& s, Scratch& scratch, MemoryUse* worst) const {
  const LayerEntry& entry = scratch.tables_->Find(*impl_, KeyOf(s));
  const int64_t m = MicroBatches(s, impl_->job.global_batch);
  MemoryUse most;
  for (int64_t i = 0; i < s.pp; ++i) {
    const MemoryUse memory = impl_->Memory(s, entry, i, m);
    if (memory.total() > most.total()) most = memory;
  }
  if (worst != nullptr) *worst = most;
  return most.total() <= impl_->usable;
}

LayerSeconds CostModel::OneLayer(const Strategy& s, Scratch& scratch) const {
  const LayerEntry& entry = scratch.tables_->Find(*impl_, KeyOf(s));
  const LayerTime& layer = impl_->moe_layers_before.back() == impl_->job.model.layers ? entry.moe : entry.dense;
  Seconds backward = layer.backward_data.total() + layer.backward_weight.total();
  if (s.recompute == Recompute::kFull) backward += layer.forward.total();
  if (s.recompute == Recompute::kSelective) backward += layer.core.total();
  return {layer.forward.total(), backward};
}

Bytes CostModel::usable_memory() const { return impl_->usable.Truncated(); }
Flops CostModel::model_flops() const { return impl_->model_flops; }
const JobSpec& CostModel::job() const { return impl_->job; }
const ClusterSpec& CostModel::cluster() const { return impl_->cluster; }
double CostModel::gradient_bytes() const { return impl_->state.gradient_sent.count(); }

}  // namespace weft::planner::parallelism
