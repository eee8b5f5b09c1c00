#include "planner/tasks/step_program.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace weft::planner::inline tasks {
namespace {

constexpr std::array<std::string_view, kModelParts> kPartNames = {
    "embedding",          "positions",       "attention-norm", "qkv",      "attention-core", "attention-block",
    "attention-gathered", "attention-heads", "attention-out",  "mlp-norm", "mlp",            "router",
    "dispatch",           "experts",         "combine",        "residual", "final-norm",     "head",
    "loss-max",           "loss-sums",       "loss",           "slice",    "spread",         "collect",
    "mlp-up",             "mlp-down",        "product",        "norm-sums", "grid-norm",     "heads",
    "activation",         "to-grid",         "from-grid",      "volume",   "halo",           "convolution",
    "pooling",            "global-pooling",  "classifier",     "class-loss"};
constexpr std::array<std::string_view, kActions> kActionNames = {
    "forward",  "data-gradient", "weight-gradient", "parameters", "gradient",       "loss-sum",   "squares",
    "update",   "release",       "all-reduce",      "all-reduce-max", "all-gather", "reduce-scatter", "all-to-all",
    "shift",    "send",          "receive",         "average",    "mix",            "broadcast",  "reduce",
    "halo"};
constexpr std::array<std::string_view, kWireTypes> kWireNames = {"whole", "bf16", "fp8"};

/// FNV-1a over numbers.
class Digest {
 public:
  void Add(int64_t value) {
    for (int i = 0; i < 8; ++i) hash_ = (hash_ ^ (static_cast<uint64_t>(value) >> (8 * i) & 0xff)) * 0x100000001b3u;
  }
  void Add(const std::vector<int32_t>& values) {
    Add(static_cast<int64_t>(values.size()));
    for (const int32_t value : values) Add(int64_t{value});
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

void AddClass(Digest& digest, const RankClass& c) {
  digest.Add(static_cast<int64_t>(c.blocks.size()));
  for (const ParameterBlock& b : c.blocks) {
    digest.Add(static_cast<int64_t>(b.part) << 2 | int64_t{b.whole} << 1 | int64_t{b.copy});
    digest.Add(int64_t{b.layer});
    digest.Add(int64_t{b.slices} << 32 | int64_t{b.slice});
    digest.Add(b.elements);
  }
  digest.Add(static_cast<int64_t>(c.units.size()));
  for (const ParameterUnit& u : c.units) {
    for (const int64_t value : {int64_t{u.first_block}, int64_t{u.blocks}, u.elements, int64_t{u.shard}}) digest.Add(value);
    digest.Add(int64_t{u.parameters_sharded} << 2 | int64_t{u.gradients_sharded} << 1 | int64_t{u.optimizer_sharded});
    digest.Add(int64_t{u.across});
    digest.Add(u.duplicates);
  }
  digest.Add(static_cast<int64_t>(c.values.size()));
  for (const ValueShape& v : c.values) digest.Add(v.rows), digest.Add(v.columns);
  digest.Add(static_cast<int64_t>(c.instructions.size()));
  for (const Instruction& i : c.instructions) {
    digest.Add(static_cast<int64_t>(i.action) << 16 | static_cast<int64_t>(i.part) << 2 | int64_t{i.of_shard} << 1 |
               int64_t{i.keeps});
    for (const int32_t value :
         {i.layer, i.micro_batch, i.unit, i.slice, i.slices, static_cast<int32_t>(i.wire), i.every, i.communicator, i.tag})
      digest.Add(int64_t{value});
    digest.Add(i.elements);
    digest.Add(i.inputs), digest.Add(i.outputs), digest.Add(i.needs);
  }
}

/// What a communication is of on one rank: all, or the rank's share of a unit.
int64_t ElementsOn(const StepProgram& program, const RankClass& list, const Instruction& i, int64_t rank) {
  if (!i.of_shard) return i.elements;
  const ProgramCommunicator& shard = program.communicators[static_cast<size_t>(list.units[static_cast<size_t>(i.unit)].shard)];
  const int64_t index = PlaceIn(shard, static_cast<int32_t>(rank)).index, n = static_cast<int64_t>(shard.groups.front().size());
  return (index + 1) * i.elements / n - index * i.elements / n;
}

}  // namespace

std::string_view ElementTypeName(ElementType type) { return type == ElementType::kFloat32 ? "fp32" : "fp64"; }
std::string_view PartName(ModelPart part) { return kPartNames[static_cast<size_t>(part)]; }
std::string_view WireTypeName(WireType wire) { return kWireNames[static_cast<size_t>(wire)]; }

int64_t NarrowBytes(WireType wire, int64_t elements) {
  constexpr int64_t kScaled = 128;
  return wire == WireType::kBfloat16 ? 2 * elements : elements + 4 * ((elements + kScaled - 1) / kScaled);
}

StepAction CountedAs(StepAction action) {
  switch (action) {
    case StepAction::kAllReduceMax:
    case StepAction::kAverage:
      return StepAction::kAllReduce;
    case StepAction::kMix:
      return StepAction::kSend;
    default:
      return action;
  }
}

std::string_view ActionName(StepAction action) { return kActionNames[static_cast<size_t>(action)]; }

bool AddsToSlices(const Instruction& i) {
  if (i.slice == 0) return false;
  const bool forward = i.action == StepAction::kForward, data = i.action == StepAction::kData;
  switch (i.part) {
    case ModelPart::kQkv:
      return data;
    case ModelPart::kAttentionOut:
    case ModelPart::kProduct:
      return forward;
    case ModelPart::kMlp:
    case ModelPart::kHead:
      return forward || data;
    default:
      return false;
  }
}

bool AddsToGradients(const Instruction& i) {
  // Products' data gradients touch no gradients of parameters.
  return i.action == StepAction::kGradient || i.action == StepAction::kWeight ||
         (i.action == StepAction::kData && !IsProduct(i.part));
}

uint64_t DigestOf(const StepProgram& p) {
  Digest digest;
  for (const int64_t value : {int64_t{StepProgram::kVersion}, p.layers, p.hidden, p.heads, p.kv_heads, p.head_dim, p.ffn_hidden,
                              p.vocab, static_cast<int64_t>(p.type), p.sequence, p.global_batch, p.micro_batch, p.replicas,
                              p.tensor, p.context, p.stages, p.chunks, p.experts, p.experts_per_token,
                              p.expert_hidden, p.expert_ranks, p.expert_tensor, int64_t{p.replicas_differ}, p.grid.side,
                              p.grid.depth, int64_t{p.grid.cube}}) {
    digest.Add(value);
  }
  for (const Cnn3dLayer& l : p.volumes) {
    for (const auto* sizes : {&l.kernel, &l.stride, &l.extent}) {
      for (const int64_t size : *sizes) digest.Add(size);
    }
    for (const int64_t value : {static_cast<int64_t>(l.kind), l.in_channels, l.out_channels, int64_t{l.bias}}) digest.Add(value);
  }
  digest.Add(static_cast<int64_t>(p.shares.size()));
  for (const int64_t share : p.shares) digest.Add(share);
  digest.Add(static_cast<int64_t>(p.communicators.size()));
  for (const ProgramCommunicator& c : p.communicators) {
    digest.Add(static_cast<int64_t>(c.kind));
    digest.Add(static_cast<int64_t>(c.sums.algorithm) << 32 | int64_t{c.sums.parameter});
    digest.Add(static_cast<int64_t>(c.groups.size()));
    for (const std::vector<int32_t>& group : c.groups) digest.Add(group);
  }
  digest.Add(static_cast<int64_t>(p.classes.size()));
  for (const RankClass& c : p.classes) AddClass(digest, c);
  digest.Add(static_cast<int64_t>(p.ranks.size()));
  for (const RankPlace& r : p.ranks) {
    for (const int32_t value : {r.rank_class, r.stage, r.tensor, r.context, r.replica}) digest.Add(int64_t{value});
  }
  return digest.value();
}

SequenceRange SequencesOf(const StepProgram& p, int64_t replica) {
  if (p.shares.empty()) return {replica * (p.global_batch / p.replicas), p.global_batch / p.replicas};
  const auto own = p.shares.begin() + replica;
  return {std::accumulate(p.shares.begin(), own, int64_t{0}), *own};
}

int64_t MicroBatchesOf(const StepProgram& p, size_t rank_class) {
  const auto rank = std::find_if(p.ranks.begin(), p.ranks.end(),
                                 [&](const RankPlace& r) { return static_cast<size_t>(r.rank_class) == rank_class; });
  return SequencesOf(p, rank == p.ranks.end() ? 0 : rank->replica).count / p.micro_batch;
}

ExpertPlace ExpertPlaceOf(const StepProgram& p, int64_t rank) {
  const RankPlace& place = p.ranks[static_cast<size_t>(rank)];
  const int64_t index = (int64_t{place.replica} * p.context + place.context) * p.tensor + place.tensor;
  return ExpertPlaceOf(index, p.expert_ranks, p.expert_tensor);
}

std::vector<int64_t> PositionsOf(int64_t sequence, int64_t ranks, int64_t rank) {
  std::vector<int64_t> positions(static_cast<size_t>(sequence / ranks));
  const auto half = positions.begin() + static_cast<int64_t>(positions.size()) / (ranks == 1 ? 1 : 2);
  const int64_t piece = half - positions.begin();
  std::iota(positions.begin(), half, rank * piece);
  std::iota(half, positions.end(), (2 * ranks - 1 - rank) * piece);
  return positions;
}

int64_t CapacityGroup(const StepProgram& p) { return p.micro_batch * p.sequence / p.context / p.tensor; }
int64_t CapacityOf(const StepProgram& p) { return CapacityGroup(p) * p.experts_per_token / p.experts; }

GroupPlace PlaceIn(const ProgramCommunicator& communicator, int32_t rank) {
  for (size_t g = 0; g < communicator.groups.size(); ++g) {
    const std::vector<int32_t>& group = communicator.groups[g];
    const auto at = std::find(group.begin(), group.end(), rank);
    if (at != group.end()) return {static_cast<int32_t>(g), static_cast<int32_t>(at - group.begin())};
  }
  return {};
}

int64_t BytesOn(const StepProgram& program, const RankClass& list, const Instruction& i, int64_t rank) {
  const int64_t elements = ElementsOn(program, list, i, rank);
  if (i.wire != WireType::kWhole) return NarrowBytes(i.wire, elements);
  return elements * (i.unit < 0 && i.elements == 1 ? 8 : BytesOf(program.type));
}

std::vector<ProgramVolume> VolumesOf(const StepProgram& program, int64_t rank, int64_t steps) {
  std::map<std::pair<CommunicatorKind, StepAction>, ProgramVolume> volumes;
  const RankPlace& place = program.ranks[static_cast<size_t>(rank)];
  const RankClass& list = program.classes[static_cast<size_t>(place.rank_class)];
  for (const Instruction& i : list.instructions) {
    if (!Communicates(i.action) || i.action == StepAction::kReceive) continue;
    const ProgramCommunicator& communicator = program.communicators[static_cast<size_t>(i.communicator)];
    const StepAction action = CountedAs(i.action);
    const auto n = static_cast<int64_t>(communicator.groups.front().size());
    const bool narrow = i.wire != WireType::kWhole;
    const int64_t elements = ElementsOn(program, list, i, rank), times = steps / i.every;
    const int64_t bytes = BytesOn(program, list, i, rank);
    if (bytes == 0) continue;
    ProgramVolume& volume = volumes[{communicator.kind, action}];
    volume.kind = communicator.kind;
    volume.action = action;
    volume.calls += times;
    volume.bytes += times * bytes;
    // Narrow gradients travel in equal pieces.
    const auto cut = narrow ? static_cast<double>(NarrowBytes(i.wire, (elements + n - 1) / n))
                            : static_cast<double>(bytes) / static_cast<double>(n);
    const double sent = (action == StepAction::kAllReduce ? 2 : 1) * static_cast<double>(n - 1) * cut;
    const bool message = action == StepAction::kSend || action == StepAction::kShift;
    const int64_t index = PlaceIn(communicator, static_cast<int32_t>(rank)).index;
    const double halves = (index > 0 ? 0.5 : 0) + (index + 1 < n ? 0.5 : 0);  // at the ends of a line there is one neighbour
    const double of_all = message ? 1 : halves;
    const bool whole = message || action == StepAction::kHalo;
    volume.sent += static_cast<double>(times) * (whole ? of_all * static_cast<double>(bytes) : sent);
  }
  std::vector<ProgramVolume> list_of;
  for (const auto& [key, volume] : volumes) list_of.push_back(volume);
  return list_of;
}

}  // namespace weft::planner::tasks
