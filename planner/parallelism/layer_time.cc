#include "planner/parallelism/layer_time.h"

#include <algorithm>
#include <cmath>

#include "planner/parallelism/attention_time.h"
#include "planner/parallelism/collective_time.h"
#include "planner/parallelism/moe_time.h"
#include "planner/parallelism/tensor_grid.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

/// Columns of the head on one rank. Frameworks fill the vocabulary up, or one odd row would take the matrix off the
/// instructions' grid (Megatron-LM: --make-vocab-size-divisible-by 128, times tp).
double PaddedVocabulary(int64_t vocabulary, double t) {
  constexpr double kGrid = 128;
  return std::ceil(static_cast<double>(vocabulary) / (kGrid * t)) * kGrid;
}

/// One linear layer in its three products.
struct Linear {
  Seconds forward{0}, data{0}, weight{0};
  Flops flops;  // of each
};

Linear LinearTime(const CalibratedHardware& m, double tokens, double in, double out) {
  const FractionalBytes element = m.narrow ? 1_B : m.element;
  Linear time{.flops = Flops(2 * tokens * in * out)};
  time.forward = GemmTime(m, m.gemm_rate, {tokens, out, in}, element, m.element);
  time.data = GemmTime(m, m.gemm_rate, {tokens, in, out}, element, m.element);
  // The weight gradient is added to an fp32 accumulator: read and written.
  time.weight = GemmTime(m, m.gemm_rate, {in, out, tokens}, element, 8_B);
  if (m.adds_gradients) time.weight += in * out * (2 * m.element + 6_B) / m.memory_rate + m.launch;
  if (m.narrow) {
    // Casts of the input and, backward, of the output's gradient: read 16 bits, write the narrow copy and its transpose.
    time.forward += tokens * in * 4_B / m.memory_rate + m.launch;
    time.data += tokens * out * 4_B / m.memory_rate + m.launch;
  }
  return time;
}

void Add(LayerTime& layer, const Linear& linear) {
  layer.forward.compute += linear.forward;
  layer.backward_data.compute += linear.data;
  layer.backward_weight.compute += linear.weight;
  for (PassTime* pass : {&layer.forward, &layer.backward_data, &layer.backward_weight}) pass->flops += linear.flops;
}

/// Of one norm, in values per value; a layer norm is one kernel everywhere.
double NormTraffic(const CalibratedHardware& m, const ModelSpec& model) { return model.rms_norm ? m.kernels.rms_norm : 2; }

/// What norms, residual sums and dropout move per token and unit of width, forward: two or four norms and two residual sums
/// (read two, write one), each of `element`, and a mask of one byte for each dropout.
FractionalBytes StreamBytes(const CalibratedHardware& m, const ModelSpec& model) {
  const double norms = model.norm_placement == NormPlacement::kSandwich ? 4 : 2;
  return norms * NormTraffic(m, model) * m.element + 2 * 3 * m.element + (model.KeepsDropoutMasks() ? 2_B : 0_B);
}

// A gradient pass reads the saved input as well as the gradient.
constexpr double kBackwardStreams = 2;
// Kernels that a dense layer's forward pass has more where attention is not fused; backward has about twice as many as forward.
constexpr double kUnfused = 4;

double Tokens(const JobSpec& job, const LayerKey& key) {
  return static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp);
}

