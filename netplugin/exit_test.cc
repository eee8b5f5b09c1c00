// A program that ends with contexts of the tuner and the profiler open.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "netplugin/profiler.h"
#include "netplugin/tuner.h"

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
    const bool closed = CloseTuner(tuner) == nccl::kSuccess && CloseProfiler(profiler) == nccl::kSuccess;
    _exit(closed ? 7 : 1);
  }
};
[[gnu::init_priority(101)]] Latecomer g_latecomer;

TEST(ProcessExit, LeavesWhatOpenContextsUse) {
  const auto end = [] {
    int mask = 0;
    if (OpenProfiler(&g_latecomer.profiler, &mask, {.comm = 1, .rank = 0, .ranks = 2, .nodes = 2}, nullptr) != 0 ||
        OpenTuner(&g_latecomer.tuner, 1, 2, 2, nullptr, nullptr, nullptr) != 0) {
      _exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace weft::net
