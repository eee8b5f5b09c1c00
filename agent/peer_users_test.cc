#include "agent/peer_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace weft::agent {
namespace {

constexpr uint32_t kNobody = 65534;

TEST(PeerUsers, WhereAllUsersAreMappedEachIsKnown) {
  const PeerUsers users("         0          0 4294967295\n", "65534\n");
  EXPECT_TRUE(users.all_mapped());
  EXPECT_TRUE(users.Tells(0));
  EXPECT_TRUE(users.Tells(kNobody)) << "there it is a user like any other";
}

TEST(PeerUsers, WhereSomeAreNotTheOverflowUidStandsForNobody) {
  // As a rootless container has it: 1 + 65536 users, of which one has the number 65534.
  const PeerUsers users("0 1000 1\n1 100000 65536\n", "65534\n");
  EXPECT_FALSE(users.all_mapped());
  EXPECT_TRUE(users.Tells(0));
  EXPECT_TRUE(users.Tells(1000));
  EXPECT_FALSE(users.Tells(kNobody)) << "mapped or not: it cannot be told";
}

TEST(PeerUsers, AllMayBeMappedInPieces) {
  EXPECT_TRUE(PeerUsers("0 0 1000\n1000 1000 4294966295\n", "65534\n").all_mapped());
}

TEST(PeerUsers, TheOverflowUidIsTheKernelsSetting) {
  const PeerUsers users("0 0 1\n", "77\n");
  EXPECT_FALSE(users.Tells(77));
  EXPECT_TRUE(users.Tells(kNobody));
}

TEST(PeerUsers, WhatCannotBeReadCountsAsNothingMapped) {
  const PeerUsers users("", "");
  EXPECT_FALSE(users.all_mapped());
  EXPECT_FALSE(users.Tells(kNobody));
  EXPECT_TRUE(users.Tells(1000));
}

TEST(PeerUsers, OwnUserIsKnown) { EXPECT_TRUE(PeerUsers::Read().Tells(::getuid())); }

}  // namespace
}  // namespace weft::agent
