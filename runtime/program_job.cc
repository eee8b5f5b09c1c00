#include "runtime/program_job.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/bootstrap.h"
#include "collectives/net_plugin.h"
#include "common/clock.h"
#include "formats/hf_config.h"
#include "formats/program_json.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/program_groups.h"
#include "runtime/priority.h"
#include "runtime/program_report.h"
#include "runtime/text_data.h"
#include "runtime/trainer.h"

namespace weft::runtime {
namespace {

using planner::StepProgram;

Status Print(const TrainOptions& options, const std::string& line) {
  if (options.rank != 0) return Ok();
  if (std::fputs((line + "\n").c_str(), stdout) < 0 || std::fflush(stdout) != 0) return Fail(ErrnoError("write the report", errno));
  return Ok();
}

/// Model and text, as every run reads them.
struct Input {
  planner::ModelSpec model;
  TextData text;
};

Result<Input> ReadInput(const TrainOptions& options, int64_t sequence) {
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec published, formats::ReadHfConfig(options.config));
  WEFT_ASSIGN_OR_RETURN(ScaledModel scaled, ScaleModel(published, options.scaling));
  WEFT_RETURN_IF_ERROR(CheckTrained(scaled.model));
  WEFT_ASSIGN_OR_RETURN(TextData text, TextData::Load(options.data));
  if (static_cast<int64_t>(text.bytes().size()) <= sequence) {
    return Fail(Code::kInvalidArgument, fmt::format("text \"{}\" has {} bytes, expected more than the sequence of {}", options.data,
                                                    text.bytes().size(), sequence));
  }
  return Input{std::move(scaled.model), std::move(text)};
}

Status CheckProgramOptions(const TrainOptions& o, const StepProgram& p) {
  const auto wrong = [](std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); };
  if (static_cast<int64_t>(p.ranks.size()) != o.world)
    return wrong(fmt::format("{}: made for {} ranks, this run has {}", o.plan, p.ranks.size(), o.world));
  if (o.rank < 0 || o.rank >= o.world)
    return wrong(fmt::format("rank {} of world {}: expected 0 <= rank < world", o.rank, o.world));
  if (o.world > 1 && (o.plugin.empty() || o.rendezvous.empty()))
    return wrong(fmt::format("world {} needs --plugin and --rendezvous", o.world));
  if (o.duration) return wrong("--duration with --plan: expected --steps");
  if (!o.communication || o.apart_every != 0) return wrong("--communication off and --apart-every are not for a --plan");
  if (!(o.rate.peak > 0) || !(o.clip >= 0))
    return wrong(fmt::format("learning rate {}, clip {}: expected more than 0, at least 0", o.rate.peak, o.clip));
  if (o.rate.warm_up < 0 || o.rate.decay < 0 || !(o.rate.least >= 0)) {
    return wrong(fmt::format("warm-up {}, decay {}, least learning rate {}: expected at least 0", o.rate.warm_up, o.rate.decay,
                             o.rate.least));
  }
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
std::string Fingerprint(const TrainOptions& o, const StepProgram& p, const Input& input) {
  return fmt::format(
      "program {:016x} ({}), {}, {}, steps {}, learning rate {} warm-up {} decay {} least {}, clip {}, seed {}, text digest {}",
      planner::DigestOf(p), p.strategy, input.model.name, NumericsText(input.model), o.steps, o.rate.peak, o.rate.warm_up,
      o.rate.decay, o.rate.least, o.clip, o.seed, input.text.Digest());
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

/// Members in the order in which they are needed.
struct Connected {
  std::unique_ptr<collectives::NetPlugin> plugin;
  std::unique_ptr<collectives::Bootstrap> bootstrap;
  std::unique_ptr<ProgramGroups> groups;
};

Status Connect(const TrainOptions& o, const StepProgram& program, const std::string& fingerprint, Connected* out) {
  if (o.world > 1) {
    WEFT_ASSIGN_OR_RETURN(out->plugin, collectives::NetPlugin::Load(o.plugin));
    WEFT_ASSIGN_OR_RETURN(out->bootstrap,
                          collectives::Bootstrap::Join(
                              {.rank = RankId(o.rank), .world = o.world, .address = o.rendezvous, .timeout = o.stall_timeout}));
    WEFT_RETURN_IF_ERROR(CheckSameEverywhere(*out->bootstrap, fingerprint));
  }
  WEFT_ASSIGN_OR_RETURN(out->groups, ProgramGroups::Connect(program, o.rank, out->plugin.get(), out->bootstrap.get(),
                                                            {.stall_timeout = o.stall_timeout, .idle_spin = Seconds(20e-6)}));
  return Ok();
}

using VolumeKey = std::pair<planner::CommunicatorKind, planner::StepAction>;

/// What all ranks together were to send in `steps` steps: every rank of a group has the same share of it.
std::map<VolumeKey, MeasuredVolume> Planned(const StepProgram& program, int64_t steps) {
  std::map<VolumeKey, MeasuredVolume> volumes;
  std::map<VolumeKey, double> sent;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const planner::ProgramVolume& v : planner::VolumesOf(program, static_cast<int64_t>(rank))) {
      MeasuredVolume& sum = volumes[{v.kind, v.action}];
      sum.kind = v.kind, sum.action = v.action;
      sum.planned_calls += steps * v.calls;
      sent[{v.kind, v.action}] += static_cast<double>(steps) * v.sent;
    }
  }
  for (auto& [key, volume] : volumes) volume.planned_bytes = std::llround(sent[key]);
  return volumes;
}

