// CostModel::CommunicationVolumes: what a stage hands to the network model.
#include <algorithm>
#include <cmath>

#include "planner/parallelism/cost_tables.h"
#include "planner/parallelism/tensor_grid.h"

namespace weft::planner {
namespace {

using Type = CommunicationVolume::Type;
using Kind = CommunicatorKind;

Bytes Whole(double bytes) { return Bytes(static_cast<int64_t>(std::llround(bytes))); }

/// What all rows share.
struct Sizes {
  double w, tokens, hidden, layers, moe_layers, repeats;  // repeats: forward passes run again, full recomputation
};

class VolumeBuilder {
 public:
  VolumeBuilder(const JobSpec& job, const Strategy& s, const Sizes& sizes) : job_(job), s_(s), z_(sizes) {}

  void Add(Kind kind, std::string_view what, Type type, Group group, double bytes, double count, bool per_iteration = false,
           std::string_view hides_behind = "") {
    if (group.size <= 1 || count <= 0 || bytes <= 0) return;
    lines.push_back({kind, what, type, group.size, group.stride, Whole(bytes), count, per_iteration, hides_behind});
  }

  void Tensor(bool first, bool last) {
    const Group t{s_.tp, 1};
    const double bytes = z_.w * z_.tokens * z_.hidden;
    if (s_.tensor_mode != TensorMode::k1D) return Grid();
    if (s_.sequence_parallel) {
      Add(Kind::kTensor, "tensor gathers", Type::kAllGather, t, bytes, (2 + 2 * z_.repeats + 2) * z_.layers, false, "neighbouring product");
      Add(Kind::kTensor, "tensor scatters", Type::kReduceScatter, t, bytes, (2 + 2 * z_.repeats + 2) * z_.layers, false,
          "neighbouring product");
      Add(Kind::kTensor, "stored shards", Type::kAllGather, t, bytes, 2 * z_.layers, false, "data gradient");
      Add(Kind::kTensor, "norm gradients", Type::kAllReduce, t, 4 * 4 * z_.hidden * z_.layers, 1, true);
    } else {
      Add(Kind::kTensor, "tensor sums", Type::kAllReduce, t, bytes, (2 + 2 * z_.repeats + 2) * z_.layers, false, "neighbouring product");
    }
    if (first) Add(Kind::kTensor, "embedding", Type::kAllReduce, t, bytes, 1);
    if (last) {
      Add(Kind::kTensor, "head gradient", Type::kAllReduce, t, bytes, 1);
      Add(Kind::kTensor, "loss", Type::kAllReduce, t, 4 * z_.tokens, 3);
    }
  }

  void Context() {
    if (s_.cp == 1) return;
    const ModelSpec& model = job_.model;
    const Group c{s_.cp, s_.tp};
    const double t = static_cast<double>(s_.tp), cp = static_cast<double>(s_.cp);
    const double kv = 2 * z_.w * z_.tokens * std::max(static_cast<double>(model.kv_heads) / t, 1.0) *
                      static_cast<double>(model.head_dim);
    const double q = z_.w * z_.tokens * static_cast<double>(model.QueryWidth()) / t;
    const double forward = 1 + z_.repeats;
    switch (s_.context_mode) {
      case ContextMode::kRing:
        Add(Kind::kContext, "context ring", Type::kSendReceive, c, kv, (cp - 1) * (forward + 2) * z_.layers, false, "block attention");
        break;
      case ContextMode::kAllGather:
        Add(Kind::kContext, "context gathers", Type::kAllGather, c, kv * cp, (forward + 1) * z_.layers);
        Add(Kind::kContext, "context scatters", Type::kReduceScatter, c, kv * cp, z_.layers);
        break;
      case ContextMode::kUlysses:
        Add(Kind::kContext, "context queries", Type::kAllToAll, c, q, 2 * (forward + 1) * z_.layers);
        Add(Kind::kContext, "context keys and values", Type::kAllToAll, c, kv / 2, 2 * (forward + 1) * z_.layers);
        break;
    }
  }

