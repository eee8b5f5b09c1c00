// What the cost model keeps: the job's constants, and per thread the layers' times and bytes by key. Internal to
// cost_model*.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/data_time.h"
#include "planner/parallelism/layer_time.h"
#include "planner/parallelism/memory_model.h"
#include "planner/tasks/pipeline.h"

namespace weft::planner {

/// All that strategies with one LayerKey share.
struct LayerEntry {
  LayerKey key;
  bool used = false;
  LayerTime dense, moe;
  EdgeTime edge;
  LayerBytes dense_bytes, moe_bytes;
  double attention_parameters = 0;  ///< of a dense layer, on one rank: attention and norms
  double dense_parameters = 0, moe_dense_parameters = 0, expert_parameters = 0;  ///< of one layer, on one rank
  double embedding_parameters = 0, head_parameters = 0;                              ///< on one rank
};

/// One stage, one micro-batch.
struct StagePasses {
  PassTime forward, backward;  ///< backward holds data, weight and recomputation
  double weight = 0;           ///< of backward, weight gradients
  double forward_data = 0, backward_data = 0;  ///< exposed ZeRO-3 gathers and scatters

  double F() const { return forward.total() + forward_data; }
  double B() const { return backward.total() + backward_data; }
};

/// One stage of a strategy, priced.
struct StageCost {
  StagePasses passes;
  MemoryUse memory;
  StageShape exchanged;      ///< sharding per operator: what the closed forms of data_time.h exchange and update
  double once = 0;           ///< s per iteration, exposed, beside those
  double optimizer = 0;      ///< s beside those
  bool feasible = true;      ///< operators' decisions within the memory were found
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
  bool split_operators = true;
  double usable = 0;
  double model_flops = 0;

  int64_t LayersBefore(const Strategy& s, int64_t stage) const;
  LayerEntry MakeEntry(const LayerKey& key) const;
  void MakeCnnEntry(LayerEntry& entry) const;
  /// StageMemory() with the program's buffers, fragmentation and context.
  MemoryUse WholeMemory(const Strategy& s, const LayerEntry& entry, const StageShape& shape, int64_t stage,
                        int64_t micro_batches) const;
  StageShape Shape(const Strategy& s, const LayerEntry& entry, int64_t stage) const;
  MemoryUse Memory(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches) const;
  StagePasses Passes(const Strategy& s, const LayerEntry& entry, int64_t stage) const;
  StagePasses LayerPasses(const Strategy& s, const LayerEntry& entry, const StageShape& shape) const;
  void AddEdges(const LayerEntry& entry, const StageShape& shape, StagePasses& passes) const;
  StageCost Cost(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                 OperatorSolver& solver, std::vector<StageOperators>* operators = nullptr) const;
  // Sharding per operator: cost_operators.cc.
  OperatorProblem Operators(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                            MemoryUse* rest) const;
  StageCost OperatorCosts(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                          OperatorSolver& solver, std::vector<StageOperators>* operators) const;
  double LeanestUnit(const Strategy& s, const LayerEntry& entry, const StageShape& shape) const;
  void AddUnits(const Strategy& s, const StageShape& shape, double layers, StagePasses& passes) const;
  double HopTime(const Strategy& s) const;
  /// Of what stage `stage` exchanges once per iteration, and of its optimizer: what lengthens the iteration, in seconds.
  struct Once {
    double exposed = 0, optimizer = 0;
  };
  Once OnceOf(const Strategy& s, const LayerEntry& entry, int64_t stage, const StageCost& cost) const;
};

/// The stages' passes as a pipeline problem; `stages` holds them.
PipelineProblem PipelineOf(const Strategy& s, const SoftwareStack& stack, int64_t micro_batches, const Seconds& hop,
                           std::span<const StagePasses> passes, std::vector<StageTime>& stages);

struct CostModel::Scratch::Tables {
  static constexpr size_t kSlots = size_t{1} << 12;
  std::vector<LayerEntry> slots = std::vector<LayerEntry>(kSlots);
  PipelineScratch pipeline;
  OperatorSolver operators;
  std::vector<StageTime> stages;

  const LayerEntry& Find(const Impl& impl, const LayerKey& key);
};

}  // namespace weft::planner
