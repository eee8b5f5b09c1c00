// NCCL's environment plugin interface, versions 1 and 2 (NCCL 2.28 and later), as laid out on x86-64 Linux: our own
// declarations. NCCL finds it under NCCL_ENV_PLUGIN and asks it for every NCCL_* variable in place of getenv().
#pragma once

#include <cstdint>

#include "netplugin/abi/nccl_net.h"

namespace weft::nccl {

struct EnvironmentV1 {
  const char* name;
  int (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix);
  int (*finalize)();
  /// The value, or nullptr if it has none; valid until finalize or the next call with the same name.
  const char* (*get)(const char* name);
};

struct EnvironmentV2 {
  const char* name;
  int (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix, Logger logger);
  int (*finalize)();
  const char* (*get)(const char* name);
};

static_assert(sizeof(EnvironmentV1) == 32 && sizeof(EnvironmentV2) == 32);

}  // namespace weft::nccl
