#include "runtime/program_run.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "planner/tasks/state_change.h"
#include "runtime/checkpoint/checkpoint_job.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/program_groups.h"
#include "runtime/execute/tensor_memory.h"
#include "runtime/priority.h"
#include "runtime/program_prediction.h"
#include "runtime/program_report.h"
#include "runtime/program_volumes.h"
#include "runtime/rank_report.h"
#include "runtime/reshard/meeting.h"
#include "runtime/reshard/state_mover.h"
#include "runtime/state/agree.h"

namespace weft::runtime {
namespace {

using planner::StepProgram;

/// What a checkpoint says of where the training was, but for the step.
formats::TrainingState WhereOf(const TrainOptions& o, const StepProgram& program, const ProgramInput& input) {
  return {.seed = o.seed,
          .text_digest = input.text.Digest(),
          .sequence = program.sequence,
          .global_batch = program.global_batch,
          .peak = o.rate.peak,
          .least = o.rate.least,
          .warm_up = o.rate.warm_up,
          .decay = o.rate.decay};
}

ProgramFacts FactsOf(const StepProgram& program, const ProgramInput& input, const JobConnections& connections) {
  ProgramFacts facts{.model = input.model.name,
                     .strategy = program.strategy,
                     .schedule = std::string(planner::ScheduleName(program.schedule)),
                     .type = std::string(planner::ElementTypeName(program.type)),
                     .parameters = planner::ParameterCount(input.model),
                     .ranks = static_cast<int64_t>(program.ranks.size()),
                     .micro_batches = planner::SequencesOf(program, 0).count / program.micro_batch,
                     .global_batch = program.global_batch,
                     .sequence = program.sequence,
                     .digest = planner::DigestOf(program),
                     .plugin = ""};
  if (connections.plugin) facts.plugin = fmt::format("{} (net v{})", connections.plugin->name(), connections.plugin->version());
  return facts;
}

class ProgramRun {
 public:
  ProgramRun(const TrainOptions& options, const ProgramInput& input, const std::vector<Phase>& phases,
             JobConnections& connections)
      : o_(options),
        input_(input),
        phases_(phases.begin(), phases.end()),
        connections_(connections),
        bootstrap_(connections.bootstrap.get()),
        checkpoints_(options.checkpoint, input.model, WhereOf(options, phases.front().program, input), bootstrap_,
                     options.rank == 0),
        mover_(connections.plugin.get(), bootstrap_, Communication()) {}

  Status Run() {
    WEFT_ASSIGN_OR_RETURN(const Beginning beginning, checkpoints_.Find());
    WEFT_RETURN_IF_ERROR(Begin(beginning));
    int64_t step = beginning.step;
    start_ = clock_.Now();
    for (bool last = false; !last; ++step) {
      if (phase_ + 1 < phases_.size() && phases_[phase_ + 1].begin <= step) {
        if (Status status = Change(step); !status)
          return Fail(status.error().WithContext(fmt::format("change before step {}", step)));
      }
      if (Status status = FollowWord(step); !status)
        return Fail(status.error().WithContext(fmt::format("word before step {}", step)));
      const Result<bool> was_last = OneStep(step);
      if (!was_last) return Fail(was_last.error().WithContext(fmt::format("step {}", step)));
      last = *was_last;
    }
    WEFT_RETURN_IF_ERROR(EndPhase(step));
    std::vector<MeasuredVolume> volumes;
    for (const auto& [key, volume] : volumes_) volumes.push_back(volume);
    WEFT_ASSIGN_OR_RETURN(const std::vector<RankFacts> ranks, Ranks());
    WEFT_RETURN_IF_ERROR(WriteTrace());
    return Print(o_, ProgramSummaryLine(steps_, volumes, ranks, o_.output));
  }

 private:
  /// One program on this rank: groups go after the executor, which uses them.
  struct Running {
    std::unique_ptr<ProgramGroups> groups;
    std::unique_ptr<Executor> executor;  ///< null on a rank that stands by
  };

  collectives::CommunicatorOptions Communication() const {
    return {.stall_timeout = o_.stall_timeout, .idle_spin = Seconds(20e-6)};
  }
  const StepProgram& program() const { return phases_[phase_].program; }
  int PlaceOf(const planner::Places& places) const { return places[static_cast<size_t>(o_.rank)]; }

  RankState StateOf(const Running& running, const StepProgram& program) const {
    return running.executor ? running.executor->State() : RankState{.type = program.type, .units = {}};
  }

