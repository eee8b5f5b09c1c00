// Saves and loads the state of a training run, each rank what it has of it. Any strategy's checkpoint is any other's: files hold
// whole tensors, and a rank writes and reads the slices that planner::StateOf() gives it. All calls are collective, and fail on
// all ranks or on none. The folder must be one that all ranks see, on a file system that keeps apart what two of them write into
// one file at the same time (a local disk of one host, Lustre, CephFS, GPFS; not NFS).
//
//   CheckpointJob job{.model = spec, .type = program.type, .shares = OwnersOf(*StateOf(program, spec)), …};
//   WEFT_RETURN_IF_ERROR(SaveCheckpoint(job, {.folder = "run", .keep = 2}, where, executor->State()));
#pragma once

#include <cstdint>
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

/// What a rank needs to know of the run.
struct CheckpointJob {
  const planner::ModelSpec& model;
  const planner::ProgramState& state;
  const std::vector<std::vector<planner::StateShare>>& shares;  ///< OwnersOf(state)
  int place = -1;                               ///< this rank's, among the program's; -1: it has none, and joins in
  collectives::Bootstrap* bootstrap = nullptr;  ///< null for one rank
  bool first = true;                            ///< this rank makes the folder and the small files
};

struct SaveOptions {
  std::string folder;
  int64_t keep = 2;              ///< checkpoints, this one included
  Bytes file{int64_t{1} << 30};  ///< most of a file, where a tensor is no larger
};

/// Writes the checkpoint of `where`.step; when it returns it is on the disk, under its name. On any error nothing of it stays,
/// and the ones before are untouched. `bytes`: of all its tensors. Errors: the system's, kResourceExhausted for a full disk;
/// kDataLoss for a state that holds something else than finite numbers. State of a rank without place: nothing.
[[nodiscard]] Result<Bytes> SaveCheckpoint(const CheckpointJob& job, const SaveOptions& options,
                                           const formats::TrainingState& where, const RankState& state);

/// Reads the checkpoint in `path` (or the last in the folder `path`), every element of it checked against its sum by one rank.
/// Errors: kNotFound; kInvalidArgument for files that are not what they say, naming file and tensor; kDataLoss for bytes that are
/// not those that were written.
[[nodiscard]] Result<formats::TrainingState> LoadCheckpoint(const CheckpointJob& job, const std::string& path,
                                                            const RankState& state);

/// Reads parameters alone from files as Hugging Face has them: a .safetensors file, or a folder with model.safetensors or its
/// index, in any floating-point type. Of a vocabulary that formats::RowsOfBytes() knows, the rows of the bytes.
/// Errors: as LoadCheckpoint(), but for sums, which such files do not have.
[[nodiscard]] Status LoadModel(const CheckpointJob& job, const std::string& path, const RankState& state);

}  // namespace weft::runtime
