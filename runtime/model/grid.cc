#include "runtime/model/grid.h"

#include <torch/utils.h>

#include "common/check.h"
#include "runtime/model/activation.h"

namespace weft::runtime {
namespace {

using planner::ModelPart;

// Panels of a product: of each rows of the matrix, then a piece of the bias.

struct GridMatrix {
  torch::Tensor weight;  ///< [outputs × inputs]
  torch::Tensor bias;    ///< [as many as there are]
  int64_t first = 0;     ///< output that the bias begins with
};

/// Which piece of the inputs, and with it of the bias, a product has: a slice's, or on a cube the rank's own.
int64_t PieceOf(const PartCall& c) {
  if (!c.shape.grid.cube) return c.slice;
  const int64_t q = c.shape.grid.side;
  return c.step == 0 ? c.shape.tensor / (q * q) : c.shape.tensor % q;
}

GridMatrix GridMatrixOf(const PartCall& c, const torch::Tensor& panels, int64_t outputs, int64_t inputs) {
  const int64_t p = panels.size(0), of_weight = outputs * inputs / p, of_bias = panels.size(1) - of_weight;
  return {.weight = panels.narrow(1, 0, of_weight).reshape({outputs, inputs}),
          .bias = panels.narrow(1, of_weight, of_bias).reshape({-1}),
          .first = PieceOf(c) * p * of_bias};
}

torch::Tensor GridProductForward(const PartCall& c) {
  const torch::Tensor &x = c.inputs[0], &panels = c.inputs[1];
  const GridMatrix m = GridMatrixOf(c, panels, c.output.columns, x.size(1));
  torch::Tensor out = torch::mm(x, m.weight.t());
  if (m.bias.numel() > 0) out.narrow(1, m.first, m.bias.numel()).add_(m.bias);
  return out;
}

torch::Tensor GridProductData(const PartCall& c) {
  return torch::mm(c.inputs[0], GridMatrixOf(c, c.inputs[1], c.inputs[0].size(1), c.output.columns).weight);
}

// Norms. Sums over a row's columns are those of x, where means are taken, and of its squares.

struct GridNormal {
  torch::Tensor mean, inverse;  ///< [rows × 1]; no mean of an RMSNorm
  torch::Tensor weight, bias;   ///< [columns]
};

GridNormal GridNormalOf(const PartCall& c, const torch::Tensor& sums, const torch::Tensor& panels) {
  const double width = static_cast<double>(c.shape.model.hidden), epsilon = c.shape.model.numerics.norm_epsilon;
  if (c.shape.model.rms_norm)
    return {.mean = {}, .inverse = sums.div(width).add_(epsilon).rsqrt_(), .weight = panels.reshape({-1}), .bias = {}};
  const int64_t half = panels.size(1) / 2;
  const torch::Tensor mean = sums.narrow(1, 0, 1).div(width);
  return {.mean = mean,
          .inverse = sums.narrow(1, 1, 1).div(width).sub_(mean.square()).add_(epsilon).rsqrt_(),
          .weight = panels.narrow(1, 0, half).reshape({-1}),
          .bias = panels.narrow(1, half, half).reshape({-1})};
}

/// x without mean and deviation.
torch::Tensor Normalised(const GridNormal& n, const torch::Tensor& x) {
  return n.mean.defined() ? (x - n.mean).mul_(n.inverse) : x * n.inverse;
}

torch::Tensor GridNormSums(const PartCall& c) {
  const torch::Tensor& x = c.inputs[0];
  const torch::Tensor squares = x.square().sum(1, true);
  return c.shape.model.rms_norm ? squares : torch::cat({x.sum(1, true), squares}, 1);
}

torch::Tensor GridNormForward(const PartCall& c) {
  const GridNormal n = GridNormalOf(c, c.inputs[1], c.inputs[2]);
  torch::Tensor out = Normalised(n, c.inputs[0]).mul_(n.weight);
  return n.bias.defined() ? out.add_(n.bias) : out;
}

/// Of the weighted gradient, where means are taken, and of its product with what is normalised.
torch::Tensor GridNormGradientSums(const PartCall& c) {
  const GridNormal n = GridNormalOf(c, c.inputs[2], c.inputs[3]);
  const torch::Tensor weighted = c.inputs[0] * n.weight;
  const torch::Tensor products = Normalised(n, c.inputs[1]).mul_(weighted).sum(1, true);
  return n.mean.defined() ? torch::cat({weighted.sum(1, true), products}, 1) : products;
}

Tensors GridNormData(const PartCall& c) {
  const torch::Tensor &gradient = c.inputs[0], &panels = c.inputs[3];
  const GridNormal n = GridNormalOf(c, c.inputs[2], panels);
  const torch::Tensor sums = c.inputs[4].div(static_cast<double>(c.shape.model.hidden));
  const torch::Tensor normal = Normalised(n, c.inputs[1]);
  torch::Tensor of_panels = (gradient * normal).sum(0).view({panels.size(0), -1});
  if (n.mean.defined()) of_panels = torch::cat({of_panels, gradient.sum(0).view({panels.size(0), -1})}, 1);
  torch::Tensor of_x = (gradient * n.weight).sub_(normal * sums.narrow(1, sums.size(1) - 1, 1));
  if (n.mean.defined()) of_x.sub_(sums.narrow(1, 0, 1));
  return {of_x.mul_(n.inverse), of_panels};
}

// How activations are cut.

/// A tensor rank's sequences and columns of all rows.
torch::Tensor BlockOf(const ModelShape& s, const torch::Tensor& whole, int64_t tensor) {
  const planner::StreamPlace place = planner::StreamPlaceOf(s.grid, tensor);
  const int64_t batch = s.batch / s.grid.batches(), columns = whole.size(1) / s.grid.side;
  return whole.view({s.sequence, s.batch, whole.size(1)})
      .narrow(1, place.batch * batch, batch)
      .narrow(2, place.column * columns, columns);
}

torch::Tensor ToGrid(const ModelShape& s, const torch::Tensor& whole) {
  const int64_t rows = whole.size(0) / s.grid.batches();
  torch::Tensor blocks = torch::empty({s.tensors * rows, whole.size(1) / s.grid.side}, whole.options());
  for (int64_t t = 0; t < s.tensors; ++t) {
    const torch::Tensor block = BlockOf(s, whole, t);
    blocks.narrow(0, t * rows, rows).view(block.sizes()).copy_(block);
  }
  return blocks;
}

torch::Tensor FromGrid(const ModelShape& s, const torch::Tensor& blocks) {
  const int64_t rows = blocks.size(0) / s.tensors;
  const torch::Tensor whole = torch::empty({rows * s.grid.batches(), blocks.size(1) * s.grid.side}, blocks.options());
  for (int64_t t = 0; t < s.tensors; ++t) {
    const torch::Tensor block = BlockOf(s, whole, t);
    block.copy_(blocks.narrow(0, t * rows, rows).view(block.sizes()));
  }
  return whole;
}

}  // namespace

Tensors GridForward(const PartCall& c) {
  switch (c.part) {
    case ModelPart::kProduct: return {GridProductForward(c)};
    case ModelPart::kNormSums: return {GridNormSums(c)};
    case ModelPart::kGridNorm: return {GridNormForward(c)};
    case ModelPart::kHeads: {
      const planner::ModelSpec& m = c.shape.model;
      return SplitHeads(c.inputs[0], m.heads * m.head_dim / c.shape.grid.side, m.head_dim);
    }
    case ModelPart::kActivation: return {Activated(c.shape.model, c.inputs[0])};
    case ModelPart::kToGrid: return {ToGrid(c.shape, c.inputs[0])};
    case ModelPart::kFromGrid: return {FromGrid(c.shape, c.inputs[0])};
    default: break;
  }
  WEFT_CHECK(false, "a part that is not a grid's");
}

Tensors GridData(const PartCall& c) {
  switch (c.part) {
    case ModelPart::kProduct: return {GridProductData(c)};
    case ModelPart::kNormSums: return {GridNormGradientSums(c)};
    case ModelPart::kGridNorm: return GridNormData(c);
    case ModelPart::kHeads: return {JoinedHeads(c.inputs[0], c.inputs[1], c.shape.model.head_dim)};
    case ModelPart::kActivation: return {ActivationGradient(c.shape.model, c.inputs[0], c.inputs[1])};
    default: break;
  }
  WEFT_CHECK(false, "a part without a data gradient");
}

Tensors ProductWeight(const PartCall& c) {
  const torch::Tensor &gradient = c.inputs[0], &x = c.inputs[1];
  const int64_t p = c.output.rows;
  const torch::Tensor weight = torch::mm(gradient.t(), x).view({p, -1});
  const int64_t of_bias = p * (c.output.columns - weight.size(1));
  if (of_bias == 0) return {weight};
  const torch::Tensor bias = gradient.narrow(1, PieceOf(c) * of_bias, of_bias).sum(0).view({p, -1});
  return {torch::cat({weight, bias}, 1)};
}

}  // namespace weft::runtime
