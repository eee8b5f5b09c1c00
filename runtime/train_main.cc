// weft-train: one rank of a training run, data parallel or as a plan says. README.md beside this file shows how to use it.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/exit_code.h"
#include "common/launch_variable.h"
#include "common/parse_units.h"
#include "runtime/blas_kernels.h"
#include "runtime/train_job.h"

namespace {

using weft::runtime::TrainOptions;

/// What the signal handler prints, made before it is installed: a handler may not format.
std::array<char, 64> g_stopped{};
size_t g_stopped_bytes = 0;

/// Neither an operation of LibTorch nor a collective can be interrupted, and everything that must be given back
/// (connections, memory of the plugin) is the kernel's to take: so the process ends here.
void StopNow(int signal_number) {
  (void)!write(STDERR_FILENO, g_stopped.data(), g_stopped_bytes);
  _exit(128 + signal_number);
}

void InstallSignals(int rank) {
  const std::string line = "weft-train: rank " + std::to_string(rank) + ": stopped by a signal\n";
  g_stopped_bytes = std::min(line.size(), g_stopped.size());
  std::memcpy(g_stopped.data(), line.data(), g_stopped_bytes);
  struct sigaction action {};
  action.sa_handler = StopNow;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

/// Adds a flag that one of weft's parsers reads; a wrong value is told with the flag's name in front.
template <typename T, typename Parser>
CLI::Option* AddParsed(CLI::App& app, const std::string& flag, Parser parser, T& target, const std::string& text,
                       const std::string& values) {
  const auto read = [flag, parser, &target](const CLI::results_t& given) {
    auto value = parser(given.at(0));
    if (!value) throw CLI::ValidationError(flag, value.error().message());
    target = *value;
    return true;
  };
  return app.add_option(flag, read, text)->option_text(values);
}

/// Reads one of two words.
template <typename T>
auto OneOf(std::pair<const char*, T> first, std::pair<const char*, T> second) {
  return [first, second](const std::string& word) -> weft::Result<T> {
    if (word == first.first) return first.second;
    if (word == second.first) return second.second;
    return weft::Fail(weft::Code::kInvalidArgument,
                      "\"" + word + "\": expected " + first.first + " or " + second.first);
  };
}

struct Arguments {
  TrainOptions options;
};

void DeclareModelAndData(CLI::App& app, TrainOptions& o) {
  app.add_option("--config", o.config, "config.json of the GPT-2, Llama or Mixtral family, or of a 3D CNN")->required();
  app.add_option("--layers", o.scaling.layers, "scale down: layers in place of the config's");
  app.add_option("--width", o.scaling.width, "scale down: embedding width; the MLP follows");
  app.add_option("--heads", o.scaling.heads, "scale down: attention heads");
  app.add_option("--data", o.data, "text: a file, or a folder whose files are read in order of name")->required();
  app.add_option("--seq", o.sequence, "bytes per sample; 1 of a 3D CNN, whose volumes are its own size")->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "samples per step over all ranks")->capture_default_str();
  auto* steps = app.add_option("--steps", o.steps, "steps to train")->capture_default_str();
  auto* duration = AddParsed(app, "--duration", weft::ParseDuration, o.duration, "in place of --steps: for so long",
                             "TIME, as in 10s");
  duration->excludes(steps);
  app.add_option("--min-steps", o.min_steps, "with --duration: at least so many, however long they take")
      ->needs(duration)
      ->capture_default_str();
  app.add_option("--lr", o.rate.peak, "learning rate of AdamW")->capture_default_str();
  app.add_option("--warm-up", o.rate.warm_up, "steps in which the learning rate rises")->capture_default_str();
  app.add_option("--decay", o.rate.decay, "step at which its cosine ends; 0: constant")->capture_default_str();
  app.add_option("--least-lr", o.rate.least, "learning rate where the cosine ends")->capture_default_str();
  app.add_option("--clip", o.clip, "largest global norm of the gradients; 0: any")->capture_default_str();
  AddParsed(app, "--type", OneOf<bool>({"fp32", false}, {"fp64", true}), o.double_precision,
            "of parameters; fp64 in one process, or as the plan says", "fp32|fp64");
  app.add_option("--replicas", o.replicas.count, "of one process without a plan: learn what so many replicas would")
      ->capture_default_str();
  app.add_option("--local-steps", o.replicas.local_steps, "with --replicas: they average parameters every so many steps")
      ->capture_default_str();
  app.add_flag("--gossip", o.replicas.gossip, "with --replicas: they average with a neighbour in every step");
  using weft::planner::WireType;
  AddParsed(app, "--gradient-wire", OneOf<WireType>({"whole", WireType::kWhole}, {"bf16", WireType::kBfloat16}), o.replicas.wire,
            "with --replicas: what their gradients are rounded to", "whole|bf16");
  app.add_option("--capacity-of", o.capacity_of,
                 "step program: in one process without --plan experts drop the tokens that they drop under it");
  app.add_option("--seed", o.seed, "of parameters and batches")->capture_default_str();
  app.add_option("--threads", o.threads, "threads of LibTorch")->capture_default_str();
}

void DeclareJob(CLI::App& app, Arguments& arguments) {
  TrainOptions& o = arguments.options;
  auto* bucket = AddParsed(app, "--bucket", weft::ParseBytes, o.bucket, "gradients per message", "SIZE=1MiB");
  // The program says what these do.
  app.add_option("--plan", o.plan, "step program of weft plan --program, which is executed in place of data parallelism")
      ->excludes(bucket)
      ->excludes(app.get_option("--seq"))
      ->excludes(app.get_option("--capacity-of"))
      ->excludes(app.get_option("--global-batch"));
  app.add_option("--calibration", o.calibration, "with --plan: constants that --calibrate wrote, by which the run is predicted")
      ->needs("--plan");
  app.add_option("--cluster", o.cluster, "with --calibration: the machines, YAML, on whose links communication is predicted")
      ->needs("--calibration");
  app.add_option("--stretch", o.stretch, "with --calibration: each computation lasts so many times as long as it takes alone")
      ->needs("--calibration")
      ->check(CLI::Range(1.0, 1e4));
  app.add_option("--trace", o.trace, "with --plan: file for a Chrome trace of the last step, as measured and as planned")
      ->needs("--plan");
  app.add_flag("--computations", o.computations,
               "with --plan or --strategy: each step says in JSON what of a core each computation took, on each rank");
  app.add_flag("--predict", o.predict,
               "with --plan: in place of a run, prints the memory of each rank, and with --calibration and --cluster the times")
      ->needs("--plan");
  app.add_option("--calibrate", o.calibrate,
                 "with --plan: in place of a run, times its computations in one process, into this file")
      ->needs("--plan");
  app.add_option("--plans", o.plans,
                 "in place of --plan: file of lines STEP PROGRAM; before its step the run changes to each, in memory")
      ->excludes(app.get_option("--plan"))
      ->excludes(bucket)
      ->excludes(app.get_option("--seq"))
      ->excludes(app.get_option("--global-batch"));
  app.add_option("--checkpoint", o.checkpoint.folder, "with --plan: folder in which the training's state is saved");
  app.add_option("--checkpoint-every", o.checkpoint.every, "steps from one checkpoint to the next")->option_text("N");
  app.add_option("--keep", o.checkpoint.keep, "checkpoints that stay")->capture_default_str();
  AddParsed(app, "--checkpoint-file", weft::ParseBytes, o.checkpoint.file, "most of a file of a checkpoint", "SIZE=1GiB");
  app.add_option("--resume", o.checkpoint.resume,
                 "go on from a checkpoint, or from the last in a folder; latest: from --checkpoint's last, if there is one")
      ->option_text("DIR|latest");
  app.add_option("--load", o.checkpoint.load, "begin with a model of Hugging Face: a .safetensors file, or a folder")
      ->option_text("PATH");
  app.add_option("--rank", o.rank, "this process")->envname("WEFT_RANK")->capture_default_str();
  app.add_option("--world", o.world, "number of ranks")->envname("WEFT_WORLD")->capture_default_str();
  app.add_option("--rendezvous", o.rendezvous, "HOST:PORT where rank 0 listens");
  app.add_option("--plugin", o.plugin, "ncclNet plugin that carries what ranks exchange, such as libnccl-net-weft.so");
  app.add_option("--collectives", o.collectives, "collective table, the same on all ranks; where none fits: a ring")
      ->envname("WEFT_COLLECTIVES");
  AddParsed(app, "--stall-timeout", weft::ParseDuration, o.stall_timeout, "how long to wait for a peer", "TIME=60s");
  app.add_option("--job", o.job, "name that the plugin announces to the agent")->envname("WEFT_JOB_ID");
  AddParsed(app, "--communication", OneOf<bool>({"on", true}, {"off", false}), o.communication,
            "off: the same compute without exchange", "on|off");
  using weft::runtime::OutputFormat;
  AddParsed(app, "--output", OneOf<OutputFormat>({"table", OutputFormat::kTable}, {"json", OutputFormat::kJson}),
            o.output, "what rank 0 prints to stdout", "table|json");
}

/// A strategy in place of a plan, and another one while it runs.
void DeclareStrategy(CLI::App& app, TrainOptions& o) {
  auto* strategy = app.add_option("--strategy", o.strategy.strategy,
                                  "in place of --plan: the strategy whose program is executed, as weft plan --emit weft-train "
                                  "writes it")
                       ->option_text("dp=2,tp=2,...")
                       ->excludes(app.get_option("--plan"))
                       ->excludes(app.get_option("--plans"))
                       ->excludes(app.get_option("--capacity-of"))
                       ->excludes(app.get_option("--bucket"));
  app.add_option("--sums", o.strategy.sums, "with --strategy: how replicas sum gradients; a ring by default")
      ->option_text("hierarchical:N|ps:N|tree")
      ->needs(strategy);
  app.add_option("--operators", o.strategy.operators, "with --strategy: what operators do under sharding=osdp")->needs(strategy);
  app.add_option("--program-digest", o.strategy.digest, "with --strategy: of the program that was planned")->needs(strategy);
  AddParsed(app, "--reshard", OneOf<bool>({"on", true}, {"off", false}), o.reshard,
            "with --strategy or --plan: take another strategy while running when the controller says so", "on|off")
      ->envname(weft::kReshardVariable);
}

/// For the plugin, which knows its job and rank by these. The flags have taken what was set already as their default, so
/// this changes a variable only where a flag says otherwise: program and plugin must not disagree.
void SetPluginEnvironment(const Arguments& arguments) {
  if (!arguments.options.job.empty()) setenv("WEFT_JOB_ID", arguments.options.job.c_str(), 1);
  setenv("WEFT_RANK", std::to_string(arguments.options.rank).c_str(), 1);
  setenv("WEFT_WORLD", std::to_string(arguments.options.world).c_str(), 1);
}

}  // namespace

int main(int argc, char** argv) {
  weft::runtime::UseBestBlasKernels(argv);
  CLI::App app{"Trains a small GPT-2, Llama, Mixtral or 3D CNN on real text over an ncclNet plugin, data parallel or as --plan says."};
  app.set_version_flag("--version", "weft-train " WEFT_VERSION);
  Arguments arguments;
  DeclareModelAndData(app, arguments.options);
  DeclareJob(app, arguments);
  DeclareStrategy(app, arguments.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "weft-train: %s\n", error.what());
    return weft::kExitUsage;
  }
  SetPluginEnvironment(arguments);
  const char* const run_dir = std::getenv("WEFT_RUN_DIR");
  arguments.options.run_dir = run_dir == nullptr ? "/run/weft" : run_dir;
  InstallSignals(arguments.options.rank);
  if (const weft::Status status = weft::runtime::RunTraining(arguments.options); !status) {
    std::fprintf(stderr, "weft-train: rank %d: %s\n", arguments.options.rank, status.error().message().c_str());
    return weft::ExitCodeOf(status.error());
  }
  return weft::kExitDone;
}
