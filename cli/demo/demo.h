// `weft demo`: the product at small size, all of it real. See docs/demo.md for the phases and what each number means.
#pragma once

#include <string>

#include "common/units.h"

namespace weft::cli {

struct DemoOptions {
  std::string duration = "90s";      ///< of all measured phases together; start-up comes on top
  std::string link_rate;             ///< empty: 20Mbit/s, for other jobs than composed ones 15Mbit/s
  std::string output = "table";      ///< or "json"
  std::string data = "/usr/share/common-licenses";
  int draws = 3;                     ///< of kernel-chosen ports, in the default phase
  std::string jobs = "composed";     ///< a MoE and a pipeline; or "data-parallel"; or "nccl": weft-nccl-job in their place
  std::string nccl;                  ///< NCCL's library for that; empty: as the loader finds it
  std::string controller_config;     ///< the controller's configuration file; empty: its defaults
  std::string at_end;                ///< shell command run before everything is taken down, while both jobs still train
  std::string keep;                  ///< folder to keep logs in; empty: a temporary one, removed at the end
};

/// Runs the demo and prints its report. Returns the exit status; prints errors itself.
int RunDemo(const DemoOptions& options);

}  // namespace weft::cli
