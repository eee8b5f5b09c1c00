#include "access/tokens.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "controller/testing/temp_dir.h"

namespace weft::access {
namespace {

using controller::testing::TempDir;
using ::testing::HasSubstr;

const std::string kFirst = "0123456789abcdef0123456789abcdef", kSecond = "abcdefghijklmnopqrstuvwxyzABCDEF";

void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

TEST(Tokens, AreReadAgainWhenTheirFileChanges) {
  const TempDir dir;
  const std::string path = dir.path() + "/tokens";
  Write(path, "# of the wall\n" + kFirst + "  # since May\n");
  Tokens tokens({.viewer = path, .operators = ""});
  ASSERT_TRUE(tokens.Load());
  ASSERT_TRUE(tokens.Find(kFirst));
  EXPECT_EQ(tokens.Find(kFirst)->role, rpc::Role::kViewer);
  EXPECT_EQ(tokens.Find(kFirst)->name, "token 1");
  EXPECT_FALSE(tokens.Find(kSecond));
  EXPECT_FALSE(tokens.Find(kFirst.substr(1)));
  EXPECT_FALSE(tokens.Find(""));
  Write(path, kSecond + "\n" + kFirst + "\n");
  EXPECT_EQ(tokens.Find(kSecond)->name, "token 1");
  EXPECT_EQ(tokens.Find(kFirst)->name, "token 2");
  Write(path, kSecond + "\n" + kFirst + "\n", 0640);
  EXPECT_FALSE(tokens.Find(kFirst)) << "what others may read lets nobody in";
  Write(path, kSecond + "\n");
  EXPECT_TRUE(tokens.Find(kSecond));
  EXPECT_FALSE(tokens.Find(kFirst));
  ASSERT_EQ(std::remove(path.c_str()), 0);
  EXPECT_FALSE(tokens.Find(kSecond)) << "a file that is gone lets nobody in";
}

TEST(Tokens, FilesThatAreNotGoodStopTheStart) {
  const TempDir dir;
  const std::string path = dir.path() + "/tokens";
  const auto load = [&] { return Tokens({.viewer = "", .operators = path}).Load().error().message(); };
  EXPECT_THAT(load(), HasSubstr("read \"" + path + "\": No such file"));
  Write(path, kFirst + "\n", 0644);
  EXPECT_THAT(load(), HasSubstr("mode 0644, expected 0600 or less"));
  Write(path, kFirst + "\nshort\n");
  EXPECT_THAT(load(), HasSubstr(path + ":2: a token of 5 bytes, expected 32 to 256"));
  Write(path, "# nobody\n");
  EXPECT_THAT(load(), HasSubstr("no token, expected one a line"));
}

TEST(Tokens, AreTakenFromBothKindsOfHeader) {
  EXPECT_EQ(TokenOf("Bearer abc"), "abc");
  EXPECT_EQ(TokenOf("bearer  abc "), "abc");
  EXPECT_EQ(TokenOf("Basic dXNlcjpwYTpzcw=="), "pa:ss") << "of user:pa:ss";
  EXPECT_EQ(TokenOf("Basic OnRva2Vu"), "token") << "of :token";
  for (const char* none : {"", "Bearer", "abc", "Basic dXNlcg==", "Basic ***=", "Basic dXNlcjpwYTpzcw", "Digest abc"}) {
    EXPECT_EQ(TokenOf(none), "") << none;
  }
}

}  // namespace
}  // namespace weft::access
