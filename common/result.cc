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

namespace {

/// Bytes of the UTF-8 character at the head of `text`, 0 where there is none or it is a control character (RFC 3629, table of section 4).
size_t PrintableBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto within = [&](size_t i, unsigned least, unsigned most) { return byte(i) >= least && byte(i) <= most; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= ' ' && first != 0x7f ? 1 : 0;
  if (first < 0xe0) return first >= 0xc2 && within(1, first == 0xc2 ? 0xa0 : 0x80, 0xbf) ? 2 : 0;
  if (first < 0xf0) {
    return within(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  return first <= 0xf4 && within(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) && within(2, 0x80, 0xbf) &&
                 within(3, 0x80, 0xbf)
             ? 4
             : 0;
}

std::string Printable(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = PrintableBytes(std::string_view(text).substr(at));
    if (bytes == 0) text[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
  return text;
}

}  // namespace

Error::Error(Code code, std::string message) : code_(code), message_(Printable(std::move(message))) {}

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
