// The program `weft`. Each subcommand is one function that declares its options, fills its options struct and calls
// the function that does the work; nothing else sees CLI11.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/calibrate.h"
#include "cli/perf.h"
#include "cli/plan.h"
#include "cli/profile.h"
#include "cli/simulate.h"
#include "cli/validate.h"
#ifdef WEFT_ONLINE
#include "cli/demo/demo.h"
#include "cli/online.h"
#include "cli/pki.h"
#include "cli/qos.h"
#include "formats/given_strategy.h"
#endif
#include "common/exit_code.h"
#include "common/unknown_command.h"

namespace weft::cli {
namespace {

void AddPerf(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PerfOptions>();
  CLI::App* perf = app.add_subcommand("perf", "time and check collectives over a net plugin, on host memory");
  perf->add_option("--collective", options->collective,
                   "sendrecv, allreduce, allgather, reducescatter, alltoall or broadcast")->capture_default_str();
  perf->add_option("--ranks", options->ranks, "local processes to fork; sendrecv goes from 0 to 1, 2 to 3, ...")
      ->capture_default_str();
  perf->add_option("--bytes", options->bytes, "full buffer: sizes with commas, or LEAST:MOST by factors of two")
      ->capture_default_str();
  perf->add_option("--iterations", options->iterations, "timed runs per size")->capture_default_str();
  perf->add_option("--warmup", options->warmup, "runs per size before the timed ones")->capture_default_str();
  perf->add_flag("--check", options->check, "compare every element of every run");
  perf->add_flag("--pin", options->pin, "bind each rank's thread to a core, in turns, but no thread of the plugin");
  perf->add_flag("--bidirectional", options->bidirectional, "sendrecv: both ranks of a pair send at once");
  perf->add_flag("--ping-pong", options->ping_pong, "sendrecv: there and back; times are half round trips");
  perf->add_option("--connections", options->connections, "sendrecv: of each pair, in each direction")
      ->capture_default_str();
  perf->add_option("--messages", options->messages, "sendrecv: of each run, back to back; times are per message")
      ->capture_default_str();
  perf->add_option("--plugin", options->plugin, "net plugin to load (default: libnccl-net-weft.so)");
  perf->add_option("--transport", options->transport, "tcp, rdma or auto, of our plugin (default: WEFT_TRANSPORT)");
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

void AddPlan(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlanCommandOptions>();
  CLI::App* plan = app.add_subcommand("plan", "choose the fastest parallel configuration that fits");
  plan->add_option("MODEL", options->model, "config.json, or a preset such as gpt2 or llama3-8b")->required();
  plan->add_option("--cluster", options->cluster, "PRESET:NODES such as dgx-a100:4, or a YAML file")->required();
  plan->add_option("--calibration", options->calibration,
                   "constants measured on such machines: weft calibrate's file (default: the cluster's own)");
  plan->add_option("--global-batch", options->global_batch, "sequences per optimizer step")->required();
  plan->add_option("--seq", options->sequence, "tokens per sequence")->required();
  plan->add_option("--gpus", options->gpus, "of the job; 0: all of the cluster")->capture_default_str();
  plan->add_option("--precision", options->precision, "fp32, tf32, fp16, bf16, fp8 or fp4")->capture_default_str();
  plan->add_option("--top", options->top, "plans to print, best first")->capture_default_str();
  plan->add_option("--fix", options->fix, "values to keep, e.g. tp=8,micro_batch=1,recompute=full");
  plan->add_option("--allow", options->allow,
                   "exchanges that change what is trained: low_precision, local_steps, gossip, several with commas");
  plan->add_option("--trace", options->trace, "file for the best plan's iteration, for chrome://tracing and Perfetto");
  plan->add_option("--program", options->program, "file for the best plan's step program, which weft-train --plan executes");
  plan->add_option("--program-type", options->program_type, "of its elements: fp32 or fp64")->capture_default_str();
  plan->add_option("--framework", options->framework,
                   "only what it can run: megatron, torchtitan, deepspeed, megatron-bridge, accelerate, an older release such as "
                   "megatron-0.15, weft-train, weft-train-ddp, or any: the whole space (default: the fastest of megatron, "
                   "torchtitan, deepspeed)");
  plan->add_option("--risk", options->risk, "probability of running out of memory that a plan may have")->capture_default_str();
  plan->add_option("--emit", options->emit,
                   "print the best plan's files in place of the table: megatron, torchtitan, deepspeed, megatron-bridge, "
                   "accelerate, weft-train, environment, torchrun, nccl, several with commas");
  plan->add_option("--emit-dir", options->emit_dir,
                   "write all that starts the best plan into this folder: files, environment, scripts for torchrun and Slurm");
  plan->add_option("--threads", options->threads, "0: one per core")->capture_default_str();
  plan->add_flag("--exhaustive", options->exhaustive, "price every strategy instead of ruling out by bounds");
  plan->add_option("--front", options->front, "also plans that need less memory, up to this share slower, e.g. 0.5");
  plan->add_option("--output", options->output, "table or json")->capture_default_str();
  plan->callback([options, &exit_code] { exit_code = RunPlan(*options); });
}

void AddCalibrate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* calibrate = app.add_subcommand("calibrate", "measure this machine, or learn from runs: constants for weft plan --calibration");
  calibrate->add_option("--out", options->out, "file to write (default: stdout)");
  calibrate->add_option("--threads", options->threads, "of LibTorch, as a rank will have")->capture_default_str();
  calibrate->add_option("--duration", options->duration, "of the processor's measurements, about")->capture_default_str();
  calibrate->add_option("--link", options->link, "also the link: local, or HOST:PORT of rank 0 with --rank on two machines");
  calibrate->add_option("--rank", options->rank, "0 writes the file, 1 only answers")->capture_default_str();
  calibrate->add_option("--cluster", options->cluster, "with --link: the machines, whose rates its constants are shares of");
  calibrate->add_option("--plugin", options->plugin, "with --link: net plugin to load (default: libnccl-net-weft.so)");
  CLI::Option* const runs = calibrate->add_option(
      "--runs", options->runs, "measure nothing: learn from tables of runs, their columns as in tests/validation/README.md");
  for (const char* measures : {"--threads", "--duration", "--link", "--rank", "--cluster", "--plugin"}) runs->excludes(calibrate->get_option(measures));
  calibrate->add_option("--calibration", options->calibration, "with --runs: constants to begin with (default: those compiled in)");
  calibrate->callback([options, &exit_code] { exit_code = RunCalibrate(*options); });
}

void AddProfile(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ProfileCommandOptions>();
  CLI::App* profile =
      app.add_subcommand("profile", "a model's operators with FLOPs, parameters and bytes, as a MODEL of weft plan");
  profile->add_option("MODEL", options->model, "TorchScript file (.pt), config.json, or a preset such as gpt2")->required();
  profile->add_option("--batch", options->batch, "sequences of the example input")->capture_default_str();
  profile->add_option("--seq", options->sequence, "tokens of each (default: 128, or what the model takes)");
  profile->add_option("--input", options->input,
                      "TorchScript: shape of an example of real numbers, such as 1x3x224x224, in place of tokens");
  profile->add_option("--precision", options->precision, "config.json: what bytes are counted in")->capture_default_str();
  profile->add_option("--out", options->out, "file to write (default: stdout)");
  profile->callback([options, &exit_code] { exit_code = RunProfile(*options); });
}

void AddSimulate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* simulate = app.add_subcommand("simulate", "what a cluster, its jobs and its faults come to under a policy");
  simulate->add_option("SCENARIO", options->scenario, "YAML file; docs/simulate.md has every key")->required();
  simulate->add_option("--policy", options->policies,
                       planner::PolicyNames() + ", several with commas, or all (default: the file's)");
  simulate->add_option("--trace", options->trace, "Chrome trace to write; opens in Perfetto");
  simulate->add_option("--plot", options->plot, "SVG of link use over time to write");
  simulate->add_option("--plot-window", options->plot_window, "BEGIN:END of the plot, e.g. 1s:2s (default: all)");
  simulate->add_option("--seed", options->seed, "of hashes, samples and random placement (default: the file's)");
  simulate->add_option("--evaluations", options->evaluations, "plans that weft may try per decision")->capture_default_str();
  simulate->add_option("--objective", options->objective, "of weft: balanced, or gpu-use without regard for single jobs")
      ->capture_default_str();
  simulate->add_option("--output", options->output, "table or json")->capture_default_str();
  simulate->callback([options, &exit_code] { exit_code = RunSimulate(*options); });
}

void AddValidate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* validate = app.add_subcommand("validate", "compare predictions with tables of published measurements");
  validate->add_option("TABLE", options->tables, "CSV files")->required();
  validate->add_option("--calibration", options->calibrations,
                       "constants, YAML (default: those compiled in); again for each further set")
      ->allow_extra_args(false);
  validate->add_flag("--rows", options->rows, "print every row");
  validate->add_option("--output", options->output, "table or json")->capture_default_str();
  validate->callback([options, &exit_code] { exit_code = RunValidate(*options); });
}