/// Collectives round attention and MLP, 1D. Without sequence parallelism an all-reduce each, with it a gather before and a
/// scatter behind; backward the same volume, and the stored shard's gather hides behind the data gradient. Experts take each
/// rank's own tokens: round them there is nothing, or a gather of what comes back where all ranks want all of it; shared
/// experts are an MLP.
void AddTensorCommunication(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key, bool moe) {
  if (key.tp == 1) return;
  const Group group{key.tp, 1};
  const bool routed_alone = moe && job.model.shared_experts == 0;
  const FractionalBytes bytes = m.element * Tokens(job, key) * static_cast<double>(job.model.hidden);
  Operation o{.calls = routed_alone ? 1.0 : 2.0, .communicator = CommunicatorKind::kTensor, .group = group, .bytes = bytes.count(),
              .algorithm = "ring"};
  const auto gathers = [&](std::string_view what, OperationKind kind) {
    const Seconds wire = o.calls * GatherTime(m.network, group, bytes);
    o.seconds = wire.count();
    o.exposed = (wire * (1 - m.tensor_hidden)).count();
    o.algorithm = "ring";
    o.what = what;
    o.kind = kind;
    layer.Communicate(o);
  };
  for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
    o.pass = pass;
    o.hides_behind = "neighbouring product";
    if (key.sequence_parallel) {
      gathers("tensor gathers", OperationKind::kAllGather);
      gathers("tensor scatters", OperationKind::kReduceScatter);
      continue;
    }
    const Seconds wire = o.calls * AllReduceTime(m.network, group, bytes);
    o.seconds = wire.count();
    o.exposed = (wire * (1 - m.tensor_hidden)).count();
    o.algorithm = AlgorithmName(AllReduceAlgorithm(m.network, group, bytes));
    o.what = "tensor sums";
    o.kind = OperationKind::kAllReduce;
    layer.Communicate(o);
    if (routed_alone) gathers("experts' tokens", OperationKind::kAllGather);
  }
  if (!key.sequence_parallel) return;
  o.what = "stored shards";
  o.kind = OperationKind::kAllGather;
  o.seconds = (o.calls * GatherTime(m.network, group, bytes)).count();
  o.exposed = 0;
  o.hides_behind = "data gradient";
  layer.Communicate(o);
}

void AddStreams(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key) {
  const ModelSpec& model = job.model;
  const double tokens = Tokens(job, key), t = static_cast<double>(key.tp);
  const bool all_split = key.sequence_parallel || key.tensor_mode != TensorMode::k1D;
  const double width = static_cast<double>(model.hidden) / (all_split ? t : 1);
  FractionalBytes bytes = StreamBytes(m, model) * width;
  if (model.Rotates()) {
    bytes += m.kernels.rotation * m.element * static_cast<double>((model.heads + model.kv_heads) * model.head_dim) / t;
  }
  const Seconds forward = tokens * bytes / m.memory_rate;
  layer.forward.compute += forward + 5 * m.launch;
  layer.backward_data.compute += kBackwardStreams * forward + 8 * m.launch;
}

void AddDenseMlp(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, double tokens, double t) {
  const ModelSpec& model = job.model;
  const double hidden = static_cast<double>(model.hidden), inner = static_cast<double>(model.ffn_hidden) / t;
  Add(layer, LinearTime(m, tokens, hidden, model.gated_mlp ? 2 * inner : inner));
  Add(layer, LinearTime(m, tokens, inner, hidden));
  // Activation: read its one or two inputs, write the product.
  const Seconds activation = tokens * inner * m.element * (model.gated_mlp ? m.kernels.gate : 2) / m.memory_rate;
  layer.forward.compute += activation + m.launch;
  layer.backward_data.compute += kBackwardStreams * activation + m.launch;
}

void AddAttentionLinears(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, double tokens, double t) {
  const ModelSpec& model = job.model;
  const double hidden = static_cast<double>(model.hidden);
  const double heads = static_cast<double>(model.heads);
  if (model.attention == Attention::kLatent) {
    const double rq = static_cast<double>(model.q_lora_rank), rkv = static_cast<double>(model.kv_lora_rank);
    const double dn = static_cast<double>(model.qk_nope_head_dim), dr = static_cast<double>(model.qk_rope_head_dim);
    const double dv = static_cast<double>(model.v_head_dim);
    if (rq > 0) Add(layer, LinearTime(m, tokens, hidden, rq));
    Add(layer, LinearTime(m, tokens, rq > 0 ? rq : hidden, heads * (dn + dr) / t));
    Add(layer, LinearTime(m, tokens, hidden, rkv + dr));
    Add(layer, LinearTime(m, tokens, rkv, heads * (dn + dv) / t));
    Add(layer, LinearTime(m, tokens, heads * dv / t, hidden));
    return;
  }
  const double width = static_cast<double>(model.head_dim);
  const double kv = std::max(static_cast<double>(model.kv_heads) / t, 1.0);
  Add(layer, LinearTime(m, tokens, hidden, (heads / t + 2 * kv) * width));
  Add(layer, LinearTime(m, tokens, heads * width / t, hidden));
}

