// A plan of weft-train as words of its command line: what `weft plan --emit weft-train` writes, a controller hands over and weft-train
// reads. The program itself (planner/parallelism/program/) does not travel: strategy and choices are a line, of which every rank makes
// the program that was planned, and which has to have the planned one's digest.
//
//   --strategy dp=2,tp=2,pp=2,bucket_bytes=1MiB --seq 128 --global-batch 16 --program-digest 89d0c33ab1e2f407
//   --sums hierarchical:2             how replicas sum gradients, where not by rings: hierarchical:N, ps:N, tree
//   --operators e+2:s:k+4:4r1:r/h4    under sharding=osdp, of each stage: what it has of embedding and head (in so many slices), and
//                                     so many layers with what attention and MLP do: replicated, kept, sharded, or of 4 slices one
//                                     sharded and the others replicated (4r1) or kept (4k1)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/planner.h"

namespace weft::formats {

/// Longest value of --strategy, of --operators, and of --sums and --program-digest, in bytes.
inline constexpr size_t kMostStrategyText = 4096, kMostOperatorsText = size_t{1} << 16, kMostSumsText = 64;

/// As the words have it; empty: not given.
struct TrainPlanText {
  std::string strategy, sums, operators, digest;
};

/// The words above of a program of `job` (type and digest are those of `program`). Errors: kInvalidArgument for a strategy
/// that has no program: ExpandProgram().
[[nodiscard]] Result<std::vector<std::string>> TrainArguments(const planner::JobSpec& job, const planner::Strategy& strategy,
                                                              const planner::ProgramChoices& choices);

/// What such words say of a run, batch and sequence included.
struct TrainWords {
  TrainPlanText plan;
  int64_t sequence = 0, global_batch = 0;
};

/// Reads the words above, as TrainArguments() writes them: each flag once, with its value behind it. The text is hostile. Errors:
/// kInvalidArgument naming the word for one that is none of these, twice there, longer than above, or missing.
[[nodiscard]] Result<TrainWords> ParseTrainArguments(std::span<const std::string> words);

/// The program that the words mean for `job`, whose gpus are not looked at. The text is hostile. Errors: kInvalidArgument naming the
/// word, its value and what was expected: an unknown variable, decisions that do not fit the model, no program, another digest. Jobs are
/// planned in fp32, and the digest is that of the program in fp32 whatever `type`.
[[nodiscard]] Result<planner::StepProgram> ExpandTrainPlan(const TrainPlanText& text, const planner::JobSpec& job,
                                                           planner::ElementType type);

/// The values of --strategy and --operators, and back. Errors: kInvalidArgument as above.
std::string WriteStrategyText(const planner::Strategy& strategy);
[[nodiscard]] Result<planner::Strategy> ParseStrategyText(std::string_view text);
std::string WriteOperatorsText(std::span<const planner::StageOperators> stages);
[[nodiscard]] Result<std::vector<planner::StageOperators>> ParseOperatorsText(std::string_view text);

}  // namespace weft::formats
