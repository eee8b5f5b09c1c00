#include "common/result.h"

#include <cerrno>
#include <cstring>

namespace weft {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kCancelled: return "CANCELLED";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case Code::kNotFound: return "NOT_FOUND";
    case Code::kAlreadyExists: return "ALREADY_EXISTS";
    case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
    case Code::kAborted: return "ABORTED";
    case Code::kUnimplemented: return "UNIMPLEMENTED";
    case Code::kInternal: return "INTERNAL";
    case Code::kUnavailable: return "UNAVAILABLE";
    case Code::kDataLoss: return "DATA_LOSS";
    case Code::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Error Error::WithContext(std::string_view context) const {
  std::string message(context);
  message += ": ";
  message += message_;
  return Error(code_, std::move(message));
}

namespace {

Code CodeOfErrno(int errno_value) {
  switch (errno_value) {
    case ENOENT: return Code::kNotFound;
    case EEXIST: case EADDRINUSE: return Code::kAlreadyExists;
    case EINVAL: return Code::kInvalidArgument;
    case ENOMEM: case EMFILE: case ENFILE: case ENOSPC: return Code::kResourceExhausted;
    case EAGAIN: case ECONNREFUSED: case ECONNRESET: case EPIPE: case EHOSTUNREACH: case ENETUNREACH:
      return Code::kUnavailable;
    case ETIMEDOUT: return Code::kDeadlineExceeded;
    default: return Code::kFailedPrecondition;
  }
}

}  // namespace

Error ErrnoError(std::string_view what, int errno_value) {
  return Error(CodeOfErrno(errno_value), std::string(what) + ": " + std::strerror(errno_value));
}

}  // namespace weft
