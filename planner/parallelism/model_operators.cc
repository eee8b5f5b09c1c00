#include "planner/parallelism/model_operators.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "planner/parallelism/framework.h"
#include "planner/parallelism/halo_exchange_time.h"
#include "planner/parallelism/memory_model.h"

namespace weft::planner::inline parallelism {
namespace {

class Lister {
 public:
  explicit Lister(const JobSpec& job)
      : job_(job),
        model_(job.model),
        sequences_(static_cast<double>(job.global_batch)),
        sequence_(static_cast<double>(job.sequence)),
        element_(StorageBytes(job.precision)) {}

  OperatorGroup Layer(int64_t layer) const {
    const LayerParameters p = LayerParametersOf(model_, layer);
    const bool moe = model_.IsMoeLayer(layer);
    const int64_t output =
        model_.ValueWidth() * model_.hidden + (model_.attention_bias && model_.attention_output_bias ? model_.hidden : 0);
    const double inner = static_cast<double>(model_.ffn_hidden) * (model_.gated_mlp ? 2 : 1);
    OperatorGroup group{.name = moe ? "layer with experts" : "layer", .count = 1, .operators = {}, .activations = {}};
    const auto add = [&](const char* name, const char* type, int64_t parameters, double share, double width) {
      group.operators.push_back(
          {name, type, parameters, 2 * Tokens() * share * Flops(static_cast<double>(parameters)), Written(Tokens() * width)});
    };
    if (p.norms > 0) add("norms", "norm", p.norms, 0, 2 * static_cast<double>(model_.hidden));
    const double heads_width = static_cast<double>(model_.QueryWidth() + (model_.kv_heads * model_.head_dim) * 2);
    add("attention.inputs", "linear", p.attention - output, 1, heads_width);
    const double pairs = sequences_ * sequence_ * CountedKeys(model_, layer, sequence_);
    group.operators.push_back({"attention.core", "attention", 0,
                               Flops(2 * pairs * static_cast<double>(model_.QueryWidth() + model_.ValueWidth())),
                               Written(Tokens() * static_cast<double>(model_.ValueWidth()))});
    add("attention.output", "linear", output, 1, static_cast<double>(model_.hidden));
    if (p.mlp > 0) add("mlp", "linear", p.mlp, 1, inner + static_cast<double>(model_.hidden));
    if (p.router > 0) add("router", "linear", p.router, 1, static_cast<double>(model_.experts));
    if (p.routed > 0) {
      const double chosen = static_cast<double>(model_.experts_per_token);
      const double width =
          static_cast<double>(model_.expert_ffn_hidden) * (model_.gated_mlp ? 2 : 1) + static_cast<double>(model_.hidden);
      add("experts", "experts", p.routed, chosen / static_cast<double>(model_.experts), chosen * width);
    }
    if (p.shared > 0) add("shared experts", "linear", p.shared, 1, static_cast<double>(model_.hidden));
    if (p.modulation > 0) add("modulation", "linear", p.modulation, 0, 0);
    group.activations = Bytes(
        std::llround(ComputeLayerBytes(job_, StackOf(Framework::kAny), {.micro_batch = job_.global_batch}, moe).none.count()));
    return group;
  }

  OperatorGroup CnnLayer(int64_t index) const {
    static constexpr const char* kTypes[] = {"convolution", "transposed_convolution", "pooling", "dense", "global_pooling"};
    const Cnn3dLayer& layer = model_.cnn_layers[static_cast<size_t>(index)];
    const std::array<int64_t, 3> out = layer.OutputExtent();
    const Bytes written = Written(sequences_ * static_cast<double>(layer.out_channels * out[0] * out[1] * out[2]));
    const char* type = kTypes[static_cast<size_t>(layer.kind)];
    return {.name = type, .count = 1,
            .operators = {{type, type, LayerParameterCount(model_, index), sequences_ * CnnForwardFlops(layer), written}},
            .activations = Bytes(std::llround(HaloExchangeBytes(job_, {.micro_batch = job_.global_batch}, index).none.count()))};
  }

  OperatorGroup Embedding() const {
    const int64_t parameters = EmbeddingParameterCount(model_);
    return {.name = "embedding",
            .count = 1,
            .operators = {{"embedding", "embedding", parameters, Flops(0), Written(Tokens() * static_cast<double>(model_.hidden))}},
            .activations = {}};
  }

  /// The product with the output matrix counts as work; what else stands at the end (poolers, norms) does not.
  OperatorGroup Head() const {
    const double positions = sequences_ * (HeadOnOnePosition(model_) ? 1 : sequence_);
    const double outputs = static_cast<double>(HeadOutputs(model_));
    return {.name = "head",
            .count = 1,
            .operators = {{"head", "linear", HeadParameterCount(model_),
                           Flops(2 * positions * static_cast<double>(model_.hidden) * outputs), Written(positions * outputs)}},
            .activations = {}};
  }

 private:
  double Tokens() const { return sequences_ * sequence_; }
  Bytes Written(double elements) const { return Bytes(std::llround((elements * element_).count())); }

  const JobSpec& job_;
  const ModelSpec& model_;
  double sequences_, sequence_;
  FractionalBytes element_;
};

bool Alike(const OperatorGroup& a, const OperatorGroup& b) {
  return a.name == b.name && a.operators == b.operators && a.activations == b.activations;
}

}  // namespace

OperatorProfile OperatorsOf(const JobSpec& job) {
  const Lister lister(job);
  OperatorProfile profile{.source = job.model.name, .input = {job.global_batch, job.sequence}, .groups = {}, .assumptions = {}};
  profile.element_bytes = StorageBytes(job.precision);
  const bool cnn = job.model.IsCnn();
  if (!cnn) profile.groups.push_back(lister.Embedding());
  for (int64_t layer = 0; layer < job.model.layers; ++layer) {
    OperatorGroup next = cnn ? lister.CnnLayer(layer) : lister.Layer(layer);
    if (!profile.groups.empty() && Alike(profile.groups.back(), next)) ++profile.groups.back().count;
    else profile.groups.push_back(std::move(next));
  }
  if (!cnn) profile.groups.push_back(lister.Head());
  return profile;
}

}  // namespace weft::planner::parallelism