/// What memory_model.cc's MegatronModules() drops, once more.
Seconds ModulesForward(const JobSpec& job, const CalibratedHardware& m, const LayerKey& key, bool moe) {
  const ModelSpec& model = job.model;
  const double tokens = Tokens(job, key), t = static_cast<double>(key.tp);
  const double width = static_cast<double>(model.hidden) / (key.sequence_parallel ? t : 1);
  const double inner = moe ? static_cast<double>(model.experts_per_token * model.expert_ffn_hidden) : 0;
  const bool latent = model.attention == Attention::kLatent;
  const double norms = (latent ? 1 : 0) + (moe ? 1 : 0);
  if (norms == 0) return Seconds(0);
  Seconds time = tokens * m.element * (NormTraffic(m, model) * norms * width + m.kernels.gate * inner / t) / m.memory_rate + 2 * norms * m.launch;
  if (latent) {
    const double heads = static_cast<double>(model.heads) / t;
    const double q = heads * static_cast<double>(model.qk_nope_head_dim + model.qk_rope_head_dim);
    const double kv = heads * static_cast<double>(model.qk_nope_head_dim + model.v_head_dim);
    const FractionalBytes element = m.narrow ? 1_B : m.element;
    time += GemmTime(m, m.gemm_rate, {tokens, q, static_cast<double>(model.q_lora_rank)}, element, m.element) +
            GemmTime(m, m.gemm_rate, {tokens, kv, static_cast<double>(model.kv_lora_rank)}, element, m.element);
  }
  return time;
}

/// What memory_model.cc's SavedByOperator() does not keep: the second, fourth and sixth of a dense layer's products (keys,
/// output, up), all experts, and the elementwise rest. Collectives' outputs are kept.
Seconds OtherProductsForward(const JobSpec& job, const CalibratedHardware& m, const LayerKey& key, bool moe, const LayerTime& layer,
                             Seconds core) {
  const ModelSpec& model = job.model;
  const double tokens = Tokens(job, key), t = static_cast<double>(key.tp), hidden = static_cast<double>(model.hidden);
  const double query = static_cast<double>(model.QueryWidth()) / t, inner = static_cast<double>(model.ffn_hidden) / t;
  const double kv = static_cast<double>(std::max<int64_t>(1, model.kv_heads / key.tp) * model.head_dim);
  const Seconds kept_attention = LinearTime(m, tokens, hidden, query).forward + LinearTime(m, tokens, hidden, kv).forward;
  const Seconds kept_mlp =
      moe ? Seconds(0) : LinearTime(m, tokens, hidden, inner).forward + LinearTime(m, tokens, inner, hidden).forward;
  return std::max(Seconds(0), layer.forward.compute - core - kept_attention - kept_mlp);
}

/// What the vocabulary's split costs: the embedding's sum and the head's gradient, the loss's maximum and two sums. Where sequence
/// parallelism or a grid splits the stream the two sums are scatters, and each has a gather on its other side; both are priced as
/// the sums still, of which the embedding's gather is a half.
void AddEdgeCommunication(EdgeTime& edge, const CalibratedHardware& m, const LayerKey& key, double tokens, double hidden,
                          std::vector<Operation>* first, std::vector<Operation>* last) {
  const Group group{key.tp, 1};
  const auto add = [&](PassTime& time, std::vector<Operation>* list, std::string_view what, OperationKind kind, OperationPass pass,
                       FractionalBytes bytes, double calls) {
    const Seconds sum = calls * AllReduceTime(m.network, group, bytes), half = calls * GatherTime(m.network, group, bytes);
    const bool sums = kind == OperationKind::kAllReduce, gathers = kind == OperationKind::kAllGather;
    const Seconds exposed = !gathers ? sum : pass == OperationPass::kForward ? half : Seconds(0);
    time.tensor += exposed;
    if (list == nullptr) return;
    list->push_back({.what = what, .kind = kind, .pass = pass, .calls = calls, .seconds = (sums ? sum : half).count(), .exposed = exposed.count(),
                     .communicator = CommunicatorKind::kTensor, .group = group, .bytes = bytes.count(),
                     .algorithm = AlgorithmName(sums ? AllReduceAlgorithm(m.network, group, bytes) : Algorithm::kRing)});
  };
  const FractionalBytes bytes = m.element * tokens * hidden;
  const bool rows = key.sequence_parallel || key.tensor_mode != TensorMode::k1D;
  const OperationKind sum = rows ? OperationKind::kReduceScatter : OperationKind::kAllReduce, gather = OperationKind::kAllGather;
  add(edge.embedding_forward, first, "embedding", sum, OperationPass::kForward, bytes, 1);
  if (rows) add(edge.embedding_backward, first, "embedding gradient", gather, OperationPass::kData, bytes, 1);
  if (rows) add(edge.head_forward, last, "head gather", gather, OperationPass::kForward, bytes, 1);
  add(edge.head_forward, last, "loss", OperationKind::kAllReduce, OperationPass::kForward, 4_B * tokens, 3);
  add(edge.head_backward_data, last, "head gradient", sum, OperationPass::kData, bytes, 1);
}

