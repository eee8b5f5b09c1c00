// A program that ends while NCCL still uses the tuner, the profiler and the environment plugin.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "netplugin/interfaces/environment_plugin.h"
#include "netplugin/interfaces/profiler.h"
#include "netplugin/interfaces/tuner.h"

namespace weft::net {
namespace {

/// Uses the contexts when the plugin's own statics are gone: it is made before them.
struct Latecomer {
  void* profiler = nullptr;
  void* tuner = nullptr;

  ~Latecomer() {
    if (!profiler) return;
    void* event = nullptr;
    StartProfilerEvent(profiler, &event, {.type = nccl::kEventColl, .operation = abi::Operation::kAllReduce});
    StopProfilerEvent(event);
    float costs[1][3] = {{1, 1, 1}};
    int channels = 0;
    TuneCollective(tuner, nccl::kAllReduce, 4096, 1, reinterpret_cast<float**>(costs), 1, 3, 0, &channels);
    const char* value = GetVariable("NCCL_MAX_CTAS");
    if (channels != 5 || !value || std::strcmp(value, "8") != 0) _exit(2);
    const bool closed = CloseTuner(tuner) == nccl::kSuccess && CloseProfiler(profiler) == nccl::kSuccess;
    _exit(closed ? 7 : 1);
  }
};
[[gnu::init_priority(101)]] Latecomer g_latecomer;

TEST(ProcessExit, LeavesWhatOpenContextsUse) {
  const auto end = [] {
    int mask = 0;
    setenv("WEFT_COLLECTIVES", "1;*:allreduce:0-:tree:simple:5", 1);
    setenv(kDefaultsVariable, "NCCL_MAX_CTAS=8", 1);
    if (OpenEnvironment(nullptr) != 0 ||
        OpenProfiler(&g_latecomer.profiler, &mask, {.comm = 1, .rank = 0, .ranks = 2, .nodes = 2}, nullptr) != 0 ||
        OpenTuner(&g_latecomer.tuner, 1, 2, 2, nullptr, nullptr, nullptr) != 0) {
      _exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7), "") << "1: not opened or closed, 2: late answers are wrong";
}

}  // namespace
}  // namespace weft::net
