// The same over a cable between two network namespaces that is pulled every 0.4 s or so. Needs root.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testbed/require_fabric.h"
#include "tests/fire/run.h"

namespace weft::net::fire {
namespace {

/// In a process of its own, whose namespace ends with it.
bool CanIsolate() {
  const pid_t process = fork();
  if (process == 0) _exit(Cable::Isolate() ? 0 : 1);
  int status = 1;
  waitpid(process, &status, 0);
  return status == 0;
}

TEST(FireCable, NothingIsLostWhileItIsOut) {
  if (!CanIsolate()) {
    if (testbed::IsRequired("fabric")) { FAIL() << "network namespaces are not permitted"; }
    GTEST_SKIP() << "fabric: network namespaces are not permitted";
  }
  RunSettings settings;
  settings.cable = true;
  settings.traffic.seed = SeedWanted();
  settings.traffic.messages = MessagesWanted(100'000);
  settings.traffic.mean_life = MeanLife(settings.traffic.messages);
  settings.chaos.cable_ms = 400;
  const RunResult result = RunFire(settings);
  EXPECT_GE(result.messages, settings.traffic.messages);
  EXPECT_GT(result.chaos.pulls, 0u);
}

}  // namespace
}  // namespace weft::net::fire
