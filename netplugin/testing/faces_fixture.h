// An agent's socket, an environment of the test's own and the built library: what tests of its faces start from; include
// after gtest.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "netplugin/testing/agent.h"
#include "netplugin/testing/plugin.h"

namespace weft::net::testing {

/// An agent's run directory and an environment of the test's own.
class FacesTest : public ::testing::Test {
 protected:
  FacesTest() {
    char folder[] = "/tmp/weft-faces-XXXXXX";
    run_dir_ = mkdtemp(folder);
    Set("NCCL_SOCKET_IFNAME", "lo");
    Set("WEFT_RUN_DIR", run_dir_.c_str());
    Set("WEFT_JOB_ID", "job-7");
    Set("WEFT_RANK", "5");
    agent_ = std::make_unique<Agent>(run_dir_);
  }
  ~FacesTest() override {
    if (plugin_) {
      EXPECT_TRUE(plugin_->Unload()) << "the library is still mapped";
    }
    agent_.reset();
    std::filesystem::remove_all(run_dir_);
    for (const char* name : set_) unsetenv(name);
  }
  void Set(const char* name, const char* value) {
    setenv(name, value, 1);
    set_.push_back(name);
  }
  /// Loads the library; what was Set() before holds.
  Plugin& Load() {
    plugin_ = std::make_unique<Plugin>();
    return *plugin_;
  }
  const abi::CommunicatorSlot& communicator(int index = 0) { return agent_->observations().communicators[index]; }

  std::string run_dir_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Plugin> plugin_;
  std::vector<const char*> set_;
};

}  // namespace weft::net::testing
