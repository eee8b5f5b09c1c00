#include "common/result.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace weft {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Fail(Code::kInvalidArgument, "odd");
  return n / 2;
}

Result<int> Quarter(int n) {
  WEFT_ASSIGN_OR_RETURN(const int half, Half(n));
  return Half(half);
}

Status Check(int n) {
  WEFT_RETURN_IF_ERROR(Half(n));
  return Ok();
}

TEST(Result, MacrosPassValuesAndErrors) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).error().message(), "odd");
  EXPECT_TRUE(Check(2));
  EXPECT_EQ(Check(1).error().code(), Code::kInvalidArgument);
}

TEST(Result, ContextGoesInFront) {
  EXPECT_EQ(Half(1).error().WithContext("halve 1").message(), "halve 1: odd");
}

TEST(Result, MessagesAreFitForTerminalsLogsAndJson) {
  const auto shown = [](std::string text) { return Error(Code::kInternal, std::move(text)).message(); };
  EXPECT_EQ(shown("file \"Modèle 模型 🙂\""), "file \"Modèle 模型 🙂\"");
  EXPECT_EQ(shown("a\nb\x1b[31m\x7f\t"), "a?b?[31m??");
  EXPECT_EQ(shown(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(shown("\xff\xfe \xc3"), "?? ?") << "no UTF-8, and cut off";
  EXPECT_EQ(shown("\xc0\xaf \xc2\x9b \xed\xa0\x80 \xf4\x90\x80\x80"), "?? ?? ??? ????") << "overlong, control, surrogate, too large";
  EXPECT_EQ(Error(Code::kInternal, "x").WithContext("a\r").message(), "a?: x");
}

TEST(Result, ErrnoNamesTheCallAndTheCause) {
  const Error error = ErrnoError("open \"x\"", ENOENT);
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_EQ(error.message(), "open \"x\": No such file or directory");
}

TEST(Result, CodesAreGrpcs) {
  EXPECT_EQ(static_cast<int>(Code::kInvalidArgument), 3);
  EXPECT_EQ(static_cast<int>(Code::kUnavailable), 14);
  EXPECT_EQ(CodeName(Code::kDataLoss), "DATA_LOSS");
}

}  // namespace
}  // namespace weft
