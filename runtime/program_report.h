// What weft-train prints of a program's run on rank 0: as report.h's, with what was sent beside what was planned.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/planner.h"
#include "runtime/rank_report.h"
#include "runtime/report.h"

namespace weft::runtime {

/// Of all ranks together, in all steps, by what a communicator is for and by what was done.
struct MeasuredVolume {
  planner::CommunicatorKind kind = planner::CommunicatorKind::kWorld;
  planner::StepAction action = planner::StepAction::kAllReduce;
  int64_t planned_calls = 0, calls = 0;
  int64_t planned_bytes = 0, bytes = 0;  ///< on the wire: handed to the plugin by senders
};

struct ProgramFacts {
  std::string model, strategy, schedule, type;
  int64_t parameters = 0;  ///< of the model
  int64_t ranks = 1, micro_batches = 1, global_batch = 0, sequence = 0;
  uint64_t digest = 0;  ///< of the program; 0: one process without one
  std::string plugin;
};

struct ProgramStep {
  int64_t step = 0;
  double loss = 0;
  std::optional<double> gradient_norm;  ///< nullopt: not computed, and not printed
  double learning_rate = 0;
  Seconds iteration{0}, waited{0}, time{0};
  /// By rank and instruction of its list, where they were asked for; 0 where nothing is computed. JSON only.
  std::vector<std::vector<Seconds>> computations = {};
};

/// A checkpoint that was written, or read at the beginning.
struct CheckpointFacts {
  bool read = false;
  int64_t step = 0;  ///< steps done
  Bytes bytes;       ///< of all ranks' tensors; 0 where it was read
  Seconds took{0};
};

/// A change of program between two steps.
struct ReshardFacts {
  int64_t step = 0;      ///< that follows
  std::string strategy;  ///< of the program from now on
  int64_t ranks = 0;     ///< that it has
  Bytes planned, sent;   ///< of parameters and moments, all ranks together
  Seconds moving{0};     ///< of it, for what is sent
  Seconds took{0};       ///< from the end of the last step, new connections and memory included
};

/// What is predicted of a rank's step.
struct RankPlanned {
  std::optional<Seconds> iteration;          ///< nullopt without a calibration and a cluster
  std::optional<planner::StepParts> parts;
  std::optional<Bytes> peak;
};

/// A word of another strategy that the ranks do not follow.
struct RefusalFacts {
  int64_t step = 0;      ///< that follows
  uint64_t epoch = 0;    ///< of the word
  std::string strategy;  ///< that goes on
  std::string why;
};

/// One rank's steps, as measured and as planned.
struct RankFacts {
  RankMeasured measured;
  RankPlanned planned;
};

/// The lines, without a newline at the end.
std::string ProgramLine(const ProgramFacts& facts, OutputFormat format);
std::string ProgramStepLine(const ProgramStep& step, OutputFormat format);
/// Of a program that is not run; the iteration, where it is known, is the slowest rank's.
std::string PredictionLine(const std::vector<RankPlanned>& ranks, OutputFormat format);
std::string ReshardLine(const ReshardFacts& change, OutputFormat format);
std::string RefusalLine(const RefusalFacts& refusal, OutputFormat format);
std::string CheckpointLine(const CheckpointFacts& checkpoint, OutputFormat format);
std::string ProgramSummaryLine(const std::vector<ProgramStep>& steps, const std::vector<MeasuredVolume>& volumes,
                               const std::vector<RankFacts>& ranks, OutputFormat format);

}  // namespace weft::runtime
