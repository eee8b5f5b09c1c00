#include "planner/tasks/part_memory.h"

#include <algorithm>

namespace weft::planner::inline tasks {
namespace {

using Of = KeptTensor::Of;

constexpr int64_t kIndex = 8;  // bytes of a token's number

KeptTensor Own(int64_t bytes) { return {.of = Of::kOwn, .bytes = bytes}; }
KeptTensor Input(int64_t index) { return {.of = Of::kInput, .index = index}; }
KeptTensor Output(int64_t index) { return {.of = Of::kOutput, .index = index}; }

class Sizes {
 public:
  explicit Sizes(const PartShape& s)
      : s_(s), b_(BytesOf(s.program.type)), slices_(s.instruction.slices) {}

  PartMemory Forward() const;
  PartMemory Data() const;
  PartMemory Weight() const;

 private:
  int64_t In(size_t k) const { return s_.inputs[k].elements() * b_; }
  int64_t Out(size_t k) const { return s_.outputs[k].elements() * b_; }
  int64_t Rows() const { return (s_.inputs.empty() ? s_.outputs : s_.inputs)[0].rows; }
  /// A column of numbers.
  int64_t Column() const { return Rows() * b_; }
  int64_t Inner() const { return s_.model.ffn_hidden / (s_.program.tensor * slices_); }
  /// Which rows of the table are here: numbers, and a factor.
  int64_t RowsHere() const { return Rows() * kIndex + Column(); }
  int64_t Positions() const {
    return s_.model.learned_positions ? s_.program.sequence / s_.program.context * s_.model.hidden * b_ : 0;
  }
  int64_t Sources() const { return s_.program.expert_ranks * s_.program.expert_tensor; }

  /// Queries, keys (as many as values) and scores of attention, in bytes.
  struct Heads {
    int64_t queries, keys, scores, mask;
    bool grouped, one_key;
    /// A copy of queries by key head; of keys apart from values.
    int64_t CopiedQueries() const { return grouped ? queries : 0; }
    int64_t CopiedKeys() const { return one_key ? 0 : keys; }
  };
  Heads HeadsOf(const ValueShape& q, const ValueShape& kv) const {
    const int64_t d = s_.model.head_dim, key_heads = kv.columns / (2 * d);
    const int64_t batch = s_.program.micro_batch / s_.program.grid.batches();
    const int64_t per_key = q.columns / d / key_heads, rows = q.rows / batch, columns = kv.rows / batch;
    return {.queries = q.elements() * b_,
            .keys = kv.elements() / 2 * b_,
            .scores = batch * key_heads * per_key * rows * columns * b_,
            .mask = rows * columns,
            .grouped = per_key > 1,
            .one_key = key_heads == 1};
  }
  /// Turning `x` bytes needs four times as much besides; learned positions turn nothing.
  bool Turns() const { return !s_.model.learned_positions; }

  struct Operands {
    int64_t queries, keys, values;  ///< of their own
    int64_t most;                   ///< while they are made
    int64_t all() const { return queries + keys + values; }
  };
  Operands OperandsOf(const Heads& h) const {
    Operands o{.queries = Turns() ? h.queries : h.CopiedQueries(), .keys = Turns() ? h.keys : h.CopiedKeys(),
               .values = h.CopiedKeys(), .most = 0};
    if (Turns()) o.most = std::max(h.CopiedQueries() + 4 * h.queries, o.queries + h.CopiedKeys() + 4 * h.keys);
    o.most = std::max(o.most, o.all());
    return o;
  }
  /// Beside what there is, gradients of values included: those of queries and keys, and all by token.
  int64_t Gradients(const Heads& h) const {
    const int64_t turning = Turns() ? std::max(5 * h.queries, h.queries + 5 * h.keys) : 0;
    return std::max(turning, 2 * h.queries + 5 * h.keys) + h.keys;
  }

  PartMemory Norm(int64_t x, KeptTensor of, int64_t output) const {
    PartMemory m;
    const int64_t column = Column();
    if (s_.model.rms_norm) {
      m.first = output + std::max(x + column, column + x + x);
      m.kept = {of, Own(column)};
    } else {
      m.first = output + x + 2 * column;
      m.kept = {of, Own(column), Own(column)};
    }
    return m;
  }
  PartMemory NormData(int64_t gradient, bool adds) const {
    PartMemory m;
    m.first = s_.model.rms_norm ? 6 * gradient + Column() : gradient;
    m.second = adds ? 2 * gradient : gradient;
    return m;
  }
  PartMemory Attention() const;
  PartMemory AttentionData() const;
  PartMemory ContextAttention() const;
  PartMemory ContextAttentionData() const;
  PartMemory Mlp() const;
  PartMemory MlpData() const;
  PartMemory Experts() const;
  PartMemory ExpertsData() const;
  int64_t GridForward() const;
  int64_t GridData() const;
  /// A copy of a product's matrix, of panels that have a bias in between; `columns` of its outputs, `width` of its inputs.
  int64_t CopiedMatrix(const ValueShape& panels, int64_t columns, int64_t width) const {
    return panels.rows > 1 && panels.elements() > columns * width ? panels.elements() * b_ : 0;
  }

