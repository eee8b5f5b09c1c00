// For programs with commands (`weft plan`): a first word that is no command, told as that.
#pragma once

#include <string>

namespace weft {

/// The first word, if it should be a command of `app` and is none, else "": CLI11 would only miss a command, or call the
/// word an argument. `App` is CLI::App, which this header need not see.
template <typename App>
std::string UnknownCommand(const App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  const std::string word = argv[1];
  const auto named = app.get_subcommands([&](const App* command) { return command->get_name() == word; });
  return named.empty() ? word : "";
}

}  // namespace weft
