// The program `weft`. Each subcommand is one function that declares its options, fills its options struct and calls
// the function that does the work; nothing else sees CLI11.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/perf.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

void AddPerf(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PerfOptions>();
  CLI::App* perf = app.add_subcommand("perf", "time and check collectives over a net plugin, on host memory");
  perf->add_option("--collective", options->collective,
                   "sendrecv, allreduce, allgather, reducescatter, alltoall or broadcast")->capture_default_str();
  perf->add_option("--ranks", options->ranks, "local processes to fork")->capture_default_str();
  perf->add_option("--bytes", options->bytes, "full buffer: one size, or LEAST:MOST by factors of two")
      ->capture_default_str();
  perf->add_option("--iterations", options->iterations, "timed runs per size")->capture_default_str();
  perf->add_option("--warmup", options->warmup, "runs per size before the timed ones")->capture_default_str();
  perf->add_flag("--check", options->check, "compare every element of every run");
  perf->add_option("--plugin", options->plugin, "net plugin to load (default: libnccl-net-weft.so)");
  perf->add_option("--algorithm", options->algorithm, "algorithm of the collective")->capture_default_str();
  perf->add_option("--slice", options->slice, "pipelining grain")->capture_default_str();
  perf->add_option("--net-version", options->net_version, "newest net table to use, 6 to 12")->capture_default_str();
  perf->add_option("--output", options->output, "table or json")->capture_default_str();
  perf->add_option("--timeout", options->timeout, "give up a run that stands still so long")->capture_default_str();
  perf->add_option("--rank", options->rank, "be this one rank, instead of forking all");
  perf->add_option("--world", options->world, "number of ranks, with --rank");
  perf->add_option("--rendezvous", options->rendezvous, "HOST:PORT of rank 0, with --rank");
  perf->callback([options, &exit_code] { exit_code = RunPerf(*options); });
}

int Main(int argc, char** argv) {
  CLI::App app("Weft: co-design of parallelism, collectives and flows for GPU training clusters", "weft");
  app.require_subcommand(1);
  int exit_code = kExitDone;
  AddPerf(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help
    std::fprintf(stderr, "weft: %s (see weft --help)\n", error.what());
    return kExitUsage;
  }
  return exit_code;
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char** argv) { return weft::cli::Main(argc, argv); }
