#include "planner/parallelism/halo_exchange_time.h"

#include <algorithm>

#include "planner/parallelism/collective_time.h"

namespace weft::planner::inline parallelism {
namespace {

double Volume(const std::array<int64_t, 3>& sizes) { return static_cast<double>(sizes[0] * sizes[1] * sizes[2]); }

bool Convolves(const Cnn3dLayer& layer) {
  return layer.kind == Cnn3dKind::kConvolution || layer.kind == Cnn3dKind::kTransposedConvolution;
}

/// A dense layer behind a global pooling: its input is whole on every rank, and so is what it makes of it.
bool IsClassifier(const ModelSpec& model, int64_t index) {
  const std::vector<Cnn3dLayer>& layers = model.cnn_layers;
  const auto at = static_cast<size_t>(index);
  return index > 0 && layers[at].kind == Cnn3dKind::kDense && layers[at - 1].kind == Cnn3dKind::kGlobalPooling;
}

/// Implicit matrix product of a convolution: output positions × output channels, over input channels and kernel.
Seconds ConvolutionTime(const CalibratedHardware& m, const Cnn3dLayer& layer, double samples, double ranks) {
  const double positions = samples * Volume(layer.OutputExtent()) / ranks;
  const double groups = static_cast<double>(layer.groups);
  const double depth = static_cast<double>(layer.in_channels) / groups * Volume(layer.kernel);
  // Channels are padded to the instructions' grid by the library.
  const double padded = std::max(64.0, depth), columns = std::max(64.0, static_cast<double>(layer.out_channels) / groups);
  const Flops work(2 * positions * padded * columns * groups);
  const FractionalBytes traffic = m.element * samples / ranks *
                         (static_cast<double>(layer.in_channels) * Volume(layer.extent) +
                          static_cast<double>(layer.out_channels) * Volume(layer.OutputExtent()));
  return std::max(work / m.gemm_rate, traffic / m.memory_rate) + m.launch;
}

}  // namespace

FractionalBytes HaloBytes(const Cnn3dLayer& layer, int64_t samples, int64_t ranks, FractionalBytes element) {
  if (ranks <= 1 || !Convolves(layer)) return {};
  const double planes = static_cast<double>(layer.kernel[0] - 1) / 2;
  return element * static_cast<double>(samples * layer.in_channels) * planes *
         static_cast<double>(layer.extent[1] * layer.extent[2]);
}

Flops CnnForwardFlops(const Cnn3dLayer& layer) {
  const double in = static_cast<double>(layer.in_channels) / static_cast<double>(layer.groups);
  const double out = static_cast<double>(layer.out_channels);
  switch (layer.kind) {
    case Cnn3dKind::kConvolution: return Flops(2 * in * out * Volume(layer.kernel) * Volume(layer.OutputExtent()));
    case Cnn3dKind::kTransposedConvolution: return Flops(2 * in * out * Volume(layer.kernel) * Volume(layer.extent));
    case Cnn3dKind::kDense: return Flops(2 * in * Volume(layer.extent) * out);
    case Cnn3dKind::kPooling: return Flops(in * Volume(layer.kernel) * Volume(layer.OutputExtent()));
    case Cnn3dKind::kGlobalPooling: return Flops(in * Volume(layer.extent));
  }
  return {};
}

LayerTime HaloExchangeTime(const JobSpec& job, const CalibratedHardware& m, const LayerKey& key, int64_t index,
                           std::vector<Operation>* communication) {
  const Cnn3dLayer& layer = job.model.cnn_layers[static_cast<size_t>(index)];
  const bool classifier = IsClassifier(job.model, index), pools_all = layer.kind == Cnn3dKind::kGlobalPooling;
  const bool pools = layer.kind == Cnn3dKind::kPooling || pools_all;
  const double samples = static_cast<double>(key.micro_batch), ranks = classifier ? 1 : static_cast<double>(key.tp);
  LayerTime time{.communication = communication};
  const auto add = [&](std::string_view what, OperationKind kind, FractionalBytes bytes, Seconds seconds, Seconds exposed,
                       std::string_view algorithm) {
    for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
      if (pools_all && pass == OperationPass::kData) continue;  // every rank has the mean's gradient
      time.Communicate({.what = what, .kind = kind, .pass = pass, .calls = 1, .seconds = seconds.count(),
                        .exposed = exposed.count(), .communicator = CommunicatorKind::kTensor, .group = {key.tp, 1},
                        .bytes = bytes.count(), .algorithm = algorithm,
                        .hides_behind = kind == OperationKind::kSendReceive ? "the interior" : ""});
    }
  };
  const Flops flops(samples * CnnForwardFlops(layer).count() / ranks);
  const double output = samples * static_cast<double>(layer.out_channels) * Volume(layer.OutputExtent()) / ranks;
  // Normalisation and activation: read and write the output each.
  const Seconds stream = (layer.normalised ? 4 : 2) * m.element * output / m.memory_rate + 2 * m.launch;
  Seconds product{0};
  if (Convolves(layer)) {
    product = ConvolutionTime(m, layer, samples, ranks);
  } else if (layer.kind == Cnn3dKind::kDense) {
    // Cut in space the input is gathered, and every rank computes its share of the outputs.
    product = flops / m.gemm_rate + m.launch;
    const FractionalBytes gathered = m.element * samples * static_cast<double>(layer.in_channels) * Volume(layer.extent);
    const Seconds seconds = GatherTime(m.network, {key.tp, 1}, gathered);
    if (key.tp > 1 && !classifier) add("input gather", OperationKind::kAllGather, gathered, seconds, seconds, "ring");
  } else {
    product = m.element * samples * static_cast<double>(layer.in_channels) * Volume(layer.extent) / ranks / m.memory_rate;
  }
  time.forward.compute = product + stream;
  time.backward_data.compute = product + 2 * stream;
  time.backward_weight.compute = pools ? Seconds(0) : product;
  time.forward.flops = time.backward_data.flops = flops;
  time.backward_weight.flops = pools ? Flops() : flops;
  const FractionalBytes halo = HaloBytes(layer, key.micro_batch, key.tp, m.element);
  if (halo.count() > 0) {
    // Inner ranks send both ways at once; the interior is computed meanwhile.
    const Seconds travel = RingStepTime(m.network, {key.tp, 1}, 2 * halo);
    add("halo", OperationKind::kSendReceive, 2 * halo, travel, ExposedBehind(m, travel, product), "send");
  }
  if (pools_all && key.tp > 1) {
    const FractionalBytes bytes = m.element * samples * static_cast<double>(layer.in_channels);
    const Seconds seconds = AllReduceTime(m.network, {key.tp, 1}, bytes);
    add("pooled sums", OperationKind::kAllReduce, bytes, seconds, seconds, "ring");
  }
  if (layer.normalised && key.tp > 1) {
    const FractionalBytes bytes(2 * 4 * static_cast<double>(layer.out_channels));
    const Seconds seconds = AllReduceTime(m.network, {key.tp, 1}, bytes);
    add("normalisation sums", OperationKind::kAllReduce, bytes, seconds, seconds, "ring");
  }
  return time;
}

LayerBytes HaloExchangeBytes(const JobSpec& job, const LayerKey& key, int64_t index) {
  const Cnn3dLayer& layer = job.model.cnn_layers[static_cast<size_t>(index)];
  const FractionalBytes w(StorageBytes(job.precision));
  const double samples = static_cast<double>(key.micro_batch);
  const double ranks = IsClassifier(job.model, index) ? 1 : static_cast<double>(key.tp);
  const FractionalBytes input = w * samples * static_cast<double>(layer.in_channels) * Volume(layer.extent) / ranks;
  const FractionalBytes output = w * samples * static_cast<double>(layer.out_channels) * Volume(layer.OutputExtent()) / ranks;
  LayerBytes bytes;
  bytes.full = input;
  bytes.none = input + 2 * HaloBytes(layer, key.micro_batch, key.tp, w) + (layer.normalised ? output : FractionalBytes());
  bytes.selective = bytes.none;
  return bytes;
}

}  // namespace weft::planner::parallelism
