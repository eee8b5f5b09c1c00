#include "runtime/program_job.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/net_plugin.h"
#include "common/clock.h"
#include "formats/hf_config.h"
#include "formats/plan_sequence.h"
#include "formats/program_json.h"
#include "formats/read_file.h"
#include "planner/tasks/state_change.h"
#include "runtime/calibrate.h"
#include "runtime/execute/executor.h"
#include "runtime/program_prediction.h"
#include "runtime/program_report.h"
#include "runtime/program_run.h"
#include "runtime/replicas.h"
#include "runtime/text_data.h"

namespace weft::runtime {
namespace {

using planner::StepProgram;

Result<planner::ModelSpec> ReadModel(const TrainOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec published, formats::ReadHfConfig(options.config));
  WEFT_ASSIGN_OR_RETURN(ScaledModel scaled, ScaleModel(published, options.scaling));
  WEFT_RETURN_IF_ERROR(CheckTrained(scaled.model));
  return std::move(scaled.model);
}

Result<ProgramInput> ReadInput(const TrainOptions& options, int64_t sequence) {
  WEFT_ASSIGN_OR_RETURN(planner::ModelSpec model, ReadModel(options));
  WEFT_ASSIGN_OR_RETURN(TextData text, TextData::Load(options.data));
  if (const int64_t sample = SampleBytes(model, sequence); static_cast<int64_t>(text.bytes().size()) <= sample) {
    return Fail(Code::kInvalidArgument, fmt::format("text \"{}\" has {} bytes, expected more than the {} of a {}", options.data,
                                                    text.bytes().size(), sample, model.IsCnn() ? "volume" : "sequence"));
  }
  return ProgramInput{std::move(model), std::move(text)};
}

/// The program that --strategy says.
Result<StepProgram> MakeProgram(const TrainOptions& o) {
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model, ReadModel(o));
  const auto type = o.double_precision ? planner::ElementType::kFloat64 : planner::ElementType::kFloat32;
  const planner::JobSpec job{.name = model.name, .model = model, .global_batch = o.global_batch, .sequence = o.sequence,
                             .precision = planner::Precision::kFp32};
  return formats::ExpandTrainPlan(o.strategy, job, type);
}

/// Where the programs are from, for messages.
std::string SourceOf(const TrainOptions& o) {
  return !o.plans.empty() ? o.plans : !o.plan.empty() ? o.plan : "--strategy " + o.strategy.strategy;
}

/// The program of --plan or --strategy, or those of --plans.
Result<std::vector<Phase>> ReadPhases(const TrainOptions& o) {
  std::vector<Phase> phases;
  if (!o.strategy.strategy.empty()) {
    WEFT_ASSIGN_OR_RETURN(StepProgram program, MakeProgram(o));
    phases.push_back({.begin = 0, .program = std::move(program)});
    return phases;
  }
  if (!o.plan.empty()) {
    WEFT_ASSIGN_OR_RETURN(StepProgram program, formats::ReadProgramJson(o.plan));
    phases.push_back({.begin = 0, .program = std::move(program)});
    return phases;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(o.plans));
  WEFT_ASSIGN_OR_RETURN(const std::vector<formats::PlannedProgram> planned, formats::ParsePlanSequence(text, o.plans));
  for (const formats::PlannedProgram& one : planned) {
    const std::filesystem::path path = std::filesystem::path(o.plans).parent_path() / one.path;
    WEFT_ASSIGN_OR_RETURN(StepProgram program, formats::ReadProgramJson(path.string()));
    phases.push_back({.begin = one.step, .program = std::move(program)});
  }
  return phases;
}

