// Rank 0's thread that asks the agent for the newest word once a second, and tells it what runs. Training never waits for it, and
// never notices whether there is an agent.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "agent/ask/agent_request.h"
#include "common/units.h"
#include "runtime/reshard/word.h"

namespace weft::runtime {

/// Threads: any.
class WordWatch {
 public:
  /// Asks at once.
  WordWatch(agent::AgentRequest agent, agent::RunningStrategy running);

  /// The newest word that is newer than the one which running says was seen; nullopt: none.
  std::optional<Word> Newest() const;
  /// What runs from now on, and which word was seen: told at once.
  void Tell(agent::RunningStrategy running);
  /// What its iterations take: told with the next question.
  void Measured(Seconds iteration);

 private:
  void Run(const std::stop_token& stop);

  const agent::AgentRequest agent_;
  mutable std::mutex mutex_;  // guards what follows, up to the next blank line
  std::condition_variable_any changed_;
  agent::RunningStrategy running_;
  std::optional<Word> newest_;
  bool news_ = false;

  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace weft::runtime