  /// Connects and builds. Collective.
  Result<Running> Open(const StepProgram& program, const planner::Places& places, bool draws) {
    Running running;
    std::vector<int> rank_of_place(program.ranks.size());
    for (size_t rank = 0; rank < places.size(); ++rank) {
      if (places[rank] >= 0) rank_of_place[static_cast<size_t>(places[rank])] = static_cast<int>(rank);
    }
    WEFT_ASSIGN_OR_RETURN(running.groups, ProgramGroups::Connect(program, PlaceOf(places), connections_.plugin.get(), bootstrap_,
                                                                 Communication(), rank_of_place));
    if (PlaceOf(places) < 0) return running;
    WEFT_ASSIGN_OR_RETURN(running.executor, Executor::Create(program,
                                                             {.model = input_.model,
                                                              .rank = PlaceOf(places),
                                                              .seed = draws ? std::optional(o_.seed) : std::nullopt,
                                                              .clip = o_.clip,
                                                              .threads = o_.threads,
                                                              .least = prediction_.least},
                                                             *running.groups));
    return running;
  }

  /// The program of the first step, with the state that options name.
  Status Begin(const Beginning& beginning) {
    if (!o_.duration && beginning.step >= o_.steps) {
      return Fail(Code::kInvalidArgument, fmt::format("resume {}: saved after {} steps, --steps {} are done",
                                                      o_.checkpoint.resume, beginning.step, o_.steps));
    }
    while (phase_ + 1 < phases_.size() && phases_[phase_ + 1].begin <= beginning.step) ++phase_;
    begin_of_phase_ = beginning.step;
    places_.assign(static_cast<size_t>(o_.world), -1);
    for (size_t place = 0; place < program().ranks.size(); ++place) places_[place] = static_cast<int32_t>(place);
    WEFT_RETURN_IF_ERROR(checkpoints_.SetProgram(program(), PlaceOf(places_)));
    CountTensorMemory();
    if (phases_.size() == 1) {
      WEFT_ASSIGN_OR_RETURN(prediction_, Predict(o_, input_.model, program(), PlaceOf(places_)));
    }
    WEFT_ASSIGN_OR_RETURN(running_, Open(program(), places_, !beginning.loads));
    WEFT_RETURN_IF_ERROR(Print(o_, ProgramLine(FactsOf(program(), input_, connections_), o_.output)));
    YieldToCommunication();
    const Seconds begin = clock_.Now();
    WEFT_ASSIGN_OR_RETURN(const int64_t done, checkpoints_.Load(StateOf(running_, program())));
    if (done != beginning.step)
      return Fail(Code::kInvalidArgument,
                  fmt::format("resume {}: step {}, expected {}", o_.checkpoint.resume, done, beginning.step));
    if (running_.executor) running_.executor->SetSteps(done);
    ResetTensorPeak();
    if (o_.reshard) {
      meetings_.emplace(agent::AgentRequest{.socket_path = o_.run_dir + "/agent.sock", .job = o_.job, .host = ""}, input_.model, bootstrap_,
                        o_.rank, o_.world, PlannedDigest());
    }
    if (done == 0) return Ok();
    return Print(o_, CheckpointLine({.read = true, .step = done, .took = clock_.Now() - begin}, o_.output));
  }

  std::vector<uint8_t> Samples(int64_t step, int64_t micro_batch) const {
    const StepProgram& p = program();
    const planner::SequenceRange own = planner::SequencesOf(p, p.ranks[static_cast<size_t>(PlaceOf(places_))].replica);
    return input_.text.Samples({.seed = o_.seed,
                                .step = step,
                                .first = own.first + micro_batch * p.micro_batch,
                                .count = p.micro_batch,
                                .sequence = SampleBytes(input_.model, p.sequence)});
  }

  /// The step's result also on ranks that stand by, where there are some: all meet.
  Result<StepResult> Shared(const StepResult& mine) {
    if (program().ranks.size() == places_.size()) return mine;
    std::vector<double> numbers;
    if (running_.executor) numbers = {mine.loss, mine.gradient_norm.value_or(-1)};
    WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap_->AllGather({reinterpret_cast<const uint8_t*>(numbers.data()),
                                                                 numbers.size() * sizeof(double)}));
    if (running_.executor) return mine;
    for (const std::vector<uint8_t>& blob : all) {
      double theirs[2];
      if (blob.size() != sizeof theirs) continue;
      std::memcpy(theirs, blob.data(), sizeof theirs);
      return StepResult{.loss = theirs[0], .gradient_norm = theirs[1] < 0 ? std::nullopt : std::optional(theirs[1])};
    }
    return Fail(Code::kInternal, "no rank has made the step");
  }

