// Writes the list of one pipeline stage: its passes in the order of the schedule, layer by layer. Internal to this folder.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/parallelism/operator_sharding.h"
#include "planner/parallelism/program/program_groups.h"
#include "planner/parallelism/strategy.h"
#include "planner/parallelism/tensor_grid.h"
#include "planner/tasks/pipeline_order.h"
#include "planner/tasks/step_program.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// What all stages of a program share.
struct ProgramFrame {
  const JobSpec& job;
  const Strategy& strategy;
  const ProgramGroups& groups;
  ElementType type;
  bool tied_apart = false;  ///< embedding and head have one table on two stages
  std::span<const StageOperators> operators = {};  ///< by stage, where they decide one by one
  int64_t sequences = 0;                           ///< of a step that a replica has
  std::span<const int64_t> layers = {};            ///< of each stage, where machines are not alike; else StageLayers()

  int64_t micro_batches() const { return sequences / strategy.micro_batch; }
  int64_t tokens() const { return strategy.micro_batch * job.sequence / strategy.cp; }
  RankGrid grid() const { return GridOf(strategy); }
  /// Of the residual stream on a rank.
  int64_t rows() const { return strategy.sequence_parallel ? tokens() / strategy.tp : tokens() / grid().batches(); }
  int64_t columns() const { return job.model.hidden / grid().side; }
  /// That a tensor rank sends to experts, and rows that it sends them.
  int64_t routed_tokens() const { return tokens() / strategy.tp; }
  int64_t routed_rows() const { return routed_tokens() * job.model.experts_per_token; }
};

/// Layers of a virtual stage: those of its stage, cut over its chunks as evenly as possible.
struct LayerRange {
  int64_t begin = 0, end = 0;
};
LayerRange LayersOfVirtualStage(const ProgramFrame& frame, int64_t virtual_stage);

/// One message between stages; `back`: a gradient.
struct Message {
  int64_t virtual_stage = 0;  ///< of the sender
  int64_t micro_batch = 0;
  bool back = false;
  friend auto operator<=>(const Message&, const Message&) = default;
};
/// All that `from` sends to `to`, in the order in which it sends.
std::vector<Message> MessagesBetween(const ProgramFrame& frame, int64_t from, int64_t to);

/// The blocks of a stage: which, and how often a step adds to their gradients. In no particular order.
struct StageBlock {
  ParameterBlock block;
  int64_t contributions = 0;
};
std::vector<StageBlock> BlocksOfStage(const ProgramFrame& frame, int64_t stage);

/// What a layer's operators do with their parameters; uncut, where they do not decide.
struct LayerDecision {
  OperatorDecision attention, mlp;
};
LayerDecision DecisionOf(const ProgramFrame& frame, int64_t stage, int64_t layer);
/// Slices in which the head is gathered.
int64_t HeadSlicesOf(const ProgramFrame& frame);
/// Index of a layer among those of its stage.
int64_t PlaceOnStage(const ProgramFrame& frame, int64_t stage, int64_t layer);
bool IsNorm(ModelPart part);
/// Whether the part belongs to what stands behind a layer's second norm: an MLP, or router and experts.
bool IsOfMlp(ModelPart part);

/// What sums a block's gradients, besides the replicas: blocks of different kinds lie in different units.
enum class UnitKind : uint8_t {
  kPlain,
  kTensorSum,  ///< of parts that tensor ranks have whole and run on rows of their own
  kTied,       ///< one table on two stages
  kLayers,     ///< of a grid with depth, whose layers have the same sums of it
  kExperts,    ///< replicas are those of the experts
};
UnitKind KindOf(const ProgramFrame& frame, const ParameterBlock& block);
/// The communicator of all that have the block.
int32_t ReplicasOf(const ProgramFrame& frame, const ParameterBlock& block);

/// The blocks cut into units, in the order in which `order` has their gradients final. By unit: whether its parameters are gathered
/// for every pass.
std::vector<bool> CutUnits(const ProgramFrame& frame, int64_t stage, const std::vector<ParameterBlock>& order, RankClass* out);

class StageProgram {
 public:
  StageProgram(const ProgramFrame& frame, int64_t stage);
  /// The whole list.
  RankClass Make();

