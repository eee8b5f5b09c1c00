// One training step as a program: for every rank the explicit list of what it computes and communicates, in order. It is made by
// the planner (planner/parallelism/program/expand.h) and executed by runtime/ as it stands: a new schedule or strategy is another
// list and no new code there.
//
// Ranks that do the same share one list (a RankClass); what differs between them (which communicator of a kind, which slice of a
// matrix, which samples) follows from their RankPlace.
//
// Data. Activations and their gradients are values: matrices [rows × columns], written once and free after their last reader.
// Rows are tokens, sequence-major. Parameters lie in units, each one run of memory: parameters, gradients and optimizer state of a
// unit are exchanged together. A unit that is sharded is cut into equal runs of elements (rank i of n has [i·E/n, (i+1)·E/n)).
//
// Order. Computations run in the order of the list. Communications are begun in that order on the stream of their communicator,
// each once the values it reads, and what `needs` names, are there; a computation waits for the values and units that it reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/collectives/algorithm.h"
#include "planner/tasks/operations.h"
#include "planner/tasks/rank_grid.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline tasks {

enum class ElementType : uint8_t { kFloat32, kFloat64 };
/// "fp32", "fp64".
std::string_view ElementTypeName(ElementType type);
constexpr int64_t BytesOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 8; }

/// A piece of the model: parameters belong to one, and computations are of one. T tokens of a micro-batch on a rank, T/s of them
/// where sequence parallelism splits the rows; h hidden, a·d and k·d widths of queries and keys on the rank, V its vocabulary.
/// kv: [T × 2·k·d], of each head its keys and its values.
///
///   part            inputs → outputs                                      parameters
///   kEmbedding      (tokens) → [T × h], a sum over the tensor ranks       table [V × h]
///   kPositions      of kEmbedding: added on the first tensor rank         [positions × h]
///   kAttentionNorm  x → n                                                 norm
///   kQkv            n → q, kv                                             matrix, bias
///   kAttentionCore  q, kv → o                                             none
///   kAttentionOut   o → y, a sum over the tensor ranks                    matrix, this rank's share of the bias
///   kMlpNorm        x, y → x + y, n                                       norm
///   kMlp            n → z, a sum over the tensor ranks                    matrices, biases
///   kRouter         n → scores of the experts [G × E]                     matrix, whole on every rank
///   kDispatch       n, scores → [E·C × h], C rows for each expert         none
///   kExperts        rows of this rank's experts → theirs                  their matrices
///   kCombine        rows [E·C × h], scores → z [G × h]                    none
///   kResidual       x, z → x + z                                          none
///   kFinalNorm      x → n                                                 norm
///   kHead           n → logits [T × V]                                    table, unless it is the embedding's
///   kLossMax        logits → largest [T × 1]                              none
///   kLossSums       logits, largest → sum of exponentials, the target's logit if it is here; [T × 1] each
///   kLoss           logits, largest, sums, targets → this micro-batch's share of the mean loss [1 × 1]
///   kSlice          x → this tensor rank's rows of it                     none
///
/// With context parallelism over c ranks T are the tokens of one of them (PositionsOf()). In place of kAttentionCore stand parts
/// whose backward pass makes the scores again, from what they read and l, the logarithms of each softmax's sum [T × heads]:
///
///   kAttentionBlock     q, kv of the rank `tag` places before → o, l; with `tag` > 0 it reads o, l of the block before, too, and
///                       adds to them
///   kAttentionGathered  q, kv of all ranks, one below the other → o, l
///   kAttentionHeads     the same with q of all ranks as well, and a c-th of the heads
///   kSpread             [T × w] → [c·T × w/c]: columns of equal heads, one below the other
///   kCollect            [c·T × w/c] → [T × w]: and back
///
/// An MoE layer has kRouter to kCombine in place of kMlp. The G tokens that a tensor rank has of a micro-batch are a capacity
/// group: each of E experts takes C = K·G/E of their K choices each, all first choices before the second ones, and of these in the
/// order of rows; the rest is dropped, and rows that are left over are zero. Rows lie expert by expert; behind an exchange between
/// the ranks that share the experts, [ranks × experts of this one × C]. Source: GShard, arXiv 2006.16668, section 2.2.
///
/// On a grid of tensor ranks (rank_grid.h) the stream is cut in rows and columns, [R × c], and parameters of products and norms are
/// values, too: panels [1 × e], what kParameters makes of each, or several, one below the other. One of a product is rows of its
/// matrix and then a piece of its bias. In place of the parts above that have parameters stand, but for embedding and head:
///
///   kProduct     x [R × i], panels [p × e] → [R × o], columns of the bias added that the panels have
///   kNormSums    x → sums that the norm needs of each row's columns here, [R × 1] or, with means, [R × 2]
///   kGridNorm    x, sums of all columns, panels → n
///   kHeads       columns of kQkv's product → q, kv
///   kActivation  columns of the MLP's first product → its inner columns
///   kToGrid      [T × h] → [ranks·R × c], what each tensor rank has of it, one below the other
///   kFromGrid    and back
///
/// kMlpUp and kMlpDown are the MLP's two matrices with their biases. kProduct in slices is a sum over the grid's side: slice k has
/// the k-th piece of the inputs, and with it of the bias. On a cube it has one slice, and `tag` says what it leads from: 0 the
/// stream, 1 heads or inner columns.
///
/// A 3D CNN has these alone. Each tensor rank has all parameters, and a slab of every sample: d planes of its depth, C channels of
/// v = d · height · width numbers; a micro-batch is b samples. A convolution with a kernel of κ planes needs p = (κ - 1)/2 of each
/// neighbour, its halo [2b × C·p·height·width]: rows of the rank before, then of the one behind. With one tensor rank, or p = 0,
/// none is read, made or sent.
///
///   kVolume         (bytes) → [b × C·v]                                   none
///   kHalo           x → its own p planes at both ends, for the neighbours none
///   kConvolution    x, halo → y, never below zero                         matrix, bias
///   kPooling        x → largest of each window                            none
///   kGlobalPooling  x → mean [b × C], a sum over the tensor ranks         none
///   kClassifier     mean → logits [b × classes], on every rank            matrix, bias
///   kClassLoss      logits, classes → share of the mean loss [1 × 1]      none
///
/// A data gradient takes the gradients of the outputs and gives those of the inputs, with these exceptions. kAttentionNorm and
/// kRouter add a second one that they are given (of the residual stream, of kDispatch); kMlpNorm gives one for both of its inputs;
/// kDispatch gives that of n alone, and kCombine that of the scores with the balance loss's. kLoss takes the four inputs of its
/// forward pass and gives the gradient of the logits. The three kinds of context attention take the gradient of o and q, kv, o, l,
/// and give those of q and kv; a backward pass of kAttentionBlock begins with the block of `tag` 1 and ends with 0, and each but
/// the first adds to the two gradients of the one before. Those of a grid keep nothing either: kProduct takes the gradient and the
/// panels; kNormSums the gradient of n, x, sums, panels, and gives sums for the norm's data gradient, which takes all of these, and
/// gives the gradients of x and of the panels; kActivation the gradient and the input. kResidual, kLossMax, kLossSums, kSlice,
/// kSpread, kCollect, kToGrid, kFromGrid and kVolume have none. That of the first layer's kConvolution gives nothing; kHalo takes
/// the gradient of x and what the neighbours have of its ends, and gives their sum; kClassLoss takes the logits.
/// A weight gradient takes the first input of the forward pass, of kConvolution both; that of kProduct the gradient and x, and
/// gives that of the panels. Of kClassifier each tensor rank makes a share of the outputs', so that their sum is the whole.
///
/// kQkv, kAttentionCore, kAttentionOut, kMlp and kHead may be computed slice by slice (Instruction::slices), each with parameters
/// of its own: heads, inner columns or words are cut as tensor ranks cut them. What slices add up to (the output of kAttentionOut,
/// kMlp and kHead, whose slices have their own columns; the data gradient of kQkv, kMlp and kHead) is handed on: all slices but the
/// first have the sum of those before as a last input.
enum class ModelPart : uint8_t {
  kEmbedding,
  kPositions,
  kAttentionNorm,
  kQkv,
  kAttentionCore,
  kAttentionBlock,
  kAttentionGathered,
  kAttentionHeads,
  kAttentionOut,
  kMlpNorm,
  kMlp,
  kRouter,
  kDispatch,
  kExperts,
  kCombine,
  kResidual,
  kFinalNorm,
  kHead,
  kLossMax,
  kLossSums,
  kLoss,
  kSlice,
  kSpread,
  kCollect,
  kMlpUp,
  kMlpDown,
  kProduct,
  kNormSums,
  kGridNorm,
  kHeads,
  kActivation,
  kToGrid,
  kFromGrid,
  kVolume,
  kHalo,
  kConvolution,
  kPooling,
  kGlobalPooling,
  kClassifier,
  kClassLoss,
};
inline constexpr int kModelParts = 40;
/// "embedding", "positions", "attention-norm" …
std::string_view PartName(ModelPart part);
/// Whether the part's parameters are matrices, whose gradients a weight gradient adds; those of others the data gradient adds.
constexpr bool IsProduct(ModelPart part) {
  return part == ModelPart::kQkv || part == ModelPart::kAttentionOut || part == ModelPart::kMlp || part == ModelPart::kRouter ||
         part == ModelPart::kExperts || part == ModelPart::kHead || part == ModelPart::kConvolution ||
         part == ModelPart::kClassifier;
}
/// Whether the part reads the text: its bytes, or what follows them.
constexpr bool ReadsText(ModelPart part) {
  return part == ModelPart::kEmbedding || part == ModelPart::kLossSums || part == ModelPart::kLoss || part == ModelPart::kVolume ||
         part == ModelPart::kClassLoss;
}
/// Whether the part is one of a 3D CNN.
constexpr bool OfVolumes(ModelPart part) { return part >= ModelPart::kVolume && part <= ModelPart::kClassLoss; }