/// Whether a program is for this run, and goes on where the first one began.
Status CheckPhase(const TrainOptions& o, const StepProgram& p, const StepProgram& first) {
  const auto ranks = static_cast<int64_t>(p.ranks.size());
  if (!o.calibrate.empty() || o.predict) return Ok();  // one process stands for each rank in turn
  if (o.plans.empty() ? ranks != o.world : ranks > o.world) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: made for {} ranks, this run has {}", SourceOf(o), ranks, o.world));
  }
  const auto sizes = [](const StepProgram& s) {
    return std::tuple(s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn_hidden, s.vocab, s.experts, s.expert_hidden,
                      s.sequence, s.global_batch, s.type);
  };
  if (sizes(p) == sizes(first) && p.volumes == first.volumes) return Ok();
  return Fail(Code::kInvalidArgument,
              fmt::format("{}: {}: another model, sequence, batch or type than the first program's", o.plans, p.strategy));
}

/// Whether all that lasts of a phase is saved, or goes on in the next one.
Status CheckLasts(const TrainOptions& o, const Phase& phase, bool last) {
  if (last && o.checkpoint.folder.empty()) return Ok();
  const std::string left = planner::LeftBehind(phase.program);
  if (left.empty()) return Ok();
  return Fail(Code::kInvalidArgument,
              fmt::format("{}: {}: {} would be lost, expected a run without {}", SourceOf(o),
                          phase.program.strategy, left, last ? "--checkpoint" : "a program after it"));
}

Status CheckProgramOptions(const TrainOptions& o) {
  const auto wrong = [](std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); };
  if (o.rank < 0 || o.rank >= o.world)
    return wrong(fmt::format("rank {} of world {}: expected 0 <= rank < world", o.rank, o.world));
  if (o.world > 1 && (o.plugin.empty() || o.rendezvous.empty()))
    return wrong(fmt::format("world {} needs --plugin and --rendezvous", o.world));
  if (o.duration && !o.plans.empty()) return wrong("--duration with --plans: expected --steps");
  if (o.min_steps < 1) return wrong(fmt::format("min steps {}: expected at least 1", o.min_steps));
  if (o.computations && o.output != OutputFormat::kJson) return wrong("--computations without --output json, which alone has them");
  if (o.reshard && (!o.plans.empty() || !o.calibration.empty() || !o.calibrate.empty()))
    return wrong("--reshard on with --plans, --calibration or --calibrate: expected one or the other");
  if (o.reshard && (o.job.empty() || o.run_dir.empty()))
    return wrong("--reshard on without a job's name or an agent to ask: expected --job, and WEFT_RUN_DIR not empty");
  if (o.replicas != ReplicaOptions()) return wrong("--replicas with --plan: they are the program's to say");
  if (!o.communication) return wrong("--communication off is not for a --plan");
  if (!(o.rate.peak > 0) || !(o.clip >= 0))
    return wrong(fmt::format("learning rate {}, clip {}: expected more than 0, at least 0", o.rate.peak, o.clip));
  if (o.rate.warm_up < 0 || o.rate.decay < 0 || !(o.rate.least >= 0)) {
    return wrong(fmt::format("warm-up {}, decay {}, least learning rate {}: expected at least 0", o.rate.warm_up, o.rate.decay,
                             o.rate.least));
  }
  WEFT_RETURN_IF_ERROR(CheckCheckpointOptions(o.checkpoint));
  if (o.steps < 1 || o.threads < 1) return wrong(fmt::format("steps {}, threads {}: expected at least 1", o.steps, o.threads));
  return Ok();
}

/// What of the model changes losses and no shape that the program has.
std::string NumericsText(const planner::ModelSpec& m) {
  const planner::ModelNumerics& n = m.numerics;
  return fmt::format("positions {} {}, gated {}, tied {}, RMSNorm {}, biases {} {} {}, norm epsilon {}, activation {}, "
                     "rope theta {}, initializer range {}, balance loss {}",
                     m.max_positions, m.learned_positions ? "learned" : "rotary", m.gated_mlp, m.tied_embeddings, m.rms_norm,
                     m.attention_bias, m.attention_output_bias, m.mlp_bias, n.norm_epsilon, static_cast<int>(n.activation),
                     n.rope.theta, n.initializer_range, n.router.aux_loss);
}