#ifdef WEFT_ONLINE
void AddDemo(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* demo = app.add_subcommand("demo", "the whole loop on one machine: plan, launch, enforce, measure, re-plan");
  demo->add_option("--duration", options->duration, "of all measured phases together")->capture_default_str();
  demo->add_option("--link-rate", options->link_rate, "of every cable (default: 20Mbit/s, with other jobs than composed ones 15Mbit/s)");
  demo->add_option("--draws", options->draws, "runs with kernel-chosen ports")->capture_default_str();
  demo->add_option("--data", options->data, "text to train on, a file or a folder")->capture_default_str();
  demo->add_option("--jobs", options->jobs, "composed: a MoE and a pipeline; data-parallel; nccl: weft-nccl-job under NCCL")->capture_default_str();
  demo->add_option("--nccl", options->nccl, "NCCL's library for --jobs nccl (default: libnccl.so.2)");
  demo->add_option("--controller-config", options->controller_config, "the controller's configuration file");
  demo->add_option("--output", options->output, "table or json")->capture_default_str();
  demo->add_option("--keep", options->keep, "folder to keep logs in");
  demo->add_option("--at-end", options->at_end, "shell command to run while both jobs still train");
  demo->callback([options, &exit_code] { exit_code = RunDemo(*options); });
}