/// Of a grid, whose ranks have a part of each token.
void AddFinalNorm(EdgeTime& edge, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key,
                  std::vector<Operation>* last) {
  if (job.model.norm_placement == NormPlacement::kPost) return;
  std::vector<Operation> norm;
  AddGridNorm(&norm, job, m, key);
  for (const Operation& o : norm) {
    (o.pass == OperationPass::kForward ? edge.head_forward : edge.head_backward_data).tensor += Seconds(o.exposed);
    if (last != nullptr) last->push_back(o);
  }
}

/// No pass is faster than the host that starts its kernels.
void HostFloor(const CalibratedHardware& m, PassTime& pass, double kernels) {
  pass.compute = std::max(pass.compute, kernels * m.host_per_kernel);
}

}  // namespace

PassTime& PassTime::operator+=(const PassTime& o) {
  compute += o.compute;
  tensor += o.tensor;
  context += o.context;
  expert += o.expert;
  flops += o.flops;
  return *this;
}

void LayerTime::Communicate(const Operation& operation) {
  PassTime& time = operation.pass == OperationPass::kForward ? forward : operation.pass == OperationPass::kData ? backward_data : backward_weight;
  switch (operation.communicator) {
    case CommunicatorKind::kContext: time.context += Seconds(operation.exposed); break;
    case CommunicatorKind::kExpert:
    case CommunicatorKind::kExpertTensor: time.expert += Seconds(operation.exposed); break;
    default: time.tensor += Seconds(operation.exposed);
  }
  if (communication != nullptr) communication->push_back(operation);
}

LayerKey KeyOf(const Strategy& s) {
  return {s.tp, s.cp, s.ep, s.etp, s.micro_batch, s.sequence_parallel, s.tensor_mode, s.tensor_depth, s.context_mode};
}

LayerTime ComputeLayerTime(const JobSpec& job, const CalibratedHardware& m, const SoftwareStack& stack, const LayerKey& key,
                           bool moe, std::vector<Operation>* communication) {
  LayerTime layer{.communication = communication};
  const double tokens = Tokens(job, key), t = static_cast<double>(key.tp);
  if (key.tensor_mode != TensorMode::k1D) {
    AddGridLinears(layer, job, m, key);
  } else {
    AddAttentionLinears(layer, job, m, tokens, t);
    if (!moe) AddDenseMlp(layer, job, m, tokens, t);
    AddTensorCommunication(layer, job, m, key, moe);
  }
  AddStreams(layer, job, m, key);
  const Seconds before = layer.forward.compute;
  AddAttentionCore(layer, job, m, stack, key);
  const Seconds core = layer.forward.compute - before;
  const PassTime dense = layer.forward;
  if (moe) AddMoe(layer, job, m, key);
  if (!stack.selective.scores || !KeepsScores(job.model, stack)) layer.core = {};
  if (stack.selective.cheap_modules && !KeepsScores(job.model, stack)) {
    layer.core.compute = ModulesForward(job, m, key, moe);
  }
  if (stack.selective.moe_block && moe) {
    layer.core.compute = layer.forward.compute - dense.compute;
    layer.core.expert = layer.forward.expert - dense.expert;
  }
  if (stack.selective.every_second_product) {
    layer.core.compute = OtherProductsForward(job, m, key, moe, layer, core);
    layer.core.tensor = layer.forward.tensor / 2;  // gathers run again, what was scattered is kept
  }
  const double kernels = m.kernels.per_layer + (KeepsScores(job.model, stack) ? kUnfused : 0);
  HostFloor(m, layer.forward, kernels);
  HostFloor(m, layer.backward_data, kernels * 1.4);
  HostFloor(m, layer.backward_weight, 4);
  if (moe) {  // routing decides sizes on the device; the host waits for them before it goes on
    layer.forward.compute += m.moe_host;
    layer.backward_data.compute += m.moe_host;
  }
  return layer;
}

