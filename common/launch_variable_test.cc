#include "common/launch_variable.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(LaunchVariable, WhatPlansNeedPasses) {
  const char* const good[][2] = {{"WEFT_JOB_ID", "pretrain 7"},
                                 {"WEFT_RUN_DIR", "/run/weft/%n"},
                                 {"WEFT_ARGUMENTS", "--micro-batch 8 --recompute full"},
                                 {"WEFT_FILE_DEEPSPEED_JSON", "{\\n \"a\": 1}"},
                                 {"WEFT_HOST_ORDER", "n2,n1,n3"},
                                 {"WEFT_RESHARD", "on"},
                                 {"WEFT_RESHARD_EPOCH", "12"},
                                 {"NCCL_NET_PLUGIN", "weft"},
                                 {"NCCL_NET", "Weft"},
                                 {"NCCL_IB_TC", "106"},
                                 {"CUDA_DEVICE_MAX_CONNECTIONS", "1"},
                                 {"PYTORCH_ALLOC_CONF", "expandable_segments:True"}};
  for (const auto& [name, value] : good) EXPECT_TRUE(MayLaunchWith(name, value)) << name;
}

TEST(LaunchVariable, WhatLoadsOrRunsSomethingNeverPasses) {
  for (const char* name : {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "ENV",
                           "IFS", "GCONV_PATH",
                           "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_CONF_FILE", "NCCL_TOPO_FILE",
                               "NCCL_DEBUG_FILE",
                           "CUDA_INJECTION64_PATH", "OPENSSL_CONF", "HOME", "SLURM_HOSTFILE", "ld_preload", "weft_job_id", "",
                               "WEFT_FILE_", "WEFT_FILE_a"}) {
    EXPECT_FALSE(MayLaunchWith(name, "1")) << name;
    EXPECT_FALSE(MayLaunchWith(name, "/tmp/evil.so")) << name;
  }
}

TEST(LaunchVariable, ValuesHoldNoMoreThanTheirVariableNeeds) {
  const char* const bad[][2] = {{"NCCL_NET_PLUGIN", "/tmp/evil.so"}, {"NCCL_NET_PLUGIN", "evil"},       {"WEFT_RUN_DIR", "run"},
                                {"WEFT_RUN_DIR", "/run/../tmp/x"},   {"WEFT_RUN_DIR", "/run/$(reboot)"},
                                    {"WEFT_JOB_ID", "a\x1b[2J"},
                                {"WEFT_ARGUMENTS", "a\nLD_PRELOAD=x"}, {"WEFT_HOST_ORDER", "n1;reboot"}, {"NCCL_IB_TC", "1000"},
                                {"WEFT_RESHARD", "yes"}, {"WEFT_RESHARD_EPOCH", "-1"},
                                {"NCCL_IB_TC", ""},                  {"CUDA_DEVICE_MAX_CONNECTIONS", "-1"},
                                    {"PYTORCH_ALLOC_CONF", "backend:/tmp/x.so"}};
  for (const auto& [name, value] : bad) EXPECT_FALSE(MayLaunchWith(name, value)) << name << "=" << value;
}

}  // namespace
}  // namespace weft
