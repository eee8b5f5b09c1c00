// `weft perf`: how fast and how right a net plugin carries collectives, on host memory, without a GPU. The ranks are
// forked on this machine, or (--rank, --world, --rendezvous) one process each on several hosts.
#pragma once

#include <string>

namespace weft::cli {

/// The command line of `weft perf`, as written; RunPerf checks it.
struct PerfOptions {
  std::string collective = "allreduce";
  int ranks = 2;                   ///< forked local processes; unused with `rank`. sendrecv: 0 to 1, 2 to 3, ...
  std::string bytes = "1KiB:64MiB";  ///< of the full buffer: a list of sizes, or of least:most by factors of two
  int iterations = 20;
  int warmup = 3;
  bool check = false;              ///< compare every element of every iteration
  bool pin = false;                ///< bind each rank's thread to a core of its own, in turns; not the plugin's threads
  bool bidirectional = false;      ///< sendrecv: both ranks of a pair send at once
  bool ping_pong = false;          ///< sendrecv: there and back; times are half round trips
  int connections = 1;             ///< sendrecv: of each pair, in each direction
  int messages = 1;                ///< sendrecv: of each run, back to back; times are per message
  std::string plugin;              ///< empty: ours, beside this program or by the loader's search path
  std::string transport;           ///< tcp, rdma, auto; empty: what the environment says (WEFT_TRANSPORT)
  std::string algorithm = "ring";  ///< NAME or NAME:NUMBER of planner/collectives/algorithm.h
  std::string slice = "512KiB";    ///< pipelining grain
  int net_version = 12;            ///< newest net table to use
  std::string output = "table";    ///< table or json
  std::string timeout = "60s";     ///< a collective without progress for so long has failed

  int rank = -1;                   ///< this process is that rank of `world`; rank 0 prints
  int world = 0;
  std::string rendezvous;          ///< "host:port" of rank 0
};

/// Measures and prints to stdout. Returns the exit status of the program; the reason of a failure is one line on
/// stderr.
int RunPerf(const PerfOptions& options);

}  // namespace weft::cli
