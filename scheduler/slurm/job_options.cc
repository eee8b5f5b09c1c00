#include "scheduler/slurm/job_options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "common/unique_fd.h"

namespace weft::slurm {
namespace {

Error Bad(std::string_view option, std::string_view text, std::string_view expected) {
  return Error(Code::kInvalidArgument, "--" + std::string(option) + "=" + std::string(text) + ": " +
                                           std::string(expected));
}

}  // namespace

Result<int64_t> ParseCount(std::string_view option, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    return Fail(Bad(option, text, "expected a whole number of at least 1"));
  }
  return value;
}

Result<std::string> ReadModelFile(const std::string& path) {
  const auto fail = [&](int errno_value) {
    return Fail(ErrnoError("--" + std::string(kModelOption) + "=" + path + ": read the model file", errno_value));
  };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block the command
  if (!file) return fail(errno);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return fail(errno);
  if (!S_ISREG(status.st_mode)) return Fail(Bad(kModelOption, path, "expected a regular file"));
  std::string text(kMaxModelBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxModelBytes) {
    return Fail(Bad(kModelOption, path, "larger than " + std::to_string(kMaxModelBytes) +
                                            " bytes, expected a Hugging Face config.json"));
  }
  text.resize(size);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{' || text[last] != '}' || text.find('\0') != std::string::npos) {
    return Fail(Bad(kModelOption, path, "not a JSON object, expected a Hugging Face config.json"));
  }
  return text;
}

}  // namespace weft::slurm