 private:
  /// What a layer's forward pass leaves for its backward pass.
  struct Kept {
    int32_t x = -1, n = -1, n2 = -1;    // n2: of an MoE layer its tensor rank's rows
    int32_t rows = -1;                  // that the experts read
    std::vector<int32_t> q, kv, o;      // of attention, by slice; o: what the product behind it reads
    int32_t core = -1, sums = -1;       // with context ranks: attention's output where it is made, and its sums
  };
  /// On a grid: what a norm leaves, and a product.
  struct GridNorm {
    int32_t x = -1, sums = -1, panels = -1;
  };
  struct GridProduct {
    int32_t x = -1;       // this rank's, or of a cube gathered
    int32_t panels = -1;  // of a cube: gathered
  };
  struct GridKept {
    int32_t x = -1, q = -1, kv = -1, up = -1;
    GridNorm first, second;
    GridProduct qkv, attention_out, mlp_up, mlp_down;
  };
  /// One of so many slices of an operator.
  struct Cut {
    int64_t slice = 0, slices = 1;
  };
  /// Units that are gathered at a time.
  using Turn = std::vector<int32_t>;
  /// A weight gradient that was not run yet.
  struct Pending {
    ModelPart part;
    int64_t layer;
    int32_t input;
    bool gathers;
    Cut cut;
    int32_t gradient = -1;  // on a grid: that of the output
  };
  struct HeadKept {
    int32_t n = -1, whole = -1, logits = -1, largest = -1, sums = -1, targets = -1;
    GridNorm norm;
  };
  using Place = std::pair<int64_t, int64_t>;  // layer or chunk, micro-batch

  void RunPasses();
  void Reset();
  // stage_program.cc: one pass.
  void ForwardPass(int64_t chunk, int64_t micro_batch);
  void DataPass(int64_t chunk, int64_t micro_batch);
  void WeightPass(int64_t chunk, int64_t micro_batch);
  int32_t Embed();
  void Head(int32_t x);
  int32_t HeadData();
  int32_t LayerForward(int64_t layer, int32_t x, bool keeps, bool keeps_core);
  int32_t LayerData(int64_t layer, int32_t gradient);
  int32_t AttentionForward(int64_t layer, bool keeps, bool keeps_core);
  int32_t MlpForward(int64_t layer, bool keeps);
  int32_t AttentionData(int64_t layer, const Kept& kept, int32_t gradient);
  int32_t MlpData(int64_t layer, const Kept& kept, int32_t gradient);
  void Weights(ModelPart part, int64_t layer, int32_t input, bool gathers, Cut cut = {0, 1});
  // stage_grid.cc: layers whose products tensor ranks make together on a grid.
  int32_t GridLayerForward(int64_t layer, int32_t x, bool keeps_core);
  int32_t GridLayerData(int64_t layer, int32_t gradient);
  int32_t NormForward(ModelPart part, int64_t layer, int32_t x, GridNorm* kept);
  int32_t NormData(ModelPart part, int64_t layer, int32_t gradient, const GridNorm& kept);
  int32_t ProductForward(ModelPart part, int64_t layer, int32_t x, int64_t columns, GridProduct* kept);
  int32_t ProductData(ModelPart part, int64_t layer, int32_t gradient, int64_t columns, const GridProduct& kept);
  void ProductWeight(ModelPart part, int64_t layer, int32_t x, int32_t gradient);
  void AddGradient(ModelPart part, int64_t layer, int32_t panel);
  int32_t Own(ModelPart part, int64_t layer);
  int64_t PanelElements(ModelPart part, int64_t layer) const;
  int32_t PanelOf(size_t side, int64_t place, int32_t value);
  int32_t SumAt(size_t side, int64_t place, int32_t value, int32_t before);
  int32_t Multiply(StepAction action, int64_t layer, std::vector<int32_t> inputs, ValueShape output, int64_t step);
  int32_t MultiplyBlocks(StepAction action, ModelPart part, int64_t layer, std::vector<int32_t> inputs, ValueShape output);
  ValueShape ShapeOf(int32_t value) const;
  // stage_volumes.cc: a 3D CNN, whose halo a layer keeps as `rows`.
  void VolumesForward();
  void VolumesData();
  int32_t VolumeForward(int64_t layer, int32_t x);
  int32_t VolumeData(int64_t layer, int32_t gradient);
  int32_t ConvolutionData(int64_t layer, int32_t gradient, const Kept& kept);
  int32_t HaloOf(int64_t layer, int32_t x);
  // stage_context.cc: attention of the whole sequence, whose tokens lie on several ranks. It is not cut in slices.
  int32_t ContextForward(int64_t layer, Kept* kept);
  std::vector<int32_t> ContextData(int64_t layer, int32_t of_core, const Kept& kept);
  std::vector<int32_t> RingData(int64_t layer, int32_t of_core, const Kept& kept);
  std::vector<int32_t> Block(StepAction action, int64_t layer, int64_t step, std::vector<int32_t> inputs);
  int32_t HeadsOut(int32_t value);
  int32_t HeadsBack(int32_t value);
  // stage_moe.cc: what an MoE layer has in place of its MLP.
  int32_t MoeForward(int64_t layer, int32_t n, bool keeps, Kept* kept);
  int32_t MoeData(int64_t layer, int32_t gradient, const Kept& kept);
  int32_t ToExperts(int32_t rows);
  int32_t FromExperts(int32_t rows);
  int32_t RowsOfRank(int32_t value);
  int32_t AllRows(int32_t value);
  // Messages.
  void Send(int64_t virtual_stage, int32_t x, bool back);
  int32_t Receive(int64_t virtual_stage, bool back);
  void ReceiveUpTo(int64_t from, const Message& message);
  // stage_emit.cc: single instructions.
  int32_t Value(int64_t rows, int64_t columns);
  int32_t Emit(Instruction instruction);
  std::vector<int32_t> Compute(StepAction action, ModelPart part, int64_t layer, std::vector<int32_t> inputs,
                               std::vector<ValueShape> outputs, bool keeps = false, Cut cut = {0, 1});
  int32_t One(StepAction action, ModelPart part, int64_t layer, std::vector<int32_t> inputs, ValueShape output, bool keeps = false,
              Cut cut = {0, 1});
  int32_t Collective(StepAction action, int32_t communicator, int32_t value, ValueShape output);
  int32_t Sum(int32_t value);
  int32_t Whole(int32_t value);
  int32_t TensorReduce(StepAction action, int32_t value);
  // Exchange of units: stage_exchange.cc.
  void BeginStep();
  void EndStep();
  void Contributed(ModelPart part, int64_t layer, int64_t slice = 0);
  void Exchange(int32_t unit);
  int32_t OverUnit(StepAction action, int32_t communicator, int32_t unit);
  int64_t SlicesOf(int64_t layer, bool mlp) const;
  Turn OwnTurn(int64_t layer, bool mlp, int64_t slice) const;
  Turn MakeTurn(int64_t layer, bool mlp, int64_t slice) const;
  Turn TurnOf(int64_t layer, bool mlp, int64_t slice) const;
  Turn NormsOf(const Turn& turn) const;
  Turn ProductsOf(const Turn& turn) const;
  std::vector<Turn> TurnsOfHead() const;
  std::vector<Turn> TurnsOfLayer(int64_t layer, bool back) const;
  void Gather(const Turn& turn);
  void BeginTurns(const std::vector<Turn>& turns);
  void Enter(const Turn& turn);
  void Leave(const Turn& turn);
  std::vector<int32_t> ScattersToWaitFor();
  int64_t Round() const;
  bool Recomputes(int64_t layer) const;

