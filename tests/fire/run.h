// A fire run from a test: forks the two processes, sets chaos on them, and judges what they report.
#pragma once

#include "tests/fire/chaos.h"
#include "tests/fire/ends.h"

namespace weft::net::fire {

struct RunSettings {
  Settings traffic;
  ChaosSettings chaos;
  bool cable = false;         ///< in two network namespaces with a cable between them; else on loopback
  uint32_t patience_s = 60;   ///< without any progress the run has failed
};

struct RunResult {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t lives = 0;
  uint64_t cut_short = 0;
  uint64_t errors = 0;
  uint64_t groups = 0;
  uint64_t refused = 0;
  double seconds = 0;
  ChaosCounts chaos;
};

/// Runs on past the messages until chaos has done each thing once, for a minute at most. Reports failures to GoogleTest;
/// prints a summary line. Requires: one thread in this process.
RunResult RunFire(const RunSettings& settings);

/// Messages that a test shall carry: WEFT_FIRE_MESSAGES, else `usual`.
uint64_t MessagesWanted(uint64_t usual);
/// Messages of a connection's life, so that there are some hundreds of lives in a run; longer in a long one.
uint64_t MeanLife(uint64_t messages);
/// WEFT_FIRE_SEED, else 1.
uint64_t SeedWanted();

}  // namespace weft::net::fire