  void Experts() {
    const double t = static_cast<double>(s_.tp);
    const double held = z_.w * z_.tokens / t * static_cast<double>(job_.model.experts_per_token) * z_.hidden;
    Add(Kind::kExpert, "expert dispatch and combine", Type::kAllToAll, {s_.ep, s_.etp}, held, 2 * (2 + z_.repeats) * z_.moe_layers, false,
        "shared experts");
    const double gathered = held * static_cast<double>(s_.etp);
    Add(Kind::kExpertTensor, "expert gathers", Type::kAllGather, {s_.etp, 1}, gathered, (2 + z_.repeats) * z_.moe_layers);
    Add(Kind::kExpertTensor, "expert scatters", Type::kReduceScatter, {s_.etp, 1}, gathered, (2 + z_.repeats) * z_.moe_layers);
  }

  void Pipeline(int64_t stage) {
    if (s_.pp == 1) return;
    const double bytes = z_.w * z_.tokens * z_.hidden / static_cast<double>(s_.tp);
    const int64_t stride = s_.rank_order == RankOrder::kTpCpPpDp ? s_.tp * s_.cp : s_.tp * s_.cp * s_.dp;
    const double chunks = static_cast<double>(s_.vpp);
    // With chunks the last stage hands to the first as well, but for the last chunk.
    const double out = stage < s_.pp - 1 ? chunks : chunks - 1;
    const double back = stage > 0 ? chunks : chunks - 1;
    Add(Kind::kPipeline, "activations", Type::kSendReceive, {2, stride}, bytes, out, false, "computation");
    Add(Kind::kPipeline, "activation gradients", Type::kSendReceive, {2, stride}, bytes, back, false, "computation");
  }

  void Data(const StateBytes& state, const StageShape& shape) {
    const Group dense = ReplicaGroup(s_);
    const Group expert{std::max<int64_t>(1, ExpertDp(s_)), s_.ep * s_.etp};
    const double plain = shape.dense_parameters + shape.edge_parameters;
    if (s_.zero_stage == 3) {
      const double unit = (shape.dense_parameters + shape.expert_parameters) / std::max(z_.layers, 1.0);
      const Group shards{s_.shard_group > 0 ? s_.shard_group : dense.size, dense.stride};
      Add(Kind::kData, "unit parameters", Type::kAllGather, shards, state.gathered * unit, (s_.keep_after_forward ? 1 : 2) * z_.layers,
          s_.keep_after_forward, "the unit before");
      Add(Kind::kData, "unit gradients", Type::kReduceScatter, shards, state.gradient_sent * unit, z_.layers, false,
          "the unit behind");
      // With shards smaller than all replicas (HSDP) each is also summed over the groups of shards.
      Add(Kind::kData, "sums over shard groups", Type::kAllReduce, {dense.size / shards.size, dense.stride * shards.size},
          state.gradient_sent * unit / static_cast<double>(shards.size), z_.layers, false, "the unit behind");
      return;
    }
    Exchange(Kind::kData, "gradients", "parameters", dense, state, plain);
    Exchange(Kind::kExpertData, "expert gradients", "expert parameters", expert, state, shape.expert_parameters);
    if (shape.first != shape.last && job_.model.tied_embeddings) {
      const int64_t stride = s_.rank_order == RankOrder::kTpCpPpDp ? s_.tp * s_.cp : s_.tp * s_.cp * s_.dp;
      Add(Kind::kEmbedding, "tied embedding", Type::kAllReduce, {2, stride * (s_.pp - 1)},
          state.gradient_sent * static_cast<double>(job_.model.vocab) * z_.hidden / static_cast<double>(s_.tp), 1, true);
    }
    Add(Kind::kWorld, "gradient norm", Type::kAllReduce, {s_.tp * s_.pp * s_.dp * s_.cp, 1}, 8, 2, true);
  }

  std::vector<CommunicationVolume> lines;

