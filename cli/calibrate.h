// `weft calibrate`: constants of the cost model as this machine has them, for `weft plan --calibration` and a cluster's
// `calibration`. Either from a site's own runs (calibrate_runs.h), or measured: links are measured here, through the net plugin; what the processor takes by weft-torch, beside this program,
// which has LibTorch.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct CalibrateOptions {
  std::string out;              ///< file; empty: stdout
  int threads = 1;              ///< of a rank
  std::string duration = "20s"; ///< of the processor's measurements, about
  std::string link;             ///< "local", or HOST:PORT of rank 0 on another machine; empty: no link
  int rank = 0;                 ///< of two on different machines
  std::string cluster;          ///< whose rates and latencies a link's constants are shares of
  std::string plugin;           ///< empty: ours
  std::vector<std::string> runs;  ///< tables of runs to learn from, in place of measurements here
  std::string calibration;      ///< with runs: file to begin with; empty: what is compiled in
};

/// Returns the exit status; the reason of a failure is one line on stderr.
int RunCalibrate(const CalibrateOptions& options);

}  // namespace weft::cli