enum class StepAction : uint8_t {
  // Of a part:
  kForward,  ///< `keeps`: a data gradient of it follows
  kData,     ///< gradients of the inputs, and of norms' and embeddings' parameters
  kWeight,   ///< gradients of the matrices
  kParameters,  ///< → [1 × e]: the part's parameters on this rank, in their order in memory
  kGradient,    ///< [1 × e] → : added to their gradients
  // Of units:
  kLossSum,  ///< → [1 × 1]: what this rank's micro-batches add to the mean loss, counted on one tensor rank
  kSquares,  ///< → [1 × 1]: sum of the squares of all gradients that this rank has, each counted on one rank of all
  kUpdate,   ///< squares → : the optimizer's step on `unit`
  kRelease,  ///< drops the gathered parameters of `unit`, of which the own shard stays
  // Communication of a unit's gradients (sums) or parameters (kAllGather), or of a value:
  kAllReduce,
  kAllReduceMax,
  kAllGather,      ///< [rows × c] → [n·rows × c]
  kReduceScatter,  ///< [n·rows × c] → [rows × c]; of a unit: added to its shard, and the whole gradients are zero again
  kAllToAll,
  kShift,  ///< to the rank behind this one in its group, from the one before
  kSend,
  kReceive,
  // Of units of replicas that differ (StepProgram::replicas_differ):
  kAverage,  ///< parameters become the mean over the group
  kMix,      ///< sends the parameters to the next rank of the group; what comes from the one before is averaged in by the kUpdate
  // Of values, between the rank `tag` of the group and the others:
  kBroadcast,  ///< its value → all
  kReduce,     ///< → the sum, on it alone; with `tag` > 0 the others have what the second input is on them
  kHalo,  ///< the first half of the rows to the rank before in the group, the second to the one behind; theirs come in the same
          ///< places, zeros where there is none
};
inline constexpr int kActions = 22;
/// "forward", "data-gradient", "weight-gradient", "parameters", "gradient", "loss-sum", "squares", "update", "release" …
std::string_view ActionName(StepAction action);
constexpr bool Communicates(StepAction action) { return action >= StepAction::kAllReduce; }
constexpr bool OfPart(StepAction action) { return action <= StepAction::kGradient; }

