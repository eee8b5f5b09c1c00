#include "runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "common/unique_fd.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-", kWriting = ".writing-", kOld = ".old-";

Error SystemError(std::string_view what, const std::string& path, int number) {
  return ErrnoError(fmt::format("{} {}", what, path), number);
}

std::optional<int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  name.remove_prefix(kStep.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

Status SyncFolder(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return Fail(SystemError("sync", path, errno));
  return Ok();
}

Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  if (error) return Fail(SystemError("read", folder, error.value()));
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    names.push_back(entries->path().filename().string());
    if (error) break;
  }
  if (error) return Fail(SystemError("read", folder, error.value()));
  return names;
}

Status Remove(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? Status(Fail(SystemError("remove", path, error.value()))) : Ok();
}

Status Put(int descriptor, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Fail(SystemError("write", path, errno));
    text.remove_prefix(static_cast<size_t>(done));
  }
  return Ok();
}

}  // namespace

std::string StepFolder(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::string StepFolderInWriting(const std::string& folder, int64_t step) {
  return fmt::format("{}/{}{}", folder, kWriting, StepFolder(step));
}

Result<std::vector<int64_t>> StepsIn(const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::string> FindCheckpoint(const std::string& path) {
  if (::access((path + "/" + kManifestFile).c_str(), F_OK) == 0) return path;
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(path));
  if (steps.empty()) return Fail(Code::kNotFound, fmt::format("{}: no checkpoint, and no folder with some", path));
  return path + "/" + StepFolder(steps.back());
}

Result<std::string> BeginStepFolder(const std::string& folder, int64_t step) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Fail(SystemError("make", folder, error.value()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (name.starts_with(kWriting) || name.starts_with(kOld)) WEFT_RETURN_IF_ERROR(Remove(folder + "/" + name));
  }
  std::string path = StepFolderInWriting(folder, step);
  if (::mkdir(path.c_str(), 0777) != 0) return Fail(SystemError("make", path, errno));
  return path;
}

Status MakeFile(const std::string& path, std::string_view begin, int64_t bytes) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return Fail(SystemError("make", path, errno));
  // Room for all of it now, so that a full disk is known before the first rank writes.
  if (const int number = ::posix_fallocate(file.get(), 0, std::max<int64_t>(bytes, 1)); number != 0)
    return Fail(SystemError("make", fmt::format("{} of {} bytes", path, bytes), number));
  WEFT_RETURN_IF_ERROR(Put(file.get(), path, begin));
  if (::fsync(file.get()) != 0) return Fail(SystemError("sync", path, errno));
  return Ok();
}

Status WriteDurably(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".new";
  {
    const UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return Fail(SystemError("make", fresh, errno));
    WEFT_RETURN_IF_ERROR(Put(file.get(), fresh, text));
    if (::fsync(file.get()) != 0) return Fail(SystemError("sync", fresh, errno));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return Fail(SystemError("rename", fresh, errno));
  return SyncFolder(fs::path(path).parent_path().string());
}

Status CommitStepFolder(const std::string& folder, int64_t step, int64_t keep) {
  const std::string writing = StepFolderInWriting(folder, step), final = folder + "/" + StepFolder(step);
  WEFT_RETURN_IF_ERROR(SyncFolder(writing));
  if (::rename(writing.c_str(), final.c_str()) != 0) return Fail(SystemError("rename", writing, errno));
  WEFT_RETURN_IF_ERROR(SyncFolder(folder));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(folder));
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) {
    // Out of sight first: what is half removed must not look like a checkpoint.
    const std::string name = StepFolder(steps[i]), gone = fmt::format("{}/{}{}", folder, kOld, name);
    if (::rename((folder + "/" + name).c_str(), gone.c_str()) != 0) return Fail(SystemError("rename", name, errno));
    WEFT_RETURN_IF_ERROR(Remove(gone));
  }
  return Ok();
}

void DropStepFolder(const std::string& folder, int64_t step) {
  std::error_code ignored;
  fs::remove_all(StepFolderInWriting(folder, step), ignored);
}

}  // namespace weft::runtime
