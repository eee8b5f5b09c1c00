// What an iteration of a strategy costs in time and memory: a closed form that is a bound, made for asking a million times, and
// a simulation that is the prediction, both over per-layer tables (layer_time.h, memory_model.h). Everything that a strategy shares with others (a layer at a given
// tp, cp, ep, micro-batch …) is computed once per Scratch; a call allocates nothing.
//
//   const CostModel model = CostModel::Make(job, cluster).value();
//   CostModel::Scratch scratch;
//   if (!model.WhyIllegal(strategy)) Estimate estimate = model.EvaluateSimulated(strategy, scratch);
//
// Leaves out: input pipeline, checkpoints, evaluation, background traffic on the fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/memory_risk.h"
#include "planner/parallelism/operator_sharding.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/operations.h"
#include "planner/tasks/task_graph.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// Where an iteration goes. The parts add up to `iteration`.
struct Estimate {
  Seconds iteration{0};
  Seconds compute{0};        ///< of the slowest stage, recomputation included
  Seconds tensor{0};         ///< exposed communication of tp
  Seconds context{0};        ///< of cp
  Seconds expert{0};         ///< of ep and etp
  Seconds data{0};           ///< of dp: gradients, ZeRO gathers
  Seconds pipeline{0};       ///< of pp: messages on the critical path
  Seconds bubble{0};         ///< idle time of the slowest stage
  Seconds optimizer{0};
  Seconds overhead{0};       ///< host, per iteration
  MemoryUse memory;          ///< of the worst stage
  int64_t worst_stage = 0;
  int64_t slowest_stage = 0;
  bool fits = false;         ///< every stage fits the device, at the risk that CostOptions allow

  Seconds exposed_communication() const { return tensor + context + expert + data + pipeline; }
};

/// One transformer layer and micro-batch, exposed communication and recomputation included.
struct LayerSeconds {
  Seconds forward{0}, backward{0};
};

/// The communicators of one kind, in one iteration.
struct CommunicatorUse {
  CommunicatorKind kind = CommunicatorKind::kTensor;
  int64_t size = 1;              ///< ranks of one
  int64_t count = 1;             ///< how many there are
  Bytes bytes;                   ///< what one rank of the busiest stage sends
  std::string_view algorithm;    ///< of its largest operation, as Operation::algorithm
  std::string crosses;           ///< the outermost tier that it crosses, by the fabric's own name; "node", or "network" without a fabric
  Seconds seconds{0};            ///< on the wire, of the busiest stage
  Seconds exposed{0};            ///< what the iteration waits for; kinds that the estimate does not tell apart share it by seconds
};

/// Equal communications of a stage: `count` operations of `bytes` (the full tensor) over groups of `group` ranks.
struct CommunicationVolume {
  using Type = OperationKind;
  CommunicatorKind kind = CommunicatorKind::kTensor;
  std::string_view what;         ///< as Operation::what
  Type type = Type::kAllReduce;
  int64_t group = 1;             ///< ranks
  int64_t stride = 1;            ///< between neighbours of the group, in ranks
  Bytes bytes;
  double count = 0;              ///< per micro-batch, or per iteration
  bool per_iteration = false;
  std::string_view hides_behind; ///< "" if nothing
};

/// What a pass is made of, one after another: kernels, then what waits for communication.
struct TimelineParts {
  Seconds compute{0}, tensor{0}, context{0}, expert{0}, data{0};
};

struct TimelinePass {
  int64_t stage = 0;
  StagePass pass;
  Seconds begin{0}, end{0};
  TimelineParts parts;
};

/// An iteration that starts at 0, every pass as early as it can run.
struct IterationTimeline {
  std::vector<TimelinePass> passes;         ///< those of one stage in the order in which it runs them
  std::vector<TransferDemand> transfers;    ///< messages, and what each stage exchanges after its last pass
  Seconds fill{0};                          ///< before the first pass: parameters are gathered
  std::vector<Seconds> optimizer;           ///< [p], behind all that the stage exchanges
  Seconds overhead{0};                      ///< of the host, behind everything
  Seconds iteration{0};
};
inline constexpr int64_t kMostTimelinePasses = 400'000;

/// In slices of what sharding per operator may be cut.
enum class OperatorCuts : uint8_t {
  kNone,
  kPrograms,  ///< what a step program can do: ProgramSplits()
  kAny,
};
/// Those of what a program runs; kAny of the whole space.
OperatorCuts CutsOf(Framework framework);

struct CostOptions {
  Framework framework = Framework::kAny;   ///< whose stack is priced
  std::vector<int64_t> stage_layers = {};  ///< layers of each stage; empty: as even as embedding and head allow
  OperatorCuts cuts = OperatorCuts::kAny;
  std::optional<double> risk = kDefaultRisk;  ///< of running out of memory, at most; nullopt: what is predicted has to fit
};

