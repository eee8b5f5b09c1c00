// What the cost model keeps: the job's constants, and per thread the layers' times and bytes by key. Internal to
// cost_model*.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/fractional_bytes.h"
#include "common/units.h"
#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/data_time.h"
#include "planner/parallelism/layer_time.h"
#include "planner/parallelism/memory_model.h"
#include "planner/tasks/pipeline.h"
#include "planner/tasks/pipeline_exchange.h"

namespace weft::planner::inline parallelism {

/// All that strategies with one LayerKey share.
struct LayerEntry {
  LayerKey key;
  bool used = false;
  LayerTime dense, moe;
  EdgeTime edge;
  LayerBytes dense_bytes, moe_bytes;
  double attention_parameters = 0;  ///< of a dense layer, on one rank: attention and norms
  double dense_parameters = 0, moe_dense_parameters = 0, expert_parameters = 0;  ///< of one layer, on one rank
  double norm_parameters = 0,
         moe_norm_parameters = 0;  ///< of the attention and norms of one layer, what ranks have whole: never cut
  double embedding_parameters = 0, head_parameters = 0;                              ///< on one rank
};

/// One stage, one micro-batch.
struct StagePasses {
  PassTime forward, backward;  ///< backward holds data, weight and recomputation
  Seconds weight{0};           ///< of backward, weight gradients
  Seconds forward_data{0}, backward_data{0};  ///< exposed ZeRO-3 gathers and scatters

  Seconds F() const { return forward.total() + forward_data; }
  Seconds B() const { return backward.total() + backward_data; }
};

/// One stage of a strategy, priced.
struct StageCost {
  StagePasses passes;
  MemoryUse memory;
  StageShape exchanged;      ///< sharding per operator: what the closed forms of data_time.h exchange and update
  Seconds once{0};           ///< per iteration, exposed, beside those
  Seconds optimizer{0};      ///< beside those
  bool feasible = true;      ///< operators' decisions within the memory were found
};

/// An iteration from its first gather to its last optimizer step; spans and what `pipeline` points to lie in the scratch.
struct SimulatedIteration {
  std::span<const StagePasses> passes;            ///< [p]
  PipelineProblem problem;
  PipelineTime pipeline;
  Seconds fill{0};                                ///< all passes start so much later: parameters are gathered
  std::span<const ChunkExchange> exchanges;       ///< [p × v], of what hides
  std::span<const Seconds> after;                 ///< [p]: what follows the stage's last exchange and pass, optimizer included
  std::span<const Seconds> optimizer;             ///< [p], of it
  PipelineEnd end;                                ///< without `fill`
};

/// Whether the operators of some stages all decide alike, uncut.
class AlikeDecisions {
 public:
  void Add(const StageOperators& stage);
  /// nullopt if they do not, or if there are none.
  std::optional<OperatorDecision> common() const { return alike_ ? first_ : std::nullopt; }

 private:
  bool alike_ = true;
  std::optional<OperatorDecision> first_;
};

struct CostModel::Impl {
  JobSpec job;
  ClusterSpec cluster;
  Framework framework = Framework::kAny;
  SoftwareStack stack;
  CalibratedHardware hardware;
  StateBytes state;
  std::vector<int64_t> stage_layers;     ///< as CostOptions
  std::vector<int64_t> moe_layers_before;  ///< [layers + 1]
  OperatorCuts cuts = OperatorCuts::kAny;
  FractionalBytes usable;
  Flops model_flops;

  /// What JobSpec::measured_compute is held against, as modelled.
  Seconds ReferenceCompute() const;
  int64_t LayersBefore(const Strategy& s, int64_t stage) const;
  LayerEntry MakeEntry(const LayerKey& key) const;
  void MakeCnnEntry(LayerEntry& entry) const;
  /// Adds the program's buffers, context and what fragments of what the stage is said to hold.
  void AddOwn(MemoryUse& memory, std::vector<Holding>* pieces = nullptr) const;
  StageShape Shape(const Strategy& s, const LayerEntry& entry, int64_t stage) const;
  /// `pieces`, here and below: where what is added up is written, if not null.
  MemoryUse Memory(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                   std::vector<Holding>* pieces = nullptr) const;
  StagePasses Passes(const Strategy& s, const LayerEntry& entry, int64_t stage) const;
  StagePasses LayerPasses(const Strategy& s, const LayerEntry& entry, const StageShape& shape) const;
  void AddEdges(const LayerEntry& entry, const StageShape& shape, StagePasses& passes) const;
  StageCost Cost(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                 OperatorSolver& solver, std::vector<StageOperators>* operators = nullptr,
                 std::vector<Holding>* pieces = nullptr) const;
  // Sharding per operator: cost_operators.cc.
  /// `rest`: what the stage holds beside the layers' state and gathered units, before AddOwn().
  OperatorProblem Operators(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                            MemoryUse* rest, std::vector<Holding>* pieces = nullptr) const;
  StageCost OperatorCosts(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                          OperatorSolver& solver, std::vector<StageOperators>* operators, std::vector<Holding>* pieces) const;
  /// What is left for the layers' state and gathered units beside `rest`.
  Bytes OperatorBudget(const MemoryUse& rest) const;
  /// `passes`: of all layers, with the edges. `rest`: as Operators() has it.
  StageCost DecidedCost(const StageShape& shape, const StagePasses& passes, const MemoryUse& rest, const OperatorStage& decided,
                        std::vector<Holding>* pieces = nullptr) const;
  OperatorSplits SplitsOf(const Strategy& s) const;
  double LeanestUnit(const Strategy& s, const LayerEntry& entry, const StageShape& shape) const;
  /// Of the stage's mean layer. `operations`: as ComputeUnitTime() writes them, by layer.
  UnitTime UnitOfLayer(const Strategy& s, const StageShape& shape, double layers, std::vector<Operation>* operations) const;
  void AddUnits(const Strategy& s, const StageShape& shape, double layers, StagePasses& passes,
                std::vector<Operation>* operations = nullptr) const;
  /// No message takes less, over whatever boundary.
  Seconds LeastHopTime(const Strategy& s) const;
  /// A message that leaves so much. `operations`: where it is written, as of the forward pass, if not null.
  Seconds HopTime(const Strategy& s, size_t units_left, std::vector<Operation>* operations = nullptr) const;
  /// What a stage does once per iteration.
  struct Once {
    Seconds parameters{0};  ///< what its first pass waits for: gathers that its own length does not hide
    Seconds gradients{0};   ///< their exchange, all of it
    Seconds tail{0};        ///< of it the last bucket
    bool hides = false;     ///< behind the last backward passes; else it follows them
    Seconds slowed{0};      ///< by which it slows those, and what operators' decisions expose besides
    Seconds optimizer{0};

