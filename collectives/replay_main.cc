// The program `weft-replay`: its command line, and the environment that the plugin reads.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "collectives/replay.h"
#include "common/exit_code.h"
#include "common/parse_units.h"

namespace weft::collectives {
namespace {

struct CommandLine {
  ReplayOptions options;
  int rank = 0;
  std::string job, compute = "200ms", bytes = "4MiB", bucket = "1MiB", duration, timeout = "60s", report = "json";
  int64_t steps = 0;
  std::vector<std::string> bursts;
};

void Declare(CLI::App& app, CommandLine& line) {
  app.add_option("--rank", line.rank, "this process's rank")->capture_default_str();
  app.add_option("--world", line.options.world, "number of ranks")->capture_default_str();
  app.add_option("--rendezvous", line.options.rendezvous, "HOST:PORT where rank 0 listens");
  app.add_option("--plugin", line.options.plugin, "net plugin to load (default: libnccl-net-weft.so)");
  app.add_option("--collectives", line.options.table, "collective table, the same on all ranks; where none fits: a ring")
      ->envname("WEFT_COLLECTIVES");
  app.add_option("--job", line.job, "job id for the plugin");
  app.add_option("--compute", line.compute, "sleep of each iteration")->capture_default_str();
  app.add_option("--bytes", line.bytes, "gradients of each iteration")->capture_default_str();
  app.add_option("--bucket", line.bucket, "bytes of one all-reduce")->capture_default_str();
  app.add_option("--burst", line.bursts,
                 "RELEASE:BYTES[:NEEDED], one for each burst of an iteration, in place of --bytes: sent once so much of --compute is "
                 "over, while the computation goes on to NEEDED (default: to its end)");
  app.add_option("--idle-communicators", line.options.idle_communicators,
                 "so many more are connected and left idle (NCCL connects more than it uses)")
      ->capture_default_str();
  app.add_option("--steps", line.steps, "iterations to run");
  app.add_option("--duration", line.duration, "end at the first iteration boundary past this, instead of --steps");
  app.add_option("--timeout", line.timeout, "for all ranks to join, and for a step that stands still")
      ->capture_default_str();
  app.add_option("--report", line.report, "json: one line per step on stdout of rank 0")->capture_default_str();
}

Result<ReplayOptions> Convert(const CLI::App& app, const CommandLine& line) {
  ReplayOptions options = line.options;
  options.rank = RankId(line.rank);
  WEFT_ASSIGN_OR_RETURN(options.compute, ParseDuration(line.compute));
  WEFT_ASSIGN_OR_RETURN(options.bytes, ParseBytes(line.bytes));
  WEFT_ASSIGN_OR_RETURN(options.bucket, ParseBytes(line.bucket));
  if (!line.bursts.empty() && app.count("--bytes") > 0)
    return Fail(Code::kInvalidArgument, "--bytes: expected only without --burst");
  for (const std::string& text : line.bursts) {
    WEFT_ASSIGN_OR_RETURN(options.bursts.emplace_back(), ParseReplayBurst(text, options.compute));
  }
  WEFT_ASSIGN_OR_RETURN(options.timeout, ParseDuration(line.timeout));
  if (app.count("--steps") > 0) options.steps = line.steps;
  if (!line.duration.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.duration, ParseDuration(line.duration));
  }
  if (line.report != "json") return Fail(Code::kInvalidArgument, "--report \"" + line.report + "\": expected json");
  return options;
}

/// What the plugin wants to know, where the launcher has not said it already.
void TellPlugin(const CLI::App& app, const CommandLine& line) {
  if (!line.job.empty()) setenv("WEFT_JOB_ID", line.job.c_str(), 0);
  if (app.count("--rank") > 0) setenv("WEFT_RANK", std::to_string(line.rank).c_str(), 0);
  if (app.count("--world") > 0) setenv("WEFT_WORLD", std::to_string(line.options.world).c_str(), 0);
}

int Fails(const Error& error) {
  std::fprintf(stderr, "weft-replay: %s\n", error.message().c_str());
  return ExitCodeOf(error);
}

int Main(int argc, char** argv) {
  CLI::App app("One rank of a job that sleeps for its computation and sends real bytes", "weft-replay");
  CommandLine line;
  Declare(app, line);
  app.set_version_flag("--version", "weft-replay " WEFT_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help
    return Fails(Error(Code::kInvalidArgument, error.what()));
  }
  const auto options = Convert(app, line);
  if (!options) return Fails(options.error());
  TellPlugin(app, line);
  if (auto status = RunReplay(*options); !status) return Fails(status.error());
  return kExitDone;
}

}  // namespace
}  // namespace weft::collectives

int main(int argc, char** argv) { return weft::collectives::Main(argc, argv); }