EdgeTime ComputeEdgeTime(const JobSpec& job, const CalibratedHardware& m, const SoftwareStack& stack, const LayerKey& key,
                         std::vector<Operation>* first, std::vector<Operation>* last) {
  EdgeTime edge;
  const ModelSpec& model = job.model;
  const double tokens = Tokens(job, key), t = static_cast<double>(key.tp);
  const double hidden = static_cast<double>(model.hidden);
  const double outputs = PaddedVocabulary(HeadOutputs(model), t);
  // Rows gathered and written; backward scatters fp32 gradients.
  edge.embedding_forward.compute = tokens * hidden * 3 * m.element / m.memory_rate + 4 * m.launch;
  edge.embedding_backward.compute = tokens * hidden * (m.element + 8_B) / m.memory_rate + 4 * m.launch;
  if (model.IsImage()) {  // patches are multiplied instead; nothing goes back into an image
    const double patch = static_cast<double>(model.patch_inputs);
    edge.embedding_forward.compute += GemmTime(m, m.gemm16_rate, {tokens, hidden, patch}, m.element, m.element);
    edge.embedding_backward.compute += GemmTime(m, m.gemm16_rate, {patch, hidden, tokens}, m.element, 8_B);
  }
  const double positions = HeadOnOnePosition(model) ? static_cast<double>(key.micro_batch) : tokens;
  // The logits are computed in 16 bits even by fp8 recipes.
  const auto product = [&](double rows, double columns, double depth, FractionalBytes out) {
    return columns * depth > 0 ? GemmTime(m, m.gemm16_rate, {rows, columns, depth}, m.element, out) : Seconds(0);
  };
  edge.head_forward.compute = product(positions, outputs, hidden, m.element);
  edge.head_backward_data.compute = product(positions, hidden, outputs, m.element);
  edge.head_backward_weight.compute = product(hidden, outputs, positions, 8_B);
  if (model.head == HeadKind::kMaskedLanguage) {
    edge.head_forward.compute += product(positions, hidden, hidden, m.element);
    edge.head_backward_data.compute += product(positions, hidden, hidden, m.element);
    edge.head_backward_weight.compute += product(hidden, hidden, positions, 8_B);
  }
  const double transform = model.head == HeadKind::kMaskedLanguage ? hidden * hidden : 0;
  const Flops flops(2 * positions * (hidden * static_cast<double>(HeadOutputs(model)) / t + transform));
  edge.head_forward.flops = edge.head_backward_data.flops = edge.head_backward_weight.flops = flops;
  // Loss: unfused an fp32 copy is written, and maximum, sum and exponential each pass over it; gradient in two passes.
  const Seconds byte_each = FractionalBytes(positions * outputs) / m.memory_rate;  // to move one byte for each logit
  const FractionalBytes fused = 2 * m.element;
  edge.head_forward.compute += byte_each * ((stack.fused_loss ? fused : m.element + 20_B) / 1_B) + 6 * m.launch;
  edge.head_backward_data.compute += byte_each * ((stack.fused_loss ? fused : m.element + 12_B) / 1_B) + 3 * m.launch;
  if (key.tp > 1) AddEdgeCommunication(edge, m, key, tokens, hidden, first, last);
  if (GridOf(key.tensor_mode, key.tp, key.tensor_depth).exists()) AddFinalNorm(edge, job, m, key, last);
  return edge;
}

}  // namespace weft::planner::parallelism