/// Adds what every rank has counted. Collective.
Result<std::vector<MeasuredVolume>> Measured(const StepProgram& program, int64_t steps, const ProgramGroups& groups,
                                             collectives::Bootstrap* bootstrap) {
  std::map<VolumeKey, MeasuredVolume> volumes = Planned(program, steps);
  std::vector<int64_t> mine;
  for (const SentBytes& s : groups.Sent())
    mine.insert(mine.end(), {static_cast<int64_t>(s.kind), static_cast<int64_t>(s.action), s.calls, s.bytes});
  std::vector<std::vector<uint8_t>> all;
  if (bootstrap != nullptr) {
    WEFT_ASSIGN_OR_RETURN(all,
                          bootstrap->AllGather({reinterpret_cast<const uint8_t*>(mine.data()), mine.size() * sizeof(int64_t)}));
  }
  for (const std::vector<uint8_t>& blob : all) {
    std::vector<int64_t> numbers(blob.size() / sizeof(int64_t));
    std::memcpy(numbers.data(), blob.data(), numbers.size() * sizeof(int64_t));
    for (size_t i = 0; i + 3 < numbers.size(); i += 4) {
      constexpr int64_t kKinds = static_cast<int64_t>(planner::CommunicatorKind::kWorld) + 1;
      if (numbers[i] < 0 || numbers[i] >= kKinds || numbers[i + 1] < 0 || numbers[i + 1] >= planner::kActions) {
        return Fail(Code::kInvalidArgument, fmt::format("a rank counted communicator kind {}, action {}: expected less than {}, {}",
                                                        numbers[i], numbers[i + 1], kKinds, planner::kActions));
      }
      const VolumeKey key(static_cast<planner::CommunicatorKind>(numbers[i]), static_cast<planner::StepAction>(numbers[i + 1]));
      MeasuredVolume& sum = volumes[key];
      sum.kind = key.first, sum.action = key.second;
      sum.calls += numbers[i + 2];
      sum.bytes += numbers[i + 3];
    }
  }
  std::vector<MeasuredVolume> list;
  for (const auto& [key, volume] : volumes) list.push_back(volume);
  return list;
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

Status Train(const TrainOptions& o, const StepProgram& program, const Input& input, Connected& connected, Executor& executor) {
  const int64_t share = program.global_batch / program.replicas;
  ProgramFacts facts{.model = input.model.name,
                     .strategy = program.strategy,
                     .schedule = std::string(planner::ScheduleName(program.schedule)),
                     .type = std::string(planner::ElementTypeName(program.type)),
                     .parameters = planner::ParameterCount(input.model),
                     .ranks = o.world,
                     .micro_batches = share / program.micro_batch,
                     .global_batch = program.global_batch,
                     .sequence = program.sequence,
                     .digest = planner::DigestOf(program),
                     .plugin = ""};
  if (connected.plugin) facts.plugin = fmt::format("{} (net v{})", connected.plugin->name(), connected.plugin->version());
  WEFT_RETURN_IF_ERROR(Print(o, ProgramLine(facts, o.output)));
  YieldToCommunication();
  const int64_t replica = program.ranks[static_cast<size_t>(o.rank)].replica;
  const auto steps = RunSteps(o, [&](int64_t step, double rate) {
    return executor.Step(
        [&](int64_t micro_batch) {
          return input.text.Samples({.seed = o.seed,
                                     .step = step,
                                     .first = replica * share + micro_batch * program.micro_batch,
                                     .count = program.micro_batch,
                                     .sequence = program.sequence});
        },
        rate);
  });
  if (!steps) return Fail(steps.error());
  WEFT_ASSIGN_OR_RETURN(const std::vector<MeasuredVolume> volumes,
                        Measured(program, o.steps, *connected.groups, connected.bootstrap.get()));
  return Print(o, ProgramSummaryLine(*steps, volumes, o.output));
}

}  // namespace