  /// Of all ranks, what they measured and what was planned of them.
  Result<std::vector<RankFacts>> Ranks() {
    WEFT_ASSIGN_OR_RETURN(const auto measured, GatherMeasured(sums_.Means(MemoryOfTensors().peak), bootstrap_));
    std::vector<RankFacts> ranks;
    for (size_t rank = 0; rank < measured.size(); ++rank) {
      ranks.push_back({.measured = measured[rank], .planned = PlannedOf(prediction_, rank)});
    }
    return ranks;
  }

  Status WriteTrace() {
    if (o_.trace.empty()) return Ok();
    WEFT_ASSIGN_OR_RETURN(const auto spans, GatherSpans(running_.executor->record().instructions, bootstrap_));
    if (o_.rank != 0) return Ok();
    std::ofstream out(o_.trace, std::ios::trunc);
    out << ProgramTraceText(program(), spans, prediction_.timeline);
    out.close();
    return out ? Ok() : Status(Fail(Code::kUnavailable, fmt::format("--trace {}: cannot be written", o_.trace)));
  }

  /// Whether `step` is the last: where a duration says so rank 0 decides, and all ranks meet.
  Result<bool> IsLast(int64_t step) const {
    if (!o_.duration) return step + 1 >= o_.steps;
    const double up = o_.rank == 0 && step + 1 >= o_.min_steps && clock_.Now() - start_ >= *o_.duration ? 1 : 0;
    if (bootstrap_ == nullptr) return up > 0;
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> any, bootstrap_->Largest({&up, 1}));
    return any.front() > 0;
  }

  /// Returns whether it was the last.
  Result<bool> OneStep(int64_t step) {
    sums_.Begin();
    const Seconds begin = clock_.Now();
    const double rate = LearningRateAt(o_.rate, step);
    StepResult result;
    if (running_.executor) {
      WEFT_ASSIGN_OR_RETURN(result,
                            running_.executor->Step([&](int64_t micro_batch) { return Samples(step, micro_batch); }, rate));
    }
    WEFT_ASSIGN_OR_RETURN(result, Shared(result));
    std::vector<std::vector<Seconds>> computations;
    if (o_.computations) {
      const std::vector<Seconds> none;
      WEFT_ASSIGN_OR_RETURN(computations,
                            GatherComputations(running_.executor ? running_.executor->record().processor : none, bootstrap_));
    }
    WEFT_ASSIGN_OR_RETURN(const bool last, IsLast(step));
    const Seconds end = clock_.Now();
    if (running_.executor) sums_.Add(end - begin, running_.executor->record());
    steps_.push_back({.step = step,
                      .loss = result.loss,
                      .gradient_norm = result.gradient_norm,
                      .learning_rate = rate,
                      .iteration = end - begin,
                      .waited = result.waited,
                      .time = end});
    steps_.back().computations = std::move(computations);
    WEFT_RETURN_IF_ERROR(Print(o_, ProgramStepLine(steps_.back(), o_.output)));
    steps_.back().computations.clear();  // for that line alone
    WEFT_ASSIGN_OR_RETURN(const std::optional<Bytes> bytes, checkpoints_.AfterStep(step + 1, StateOf(running_, program())));
    if (bytes) {
      WEFT_RETURN_IF_ERROR(Print(o_, CheckpointLine({.step = step + 1, .bytes = *bytes, .took = clock_.Now() - end}, o_.output)));
    }
    return last;
  }

  /// Counts what the program has sent in the steps before `end`.
  Status EndPhase(int64_t end) {
    WEFT_RETURN_IF_ERROR(AddVolumes(program(), begin_of_phase_, end, *running_.groups, bootstrap_, &volumes_));
    begin_of_phase_ = end;
    return Ok();
  }

  /// Who sends what to whom for `next`; the same on all ranks.
  Result<planner::StateChange> PlanChange(const StepProgram& next, planner::PlaceChoice choice) const {
    WEFT_ASSIGN_OR_RETURN(const planner::ProgramState from, planner::StateOf(program(), input_.model));
    WEFT_ASSIGN_OR_RETURN(const planner::ProgramState to, planner::StateOf(next, input_.model));
    return planner::PlanStateChange(from, places_, to, choice);
  }