  const PartShape& s_;
  const int64_t b_;
  const int64_t slices_;
};

PartMemory Sizes::Attention() const {
  const Heads h = HeadsOf(s_.inputs[0], s_.inputs[1]);
  const Operands o = OperandsOf(h);
  PartMemory m;
  m.first = std::max({o.most, o.all() + 2 * h.scores, o.all() + h.scores + h.mask, o.all() + h.scores + 2 * h.queries});
  m.kept = {o.queries > 0 ? Own(o.queries) : Input(0), o.keys > 0 ? Own(o.keys) : Input(1), o.values > 0 ? Own(o.values) : Input(1),
            Own(h.scores)};
  return m;
}

PartMemory Sizes::AttentionData() const {
  const Heads h = HeadsOf(s_.outputs[0], s_.outputs[1]);
  return {.first = h.CopiedQueries() + 2 * h.scores + Gradients(h), .second = 0, .kept = {}, .gradients = {}};
}

PartMemory Sizes::ContextAttention() const {
  const Heads h = HeadsOf(s_.inputs[0], s_.inputs[1]);
  const Operands o = OperandsOf(h);
  const int64_t before = s_.inputs.size() > 2 ? h.queries : 0;
  return {.first = std::max({o.most, o.all() + 2 * h.scores + 3 * Out(1) + h.queries + before, o.all() + h.scores + h.mask}),
          .second = 0, .kept = {}, .gradients = {}};
}

PartMemory Sizes::ContextAttentionData() const {
  const Heads h = HeadsOf(s_.inputs[1], s_.inputs[2]);
  const Operands o = OperandsOf(h);
  const int64_t by_head = 2 * h.CopiedQueries();
  return {.first = std::max({o.most, o.all() + by_head + 3 * h.scores + h.queries, o.all() + by_head + 3 * h.scores + Gradients(h)}),
          .second = 0, .kept = {}, .gradients = {}};
}

PartMemory Sizes::Mlp() const {
  const int64_t active = Rows() * Inner() * b_, up = active * (s_.model.gated_mlp ? 2 : 1);
  return {.first = up + active + Out(0), .second = 0, .kept = {Own(up), Own(active)}, .gradients = {}};
}

PartMemory Sizes::MlpData() const {
  const int64_t active = Rows() * Inner() * b_, up = active * (s_.model.gated_mlp ? 2 : 1);
  return {.first = active + (s_.model.gated_mlp ? 6 * active : active), .second = active + up + Out(0), .kept = {},
          .gradients = {Own(up), Input(0)}, .still_kept = 1};
}

PartMemory Sizes::Experts() const {
  const int64_t rows = In(0), active = Rows() * s_.model.expert_ffn_hidden / s_.program.expert_tensor * b_, up = 2 * active;
  const int64_t copy = Sources() > 1 ? rows : 0;
  return {.first = std::max(copy + up, up + active + Out(0) + copy), .second = 0, .kept = {Own(up), Own(active)}, .gradients = {}};
}

PartMemory Sizes::ExpertsData() const {
  const int64_t active = Rows() * s_.model.expert_ffn_hidden / s_.program.expert_tensor * b_;
  const int64_t copy = Sources() > 1 ? In(0) : 0;
  return {.first = copy + 7 * active, .second = copy + 3 * active + Out(0) + copy, .kept = {},
          .gradients = {Own(2 * active), copy > 0 ? Own(copy) : Input(0)}, .still_kept = 1};
}

int64_t Sizes::GridForward() const {
  switch (s_.instruction.part) {
    case ModelPart::kProduct: return Out(0) + CopiedMatrix(s_.inputs[1], s_.outputs[0].columns, s_.inputs[0].columns);
    case ModelPart::kNormSums: return In(0) + 2 * Column() + (s_.outputs[0].columns > 1 ? Out(0) : 0);
    case ModelPart::kGridNorm: return Out(0) + 4 * Column() + In(2);
    default: return s_.outputs.size() > 1 ? Out(0) + Out(1) : Out(0);
  }
}

int64_t Sizes::GridData() const {
  switch (s_.instruction.part) {
    case ModelPart::kProduct: return Out(0) + CopiedMatrix(s_.inputs[1], s_.inputs[0].columns, s_.outputs[0].columns);
    case ModelPart::kNormSums: return 3 * In(0) + 4 * Column() + Out(0) + In(3);
    case ModelPart::kGridNorm: return 3 * In(0) + 4 * Column() + 2 * Out(1) + In(3);
    case ModelPart::kHeads: return In(1) + Out(0);
    default: return s_.model.gated_mlp ? 6 * In(0) : Out(0);
  }
}

PartMemory Sizes::Forward() const {
  const auto plain = [&](int64_t most) { return PartMemory{.first = most, .second = 0, .kept = {}, .gradients = {}}; };
  switch (s_.instruction.part) {
    case ModelPart::kEmbedding: return plain(RowsHere() + Out(0) + (s_.rank.tensor == 0 ? Positions() : 0));
    case ModelPart::kAttentionNorm:
    case ModelPart::kFinalNorm: return Norm(In(0), Input(0), 0);
    case ModelPart::kMlpNorm: return Norm(In(0), Output(0), Out(0));
    case ModelPart::kQkv: return plain(2 * (Out(0) + Out(1)));
    case ModelPart::kAttentionCore: return Attention();
    case ModelPart::kAttentionBlock:
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads: return ContextAttention();
    case ModelPart::kMlp: return Mlp();
    case ModelPart::kExperts: return Experts();
    case ModelPart::kDispatch: {
      PartMemory m = plain(In(1) + 4 * kIndex * s_.outputs[0].rows + 2 * Out(0));
      m.kept = {Own(kIndex * s_.outputs[0].rows), Own(kIndex * s_.outputs[0].rows)};
      return m;
    }
    case ModelPart::kCombine: {
      PartMemory m = plain(In(1) + 4 * kIndex * s_.inputs[0].rows + In(0) + Out(0));
      m.kept = {Input(0), Input(1)};
      return m;
    }
    case ModelPart::kHead: return plain(Out(0) + (slices_ > 1 ? Out(0) / slices_ : 0));
    case ModelPart::kLossMax: return plain(Out(0) + kIndex * Rows());
    case ModelPart::kLossSums: return plain(RowsHere() + In(0) + 2 * Out(0));
    case ModelPart::kLoss: return plain(3 * In(1) + kIndex * Rows());
    case ModelPart::kSlice: {
      PartMemory m;
      m.output_is_input = true;
      return m;
    }
    case ModelPart::kProduct:
    case ModelPart::kNormSums:
    case ModelPart::kGridNorm:
    case ModelPart::kHeads:
    case ModelPart::kActivation: return plain(GridForward());
    default: return plain(s_.outputs.empty() ? 0 : Out(0));
  }
}

PartMemory Sizes::Data() const {
  const auto plain = [&](int64_t most) { return PartMemory{.first = most, .second = 0, .kept = {}, .gradients = {}}; };
  switch (s_.instruction.part) {
    case ModelPart::kEmbedding: return plain(RowsHere() + std::max(In(0), Positions()));
    case ModelPart::kAttentionNorm:
    case ModelPart::kMlpNorm: return NormData(Out(0), true);
    case ModelPart::kFinalNorm: return NormData(Out(0), false);
    case ModelPart::kQkv: {
      PartMemory m = plain(In(1) + In(0) + In(1) + Out(0));
      m.gradients = {Own(In(0) + In(1))};
      return m;
    }
    case ModelPart::kAttentionCore: return AttentionData();
    case ModelPart::kAttentionBlock:
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads: return ContextAttentionData();
    case ModelPart::kMlp: return MlpData();
    case ModelPart::kExperts: return ExpertsData();
    case ModelPart::kDispatch: return plain(Out(0) + In(0));
    case ModelPart::kCombine: return plain(2 * Out(0) + Out(1) + 4 * kIndex * s_.outputs[0].rows);
    case ModelPart::kLoss: return plain(In(0) + RowsHere() + Column());
    case ModelPart::kRouter: {
      PartMemory m = plain(2 * Out(0));
      m.gradients = {Input(0)};
      return m;
    }
    case ModelPart::kProduct:
    case ModelPart::kNormSums:
    case ModelPart::kGridNorm:
    case ModelPart::kHeads:
    case ModelPart::kActivation: return plain(GridData());
    default: {
      PartMemory m = plain(Out(0));
      m.gradients = {Input(0)};
      return m;
    }
  }
}

PartMemory Sizes::Weight() const {
  if (s_.instruction.part == ModelPart::kProduct) {
    const int64_t matrix = s_.inputs[0].columns * s_.inputs[1].columns * b_;
    return {.first = Out(0) + (Out(0) > matrix ? Out(0) : 0), .second = 0, .kept = {}, .gradients = {}};
  }
  const bool copies = s_.instruction.part == ModelPart::kExperts && Sources() > 1;
  return {.first = copies ? In(0) : 0, .second = 0, .kept = {}, .gradients = {}};
}

}  // namespace

PartMemory MemoryOfPart(const PartShape& shape) {
  const Sizes sizes(shape);
  const StepAction action = shape.instruction.action;
  if (action == StepAction::kParameters || action == StepAction::kGradient) return {};
  if (OfVolumes(shape.instruction.part)) return MemoryOfVolumes(shape);
  PartMemory memory = action == StepAction::kForward ? sizes.Forward()
                      : action == StepAction::kData  ? sizes.Data()
                                                     : sizes.Weight();
  if (AddsToSlices(shape.instruction)) {  // the sum with the slices before takes as much again
    memory.first += shape.outputs[0].elements() * BytesOf(shape.program.type);
    memory.second += shape.outputs[0].elements() * BytesOf(shape.program.type);
  }
  return memory;
}

}  // namespace weft::planner::tasks
