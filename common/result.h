// The one error idea of the project: a call either returns its value or an Error that names the place, the value
// and what was expected. Infeasible is not an error: a search that finds no plan returns a value that says so.
//
//   Result<int> ParsePort(std::string_view text);
//   Status Bind() {
//     WEFT_ASSIGN_OR_RETURN(const int port, ParsePort(text));
//     return Ok();
//   }
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace weft {

/// What the caller should do about a failure. Numbers are gRPC's, so that an error crosses the wire by a cast.
enum class Code : int {
  kCancelled = 1,
  kInvalidArgument = 3,      ///< fix the call
  kDeadlineExceeded = 4,     ///< retry later or give up
  kNotFound = 5,             ///< name something that exists
  kAlreadyExists = 6,        ///< name something else
  kResourceExhausted = 8,    ///< give something back
  kFailedPrecondition = 9,   ///< fix the system
  kAborted = 10,             ///< plan again and retry
  kUnimplemented = 12,
  kInternal = 13,            ///< our bug
  kUnavailable = 14,         ///< retry
  kDataLoss = 15,            ///< page somebody
  kUnauthenticated = 16,
};

/// The code's gRPC spelling, e.g. "INVALID_ARGUMENT".
std::string_view CodeName(Code code);

/// A failure: a code and one lower-case line without a final period, grown by callers as "context: detail".
class Error {
 public:
  /// Messages quote what came from outside. Control characters, and bytes that are no UTF-8, become '?': a message goes to terminals,
  /// logs and JSON as it is. Complexity: O(bytes).
  Error(Code code, std::string message);

  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same failure, with what the caller was doing in front.
  Error WithContext(std::string_view context) const;

 private:
  Code code_;
  std::string message_;
};

/// A value or an Error. An alias cannot be [[nodiscard]]: every function that returns one says so itself.
template <typename T>
using Result = tl::expected<T, Error>;

/// Success without a value, or an Error.
using Status = Result<void>;

inline Status Ok() { return {}; }

inline tl::unexpected<Error> Fail(Code code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}
inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

/// A failed system call: kFailedPrecondition, or kResourceExhausted and the like where errno says so;
/// message "`what`: <text of errno>".
Error ErrnoError(std::string_view what, int errno_value);

#define WEFT_RESULT_CONCAT_(a, b) a##b
#define WEFT_RESULT_CONCAT(a, b) WEFT_RESULT_CONCAT_(a, b)

/// Returns the error of `expression` from the enclosing function, if it has one.
#define WEFT_RETURN_IF_ERROR(expression)                                             \
  do {                                                                               \
    if (auto weft_status = (expression); !weft_status) {                             \
      return ::weft::Fail(std::move(weft_status).error());                           \
    }                                                                                \
  } while (false)

/// Declares or assigns `lhs` from the value of `expression`, or returns its error.
#define WEFT_ASSIGN_OR_RETURN(lhs, expression) \
  WEFT_ASSIGN_OR_RETURN_IMPL_(WEFT_RESULT_CONCAT(weft_result_, __LINE__), lhs, expression)
#define WEFT_ASSIGN_OR_RETURN_IMPL_(name, lhs, expression) \
  auto name = (expression);                                \
  if (!name) return ::weft::Fail(std::move(name).error()); \
  lhs = std::move(*name)

}  // namespace weft