/// What must be the same on all ranks, as text that a person can compare.
std::string Fingerprint(const TrainOptions& o, const std::vector<Phase>& phases, const ProgramInput& input) {
  std::string programs;
  for (const Phase& phase : phases) {
    if (!programs.empty()) programs += fmt::format(", from step {} ", phase.begin);
    programs += fmt::format("program {:016x} ({})", planner::DigestOf(phase.program), phase.program.strategy);
  }
  const std::string length =
      o.duration ? fmt::format("for {} s, {} at least", o.duration->count(), o.min_steps) : fmt::format("{}", o.steps);
  return fmt::format(
      "{}, {}, {}, steps {}, computations {}, learning rate {} warm-up {} decay {} least {}, clip {}, seed {}, text digest {}, stretch {}, trace {}, "
      "reshard {}, {}",
      programs, input.model.name, NumericsText(input.model), length, o.computations ? "on" : "off", o.rate.peak, o.rate.warm_up, o.rate.decay, o.rate.least, o.clip,
      o.seed, input.text.Digest(), o.stretch, o.trace.empty() ? "off" : "on", o.reshard ? "on" : "off", Describe(o.checkpoint));
}

Status CheckSameEverywhere(collectives::Bootstrap& bootstrap, const std::string& mine) {
  WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap.AllGather({reinterpret_cast<const uint8_t*>(mine.data()), mine.size()}));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Fail(Code::kInvalidArgument,
                fmt::format("ranks were started differently: rank 0 with \"{}\", rank {} with \"{}\"",
                            std::string(all[0].begin(), all[0].end()), rank, std::string(all[rank].begin(), all[rank].end())));
  }
  return Ok();
}

Status Connect(const TrainOptions& o, const std::string& fingerprint, JobConnections* out) {
  if (o.world == 1) return Ok();
  WEFT_ASSIGN_OR_RETURN(out->plugin, collectives::NetPlugin::Load(o.plugin));
  WEFT_ASSIGN_OR_RETURN(out->bootstrap,
                        collectives::Bootstrap::Join(
                            {.rank = RankId(o.rank), .world = o.world, .address = o.rendezvous, .timeout = o.stall_timeout}));
  return CheckSameEverywhere(*out->bootstrap, fingerprint);
}

/// Steps, reported one after the other. `one` runs a step: Result<StepResult>(step, rate).
template <typename One>
Result<std::vector<ProgramStep>> RunSteps(const TrainOptions& o, One one) {
  const SystemClock clock;
  std::vector<ProgramStep> steps;
  for (int64_t step = 0; step < o.steps; ++step) {
    const Seconds begin = clock.Now();
    const double rate = LearningRateAt(o.rate, step);
    Result<StepResult> result = one(step, rate);
    if (!result) return Fail(result.error().WithContext(fmt::format("step {}", step)));
    const Seconds end = clock.Now();
    steps.push_back({.step = step,
                     .loss = result->loss,
                     .gradient_norm = result->gradient_norm,
                     .learning_rate = rate,
                     .iteration = end - begin,
                     .waited = result->waited,
                     .time = end});
    WEFT_RETURN_IF_ERROR(Print(o, ProgramStepLine(steps.back(), o.output)));
  }
  return steps;
}

/// The first program's, without a run.
Status PrintPrediction(const TrainOptions& o, const StepProgram& program) {
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model, ReadModel(o));
  WEFT_ASSIGN_OR_RETURN(const Prediction prediction, Predict(o, model, program, -1));
  std::vector<RankPlanned> planned;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) planned.push_back(PlannedOf(prediction, rank));
  return Print(o, PredictionLine(planned, o.output));
}

}  // namespace