/// What gradients are on their way. Narrow ones are sent to who sums the rank's share, summed in the program's type in the order of
/// the group, and of a kAllReduce rounded again and gathered.
enum class WireType : uint8_t {
  kWhole,     ///< the program's type
  kBfloat16,  ///< rounded to the nearest
  kFloat8,    ///< e4m3, a scale of four bytes for every 128; what rounding takes is kept and added the next time
};
inline constexpr int kWireTypes = 3;
/// "whole", "bf16", "fp8".
std::string_view WireTypeName(WireType wire);
/// Bytes of so many elements of a narrow type.
int64_t NarrowBytes(WireType wire, int64_t elements);

struct Instruction {
  StepAction action = StepAction::kForward;
  ModelPart part = ModelPart::kEmbedding;  ///< of OfPart()
  bool keeps = false;
  int32_t layer = -1;                    ///< of the model; -1: of none
  int32_t micro_batch = -1;              ///< -1: once per step
  int32_t unit = -1;                     ///< -1: a value is meant
  int32_t slice = 0, slices = 1;         ///< of OfPart()
  WireType wire = WireType::kWhole;      ///< of a kAllReduce or kReduceScatter of a unit
  int32_t every = 1;                     ///< of kAverage: in steps that this divides, counted from 1
  bool of_shard = false;                 ///< a kAllReduce of what the unit's kReduceScatter has left on the rank, not of all
  int32_t communicator = -1;             ///< index into StepProgram::communicators; each has its own stream
  int32_t tag = -1;                      ///< of kSend, kReceive: the same on both sides; of kBroadcast, kReduce, parts: see there
  int64_t elements = 0;                  ///< of communication: the full tensor, or what is sent; with of_shard still the unit's
  std::vector<int32_t> inputs, outputs;  ///< values
  std::vector<int32_t> needs;  ///< earlier communications of the list that must be over first, besides those that wrote the inputs

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

/// Whether a computation has what the slices before it add up to as its last input.
bool AddsToSlices(const Instruction& instruction);
/// Whether a computation adds to gradients of parameters.
bool AddsToGradients(const Instruction& instruction);

/// A value's shape; [1 × 1] ones are double precision, whatever the program's type.
struct ValueShape {
  int64_t rows = 1, columns = 1;
  int64_t elements() const { return rows * columns; }
  friend bool operator==(const ValueShape&, const ValueShape&) = default;
};

/// The parameters of one part of one layer on a rank, or of one of its slices.
struct ParameterBlock {
  ModelPart part = ModelPart::kEmbedding;
  int32_t layer = -1;
  int32_t slice = 0, slices = 1;
  int64_t elements = 0;
  bool whole = false;  ///< the same on all tensor ranks, not a slice of a matrix
  bool copy = false;   ///< of the embedding's table, for the head on another stage
  friend bool operator==(const ParameterBlock&, const ParameterBlock&) = default;
};

/// Blocks in one run of memory, in the order in which their gradients become final.
struct ParameterUnit {
  int32_t first_block = 0, blocks = 0;
  int64_t elements = 0;
  int32_t shard = -1;               ///< communicator over which something of it is sharded; -1: nothing is
  bool parameters_sharded = false;  ///< between the kRelease and the kAllGather
  bool gradients_sharded = false;   ///< sums are kept in the shard
  bool optimizer_sharded = false;
  int32_t across = -1;              ///< communicator of the ranks with the same shard, which sum what was scattered; -1: none
  std::vector<int32_t> duplicates;  ///< communicators whose ranks have the same gradients at the end: the first one counts them
  friend bool operator==(const ParameterUnit&, const ParameterUnit&) = default;
};

/// The list of equal ranks.
struct RankClass {
  std::vector<ParameterBlock> blocks;
  std::vector<ParameterUnit> units;
  std::vector<ValueShape> values;
  std::vector<Instruction> instructions;
  friend bool operator==(const RankClass&, const RankClass&) = default;
};

/// Groups of ranks that talk at the same time, none in two of them. Of a pipeline's each is a sender and a receiver.
struct ProgramCommunicator {
  CommunicatorKind kind = CommunicatorKind::kWorld;
  AlgorithmSpec sums = {};  ///< how its groups make a kAllReduce of a unit: a ring, trees, in levels, or on servers; all send the same
  std::vector<std::vector<int32_t>> groups;
  friend bool operator==(const ProgramCommunicator&, const ProgramCommunicator&) = default;
};

/// Where a rank stands.
struct RankPlace {
  int32_t rank_class = 0, stage = 0, tensor = 0, context = 0, replica = 0;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

struct StepProgram {
  static constexpr int kVersion = 1;
  static constexpr int64_t kMostRanks = 4096, kMostInstructions = 1'000'000;