CLI::App* AddOnline(CLI::App& app, int& exit_code, const char* name, const char* text,
                    int (*run)(const OnlineOptions&), const char* argument = nullptr,
                    const char* argument_text = "", void (*add_more)(CLI::App&, OnlineOptions&) = nullptr) {
  auto options = std::make_shared<OnlineOptions>();
  CLI::App* command = app.add_subcommand(name, text);
  if (argument != nullptr) command->add_option(argument, options->job, argument_text)->required();
  command->add_option("--controller", options->controller.address, "HOST:PORT of the controller")
      ->capture_default_str()->envname("WEFT_CONTROLLER");
  command->add_option("--tls-certificate", options->controller.tls.certificate, "own certificate chain, PEM");
  command->add_option("--tls-key", options->controller.tls.key, "own key, PEM");
  command->add_option("--tls-authority", options->controller.tls.authority, "authority of the controller, PEM");
  if (add_more != nullptr) add_more(*command, *options);
  auto output = std::make_shared<std::string>("table");
  command->add_option("--output", *output, "table or json")->check(CLI::IsMember({"table", "json"}));
  command->callback([options, output, run, &exit_code] {
    options->json = *output == "json";
    exit_code = run(*options);
  });
  return command;
}

void AddReshard(CLI::App& reshard, OnlineOptions& options) {
  reshard.add_option("--strategy", options.strategy, "variables of weft plan --fix, such as dp=2,pp=2; the others have their defaults");
  reshard.add_flag("--back", options.back, "in its place: what the job ran before its last change");
  reshard.add_flag("--dry-run", options.dry_run, "only say what it costs and gains");
  reshard.add_option("--hold", options.hold, "once it is followed the controller makes no other change by itself for so long")
      ->capture_default_str();
}

void AddPlanFile(CLI::App& submit, OnlineOptions& options) {
  submit.add_option("--plan", options.plan,
                    "JSON of weft plan: the job's strategy, in place of what JOB says; checked and priced, not searched");
  submit.add_option("--plan-index", options.plan_index, "which of its plans; the first is 0")
      ->capture_default_str()->check(CLI::Range(int64_t{0}, formats::kMostPlanIndex));
}
#endif

#ifdef WEFT_ONLINE
CLI::App* AddPkiCommand(CLI::App& pki, int& exit_code, const char* name, const char* text, int (*run)(const PkiOptions&),
                        void (*add_more)(CLI::App&, PkiOptions&)) {
  auto options = std::make_shared<PkiOptions>();
  CLI::App* command = pki.add_subcommand(name, text);
  command->add_option("--folder", options->folder, "of the authority and all certificates")->capture_default_str();
  add_more(*command, *options);
  command->callback([options, run, &exit_code] { exit_code = run(*options); });
  return command;
}

