#include "controller/nic_claims.h"

#include <gtest/gtest.h>

namespace weft::controller {
namespace {

constexpr double kMb = 1e6;

/// Says the same for `seconds`, five times a second, and returns the verdicts.
std::vector<NicClaims::Verdict> For(NicClaims& claims, double& now_s, double seconds, double nic_rate, const std::map<Owner, double>& rates) {
  std::vector<NicClaims::Verdict> all;
  const double end_s = now_s + seconds - 0.01;
  while (now_s < end_s) {
    now_s += 0.2;
    std::map<Owner, double> claimed;
    for (const auto& [owner, rate] : rates) claimed[owner] = rate * 0.2;
    for (const NicClaims::Verdict& verdict : claims.Take("h1", now_s, nic_rate * 0.2, claimed)) all.push_back(verdict);
  }
  return all;
}

TEST(NicClaims, WhoSendsWhatHeSaysIsBelieved) {
  NicClaims claims;
  double now_s = 0;
  EXPECT_TRUE(For(claims, now_s, 100, 100 * kMb, {{1, 60 * kMb}, {2, 38 * kMb}}).empty());
  EXPECT_TRUE(For(claims, now_s, 100, 0, {{1, 0}, {2, 0.2 * kMb}}).empty()) << "less than a megabyte in two seconds";
}

TEST(NicClaims, WhoClaimsMoreThanTheNicsSentIsDoubtedForAMinute) {
  NicClaims claims;
  double now_s = 0;
  EXPECT_TRUE(For(claims, now_s, 3, 100 * kMb, {{1, 90 * kMb}, {2, 1000 * kMb}}).empty()) << "one window may be chance";
  const auto found = For(claims, now_s, 3, 100 * kMb, {{1, 90 * kMb}, {2, 1000 * kMb}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].owner, 2);
  EXPECT_TRUE(found[0].doubted);
  EXPECT_NEAR(found[0].claimed, 2000 * kMb, 201 * kMb);
  EXPECT_NEAR(found[0].sent, 200 * kMb, 21 * kMb);
  EXPECT_TRUE(claims.Doubts("h1", 2));
  EXPECT_FALSE(claims.Doubts("h1", 1)) << "his neighbour has not lied";
  EXPECT_FALSE(claims.Doubts("h2", 2));
  EXPECT_TRUE(For(claims, now_s, 50, 100 * kMb, {{1, 90 * kMb}, {2, 10 * kMb}}).empty());
  const auto again = For(claims, now_s, 20, 100 * kMb, {{1, 90 * kMb}, {2, 10 * kMb}});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_FALSE(again[0].doubted);
  EXPECT_FALSE(claims.Doubts("h1", 2));
}

TEST(NicClaims, WhereNobodyAloneClaimsTooMuchAllWhoClaimMuchAreDoubted) {
  NicClaims claims;
  double now_s = 0;
  const auto found = For(claims, now_s, 6, 100 * kMb, {{1, 90 * kMb}, {2, 80 * kMb}, {3, kMb}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_FALSE(claims.Doubts("h1", 3));
}

TEST(NicClaims, OfAHostSoManyOwnersAreKept) {
  NicClaims claims;
  double now_s = 0;
  std::map<Owner, double> rates;
  for (Owner owner = 0; owner < 1000; ++owner) rates[owner] = 1000 * kMb;
  EXPECT_EQ(For(claims, now_s, 6, kMb, rates).size(), NicClaims::kMostOwners);
  claims.Forget("h1");
  EXPECT_FALSE(claims.Doubts("h1", 0));
}

}  // namespace
}  // namespace weft::controller
