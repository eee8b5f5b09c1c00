// All ranks of a run meet before some step and hear from rank 0 whether there is a word of another strategy. Rank 0 says each time
// in how many steps they meet again, so that meetings are about half a second apart however long steps are, and everybody comes to
// the same ones.
//
//   WEFT_ASSIGN_OR_RETURN(auto next, meetings.Meet(step, now, running));
//   if (next) ... go over to *next; then meetings.Followed(), or meetings.Refuse(step, running, why)
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/ask/agent_request.h"
#include "collectives/bootstrap.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"
#include "runtime/program_report.h"
#include "runtime/reshard/word_watch.h"

namespace weft::runtime {

/// Steps from one meeting to the next for iterations of this length: 1 to 1000. Requires: iteration > 0.
int64_t StepsBetween(Seconds iteration);

/// Whether all ranks have made the program of a word. Errors: kInvalidArgument with the reason where one has not, whatever the code
/// of its error, so that all refuse alike; else those of the bootstrap. Collective; `bootstrap` is null for one rank.
[[nodiscard]] Status AgreeToFollow(collectives::Bootstrap* bootstrap, const Result<planner::StepProgram>& mine);

/// Of one rank; one thread.
class Meetings {
 public:
  /// `bootstrap` is null for one rank; it and the model outlive this. Rank 0 begins to ask `agent`. `digest`: as of DigestOfWord(), of what
  /// runs.
  Meetings(agent::AgentRequest agent, const planner::ModelSpec& model, collectives::Bootstrap* bootstrap, int rank, int64_t world,
           uint64_t digest);

  /// Before `step`, of a run that runs `running`. Collective where a meeting is due, which is so on all ranks alike. The program
  /// that all ranks have made of a new word; nullopt: none, or refused. Errors: those of the bootstrap.
  [[nodiscard]] Result<std::optional<planner::StepProgram>> Meet(int64_t step, Seconds now, const planner::StepProgram& running);

  /// The word of the last Meet() is followed.
  void Followed();
  /// It is not, and nothing has changed. Same on all ranks.
  void Refuse(int64_t step, const planner::StepProgram& running, const std::string& why);
  /// What was refused since the last call, for who prints.
  std::optional<RefusalFacts> TakeRefusal();

 private:
  int64_t StepsUntilNext(int64_t step, Seconds now);  // of rank 0

  const planner::ModelSpec& model_;
  collectives::Bootstrap* const bootstrap_;
  const int rank_;
  const int64_t world_;
  int64_t next_ = 0;           // step
  int64_t last_ = -1;          // step of the last meeting that iterations are measured from; -1: none
  Seconds iteration_{0};       // since the last meeting
  Seconds met_{0};             // when that was
  uint64_t epoch_ = 0;         // of the newest word
  uint64_t wanted_ = 0;        // its digest
  uint64_t digest_;            // of what runs
  std::optional<RefusalFacts> refusal_;
  std::unique_ptr<WordWatch> watch_;  // rank 0's
};

}  // namespace weft::runtime
