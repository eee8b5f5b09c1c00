// RDMA flows of which each end can have a second port. Include after gtest.
#pragma once

#include "netplugin/rdma/testing/flow_fixture.h"

namespace weft::net::rdma::testing {

class FailoverFixture : public FlowFixture {
 protected:
  FailoverFixture() { standbys_ = true; }

  void Connect(int failback_s = 3600) {
    FlowFixture::Connect([&](RdmaEnvironment& rdma) { rdma.failback_s = failback_s, rdma.recovery_s = recovery_s_; });
  }
  int recovery_s_ = 20;
  uint64_t WritesOf(int device) { return fabric_.counts().writes_by_device[device]; }
  /// Exchanges, and expects that some of the bytes left by `sender` and the credits by `receiver`.
  void ExchangeOver(int sender, int receiver) {
    const uint64_t sent = WritesOf(sender), announced = WritesOf(receiver);
    Exchange(40, 16 << 10, 8);
    EXPECT_GE(WritesOf(sender), sent + 40);
    EXPECT_GE(WritesOf(receiver), announced + 40);
  }
};

}  // namespace weft::net::rdma::testing