void AddPki(CLI::App& app, int& exit_code) {
  CLI::App* pki = app.add_subcommand("pki", "certificates of a site: for controller, agents, submitters, operators and viewers");
  pki->require_subcommand(1);
  AddPkiCommand(*pki, exit_code, "init", "make the site's authority", RunPkiInit, [](CLI::App& command, PkiOptions& options) {
    command.add_option("--site", options.site, "in the authority's name")->capture_default_str();
  });
  AddPkiCommand(*pki, exit_code, "issue", "make a certificate", RunPkiIssue, [](CLI::App& command, PkiOptions& options) {
    command.add_option("ROLE", options.role, "agent, submitter, operator, viewer or controller")->required();
    command.add_option("NAME", options.name, "of an agent: its host; else who it is")->required();
    command.add_option("--address", options.addresses,
                       "DNS names and IP addresses that it is called by, several with commas")->delimiter(',');
    command.add_option("--days", options.days, "that it is good for")->capture_default_str();
  });
  AddPkiCommand(*pki, exit_code, "revoke", "put a certificate on the list of those that count no more", RunPkiRevoke,
                [](CLI::App& command, PkiOptions& options) {
                  command.add_option("FILE", options.file, "the certificate")->required();
                });
}

void AddHosts(CLI::App& command, OnlineOptions& options) {
  command.add_option("--host", options.hosts, "only these, several with commas (default: all)")->delimiter(',');
}

void AddQos(CLI::App& app, int& exit_code) {
  CLI::App* qos = app.add_subcommand("qos", "settings of NICs for the site's traffic classes");
  qos->require_subcommand(1);
  AddOnline(*qos, exit_code, "verify", "compare what all hosts have with what is declared", RunQosVerify, nullptr, "",
            [](CLI::App& command, OnlineOptions& options) {
              command.add_option("--syntax", options.syntax, "only the commands that mend, for dcb or mlnx_qos")
                  ->check(CLI::IsMember({"dcb", "mlnx_qos"}));
            });
  AddOnline(*qos, exit_code, "apply", "set what is declared, and keep it so", RunQosApply, nullptr, "",
            [](CLI::App& command, OnlineOptions& options) {
              AddHosts(command, options);
              command.add_flag("--dry-run", options.dry_run, "only say what would be set");
            });
  AddOnline(*qos, exit_code, "revert", "set what was there before", RunQosRevert, nullptr, "", AddHosts);
}
#endif

int Main(int argc, char** argv) {
  CLI::App app("Weft: co-design of parallelism, collectives and flows for GPU training clusters", "weft");
  app.require_subcommand(1);
  int exit_code = kExitDone;
  AddPerf(app, exit_code);
  AddPlan(app, exit_code);
  AddProfile(app, exit_code);
  AddCalibrate(app, exit_code);
  AddSimulate(app, exit_code);
  AddValidate(app, exit_code);
#ifdef WEFT_ONLINE
  AddDemo(app, exit_code);
  AddOnline(app, exit_code, "submit", "plan and register a job", RunSubmit, "JOB",
            "YAML file with version: 1, name, model, global_batch, sequence; docs/inputs.md has every key", AddPlanFile);
  AddOnline(app, exit_code, "release", "end a job: hosts forget it, others get its paths", RunRelease, "JOB",
            "its id, as `weft jobs` prints it");
  AddOnline(app, exit_code, "reshard", "another strategy for a running job of weft-train, in memory", RunReshard, "JOB",
            "its id, as `weft jobs` prints it", AddReshard);
  AddOnline(app, exit_code, "jobs", "what the controller manages", RunJobs);
  AddOnline(app, exit_code, "explain", "a job's plan, and every decision about it", RunExplain, "JOB",
            "its id, as `weft jobs` prints it");
  AddOnline(app, exit_code, "topo", "hosts and links as measured", RunTopology);
  AddOnline(app, exit_code, "links", "links by load", RunLinks);
  AddQos(app, exit_code);
  AddPki(app, exit_code);
#endif
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  try {
    if (const std::string word = UnknownCommand(app, argc, argv); !word.empty()) {
      std::fprintf(stderr, "weft: unknown command \"%s\" (see weft --help)\n", word.c_str());
      return kExitUsage;
    }
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
