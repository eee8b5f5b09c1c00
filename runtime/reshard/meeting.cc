#include "runtime/reshard/meeting.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/state/agree.h"

namespace weft::runtime {
namespace {

constexpr Seconds kBetween{0.5};
constexpr double kMostSteps = 1000;

}  // namespace

int64_t StepsBetween(Seconds iteration) {
  return static_cast<int64_t>(std::clamp(std::ceil(kBetween / iteration), 1.0, kMostSteps));
}

Status AgreeToFollow(collectives::Bootstrap* bootstrap, const Result<planner::StepProgram>& mine) {
  return Agree(bootstrap, mine ? Ok() : Status(Fail(Code::kInvalidArgument, mine.error().message())));
}

Meetings::Meetings(agent::AgentRequest agent, const planner::ModelSpec& model, collectives::Bootstrap* bootstrap, int rank,
                   int64_t world, uint64_t digest)
    : model_(model), bootstrap_(bootstrap), rank_(rank), world_(world), digest_(digest) {
  if (rank == 0) watch_ = std::make_unique<WordWatch>(std::move(agent), agent::RunningStrategy{.digest = digest});
}

int64_t Meetings::StepsUntilNext(int64_t step, Seconds now) {
  if (last_ < 0 || step <= last_ || now <= met_) return 1;
  iteration_ = (now - met_) / static_cast<double>(step - last_);
  watch_->Measured(iteration_);
  return StepsBetween(iteration_);
}

Result<std::optional<planner::StepProgram>> Meetings::Meet(int64_t step, Seconds now, const planner::StepProgram& running) {
  if (step < next_) return std::nullopt;
  const std::optional<Word> newest = watch_ ? watch_->Newest() : std::nullopt;
  const std::string mine = watch_ ? MeetingText(StepsUntilNext(step, now), newest.value_or(Word())) : "";
  WEFT_ASSIGN_OR_RETURN(const std::string text, OfFirst(bootstrap_, mine));
  WEFT_ASSIGN_OR_RETURN(const MeetingSaid said, ParseMeetingText(text));
  last_ = step;
  met_ = now;
  next_ = step + said.steps;
  if (said.word.epoch == 0) return std::nullopt;
  epoch_ = said.word.epoch;
  Result<planner::StepProgram> program = ProgramOfWord(said.word, model_, running, world_);
  const Status all = AgreeToFollow(bootstrap_, program);
  if (!all) {
    // A rank that is gone ends the run; one that cannot follow does not.
    if (all.error().code() != Code::kInvalidArgument) return Fail(all.error());
    Refuse(step, running, all.error().message());
    return std::nullopt;
  }
  wanted_ = DigestOfWord(said.word);
  if (planner::DigestOf(*program) != planner::DigestOf(running)) return std::optional(std::move(*program));
  Followed();  // it was started by this word, or goes back to what it runs
  return std::nullopt;
}

void Meetings::Followed() {
  digest_ = wanted_;
  last_ = -1;  // the change itself is no iteration
  if (watch_) watch_->Tell({.epoch = epoch_, .digest = digest_});
}

void Meetings::Refuse(int64_t step, const planner::StepProgram& running, const std::string& why) {
  refusal_ = RefusalFacts{.step = step, .epoch = epoch_, .strategy = running.strategy, .why = why};
  if (!watch_) return;
  watch_->Tell({.epoch = epoch_,
                .digest = digest_,
                .iteration_s = iteration_.count(),
                .refused = true,
                .reason = why});
}

std::optional<RefusalFacts> Meetings::TakeRefusal() { return std::exchange(refusal_, std::nullopt); }

}  // namespace weft::runtime
