// The program `weft-nccl-job`: its command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_data.h"
#include "collectives/nccl/nccl_job.h"
#include "common/exit_code.h"
#include "common/parse_units.h"

namespace weft::collectives {
namespace {

struct CommandLine {
  NcclJobOptions options;
  int rank = 0, device = 0;
  std::vector<std::string> steps, traffic_classes;
  std::string type = "fp32", op = "sum", duration, delay, timeout = "60s";
  int64_t iterations = 0;
  bool no_check = false;
};

void Declare(CLI::App& app, CommandLine& line) {
  NcclJobOptions& options = line.options;
  app.add_option("--rank", line.rank, "this process's rank")->envname("RANK")->capture_default_str();
  app.add_option("--world", options.world, "number of ranks")->envname("WORLD_SIZE")->capture_default_str();
  app.add_option("--tp", options.tensor, "ranks of a tensor-parallel group")->capture_default_str();
  app.add_option("--pp", options.pipeline, "ranks of a pipeline")->capture_default_str();
  app.add_option("--rendezvous", options.rendezvous, "HOST:PORT where rank 0 listens");
  app.add_option("--nccl", options.nccl, "NCCL's library (default: libnccl.so.2)");
  app.add_option("--cuda", options.cuda, "the CUDA runtime's library (default: the newest libcudart.so)");
  app.add_option("--device", line.device, "this rank's GPU (default: rank modulo the host's GPUs)");
  app.add_option("--step", line.steps, "of an iteration, in order: compute=TIME, GROUP.CALL=BYTES, as in dp.allreduce=2MiB, or "
                                           "GROUP.CALL=BYTESxN, so many in a row, timed");
  app.add_option("--type", line.type, "int8, uint8, int32, uint32, int64, uint64, fp16, fp32, fp64, bf16")->capture_default_str();
  app.add_option("--op", line.op, "sum, prod, max, min, avg")->capture_default_str();
  app.add_option("--iterations", line.iterations, "iterations to run");
  app.add_option("--duration", line.duration, "end at the first iteration boundary past this, instead of --iterations");
  app.add_option("--min-iterations", options.min_iterations, "with --duration: at least so many")->capture_default_str();
  app.add_option("--apart-every", options.apart_every,
                 "in the last of every so many iterations all ranks wait for each other after computing, to time that; 0: none")
      ->capture_default_str();
  app.add_option("--delay", line.delay, "RANK:CALL:TIME: that rank begins its CALL-th collective so much later");
  app.add_option("--traffic-class", line.traffic_classes, "GROUP=TOS: how the communicators of that group are marked, as in tp=104");
  app.add_option("--timeout", line.timeout, "for all ranks to join, and for a collective that stands still")->capture_default_str();
  app.add_flag("--no-check", line.no_check, "fill buffers once and leave results unchecked, for timing");
}

Result<NcclJobOptions> Convert(const CLI::App& app, const CommandLine& line) {
  NcclJobOptions options = line.options;
  options.rank = RankId(line.rank);
  options.check = !line.no_check;
  if (app.count("--device") > 0) options.device = line.device;
  for (const std::string& text : line.steps) {
    WEFT_ASSIGN_OR_RETURN(const NcclStep step, ParseNcclStep(text));
    options.steps.push_back(step);
  }
  const auto type = ParseNcclType(line.type);
  if (!type) return Fail(Code::kInvalidArgument, "--type \"" + line.type + "\": expected one of those that --help lists");
  options.type = *type;
  const auto op = ParseNcclOp(line.op);
  if (!op) return Fail(Code::kInvalidArgument, "--op \"" + line.op + "\": expected sum, prod, max, min or avg");
  options.op = *op;
  if (app.count("--iterations") > 0) options.iterations = line.iterations;
  if (!line.duration.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.duration, ParseDuration(line.duration));
  }
  for (const std::string& text : line.traffic_classes) {
    WEFT_ASSIGN_OR_RETURN(const auto of_group, ParseNcclTrafficClass(text));
    if (!options.traffic_classes.insert(of_group).second) {
      return Fail(Code::kInvalidArgument, "--traffic-class \"" + text + "\": that group has one already, expected one for each group");
    }
  }
  if (!line.delay.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.delay, ParseNcclDelay(line.delay));
  }
  WEFT_ASSIGN_OR_RETURN(options.timeout, ParseDuration(line.timeout));
  return options;
}

int Fails(const Error& error) {
  std::fprintf(stderr, "weft-nccl-job: %s\n", error.message().c_str());
  return ExitCodeOf(error);
}

int Main(int argc, char** argv) {
  CLI::App app("One rank of a job that calls NCCL as training programs do and checks what it gets", "weft-nccl-job");
  CommandLine line;
  Declare(app, line);
  app.set_version_flag("--version", "weft-nccl-job " WEFT_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help
    return Fails(Error(Code::kInvalidArgument, error.what()));
  }
  const auto options = Convert(app, line);
  if (!options) return Fails(options.error());
  if (auto status = RunNcclJob(*options); !status) return Fails(status.error());
  return kExitDone;
}

}  // namespace
}  // namespace weft::collectives

int main(int argc, char** argv) { return weft::collectives::Main(argc, argv); }