    /// The stage's last pass is followed by no less than this, if gradients become final within `window` of its end, all chunks
    /// together.
    Seconds Exposed(Seconds window, int64_t chunks) const;
    /// The stage's last exchange and what follows it end no earlier, where all chunks exchange one after another and the first of them is
    /// final at `first_final`; `window` as above. Requires: hides.
    Seconds ExchangesEnd(Seconds first_final, Seconds window, int64_t chunks) const;
    /// How many, of one chunk's exchange, equal ones.
    double Buckets(int64_t chunks) const;
  };
  Once OnceOf(const Strategy& s, const LayerEntry& entry, int64_t stage, const StageCost& cost) const;
  class StageWalk;
  /// As CostModel::Evaluate(), for a strategy whose operators' decisions are not looked at again.
  struct ClosedForm {
    Estimate estimate;
    Seconds mean{0};         ///< of the stages: of one micro-batch
    int64_t last_stage = 0;  ///< the one whose passes end last, by StageEnd()
    Seconds last_end{0};     ///< when
    AlikeDecisions alike;    ///< of the operators
  };
  ClosedForm Close(const Strategy& s, Scratch& scratch, std::vector<StageOperators>* operators = nullptr) const;
  class Lowering;  ///< lowering.cc
  /// The same simulated. Errors: as SimulatePipeline.
  Result<SimulatedIteration> Simulate(const Strategy& s, Scratch& scratch) const;
  /// As CostModel::EvaluateSimulated(), with the closed form of the same strategy.
  Estimate PredictionOf(const Strategy& s, const ClosedForm& closed, Scratch& scratch) const;
};

/// The stages of a strategy, first to last. Stages with the same layers share all but what their place in the pipeline makes
/// them hold, and what their operators decide by that.
class CostModel::Impl::StageWalk {
 public:
  /// All arguments have to stay.
  StageWalk(const Impl& impl, const Strategy& s, const LayerEntry& entry, int64_t micro_batches, OperatorSolver& solver);

  /// As Cost() of the next stage; stays until the one after it. Requires: fewer calls than stages before.
  const StageCost& Next();
  /// Whether that stage differs from the one before in nothing but its memory.
  bool repeats() const { return repeats_; }
  /// What its operators do; null where they are not asked. Stays as long.
  const StageOperators* operators() const { return decided_ == nullptr ? nullptr : &decided_->operators; }

 private:
  void Start(int64_t stage);
  void Finish();

  const Impl& impl_;
  const Strategy& s_;
  const LayerEntry& entry_;
  OperatorSolver& solver_;
  const int64_t micro_batches_;
  const bool uniform_;
  int64_t next_ = 0, begin_ = 0, moe_begin_ = 0;      // the next stage, layers before it
  int64_t layers_ = 0, moe_layers_ = 0, held_ = 0;    // of the stage, chunks that it holds
  MemoryUse rest_;                                    // before AddOwn()
  StageCost cost_;
  // Sharding per operator.
  StageShape shape_;
  StagePasses passes_;
  OperatorProblem problem_;
  const OperatorStage* decided_ = nullptr;
  bool repeats_ = false;
};

/// Of the layers' forward pass, the share that runs again.
double RecomputedShare(const Strategy& s, double layers);

/// An iteration in parts: `span` of the pipeline, of which the slowest stage's passes are a part; `first` before it and
/// `closing` after it, exposed.
Estimate PartsOf(const StagePasses& slowest, double m, Seconds span, Seconds first, Seconds closing, Seconds optimizer,
                 Seconds overhead);

struct CostModel::Scratch::Tables {
  static constexpr size_t kSlots = size_t{1} << 12;
  std::vector<LayerEntry> slots = std::vector<LayerEntry>(kSlots);
  PipelineScratch pipeline;
  OperatorSolver operators;
  // Of the iteration simulated last.
  std::vector<StagePasses> passes;
  std::vector<StageTime> stages;
  std::vector<ChunkExchange> exchanges;
  std::vector<Seconds> waits, after, optimizer, hops;  // [p]

  const LayerEntry& Find(const Impl& impl, const LayerKey& key);
};

}  // namespace weft::planner::parallelism
