// The environment plugin: values of NCCL_* variables that the plan suggests and the user has not set.
//
// NCCL (2.28 and later, NCCL_ENV_PLUGIN) asks the plugin in place of getenv(). A launcher that puts a plan's NCCL settings
// straight into the environment wins over the user's nccl.conf, which NCCL reads into variables that are not set. So the
// launcher puts them into one variable, WEFT_NCCL_DEFAULTS, and this plugin gives a variable's own value first, wherever
// it came from, and the plan's only where there is none: a user's own setting always wins.
//
// Like the collective table it travels in the launch environment, so that every rank has it or none, and is read once.
//
//   WEFT_NCCL_DEFAULTS = NAME "=" value *( ";" NAME "=" value )     NAME: NCCL_ and [A-Z0-9_]; at most 4096 bytes, 64 names
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "netplugin/abi/nccl_environment.h"

namespace weft::net {

inline constexpr char kDefaultsVariable[] = "WEFT_NCCL_DEFAULTS";
inline constexpr size_t kMaxDefaultsText = 4096;
inline constexpr size_t kMaxDefaults = 64;

/// Names and values in order. What is wrong with a text is said in `*problem`, and the whole of it is refused: half of a
/// plan's settings is no plan.
using NcclDefaults = std::vector<std::pair<std::string, std::string>>;
NcclDefaults ParseNcclDefaults(std::string_view text, std::string* problem);

/// The faces, for the tables of environment_v1.cc and environment_v2.cc. `logger` may be nullptr.
int OpenEnvironment(nccl::Logger logger);
int CloseEnvironment();
/// The variable's own value, else the plan's, else nullptr. Valid until CloseEnvironment().
const char* GetVariable(const char* name);

}  // namespace weft::net