class CostModel {
 public:
  /// Tables of one thread. Copies nothing from the model: valid for the model that filled it first only.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;

    /// Forgets all tables: needed before another model uses the scratch.
    void Clear();

   private:
    friend class CostModel;
    struct Tables;
    std::unique_ptr<Tables> tables_;
  };

  /// Errors: kInvalidArgument for a job or cluster with impossible sizes (named), or a risk that is no probability.
  [[nodiscard]] static Result<CostModel> Make(const JobSpec& job, const ClusterSpec& cluster,
                                              const Calibration& calibration = Calibration(),
                                              const CostOptions& options = {});

  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;
  ~CostModel();

  /// nullopt if legal, else the first rule broken with its values. Cheap when legal; only a refusal allocates.
  std::optional<std::string> WhyIllegal(const Strategy& strategy) const;
  /// The same answer without words, for inner loops.
  bool IsLegal(const Strategy& strategy) const;

  /// Memory of every stage. Requires: a legal strategy and stages.size() == pp.
  void EvaluateMemory(const Strategy& strategy, std::span<MemoryUse> stages, Scratch& scratch) const;

  /// Whether every stage fits; the worst stage's memory goes to `worst`. Requires: a legal strategy.
  bool Fits(const Strategy& strategy, Scratch& scratch, MemoryUse* worst = nullptr) const;

  /// Time by closed forms, up to rounding (passes are simulated in whole picoseconds) never above EvaluateSimulated()'s, and the memory of every stage: what a search asks. The way of
  /// messages is a part of the bubble. Requires: a legal strategy. Complexity: O(pp), no allocation once the strategy's
  /// layer tables are in `scratch`.
  Estimate Evaluate(const Strategy& strategy, Scratch& scratch) const;

  /// The prediction: the schedule simulated pass by pass (planner/tasks/pipeline.h), behind the gathers that its first passes
  /// wait for, and each stage's exchange of gradients and optimizer behind its last ones (planner/tasks/pipeline_exchange.h).
  /// What SimulatePipeline refuses (chunks that do not divide the micro-batches; more than 5 · 10⁶ s of passes) keeps the closed form.
  /// Requires: a legal strategy.
  Estimate EvaluateSimulated(const Strategy& strategy, Scratch& scratch) const;

  /// No schedule, chunks or exchange make the strategy's layers faster: its passes, evenly over the stages. Requires: a legal one.
  Seconds AnyScheduleBound(const Strategy& strategy, Scratch& scratch) const;

  /// The iteration pass by pass. The communication inside a pass is one block behind its kernels, not layer by layer. Requires:
  /// a legal strategy. Errors: kInvalidArgument for more than kMostTimelinePasses passes, or a shape that the schedule has no
  /// order for. Complexity: O(passes).
  [[nodiscard]] Result<IterationTimeline> Timeline(const Strategy& strategy, Scratch& scratch) const;

  /// What every stage's operators do under sharding=osdp; empty for other strategies. Requires: a legal strategy.
  std::vector<StageOperators> Operators(const Strategy& strategy, Scratch& scratch) const;

  /// Evaluate() of a strategy with sharding=osdp takes no less than this: by totals, or, `relaxed`, by the linear
  /// relaxation of the operators' decisions (some microseconds). Requires: a legal one.
  Seconds OperatorBound(const Strategy& strategy, bool relaxed, Scratch& scratch) const;

  /// One iteration as operations. What passes wait for adds up to what Evaluate() and EvaluateSimulated() have of them; of what runs
  /// once per iteration the list does not say what is exposed, as that is the schedule's to say. Requires: a legal strategy.
  OperationList Lower(const Strategy& strategy, Scratch& scratch) const;

  /// What stage `stage` sends, passes put together. Requires: 0 ≤ stage < list.stages.
  static std::vector<CommunicationVolume> CommunicationVolumes(const OperationList& list, int64_t stage);

  /// What the job's communicators do in an iteration of `strategy`, by kind. Requires: a legal strategy, its estimate and its list.
  std::vector<CommunicatorUse> Communicators(const Strategy& strategy, const Estimate& estimate, const OperationList& list) const;

  /// One dense layer (an MoE layer where all are). Requires: a legal strategy.
  LayerSeconds OneLayer(const Strategy& strategy, Scratch& scratch) const;

  /// What a prediction may say, so that the risk of CostOptions is kept.
  Bytes usable_memory() const;
  /// Model FLOPs of one iteration: forward and backward, recomputation not counted.
  Flops model_flops() const;
  const JobSpec& job() const;
  const ClusterSpec& cluster() const;
  /// The bytes of a gradient on the wire: what bucket sizes in parameters are counted in.
  double gradient_bytes() const;

 private:
  struct Impl;
  explicit CostModel(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace weft::planner::parallelism