 private:
  void Exchange(Kind kind, std::string_view gradients, std::string_view parameters, Group group, const StateBytes& state, double count) {
    if (s_.zero_stage == 0) {
      Add(kind, gradients, Type::kAllReduce, group, state.gradient_sent * count, 1, true, "last backward");
      return;
    }
    Add(kind, gradients, Type::kReduceScatter, group, state.gradient_sent * count, 1, s_.zero_stage < 2,
        s_.zero_stage < 2 ? "last backward" : "backward");
    Add(kind, parameters, Type::kAllGather, group, 2 * count, 1, true, "first forward");
  }

  void Grid() {
    const ModelSpec& model = job_.model;
    const double q = static_cast<double>(*GridSide(s_.tensor_mode, s_.tp, s_.tensor_depth));
    const double heads = static_cast<double>(model.heads * model.head_dim);
    const double kv = static_cast<double>(2 * model.kv_heads * model.head_dim);
    const double f = static_cast<double>(model.ffn_hidden);
    const GridProduct products[] = {{z_.tokens, z_.hidden, heads + kv}, {z_.tokens, heads, z_.hidden},
                                    {z_.tokens, z_.hidden, model.gated_mlp ? 2 * f : f}, {z_.tokens, f, z_.hidden}};
    const Group row{static_cast<int64_t>(q), 1}, column{static_cast<int64_t>(q), static_cast<int64_t>(q)};
    const double passes = 3 + z_.repeats;
    for (const GridProduct& p : products) {
      const double x = z_.w * p.tokens * p.in / (q * q), weight = z_.w * p.in * p.out / (q * q);
      if (s_.tensor_mode == TensorMode::k3D) {
        Add(Kind::kTensor, "3d inputs", Type::kAllGather, row, x, (2 + z_.repeats) * z_.layers, false, "partly");
        Add(Kind::kTensor, "3d weights", Type::kAllGather, column, weight, (2 + z_.repeats) * z_.layers, false, "partly");
        Add(Kind::kTensor, "3d outputs", Type::kReduceScatter, {row.size, column.stride * row.size}, z_.w * p.tokens * p.out / (q * q),
            (2 + z_.repeats) * z_.layers, false, "partly");
        continue;
      }
      const double depth = static_cast<double>(s_.tensor_depth);
      Add(Kind::kTensor, "2d input panels", Type::kBroadcast, row, x / depth, q * passes * z_.layers, false, "the panel before");
      Add(Kind::kTensor, "2d weight panels", Type::kBroadcast, column, weight, q * passes * z_.layers, false, "the panel before");
      Add(Kind::kTensor, "2.5d depth", Type::kAllReduce, {s_.tensor_depth, row.size * row.size}, weight, z_.layers, false, "backward");
    }
  }

  const JobSpec& job_;
  const Strategy& s_;
  const Sizes z_;
};

}  // namespace

std::vector<CommunicationVolume> CostModel::CommunicationVolumes(const Strategy& s, int64_t stage) const {
  const Impl& impl = *impl_;
  const LayerEntry entry = impl.MakeEntry(KeyOf(s));
  const StageShape shape = impl.Shape(s, entry, stage);
  const double layers = shape.dense_layers + shape.moe_layers;
  double repeats = 0;
  if (s.recompute == Recompute::kFull && layers > 0) {
    repeats = s.recompute_layers < 0 ? 1 : std::min(1.0, static_cast<double>(s.recompute_layers) / layers);
  }
  const double tokens = static_cast<double>(s.micro_batch * impl.job.sequence) / static_cast<double>(s.cp);
  VolumeBuilder volumes(impl.job, s, {impl.hardware.element, tokens, static_cast<double>(impl.job.model.hidden), layers,
                                     shape.moe_layers, repeats});
  volumes.Tensor(shape.first, shape.last);
  volumes.Context();
  volumes.Experts();
  volumes.Pipeline(stage);
  volumes.Data(impl.state, shape);
  return std::move(volumes.lines);
}

}  // namespace weft::planner