Status RunProgram(const TrainOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const StepProgram program, formats::ReadProgramJson(options.plan));
  WEFT_RETURN_IF_ERROR(CheckProgramOptions(options, program));
  WEFT_ASSIGN_OR_RETURN(const Input input, ReadInput(options, program.sequence));
  Connected connected;
  WEFT_RETURN_IF_ERROR(Connect(options, program, Fingerprint(options, program, input), &connected));
  const Result<std::unique_ptr<Executor>> executor = Executor::Create(
      program,
      {.model = input.model, .rank = options.rank, .seed = options.seed, .clip = options.clip, .threads = options.threads},
      *connected.groups);
  const Status trained =
      executor ? Train(options, program, input, connected, **executor) : Status(Fail(executor.error()));
  // Before the executor goes, which waits for transfers under way: the other ranks are told why nothing more will come.
  if (!trained && connected.bootstrap) connected.bootstrap->ReportFailure(trained.error());
  return trained;
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
  WEFT_ASSIGN_OR_RETURN(const Input input, ReadInput(o, o.sequence));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, Trainer::Create({.model = input.model,
                                                                                 .batch = o.global_batch,
                                                                                 .sequence = o.sequence,
                                                                                 .learning_rate = o.rate.peak,
                                                                                 .double_precision = o.double_precision,
                                                                                 .clip = o.clip,
                                                                                 .seed = o.seed,
                                                                                 .threads = o.threads,
                                                                                 .capacity_groups = std::move(groups)}));
  WEFT_RETURN_IF_ERROR(Print(o, ProgramLine({.model = input.model.name,
                                             .strategy = "",
                                             .schedule = "",
                                             .type = o.double_precision ? "fp64" : "fp32",
                                             .parameters = planner::ParameterCount(input.model),
                                             .global_batch = o.global_batch,
                                             .sequence = o.sequence,
                                             .plugin = ""},
                                            o.output)));
  const auto steps = RunSteps(o, [&](int64_t step, double rate) -> Result<StepResult> {
    const std::vector<uint8_t> samples =
        input.text.Samples({.seed = o.seed, .step = step, .first = 0, .count = o.global_batch, .sequence = o.sequence});
    WEFT_ASSIGN_OR_RETURN(const double loss, trainer->Forward(samples));
    WEFT_RETURN_IF_ERROR(trainer->Backward());
    WEFT_RETURN_IF_ERROR(trainer->Update(rate));
    return StepResult{.loss = loss};
  });
  if (!steps) return Fail(steps.error());
  return Print(o, ProgramSummaryLine(*steps, {}, o.output));
}

}  // namespace weft::runtime