  /// From this program to the next one of the sequence, before `step`.
  Status Change(int64_t step) {
    WEFT_ASSIGN_OR_RETURN(const planner::StateChange change,
                          PlanChange(phases_[phase_ + 1].program, planner::PlaceChoice::kLeastSent));
    return GoOver(step, change);
  }

  /// Of what runs, as it was planned.
  uint64_t PlannedDigest() const {
    uint64_t digest = planner::DigestOf(program());
    const std::string& said = o_.strategy.digest;
    if (phase_ == 0) std::from_chars(said.data(), said.data() + said.size(), digest, 16);
    return digest;
  }

  /// If all ranks have a word of another strategy before `step`, and can follow it. Ranks keep their places: the controller has chosen the
  /// strategy for the fabric between them.
  Status FollowWord(int64_t step) {
    if (!meetings_) return Ok();
    WEFT_ASSIGN_OR_RETURN(std::optional<StepProgram> next, meetings_->Meet(step, clock_.Now(), program()));
    if (next) {
      const Result<planner::StateChange> change = PlanChange(*next, planner::PlaceChoice::kOwnNumber);
      if (change) {
        phases_.push_back({.begin = step, .program = std::move(*next)});
        WEFT_RETURN_IF_ERROR(GoOver(step, *change));
        meetings_->Followed();
      } else {
        meetings_->Refuse(step, program(), change.error().message());
      }
    }
    const std::optional<RefusalFacts> refused = meetings_->TakeRefusal();
    return refused ? Print(o_, RefusalLine(*refused, o_.output)) : Ok();
  }

  /// To the next program as `change` says, before `step`.
  Status GoOver(int64_t step, const planner::StateChange& change) {
    const Seconds begin = clock_.Now();
    WEFT_RETURN_IF_ERROR(EndPhase(step));  // all ranks are here: nothing of the last step is under way
    const StepProgram& next = phases_[phase_ + 1].program;
    prediction_ = {};  // it was of the first one
    Result<Running> opened = Open(next, change.places, /*draws=*/false);
    WEFT_RETURN_IF_ERROR(Agree(bootstrap_, opened ? Ok() : Status(Fail(opened.error()))));
    const Seconds moving = clock_.Now();
    WEFT_ASSIGN_OR_RETURN(const MovedBytes bytes,
                          mover_.Move(change, o_.rank, StateOf(running_, program()), StateOf(*opened, next)));
    const Seconds moved = clock_.Now();
    running_.executor = std::move(opened->executor);  // before its groups
    running_.groups = std::move(opened->groups);
    places_ = change.places;
    ++phase_;
    if (running_.executor) running_.executor->SetSteps(step);
    WEFT_RETURN_IF_ERROR(checkpoints_.SetProgram(next, PlaceOf(places_)));
    for (; phase_ > 0; --phase_) phases_.pop_front();  // nobody runs them any more, and words may come for as long as the run goes
    return Print(o_, ReshardLine({.step = step,
                                  .strategy = next.strategy,
                                  .ranks = static_cast<int64_t>(next.ranks.size()),
                                  .planned = bytes.planned,
                                  .sent = bytes.sent,
                                  .moving = moved - moving,
                                  .took = clock_.Now() - begin},
                                 o_.output));
  }

  const TrainOptions& o_;
  const ProgramInput& input_;
  std::deque<Phase> phases_;  // from the one under way on; executors keep their program: none ever moves
  JobConnections& connections_;
  collectives::Bootstrap* const bootstrap_;
  const SystemClock clock_;
  Seconds start_{0};  // of the first step
  Checkpoints checkpoints_;
  StateMover mover_;
  size_t phase_ = 0;
  std::optional<Meetings> meetings_;  // of a run that follows words
  planner::Places places_;  // of the program under way
  Running running_;
  int64_t begin_of_phase_ = 0;
  Prediction prediction_;  // of one program
  std::vector<ProgramStep> steps_;
  StepSums sums_;
  Volumes volumes_;
};

}  // namespace

Status Print(const TrainOptions& options, const std::string& line) {
  if (options.rank != 0) return Ok();
  if (std::fputs((line + "\n").c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    return Fail(ErrnoError("write the report", errno));
  return Ok();
}

Status RunPhases(const TrainOptions& options, const ProgramInput& input, const std::vector<Phase>& phases,
                 JobConnections& connections) {
  ProgramRun run(options, input, phases, connections);
  const Status done = run.Run();
  // Before the executor goes, which waits for transfers under way: the other ranks are told why nothing more will come.
  if (!done && connections.bootstrap) connections.bootstrap->ReportFailure(done.error());
  return done;
}

}  // namespace weft::runtime
