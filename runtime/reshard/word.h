// The word of another strategy: what a controller has put into the job's launch environment while the job runs, and what the ranks
// make of it. All of it is hostile text until every rank has made the program and found the digest that it names.
//
//   WEFT_RESHARD_EPOCH=3
//   WEFT_ARGUMENTS=--strategy dp=2,pp=2 --seq 64 --global-batch 32 --program-digest 89d0c33ab1e2f407
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/ask/agent_request.h"
#include "common/result.h"
#include "planner/planner.h"

namespace weft::runtime {

struct Word {
  uint64_t epoch = 0;
  std::string arguments;  ///< WEFT_ARGUMENTS
};

/// nullopt where the environment has none, or an epoch that is no number from 1 on.
std::optional<Word> WordOf(const agent::Environment& environment);

/// The program of a word for a run that runs `running`. Errors: kInvalidArgument for words that are no plan of weft-train or name
/// no digest; for another batch, sequence or number of ranks than the run's; for no program, or another digest; where something would
/// be lost by the change.
[[nodiscard]] Result<planner::StepProgram> ProgramOfWord(const Word& word, const planner::ModelSpec& model,
                                                         const planner::StepProgram& running, int64_t world);

/// The digest that a word which has a program names: of that in fp32, as the controller planned it.
uint64_t DigestOfWord(const Word& word);

/// Between two ranks: "STEPS EPOCH ARGUMENTS", steps until all meet again. Without a word epoch 0 and no arguments.
std::string MeetingText(int64_t steps, const Word& word);
struct MeetingSaid {
  int64_t steps = 1;
  Word word;
};
/// Errors: kInvalidArgument for anything else.
[[nodiscard]] Result<MeetingSaid> ParseMeetingText(const std::string& text);

}  // namespace weft::runtime
