// What a fire run does to its two processes while they talk: an agent each, which moves every flow to other paths,
// weights, classes and rates every few milliseconds, sometimes with nonsense, and now and then starts anew; sockets that
// are shut behind the plugin's back; processes that are stopped for a moment; a cable that is pulled.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "netplugin/testing/agent.h"
#include "tests/fire/cable.h"
#include "tests/fire/control.h"
#include "tests/fire/traffic.h"

namespace weft::net::fire {

/// How often, in milliseconds on average; 0: never.
struct ChaosSettings {
  uint32_t repath_ms = 10;
  uint32_t restart_agent_ms = 3'000;
  uint32_t shut_ms = 200;
  uint32_t stop_ms = 300;
  uint32_t cable_ms = 1'500;
  uint16_t first_port = 20'000;  ///< of the source ports that policies name, 12,000 from there
};

struct ChaosCounts {
  uint64_t repaths = 0;   ///< tables written
  uint64_t entries = 0;   ///< of flows, in them
  uint64_t nonsense = 0;  ///< of these, to be refused
  uint64_t agents = 0;    ///< greeted
  uint64_t bad_greetings = 0;  ///< of plugins that called and then said or took something else
  uint64_t sockets_shut = 0;
  uint64_t stops = 0;
  uint64_t pulls = 0;
  uint64_t lanes_used = 0;  ///< looks at a lane from a port that a policy named, with bytes sent on it
  bool shut_refused = false;  ///< this process may not have the others' sockets: none is shut
};

class Chaos {
 public:
  /// `run_dirs`: of the agents, which listen from now on. Before the processes are forked. `cable` may be nullptr.
  Chaos(const ChaosSettings& settings, uint64_t seed, Control& control, std::array<std::string, 2> run_dirs,
        Cable* cable);
  ~Chaos();

  /// Waits for both plugins to greet their agents. False if one does not.
  bool Begin(std::array<pid_t, 2> processes);
  /// What is due at `now`.
  void Step(uint64_t now);
  /// Everything runs and is connected again; nothing more is done to it.
  void Calm();
  const ChaosCounts& counts() const { return counts_; }
  /// Entries that the plugins say they refused.
  uint64_t refused() const;
  /// Whether everything that the settings ask for has been done to the processes at least once, or cannot be.
  bool Complete() const;

 private:
  bool Due(uint64_t now, uint32_t every_ms, uint64_t* next);
  bool Greet(uint32_t rank);
  void Repath(uint32_t rank);
  abi::FlowPolicy Policy(const abi::FlowSlot& flow);
  void GreetNew();
  void RestartAgent(uint32_t rank);
  void ShutSocket(uint32_t rank);
  void StopProcess(uint64_t now);
  void PullCable(uint64_t now);

  const ChaosSettings settings_;
  Control& control_;
  const std::array<std::string, 2> run_dirs_;
  Cable* const cable_;
  Random random_;
  ChaosCounts counts_;
  std::array<pid_t, 2> processes_{};
  std::array<std::unique_ptr<testing::Agent>, 2> agents_;
  std::array<std::unique_ptr<testing::PolicyFile>, 2> policies_;
  std::array<std::unique_ptr<testing::PolicyFile>, 2> old_policies_;  // an agent that is gone wrote them
  std::array<bool, 2> greeted_{};
  std::array<uint64_t, 2> refused_{};  // while an agent is not greeted: what the one before it saw
  uint64_t next_repath_ = 0, next_restart_ = 0, next_shut_ = 0, next_stop_ = 0, next_pull_ = 0;
  pid_t stopped_ = 0;
  uint64_t stopped_until_ = 0;
  uint64_t down_until_ = 0;
};

}  // namespace weft::net::fire
