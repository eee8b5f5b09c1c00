#include "access/roles.h"

#include <gmock/gmock.h>

#include <fstream>

#include "controller/testing/temp_dir.h"

namespace weft::access {
namespace {

using rpc::Role;
using controller::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AccessRoles, EachRoleMayDoWhatItIsForAndNoMore) {
  const struct {
    Role role;
    bool session, read, submit, operate;
  } cases[] = {{Role::kAgent, true, false, false, false},
               {Role::kViewer, false, true, false, false},
               {Role::kSubmitter, false, true, true, false},
               {Role::kOperator, false, true, true, true},
               {Role::kController, false, false, false, false}};
  for (const auto& expected : cases) {
    const rpc::Identity who{.role = expected.role, .name = "x"};
    EXPECT_EQ(CheckRole(who, Access::kSession).has_value(), expected.session) << rpc::RoleName(expected.role);
    EXPECT_EQ(CheckRole(who, Access::kRead).has_value(), expected.read) << rpc::RoleName(expected.role);
    EXPECT_EQ(CheckRole(who, Access::kSubmit).has_value(), expected.submit) << rpc::RoleName(expected.role);
    EXPECT_EQ(CheckRole(who, Access::kOperate).has_value(), expected.operate) << rpc::RoleName(expected.role);
  }
  EXPECT_THAT(CheckRole({.role = Role::kViewer, .name = "wall"}, Access::kSubmit).error().message(),
              HasSubstr("viewer \"wall\" may not do this: expected a submitter or operator"));
}

TEST(AccessRoles, UrisSayRoleAndName) {
  const auto agent = rpc::ParseIdentityUri("weft://agent/node-17.cluster");
  ASSERT_TRUE(agent);
  EXPECT_EQ(agent->role, Role::kAgent);
  EXPECT_EQ(agent->name, "node-17.cluster");
  for (const char* uri : {"", "weft://", "weft://agent", "weft://agent/", "weft://root/h1", "https://agent/h1",
                          "weft://agent/h1/h2", "weft://agent/h 1"}) {
    EXPECT_FALSE(rpc::ParseIdentityUri(uri)) << uri;
  }
}

TEST(Revoked, ListsAreReadAgainWhenTheyChange) {
  EXPECT_THAT(ParseRevoked("0a:1B # agent h1\n\n# nobody\nnot one\nFF\n"), ElementsAre("0A1B", "FF"));
  const TempDir dir;
  const std::string path = dir.path() + "/revoked.txt";
  RevokedCertificates revoked(path);
  EXPECT_FALSE(revoked.Load()) << "a list that is configured must be there";
  std::ofstream(path) << "AA\n";
  ASSERT_TRUE(revoked.Load());
  EXPECT_TRUE(revoked.Contains("AA"));
  EXPECT_FALSE(revoked.Contains("BB"));
  std::ofstream(path) << "AA\nBB\n";
  EXPECT_TRUE(revoked.Contains("BB"));
  ASSERT_EQ(std::remove(path.c_str()), 0);
  EXPECT_TRUE(revoked.Contains("BB")) << "nobody is let in again by a file that is gone";
  RevokedCertificates none("");
  EXPECT_TRUE(none.Load());
  EXPECT_FALSE(none.Contains("AA"));
}

}  // namespace
}  // namespace weft::access
