#include "runtime/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <utility>

#include "formats/calibration_yaml.h"
#include "planner/parallelism/program/program_times.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/program_groups.h"
#include "runtime/quantile.h"

namespace weft::runtime {
namespace {

using Samples = std::map<std::string, std::vector<double>>;

/// Times of the rank's computations, by planner::OperationName().
Status TimeRank(const TrainOptions& o, const ProgramInput& input, const planner::StepProgram& program, int rank, Samples* samples) {
  const planner::RankClass& list = program.classes[static_cast<size_t>(program.ranks[static_cast<size_t>(rank)].rank_class)];
  const std::unique_ptr<ProgramGroups> groups = ProgramGroups::Apart(program, rank);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Executor> executor,
                        Executor::Create(program,
                                         {.model = input.model, .rank = rank, .seed = o.seed, .clip = o.clip, .threads = o.threads},
                                         *groups));
  std::vector<std::string> names;
  for (const planner::Instruction& i : list.instructions)
    names.push_back(planner::Communicates(i.action) ? "" : planner::OperationName(program, list, i));
  for (int64_t step = 0; step < o.steps; ++step) {
    const auto text = [&](int64_t micro_batch) {
      return input.text.Samples({.seed = o.seed,
                                 .step = step,
                                 .first = micro_batch * program.micro_batch,
                                 .count = program.micro_batch,
                                 .sequence = SampleBytes(input.model, program.sequence)});
    };
    const auto done = executor->Step(text, LearningRateAt(o.rate, step));
    // Alone a rank has no more than its own shards of the parameters: its loss may be no number, and its times are what they are.
    if (!done && done.error().code() != Code::kDataLoss) return Fail(done.error().WithContext(fmt::format("step {}", step)));
    if (step < static_cast<int64_t>(kWarmUpSteps) && o.steps > static_cast<int64_t>(kWarmUpSteps)) continue;
    for (size_t k = 0; k < names.size(); ++k) {
      if (names[k].empty()) continue;
      const planner::InstructionSpan& span = executor->record().instructions[k];
      (*samples)[names[k]].push_back((span.end - span.begin).count());
    }
  }
  return Ok();
}

}  // namespace

Status Calibrate(const TrainOptions& o, const ProgramInput& input, const planner::StepProgram& program) {
  Samples samples;
  for (size_t c = 0; c < program.classes.size(); ++c) {
    const auto first = std::ranges::find(program.ranks, static_cast<int32_t>(c), &planner::RankPlace::rank_class);
    if (first == program.ranks.end()) continue;
    const int rank = static_cast<int>(first - program.ranks.begin());
    std::fprintf(stderr, "weft-train: calibrate: rank %d, one of %zu kinds of ranks, %lld steps on %d thread%s\n", rank,
                 program.classes.size(), static_cast<long long>(o.steps), o.threads, o.threads == 1 ? "" : "s");
    if (Status status = TimeRank(o, input, program, rank, &samples); !status)
      return Fail(status.error().WithContext(fmt::format("rank {}", rank)));
  }
  std::vector<planner::CalibrationConstant> constants;
  for (auto& [name, seconds] : samples) {
    const size_t count = seconds.size();
    constants.push_back({.name = "operation." + name,
                         .value = Quantile(std::move(seconds), 0.5),
                         .least = 0,
                         .most = 3600,
                         .fitted = true,
                         .source = fmt::format("median of {} in one process, {}", count, program.strategy)});
  }
  std::fprintf(stderr, "weft-train: calibrate: %zu computations; assumed: a core for this process alone, and as many threads later\n",
               constants.size());
  std::ofstream out(o.calibrate, std::ios::trunc);
  out << formats::WriteCalibrationYaml(constants);
  out.close();
  return out ? Ok() : Status(Fail(Code::kUnavailable, fmt::format("--calibrate {}: cannot be written", o.calibrate)));
}

}  // namespace weft::runtime
