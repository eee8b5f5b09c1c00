#include "formats/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/unique_fd.h"

namespace weft::formats {
namespace {

constexpr size_t kLimit = 16u << 20;  // a description, not data: more is the wrong file

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return Fail(Code::kNotFound, path + ": no such file");
    return Fail(ErrnoError(path, errno));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return Fail(Code::kInvalidArgument, path + ": is a directory, expected a file");
  }
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(ErrnoError(path, errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kLimit) return Fail(Code::kInvalidArgument, path + ": larger than 16 MiB, expected a description");
  }
}

}  // namespace weft::formats
