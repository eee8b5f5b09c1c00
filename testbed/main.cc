// weft-testbed: fabrics of network namespaces from the command line.
//
//   weft-testbed up --id lab --rate 200Mbit/s     stays until `weft-testbed down lab`
//   weft-testbed up --hold                        stays until Ctrl-C
//   weft-testbed exec lab h1 -- ping 10.2.1.2
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/exit_code.h"
#include "common/parse_units.h"
#include "common/unknown_command.h"
#include "controller/config_readers.h"
#include "testbed/fabric.h"
#include "testbed/net_namespace.h"

namespace weft::testbed {
namespace {

using Json = nlohmann::json;

struct Arguments {
  FabricOptions options;
  std::string id;
  std::string node;
  std::string output = "table";
  bool hold = false;
  std::vector<std::string> command;
};

int Report(const Error& error) {
  fmt::print(stderr, "weft-testbed: {}\n", error.message());
  return ExitCodeOf(error);
}

/// SIGINT and SIGTERM, which main blocks: they are waited for where a wait is wanted, and end nothing half way.
sigset_t EndSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

bool EndSignalPending() {
  const sigset_t set = EndSignals();
  const timespec none{0, 0};
  return ::sigtimedwait(&set, nullptr, &none) > 0;
}

void PrintFabric(const Fabric& fabric, const std::string& output) {
  if (output == "json") {
    Json hosts = Json::array();
    for (const FabricHost& host : fabric.hosts()) {
      hosts.push_back({{"name", host.name}, {"namespace", host.netns}, {"leaf", host.leaf},
                       {"data_address", host.data_address}, {"mgmt_address", host.mgmt_address}});
    }
    Json switches = Json::array();
    for (const auto* tier : {&fabric.leaves(), &fabric.spines()}) {
      for (const FabricSwitch& one : *tier) {
        switches.push_back({{"name", one.name}, {"namespace", one.netns}, {"identity", one.identity}});
      }
    }
    Json links = Json::array();
    for (const FabricLink& link : fabric.links()) {
      links.push_back({{"from", link.from}, {"to", link.to}, {"rate_bps", link.rate.value()}});
    }
    const Json all{{"id", fabric.id()}, {"mgmt_gateway", fabric.mgmt_gateway()}, {"hosts", hosts},
                   {"switches", switches}, {"links", links}};
    fmt::print("{}\n", all.dump(2));
    return;
  }
  fmt::print("fabric {}: {} leaves, {} spines, {} hosts, management {}\n", fabric.id(), fabric.leaves().size(),
             fabric.spines().size(), fabric.hosts().size(), fabric.mgmt_gateway());
  fmt::print("{:<8} {:<8} {:<14} {:<16} {}\n", "node", "leaf", "data", "mgmt", "namespace");
  for (const FabricHost& host : fabric.hosts()) {
    fmt::print("{:<8} {:<8} {:<14} {:<16} {}\n", host.name, host.leaf, host.data_address, host.mgmt_address, host.netns);
  }
  for (const auto* tier : {&fabric.leaves(), &fabric.spines()}) {
    for (const FabricSwitch& one : *tier) {
      fmt::print("{:<8} {:<8} {:<14} {:<16} {}\n", one.name, "-", one.identity, "-", one.netns);
    }
  }
}

int Up(const Arguments& arguments) {
  if (const Status can = CanBuildFabric(); !can) return Report(can.error());
  auto fabric = Fabric::Create(arguments.options);
  if (!fabric) return Report(fabric.error());
  if (EndSignalPending()) {
    fmt::print(stderr, "weft-testbed: interrupted; fabric \"{}\" is removed\n", (*fabric)->id());
    return kExitFailed;
  }
  PrintFabric(**fabric, arguments.output);
  std::fflush(stdout);
  if (!arguments.hold) {
    if (const Status left = (*fabric)->LeaveUp(); !left) return Report(left.error());
    return kExitDone;
  }
  fmt::print(stderr, "weft-testbed: fabric \"{}\" is up until SIGINT or SIGTERM\n", (*fabric)->id());
  const sigset_t set = EndSignals();
  int signal = 0;
  while (::sigwait(&set, &signal) != 0) {
  }
  return kExitDone;
}

int Down(const Arguments& arguments) {
  if (const Status down = Fabric::Remove(arguments.id); !down) return Report(down.error());
  return kExitDone;
}

int List(const Arguments& arguments) {
  const auto states = Fabric::List();
  if (!states) return Report(states.error());
  Json fabrics = Json::array();
  if (arguments.output != "json") {
    fmt::print("{:<18} {:>6} {:>6} {:>6} {:<16} {}\n", "id", "leaves", "spines", "hosts", "management", "owner");
  }
  for (const FabricState& state : *states) {
    const FabricOptions& options = state.options;
    const std::string gateway = fmt::format("172.31.{}.1", state.slot);
    const bool stale = state.owner && !IsAlive(*state.owner);
    const std::string owner = state.owner ? fmt::format("{}{}", state.owner->pid, stale ? " (gone)" : "") : "-";
    if (arguments.output == "json") {
      fabrics.push_back({{"id", options.id}, {"leaves", options.leaves}, {"spines", options.spines},
                         {"hosts", options.leaves * options.hosts_per_leaf}, {"mgmt_gateway", gateway},
                         {"owner_pid", state.owner ? Json(state.owner->pid) : Json(nullptr)}, {"stale", stale}});
    } else {
      fmt::print("{:<18} {:>6} {:>6} {:>6} {:<16} {}\n", options.id, options.leaves, options.spines,
                 options.leaves * options.hosts_per_leaf, gateway, owner);
    }
  }
  if (arguments.output == "json") fmt::print("{}\n", Json{{"fabrics", fabrics}}.dump(2));
  return kExitDone;
}

/// Becomes the command, so that signals and exit status are the command's own.
int Exec(const Arguments& arguments) {
  const auto fabric = Fabric::Adopt(arguments.id);
  if (!fabric) return Report(fabric.error());
  const auto netns = (*fabric)->NamespaceOf(arguments.node);
  if (!netns) return Report(netns.error());
  const auto fd = OpenNamespace(*netns);
  if (!fd) return Report(fd.error());
  if (const int error = EnterNamespace(fd->get(), /*own_sysfs=*/true); error != 0) {
    return Report(ErrnoError(fmt::format("enter network namespace \"{}\"", *netns), error));
  }
  const sigset_t set = EndSignals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  std::vector<char*> argv;
  for (const std::string& word : arguments.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return Report(ErrnoError(fmt::format("run \"{}\"", arguments.command.front()), errno));
}

/// A CLI11 transform of a rate option into `target`.
template <typename Target, typename Parse>
std::function<void(const std::string&)> ParsedInto(Target& target, Parse parse) {
  return [&target, parse](const std::string& text) {
    const auto value = parse(text);
    if (!value) throw CLI::ValidationError(value.error().message());
    target = *value;
  };
}

/// "26:60%", "0".
FabricClass ParseClass(const std::string& text) {
  FabricClass parsed;
  char percent = 0;
  int read = 0;
  const int found = std::sscanf(text.c_str(), "%d%n:%d%c%n", &parsed.dscp, &read, &parsed.share, &percent, &read);
  if ((found != 1 && (found != 3 || percent != '%')) || static_cast<size_t>(read) != text.size()) {
    throw CLI::ValidationError("--classes \"" + text + "\": expected DSCP or DSCP:SHARE%");
  }
  return parsed;
}

/// Those that a controller's file declares, so that ports queue what NICs and switches of the site are to queue.
std::vector<FabricClass> ClassesFrom(const std::string& path) {
  const auto declared = controller::ReadDeclaredClasses(path);
  if (!declared) throw CLI::ValidationError("--classes-from " + declared.error().message());
  std::vector<FabricClass> classes;
  for (const v1::QosClass& one : *declared) classes.push_back({one.dscp(), one.share()});
  return classes;
}

int Main(int argc, char** argv) {
  CLI::App app("Leaf-spine fabrics of network namespaces, for demo, tests and experiments", "weft-testbed");
  app.require_subcommand(1);
  Arguments arguments;
  const auto add_output = [&](CLI::App* command) {
    command->add_option("--output", arguments.output, "table or json")->check(CLI::IsMember({"table", "json"}));
  };

  CLI::App* up = app.add_subcommand("up", "build a fabric and leave it up");
  FabricOptions& options = arguments.options;
  up->add_option("--id", options.id, "name of the fabric, a-z and 0-9 (default: from the process id)");
  up->add_option("--leaves", options.leaves, "leaf switches")->capture_default_str();
  up->add_option("--spines", options.spines, "spine switches")->capture_default_str();
  up->add_option("--hosts-per-leaf", options.hosts_per_leaf, "hosts on each leaf")->capture_default_str();
  up->add_option_function<std::string>("--rate", ParsedInto(options.link_rate, ParseRate), "rate of every port (default 200Mbit/s)");
  up->add_option_function<std::string>("--host-rate", ParsedInto(options.host_link_rate, ParseRate), "host to leaf ports");
  up->add_option_function<std::string>("--spine-rate", ParsedInto(options.spine_link_rate, ParseRate), "leaf to spine ports");
  up->add_option_function<uint32_t>("--hash-seed", [&](uint32_t seed) { options.hash_seed = seed; },
                                    "ECMP hash seed of every switch (default: random)");
  up->add_option_function<std::vector<std::string>>(
        "--classes", [&](const std::vector<std::string>& texts) {
          options.classes.clear();
          for (const std::string& text : texts) options.classes.push_back(ParseClass(text));
        }, "what ports queue apart, served first first, e.g. 46:60%,26:30%,0:10% (default 26,0)")->delimiter(',');
  up->add_option_function<std::string>("--classes-from", [&](const std::string& path) { options.classes = ClassesFrom(path); },
                                       "likewise, as the key classes of this controller.yaml declares")->excludes("--classes");
  up->add_option_function<std::string>("--grain", ParsedInto(options.grain, ParseDuration),
                                       "of its rate what an idle port sends at once, 10us to 10ms (default 5ms)");
  up->add_option_function<std::string>("--queue", ParsedInto(options.queue, ParseBytes),
                                       "what a port holds of each class, 4KiB to 64MiB (default 60 ms of its rate)");
  up->add_flag("--fair", options.fair, "flows queue apart at every port, and are served in turn");
  up->add_flag("--hold", arguments.hold, "stay in the foreground; remove the fabric at SIGINT or SIGTERM");
  add_output(up);

  CLI::App* down = app.add_subcommand("down", "remove a fabric, and what runs in it");
  auto* down_id = down->add_option_group("fabric")->require_option(1);
  down_id->add_option("ID", arguments.id, "name of the fabric");
  down_id->add_option("--id", arguments.id, "the same, as `up` takes it");

  CLI::App* list = app.add_subcommand("list", "show the fabrics of this machine");
  add_output(list);

  CLI::App* exec = app.add_subcommand("exec", "run a command on a host or switch: exec ID NODE -- CMD...");
  exec->add_option("ID", arguments.id, "name of the fabric")->required();
  exec->add_option("NODE", arguments.node, "h1, leaf1, spine1, ...")->required();
  exec->add_option("CMD", arguments.command, "command and its arguments")->required();

  app.set_version_flag("--version", "weft-testbed " WEFT_VERSION);
  if (const std::string word = UnknownCommand(app, argc, argv); !word.empty()) {
    fmt::print(stderr, "weft-testbed: unknown command \"{}\" (see weft-testbed --help)\n", word);
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help
    fmt::print(stderr, "weft-testbed: {} (see weft-testbed --help)\n", error.what());
    return kExitUsage;
  }
  const sigset_t set = EndSignals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  if (up->parsed()) return Up(arguments);
  if (down->parsed()) return Down(arguments);
  if (list->parsed()) return List(arguments);
  return Exec(arguments);
}

}  // namespace
}  // namespace weft::testbed

int main(int argc, char** argv) { return weft::testbed::Main(argc, argv); }
