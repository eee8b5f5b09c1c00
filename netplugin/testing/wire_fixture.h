// What a flow needs of the plugin around it, without NCCL, agent and background thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "netplugin/comm.h"
#include "netplugin/tcp/listener.h"

namespace weft::net::testing {

inline Address Loopback() {
  Address address;
  address.family = AF_INET;
  address.bytes[0] = 127;
  address.bytes[3] = 1;
  return address;
}

class WireTest : public ::testing::Test {
 protected:
  WireTest() : telemetry_(Telemetry::Create(environment_, 12)), listener_(Listener::Open(Loopback(), background_)) {}

  Environment environment_;
  std::unique_ptr<Telemetry> telemetry_;
  PolicyStore policies_;
  Background background_;  // never started: the tests are its thread
  Services services_{environment_, *telemetry_, policies_, background_};
  std::shared_ptr<Listener> listener_;
  std::mt19937_64 random_{31};
};

}  // namespace weft::net::testing
