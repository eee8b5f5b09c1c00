// Executes a step program (planner/tasks/step_program.h) as it stands: computations on the caller's thread in the order of the
// list, communications on a thread per communicator. It decides nothing: what runs when, over what and how often is the list's.
// LibTorch stays behind this header.
//
//   WEFT_ASSIGN_OR_RETURN(auto executor, Executor::Create(program, options, *groups));
//   WEFT_ASSIGN_OR_RETURN(const StepResult step, executor->Step(samples, learning_rate));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"
#include "runtime/execute/program_groups.h"
#include "runtime/execute/step_record.h"
#include "runtime/state/unit_state.h"

namespace weft::runtime {

struct ExecutorOptions {
  planner::ModelSpec model;
  int rank = 0;
  std::optional<uint64_t> seed = 1;  ///< all parameters follow from it; nullopt: zero, as State() brings others
  double clip = 0;    ///< largest global norm of the gradients; 0: any
  int threads = 1;    ///< of LibTorch, in each operation
  std::vector<Seconds> least = {};  ///< by instruction of the rank's list: a computation lasts at least so long; empty: as it is
};

struct StepResult {
  double loss = 0;           ///< mean over the global batch, nats per byte, the same on all ranks
  std::optional<double> gradient_norm;  ///< global, before clipping; nullopt where it was not computed
  Seconds waited{0};         ///< of the caller's thread, for communication
};

class Executor {
 public:
  /// One micro-batch of this rank's replica: [micro_batch × (SampleBytes() + 1)] bytes (runtime/text_data.h).
  using Samples = std::function<std::vector<uint8_t>(int64_t micro_batch)>;

  /// Requires: a checked program, groups connected for it, which outlive this.
  /// Errors: kInvalidArgument for a program of another model, naming what differs; kResourceExhausted without the memory.
  [[nodiscard]] static Result<std::unique_ptr<Executor>> Create(const planner::StepProgram& program, const ExecutorOptions& options,
                                                                ProgramGroups& groups);
  ~Executor();

  /// One step. Errors: those of communication, with the instruction in front; kInvalidArgument for values that have other shapes
  /// than the program says; kDataLoss for a loss that is no number.
  [[nodiscard]] Result<StepResult> Step(const Samples& samples, double learning_rate);

  /// Of the last step.
  const StepRecord& record() const;

  /// What lasts from one step to the next, for who saves, reads or moves it between steps.
  RankState State();
  /// So many steps were done before, here or elsewhere.
  void SetSteps(int64_t done);

 private:
  class Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::runtime