  // What it was made for; whoever runs it checks that it has the same.
  std::string model;     ///< for people
  std::string strategy;  ///< for people: "dp=2 tp=2 …"
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0;
  ElementType type = ElementType::kFloat32;
  int64_t sequence = 0, global_batch = 0, micro_batch = 0;
  int64_t replicas = 1, tensor = 1, context = 1, stages = 1, chunks = 1;
  RankGrid grid = {};           ///< of the tensor ranks
  /// Of a 3D CNN, its layers: a sequence is one sample, and the sizes from `hidden` to `vocab` are 0.
  std::vector<Cnn3dLayer> volumes;
  std::vector<int64_t> shares;  ///< sequences of each replica, in order; empty: all have the same
  bool replicas_differ = false;  ///< each takes its gradients of the mean loss of its own sequences, and its own step
  int64_t experts = 0, experts_per_token = 0, expert_hidden = 0;  ///< of an MoE model, else 0
  int64_t expert_ranks = 1, expert_tensor = 1;                    ///< that share the experts, and the matrices of each
  ScheduleKind schedule = ScheduleKind::k1F1B;  ///< for people: the lists have its order

  std::vector<ProgramCommunicator> communicators;
  std::vector<RankClass> classes;
  std::vector<RankPlace> ranks;

  bool IsCnn() const { return !volumes.empty(); }
  friend bool operator==(const StepProgram&, const StepProgram&) = default;
};

/// Sequences of a step's batch that a replica has: `count` of them, from `first` on. Requires: 0 ≤ replica < replicas.
struct SequenceRange {
  int64_t first = 0, count = 0;
};
SequenceRange SequencesOf(const StepProgram& program, int64_t replica);
/// Micro-batches of the ranks of a class; of one without ranks the first replica's.
int64_t MicroBatchesOf(const StepProgram& program, size_t rank_class);

/// Where a rank of a stage stands among those that share experts: ranks of one expert's matrices lie closest together.
struct ExpertPlace {
  int64_t tensor = 0, expert = 0, copy = 0;
};
/// `index`: of the rank in its stage, tensor ranks closest together, then those of the context, then replicas.
constexpr ExpertPlace ExpertPlaceOf(int64_t index, int64_t expert_ranks, int64_t expert_tensor) {
  return {index % expert_tensor, index / expert_tensor % expert_ranks, index / (expert_tensor * expert_ranks)};
}
ExpertPlace ExpertPlaceOf(const StepProgram& program, int64_t rank);

/// Positions of a sequence whose tokens a context rank has, in the order of its rows. Of 2·ranks equal pieces rank i has the i-th
/// from the front and the i-th from the back, so that causal attention is the same work for all. Requires: pieces of whole tokens,
/// or one rank. Source: arXiv 2407.21783, section 3.3.2.
std::vector<int64_t> PositionsOf(int64_t sequence, int64_t ranks, int64_t rank);

/// Tokens that a tensor rank has of a micro-batch, and rows that an expert takes of them (ModelPart). Requires: an MoE model.
int64_t CapacityGroup(const StepProgram& program);
int64_t CapacityOf(const StepProgram& program);

/// FNV-1a over all of it but what is for people: equal on two machines if and only if they run the same step.
uint64_t DigestOf(const StepProgram& program);

/// Whether the program can be run at all: indices in range, values written once and before they are read, shapes that fit their
/// operation, units gathered before they are used, sends and receives that match in order, no rank in two groups, nothing beyond
/// kMostRanks and kMostInstructions. Errors: kInvalidArgument naming class, instruction and what was expected. Complexity: linear.
[[nodiscard]] Status CheckProgram(const StepProgram& program);

/// Communications of one rank, by what and over what: bytes of the full tensors, as OperationList counts them.
struct ProgramVolume {
  CommunicatorKind kind = CommunicatorKind::kWorld;
  StepAction action = StepAction::kAllReduce;  ///< CountedAs()
  int64_t calls = 0;
  int64_t bytes = 0;  ///< of all calls
  double sent = 0;    ///< bytes that the rank sends for it by a ring, in the mean over its group; of kHalo its own
  friend bool operator==(const ProgramVolume&, const ProgramVolume&) = default;
};

/// As what a communication is counted: kAllReduceMax and kAverage as kAllReduce, kMix as kSend.
StepAction CountedAs(StepAction action);

/// Of one communication on `rank`: bytes of the full tensor, or of what is sent. Requires: Communicates(), of the rank's list.
int64_t BytesOn(const StepProgram& program, const RankClass& list, const Instruction& instruction, int64_t rank);

/// Of the first `steps` steps, by kind and action, ascending; what is received counts where it was sent. Requires: a checked
/// program, 0 ≤ rank < ranks, steps ≥ 0.
std::vector<ProgramVolume> VolumesOf(const StepProgram& program, int64_t rank, int64_t steps = 1);

/// The index of the group of `communicator` that `rank` is in, and the rank's place in it; {-1, -1} if in none.
struct GroupPlace {
  int32_t group = -1, index = -1;
};
GroupPlace PlaceIn(const ProgramCommunicator& communicator, int32_t rank);

}  // namespace weft::planner::tasks
