// A run's checkpoints: where it begins, and after which steps it saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap.h"
#include "common/result.h"
#include "common/units.h"
#include "formats/checkpoint_json.h"
#include "planner/planner.h"
#include "planner/tasks/program_state.h"
#include "runtime/state/unit_state.h"

namespace weft::runtime {

struct CheckpointOptions {
  std::string folder;            ///< empty: nothing is saved
  int64_t every = 0;             ///< steps
  int64_t keep = 2;              ///< checkpoints that stay
  Bytes file{int64_t{1} << 30};  ///< most of a file
  std::string resume;  ///< a checkpoint, a folder of some, or "latest": of `folder`, or the beginning; empty: the beginning
  std::string load;    ///< parameters as Hugging Face has them, for the beginning; empty: drawn
};

/// Whether they fit together. Errors: kInvalidArgument naming the option.
[[nodiscard]] Status CheckCheckpointOptions(const CheckpointOptions& options);

/// All of them, as text that ranks compare.
std::string Describe(const CheckpointOptions& options);

struct Beginning {
  bool loads = false;  ///< parameters come from files, so that none need be drawn
  int64_t step = 0;    ///< steps that were done
};

class Checkpoints {
 public:
  /// `where`: what this run says of itself; its step is nothing. `bootstrap` is null for one rank; both and `model` outlive it.
  Checkpoints(CheckpointOptions options, const planner::ModelSpec& model, const formats::TrainingState& where,
              collectives::Bootstrap* bootstrap, bool first)
      : options_(std::move(options)), model_(model), where_(where), bootstrap_(bootstrap), first_(first) {}

  /// Where the run begins. Collective: what the first rank finds counts, also that "latest" is nothing yet. Errors:
  /// kFailedPrecondition for a folder with checkpoints from which this run does not go on; as LoadCheckpoint().
  [[nodiscard]] Result<Beginning> Find();

  /// The program that is run from now on, and this rank's place in it; -1: none. Errors: as StateOf() and OwnersOf().
  [[nodiscard]] Status SetProgram(const planner::StepProgram& program, int place);

  /// Fills the state as options say; steps that were done before. Requires: Find(), SetProgram(). Collective. Errors: as
  /// LoadCheckpoint() and LoadModel(); kInvalidArgument for a checkpoint of other data or another learning rate, naming it.
  [[nodiscard]] Result<int64_t> Load(const RankState& state);

  /// Saves where `done` steps are a multiple of `every`; the bytes. Collective. Errors: as SaveCheckpoint().
  [[nodiscard]] Result<std::optional<Bytes>> AfterStep(int64_t done, const RankState& state);

 private:
  Result<Beginning> Look();
  Status CheckSame(const formats::TrainingState& saved) const;

  const CheckpointOptions options_;
  const planner::ModelSpec& model_;
  const formats::TrainingState where_;
  collectives::Bootstrap* const bootstrap_;
  const bool first_;
  std::string resume_;  // what of options_.resume there is
  planner::ProgramState state_;
  std::vector<std::vector<planner::StateShare>> shares_;
  int place_ = 0;
};

}  // namespace weft::runtime
