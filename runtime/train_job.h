// One rank of a training run, from reading the input to the summary: without a plan the data-parallel loop that joins text, model
// and exchange; with one, what program_job.h does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "common/units.h"
#include "formats/train_plan.h"
#include "runtime/checkpoint/checkpoint_job.h"
#include "runtime/learning_rate.h"
#include "runtime/model_scaling.h"
#include "runtime/replicas.h"
#include "runtime/report.h"

namespace weft::runtime {

/// The effective command line; defaults are the program's.
struct TrainOptions {
  std::string config;                    ///< config.json of the GPT-2, Llama or Mixtral family, or of a 3D CNN
  ModelScaling scaling;
  std::string data;                      ///< file or folder of text
  int64_t sequence = 128;                ///< bytes per sample; 1 of a 3D CNN
  int64_t global_batch = 8;              ///< samples per step, all ranks together
  int64_t steps = 30;
  std::optional<Seconds> duration;       ///< in place of steps: rank 0 decides the last one
  int64_t min_steps = 1;                 ///< with duration: the last one is not before this many, however slow they are
  LearningRate rate;
  double clip = 0;                       ///< largest global norm of the gradients; 0: any
  std::string plan;                      ///< file of a step program, which says batch, sequence and ranks; empty: data parallel
  std::string plans;                     ///< in place of `plan`: file of programs and the steps at which they begin
  formats::TrainPlanText strategy;       ///< in place of both: of what the program is made, for `sequence` and `global_batch`
  std::string calibration;               ///< with `plan`: what its computations take alone, by which the run is predicted
  std::string cluster;                   ///< with `calibration`: the machines, of whose links communication is predicted
  double stretch = 0;                    ///< with `calibration`: a computation lasts so many times as long as alone; 0: as it is
  std::string trace;                     ///< with `plan`: file for the last step, as measured and as planned
  bool computations = false;             ///< with `plan` or `strategy`: each step says what of a core each computation took, on each rank
  bool predict = false;                  ///< with `plan`: what is predicted, in place of the run
  std::string calibrate;                 ///< with `plan`: in place of a run its computations are timed, into this file
  CheckpointOptions checkpoint;          ///< of a run with a plan
  bool reshard = false;                  ///< with `plan` or `strategy`: follows the controller's word of another strategy
  std::string job;                       ///< as the agent knows it; with `reshard`
  std::string run_dir;                   ///< of the agent; with `reshard`
  std::string capacity_of;               ///< file of a step program, without a plan: its capacity groups are what experts serve
  ReplicaOptions replicas;               ///< of one process: what it learns that of so many replicas is
  bool double_precision = false;         ///< fp64, in one process; a plan says its own
  uint64_t seed = 1;
  Bytes bucket{1 << 20};
  int rank = 0;
  int world = 1;
  std::string rendezvous;                ///< "host:port" where rank 0 listens
  std::string plugin;                    ///< an ncclNet plugin
  Seconds stall_timeout{60};             ///< of a collective without progress, and of the rendezvous
  std::string collectives;               ///< collective table (netplugin/abi/collective_table.h); empty: rings
  bool communication = true;             ///< false: the same work on this rank alone, to time compute
  int threads = 1;
  OutputFormat output = OutputFormat::kTable;
};

/// Whether the model is one that is trained here. Errors: kInvalidArgument naming what of it is not.
[[nodiscard]] Status CheckTrained(const planner::ModelSpec& model);

/// Trains until the end; rank 0 reports to stdout. Blocks.
/// Errors: kInvalidArgument and kNotFound for what the caller must mend (files, sizes, ranks started differently), else
/// the cause with the step in front. The other ranks' collectives fail with this rank's connections.
[[nodiscard]] Status RunTraining(const TrainOptions& options);

}  // namespace weft::runtime
