// weft-torch: what `weft profile` and `weft calibrate` need LibTorch for. `weft` starts it; its options are those commands'.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/exit_code.h"
#include "runtime/blas_kernels.h"
#include "runtime/machine/calibrate_machine.h"
#include "runtime/profile/profile.h"

namespace {

int Report(const char* command, const weft::Status& status) {
  if (status) return weft::kExitDone;
  std::fprintf(stderr, "weft %s: %s\n", command, status.error().message().c_str());
  return weft::ExitCodeOf(status.error());
}

}  // namespace

int main(int argc, char** argv) {
  weft::runtime::UseBestBlasKernels(argv);
  CLI::App app{"The parts of weft that use LibTorch; weft profile and weft calibrate start it."};
  app.set_version_flag("--version", "weft-torch " WEFT_VERSION);
  app.require_subcommand(1);
  int exit_code = weft::kExitDone;
  weft::runtime::ProfileOptions options;
  CLI::App* profile = app.add_subcommand("profile", "a TorchScript file as a MODEL of weft plan");
  profile->add_option("MODEL", options.file)->required();
  profile->add_option("--batch", options.batch)->check(CLI::Range(1, 4096));
  profile->add_option("--seq", options.sequence)->check(CLI::Range(1, 1 << 20));
  profile->add_option("--input", options.input);
  profile->add_option("--out", options.out);
  profile->callback([&] { exit_code = Report("profile", weft::runtime::Profile(options)); });
  weft::runtime::MachineOptions machine;
  CLI::App* calibrate = app.add_subcommand("calibrate", "what this machine's processor takes, as constants of the cost model");
  calibrate->add_option("--threads", machine.threads)->check(CLI::Range(1, 1024));
  calibrate->add_option("--seconds", machine.seconds)->check(CLI::Range(0.001, 3600.0));
  calibrate->add_option("--link", machine.links);
  calibrate->add_option("--out", machine.out);
  calibrate->callback([&] { exit_code = Report("calibrate", weft::runtime::CalibrateMachine(machine)); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "weft-torch: %s\n", error.what());
    return weft::kExitUsage;
  }
  return exit_code;
}
