// All ranks of a small job as threads of the test, over a real rendezvous and a real plugin.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/communicator.h"
#include "collectives/net_plugin.h"

namespace weft::collectives::testing {

struct RanksOptions {
  std::string plugin = WEFT_LOOPBACK_PLUGIN;
  int net_version = 12;
  CommunicatorOptions communicator;
};

/// Runs `body` once per rank and returns when all have; a failure of the setup is a failure of the test.
inline void RunRanks(int ranks, const std::function<void(Communicator&)>& body, const RanksOptions& options = {}) {
  auto rendezvous = OpenRendezvous("127.0.0.1:0");
  ASSERT_TRUE(rendezvous) << rendezvous.error().message();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    const int listener = rank == 0 ? rendezvous->listener.release() : -1;
    threads.emplace_back([&, rank, listener] {
      auto bootstrap = Bootstrap::Join({.rank = RankId(rank),
                                        .world = ranks,
                                        .address = rendezvous->address,
                                        .timeout = Seconds(20),
                                        .listener = listener});
      ASSERT_TRUE(bootstrap) << bootstrap.error().message();
      auto plugin = NetPlugin::Load(options.plugin, options.net_version);
      ASSERT_TRUE(plugin) << plugin.error().message();
      auto communicator = Communicator::Create(**plugin, **bootstrap, options.communicator);
      ASSERT_TRUE(communicator) << communicator.error().message();
      body(**communicator);
    });
  }
}

}  // namespace weft::collectives::testing
