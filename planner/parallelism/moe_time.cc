#include "planner/parallelism/moe_time.h"

#include <algorithm>
#include <cmath>

#include "planner/parallelism/collective_time.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

struct Routed {
  double local_experts, copies, rows;  // per rank; rows of one expert
};

Routed RoutedOf(const JobSpec& job, const LayerKey& key) {
  const ModelSpec& model = job.model;
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp * key.tp);
  const double local = static_cast<double>(model.experts) / static_cast<double>(key.ep);
  const double copies = tokens * static_cast<double>(model.experts_per_token) * static_cast<double>(key.etp);
  // Kernels pad each expert's rows to the instructions' grid.
  return {local, copies, std::ceil(copies / local / 64) * 64};
}

void AddExperts(LayerTime& layer, const CalibratedHardware& m, const Routed& r, double hidden, double inner, bool gated) {
  const FractionalBytes element = m.narrow ? 1_B : m.element;
  const double up = gated ? 2 * inner : inner;
  const auto product = [&](double rows, double columns, double depth, FractionalBytes out) {
    return GemmTime(m, m.gemm_rate, {rows, columns, depth, r.local_experts}, element, out);
  };
  layer.forward.compute += product(r.rows, up, hidden, m.element) + product(r.rows, hidden, inner, m.element);
  layer.backward_data.compute += product(r.rows, hidden, up, m.element) + product(r.rows, inner, hidden, m.element);
  layer.backward_weight.compute += product(hidden, up, r.rows, 8_B) + product(inner, hidden, r.rows, 8_B);
  const Flops flops(2 * r.copies * hidden * (up + inner));
  for (PassTime* pass : {&layer.forward, &layer.backward_data, &layer.backward_weight}) pass->flops += flops;
  // Permuted in and out, activation, and the casts of narrow formats.
  FractionalBytes traffic = r.copies * m.element * (2 * 2 * hidden + (gated ? m.kernels.gate : 2) * inner);
  if (m.narrow) traffic += r.copies * 4_B * (hidden + inner);
  layer.forward.compute += traffic / m.memory_rate + 10 * m.launch;
  layer.backward_data.compute += 2 * traffic / m.memory_rate + 14 * m.launch;
}

void AddShared(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key) {
  const ModelSpec& model = job.model;
  if (model.shared_experts == 0) return;
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp);
  const double inner = static_cast<double>(model.shared_experts * model.shared_expert_ffn_hidden) / static_cast<double>(key.tp);
  const double hidden = static_cast<double>(model.hidden);
  const FractionalBytes element = m.narrow ? 1_B : m.element;
  const double up = model.gated_mlp ? 2 * inner : inner;
  layer.forward.compute += GemmTime(m, m.gemm_rate, {tokens, up, hidden}, element, m.element) +
                           GemmTime(m, m.gemm_rate, {tokens, hidden, inner}, element, m.element);
  layer.backward_data.compute += GemmTime(m, m.gemm_rate, {tokens, hidden, up}, element, m.element) +
                                 GemmTime(m, m.gemm_rate, {tokens, inner, hidden}, element, m.element);
  layer.backward_weight.compute += GemmTime(m, m.gemm_rate, {hidden, up, tokens}, element, 8_B) +
                                   GemmTime(m, m.gemm_rate, {inner, hidden, tokens}, element, 8_B);
  const Flops flops(2 * tokens * hidden * (up + inner));
  for (PassTime* pass : {&layer.forward, &layer.backward_data, &layer.backward_weight}) pass->flops += flops;
}

/// Dispatch and combine; `held` leaves for all experts' ranks each time.
void AddExpertCommunication(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key,
                            FractionalBytes held) {
  const ModelSpec& model = job.model;
  Operation o{.what = "expert dispatch and combine", .kind = OperationKind::kAllToAll, .calls = 2, .communicator = CommunicatorKind::kExpert,
              .group = {key.ep, key.etp}, .bytes = held.count(), .algorithm = "direct", .hides_behind = "shared experts"};
  Seconds wire = o.calls * AllToAllTime(m.network, o.group, held, m.fused_dispatch);
  const int64_t span = key.ep * key.etp;
  if (span > m.network.gpus_per_node) {
    // A token goes once to each node that needs it, then on by NVLink.
    const double nodes = static_cast<double>(span) / static_cast<double>(m.network.gpus_per_node);
    const double once = ExpectedNodes(static_cast<double>(model.experts), static_cast<double>(model.experts_per_token), nodes) /
                        static_cast<double>(model.experts_per_token);
    wire *= std::min(1.0, once);
  }
  o.seconds = wire.count();
  o.exposed = (wire * (1 - m.expert_hidden)).count();
  const FractionalBytes gathered = held * static_cast<double>(key.etp);
  const Seconds seconds = key.etp > 1 ? GatherTime(m.network, {key.etp, 1}, gathered) : Seconds(0);
  Operation within{.calls = 1, .seconds = seconds.count(), .exposed = seconds.count(),
                   .communicator = CommunicatorKind::kExpertTensor, .group = {key.etp, 1}, .bytes = gathered.count(),
                   .algorithm = "ring"};
  for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
    o.pass = within.pass = pass;
    if (key.ep > 1) layer.Communicate(o);
    if (key.etp <= 1) continue;
    within.what = "expert gathers";
    within.kind = OperationKind::kAllGather;
    layer.Communicate(within);
    within.what = "expert scatters";
    within.kind = OperationKind::kReduceScatter;
    layer.Communicate(within);
  }
}

}  // namespace

double ExpectedNodes(double experts, double per_token, double nodes) {
  const double elsewhere = experts - experts / nodes;
  double none = 1;  // probability that all K lie elsewhere
  for (double k = 0; k < per_token; ++k) none *= std::max(0.0, (elsewhere - k) / (experts - k));
  return nodes * (1 - none);
}

void AddMoe(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key) {
  const ModelSpec& model = job.model;
  const Routed routed = RoutedOf(job, key);
  const double hidden = static_cast<double>(model.hidden);
  const double inner = static_cast<double>(model.expert_ffn_hidden) / static_cast<double>(key.etp);
  AddExperts(layer, m, routed, hidden, inner, model.gated_mlp);
  AddShared(layer, job, m, key);
  const double tokens = routed.copies / static_cast<double>(model.experts_per_token * key.etp);
  // Router: a narrow product in fp32 and its softmax.
  const Flops forward(2 * tokens * hidden * static_cast<double>(model.experts));
  const Flops backward(4 * tokens * hidden * static_cast<double>(model.experts));  // its weight's gradient with it
  layer.forward.compute += forward / m.gemm16_rate + 4 * m.launch;
  layer.backward_data.compute += backward / m.gemm16_rate + 4 * m.launch;
  layer.forward.flops += forward;
  layer.backward_data.flops += backward;
  const FractionalBytes held = m.element * routed.copies / static_cast<double>(key.etp) * hidden;
  AddExpertCommunication(layer, job, m, key, held);
}

}  // namespace weft::planner::parallelism
