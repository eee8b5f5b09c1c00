#include "access/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "common/unique_fd.h"

namespace weft::access {
namespace {

constexpr size_t kLongest = 1 << 20;

bool IsCredential(const std::string& path) {
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
  return folder != nullptr && *folder == '/' && path.starts_with(std::string(folder) + "/");
}

}  // namespace

std::string VersionOf(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return "";
  return fmt::format("{} {} {}.{} {:o}", status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                     status.st_mode);
}

Result<std::string> ReadText(const std::string& path, Readers readers) {
  const std::string what = fmt::format("read \"{}\"", path);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) return Fail(Code::kNotFound, ErrnoError(what, errno).message());
  // systemd gives a service its credentials with mode 0440, in a folder that nobody else may enter.
  const mode_t others = IsCredential(path) ? 007 : 077;
  if (readers == Readers::kOwner && (status.st_mode & others) != 0) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("{}: mode {:04o}, expected 0600 or less: chmod 600", what, status.st_mode & 07777));
  }
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = ::read(fd.get(), piece, sizeof piece)) != 0;) {
    if (got < 0) return Fail(Code::kNotFound, ErrnoError(what, errno).message());
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > kLongest) return Fail(Code::kInvalidArgument, fmt::format("{}: longer than {} bytes", what, kLongest));
  }
  return text;
}

}  // namespace weft::access