Status RunProgram(const TrainOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Phase> phases, ReadPhases(options));
  WEFT_RETURN_IF_ERROR(CheckProgramOptions(options));
  for (size_t i = 0; i < phases.size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckPhase(options, phases[i].program, phases.front().program));
    WEFT_RETURN_IF_ERROR(CheckLasts(options, phases[i], i + 1 == phases.size()));
  }
  if (options.predict) return PrintPrediction(options, phases.front().program);
  WEFT_ASSIGN_OR_RETURN(const ProgramInput input, ReadInput(options, phases.front().program.sequence));
  if (!options.calibrate.empty()) return Calibrate(options, input, phases.front().program);
  JobConnections connections;
  WEFT_RETURN_IF_ERROR(Connect(options, Fingerprint(options, phases, input), &connections));
  return RunPhases(options, input, phases, connections);
}

namespace {

/// The tokens that share experts' capacity under a program, as TrainerOptions has them: those of a tensor rank and a micro-batch.
std::vector<std::vector<int64_t>> CapacityGroupsOf(const StepProgram& p) {
  std::vector<std::vector<int64_t>> groups;
  for (int64_t first = 0; first < p.global_batch; first += p.micro_batch) {
    for (int64_t context = 0; context < p.context; ++context) {
      std::vector<int64_t> rows;
      for (const int64_t position : planner::PositionsOf(p.sequence, p.context, context)) {
        for (int64_t b = 0; b < p.micro_batch; ++b) rows.push_back((first + b) * p.sequence + position);
      }
      const int64_t each = planner::CapacityGroup(p);
      for (int64_t t = 0; t < p.tensor; ++t) groups.emplace_back(rows.begin() + t * each, rows.begin() + (t + 1) * each);
    }
  }
  return groups;
}

Result<std::vector<std::vector<int64_t>>> CapacityGroupsOf(const TrainOptions& o) {
  if (o.capacity_of.empty()) return std::vector<std::vector<int64_t>>{};
  WEFT_ASSIGN_OR_RETURN(const StepProgram program, formats::ReadProgramJson(o.capacity_of));
  if (program.sequence != o.sequence || program.global_batch != o.global_batch) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: {} sequences of {} bytes, this run has {} of {}", o.capacity_of,
                                                    program.global_batch, program.sequence, o.global_batch, o.sequence));
  }
  return CapacityGroupsOf(program);
}

}  // namespace

Status RunPlain(const TrainOptions& o) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::vector<int64_t>> groups, CapacityGroupsOf(o));
  WEFT_ASSIGN_OR_RETURN(const ProgramInput input, ReadInput(o, o.sequence));
  WEFT_ASSIGN_OR_RETURN(Replicas replicas, Replicas::Create({.model = input.model,
                                                             .batch = o.global_batch,
                                                             .sequence = o.sequence,
                                                             .learning_rate = o.rate.peak,
                                                             .double_precision = o.double_precision,
                                                             .clip = o.clip,
                                                             .seed = o.seed,
                                                             .threads = o.threads,
                                                             .capacity_groups = std::move(groups)},
                                                            o.replicas));
  WEFT_RETURN_IF_ERROR(Print(o, ProgramLine({.model = input.model.name,
                                             .strategy = "",
                                             .schedule = "",
                                             .type = o.double_precision ? "fp64" : "fp32",
                                             .parameters = planner::ParameterCount(input.model),
                                             .global_batch = o.global_batch,
                                             .sequence = o.sequence,
                                             .plugin = ""},
                                            o.output)));
  const auto one = [&](int64_t step, double rate) -> Result<StepResult> {
    const std::vector<uint8_t> samples =
        input.text.Samples({.seed = o.seed, .step = step, .first = 0, .count = o.global_batch,
                            .sequence = SampleBytes(input.model, o.sequence)});
    WEFT_ASSIGN_OR_RETURN(const double loss, replicas.Step(samples, rate));
    return StepResult{.loss = loss};
  };
  const auto steps = RunSteps(o, one);
  if (!steps) return Fail(steps.error());
  return Print(o, ProgramSummaryLine(*steps, {}, {}, o.output));
}

}  // namespace weft::runtime