  const ProgramFrame& f_;
  const Strategy& s_;
  const ModelSpec& model_;
  const int64_t stage_;
  RankClass out_;
  int32_t micro_batch_ = -1;  // that is being written
  std::vector<StageBlock> blocks_;
  std::vector<ParameterBlock> order_;                         // as gradients become final; found by a first run without units
  std::map<std::tuple<ModelPart, int64_t, int64_t>, size_t>
      block_at_;                                              // by slice; in blocks_, or, once there are units, in out_.blocks
  std::vector<int64_t> left_;                                 // contributions, of blocks
  std::vector<int64_t> unit_left_;                            // of units, until the next exchange
  std::vector<int32_t> unit_of_block_, last_on_unit_;
  struct Scatter {
    int32_t instruction;
    int64_t elements;
  };
  std::deque<Scatter> scatters_;  // of gradients that are whole until then, which no computation has waited for
  std::vector<int32_t> tied_;     // units whose gradients are final and stand at both ends of the pipeline
  std::vector<bool> each_pass_;  // by unit: gathered for every pass
  std::vector<Turn> turns_;      // of the pass that is being written
  mutable std::map<std::tuple<int64_t, bool, int64_t>, Turn> known_turns_;  // as MakeTurn()
  mutable std::map<int64_t, LayerDecision> known_decisions_;                // by layer
  size_t next_turn_ = 0;         // of them, that is not in use yet
  bool holds_turn_ = false;      // all of a layer stays gathered
  std::map<Place, Kept> kept_;
  std::map<Place, GridKept> grid_kept_;
  const RankGrid grid_;
  std::map<int64_t, HeadKept> head_kept_;  // by micro-batch
  std::map<Place, std::vector<Pending>> pending_;
  std::vector<Pending>* collect_ = nullptr;        // where weight gradients go that wait
  std::map<Message, int32_t> mail_;                // received, or handed over on this stage
  std::map<int64_t, std::vector<Message>> inbox_;  // by sender, in its order
  std::map<int64_t, size_t> received_;
};

}  // namespace weft::planner::parallelism
