// What the prolog and epilog programs need to know; main.cc fills it from flags and file.
#pragma once

#include <cstdint>
#include <string>

#include "common/units.h"

namespace weft::slurm {

struct HookConfig {
  std::string controller;        ///< HOST:PORT of the controller's gRPC service
  Seconds timeout{2.5};          ///< of the whole conversation with the controller
  std::string log;               ///< file that gets one line per job, empty: none
  int64_t ranks_per_host = 1;    ///< GPUs of a host, where each has one rank
  std::string precision = "bf16";
  std::string framework;         ///< of jobs that name none, empty: plain data parallelism
  std::string tls_certificate, tls_key, tls_authority;  ///< PEM files; all or none
};

}  // namespace weft::slurm
