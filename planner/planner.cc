#include "planner/planner.h"

#include <fmt/format.h>

#include <future>

#include "planner/plan/plan_search.h"

namespace weft::planner {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;
constexpr int64_t kMostRanks = int64_t{1} << 24;

Status Require(bool holds, std::string_view field, int64_t value, std::string_view expected) {
  if (holds) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("{}: {}, expected {}", field, value, expected));
}

Status Positive(std::string_view field, int64_t value) {
  return Require(value >= 1 && value <= kMost, field, value, "a positive number");
}

Status CheckTransformer(const ModelSpec& model) {
  WEFT_RETURN_IF_ERROR(Positive("model hidden width", model.hidden));
  WEFT_RETURN_IF_ERROR(Positive("model heads", model.heads));
  WEFT_RETURN_IF_ERROR(Positive("model key/value heads", model.kv_heads));
  WEFT_RETURN_IF_ERROR(Positive("model head width", model.head_dim));
  if (model.MoeLayers() < model.layers) WEFT_RETURN_IF_ERROR(Positive("model inner width", model.ffn_hidden));
  if (model.IsMoe()) {
    WEFT_RETURN_IF_ERROR(Positive("model expert width", model.expert_ffn_hidden));
    WEFT_RETURN_IF_ERROR(Require(model.experts_per_token >= 1 && model.experts_per_token <= model.experts,
                                 "model experts per token", model.experts_per_token,
                                 fmt::format("1 to the {} experts", model.experts)));
  }
  if (!model.IsImage()) WEFT_RETURN_IF_ERROR(Positive("model vocabulary", model.vocab));
  return Ok();
}

}  // namespace

Status CheckJob(const JobSpec& job, const ClusterSpec& cluster) {
  const ModelSpec& model = job.model;
  WEFT_RETURN_IF_ERROR(Positive("model layers", model.layers));
  if (!model.IsCnn()) WEFT_RETURN_IF_ERROR(CheckTransformer(model));
  WEFT_RETURN_IF_ERROR(Positive("global_batch", job.global_batch));
  WEFT_RETURN_IF_ERROR(Positive("sequence", job.sequence));
  constexpr int64_t kMostTokens = int64_t{1} << 56;
  WEFT_RETURN_IF_ERROR(Require(job.global_batch <= kMostTokens / job.sequence, "global_batch", job.global_batch,
                               fmt::format("at most 2^56 tokens with sequences of {}", job.sequence)));
  if (model.IsImage()) {
    WEFT_RETURN_IF_ERROR(Require(job.sequence == model.image_tokens, "sequence", job.sequence,
                                 fmt::format("the {} tokens that {} makes of an image", model.image_tokens, model.name)));
  } else if (model.learned_positions) {
    const int64_t most = model.UsablePositions();
    WEFT_RETURN_IF_ERROR(Require(job.sequence <= most, "sequence", job.sequence,
                                 fmt::format("at most the {} positions of {}", most, model.name)));
  }
  WEFT_RETURN_IF_ERROR(Positive("cluster nodes", cluster.nodes));
  WEFT_RETURN_IF_ERROR(Positive("cluster GPUs per node", cluster.gpus_per_node));
  const int64_t all = cluster.TotalGpus();
  WEFT_RETURN_IF_ERROR(Require(all <= kMostRanks, "cluster GPUs", all, fmt::format("at most {}", kMostRanks)));
  WEFT_RETURN_IF_ERROR(Require(job.gpus >= 0 && job.gpus <= all, "gpus", job.gpus,
                               fmt::format("at most the {} of cluster {}", all, cluster.name)));
  return Ok();
}

namespace {

/// A precision that a device has no units for would be priced as the next wider one.
Status CheckPrecision(const JobSpec& job, const ClusterSpec& cluster) {
  const bool narrow = job.precision == Precision::kFp8 || job.precision == Precision::kFp4;
  for (const NodeGroup& group : cluster.Groups()) {
    if (!narrow || group.device.Supports(job.precision)) continue;
    std::string known;
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kFp8, Precision::kFp4}) {
      if (group.device.Supports(precision)) known += fmt::format("{}{}", known.empty() ? "" : ", ", PrecisionName(precision));
    }
    return Fail(Code::kInvalidArgument, fmt::format("precision {}: {} has no units for it, expected one of {}",
                                                    PrecisionName(job.precision), group.device.name, known));
  }
  return Ok();
}

}  // namespace

Result<std::unique_ptr<PlanSearch::Impl>> PlanSearch::Impl::Make(const JobSpec& job, const ClusterSpec& cluster,
                                                                 const PlanOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (options.known_programs) {
    impl->SetProblem(job, cluster);
    // The whole space's roots are as many as those of all programs together: beside them, on a thread of their own.
    std::future<Status> whole = std::async(std::launch::async, [&impl] { return impl->AddWholeSpace(); });
    for (const Framework framework : KnownFrameworks()) {
      PlanOptions own = options;
      own.known_programs = own.advise = false;
      own.framework = framework;
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Impl> program, Make(job, cluster, own));
      impl->AddProgram(std::move(program));
    }
    WEFT_RETURN_IF_ERROR(whole.get());
    return impl;
  }
  if (Describe(options.framework).leaves_idle) {
    WEFT_RETURN_IF_ERROR(impl->AddDegrees(job, cluster));
    return impl;
  }
  const bool any = options.framework == Framework::kAny;
  const CostOptions costs{.framework = options.framework, .cuts = CutsOf(options.framework), .risk = options.risk};
  WEFT_ASSIGN_OR_RETURN(CostModel model, CostModel::Make(job, cluster, Calibration(), costs));
  impl->Begin(std::move(model), KeptFor(options));
  impl->SetProblem(job, cluster);
  // No program's files say that one group of machines does something else than another.
  if (any && cluster.heterogeneous() && (job.gpus == 0 || job.gpus == cluster.TotalGpus())) {
    WEFT_ASSIGN_OR_RETURN(std::optional<GroupPlan> groups, PlanGroups(job, cluster, options));
    if (groups) impl->Compete(std::move(*groups));
  }
  return impl;
}

Result<PlanSearch> PlanSearch::Make(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckJob(job, cluster));
  WEFT_RETURN_IF_ERROR(CheckFixed(options.fix));
  WEFT_RETURN_IF_ERROR(Require(options.top >= 1, "top", options.top, "a positive number"));
  WEFT_RETURN_IF_ERROR(CheckPrecision(job, cluster));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Impl::Make(job, cluster, options));
  return PlanSearch(std::move(impl));
}

PlanSearch::PlanSearch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PlanSearch::PlanSearch(PlanSearch&&) noexcept = default;
PlanSearch& PlanSearch::operator=(PlanSearch&&) noexcept = default;
PlanSearch::~PlanSearch() = default;

void PlanSearch::Work(const std::stop_token& stop) { impl_->Work(stop); }
PlanProgress PlanSearch::Progress() const { return impl_->Progress(); }
PlanAnswer PlanSearch::Finish() { return impl_->Finish(); }

Result<PlanAnswer> Plan(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options) {
  WEFT_ASSIGN_OR_RETURN(PlanSearch search, PlanSearch::Make(job, cluster, options));
  search.Work();
  return search.Finish();
}

}  // namespace weft::planner
