#include "collectives/net_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "collectives/net_adapter.h"

namespace weft::collectives {
namespace {

// Around the dynamic loader's calls: its own lock is invisible to the thread sanitizer, which then sees a race in the
// names that it hands out when ranks of one process load at once.
std::mutex loader_mutex;

/// The logger that a plugin gets: warnings always, the rest when NCCL_DEBUG asks for it, as NCCL does.
void PluginLog(int level, unsigned long, const char*, int, const char* format, ...) {
  static const std::string debug = [] {
    const char* value = std::getenv("NCCL_DEBUG");
    return std::string(value == nullptr ? "" : value);
  }();
  const bool wanted = level == nccl::kLogWarn || (level == nccl::kLogInfo && (debug == "INFO" || debug == "TRACE")) ||
                      (level == nccl::kLogTrace && debug == "TRACE");
  if (!wanted) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "net plugin: %s%s\n", level == nccl::kLogWarn ? "warning: " : "", text);
}

Result<SharedObject> Open(const std::string& path) {
  if (path.find('/') != std::string::npos && !std::filesystem::exists(path)) {
    return Fail(Code::kNotFound, fmt::format("net plugin \"{}\": no such file", path));
  }
  const std::lock_guard lock(loader_mutex);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string reason = dlerror();
    const bool missing = reason.find("No such file") != std::string::npos;
    return Fail(missing ? Code::kNotFound : Code::kFailedPrecondition,
                fmt::format("net plugin \"{}\": cannot be loaded: {}", path, reason));
  }
  return SharedObject(handle);
}

/// The file that `table` was mapped from: what "libnccl-net.so" really is.
std::string FileOf(const void* table, const std::string& path) {
  const std::lock_guard lock(loader_mutex);
  Dl_info info{};
  return dladdr(table, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : path;
}

template <typename Table, int kVersion>
Result<std::unique_ptr<NetPlugin>> Start(SharedObject library, void* table, const std::string& path) {
  auto plugin = std::make_unique<NetAdapter<Table, kVersion>>(std::move(library), static_cast<Table*>(table),
                                                              FileOf(table, path));
  WEFT_RETURN_IF_ERROR(plugin->Init(&PluginLog));
  return std::unique_ptr<NetPlugin>(std::move(plugin));
}

using Starter = Result<std::unique_ptr<NetPlugin>> (*)(SharedObject, void*, const std::string&);
struct Version {
  int number;
  Starter start;
};
constexpr Version kVersions[] = {
    {12, &Start<nccl::NetV12, 12>}, {11, &Start<nccl::NetV11, 11>}, {10, &Start<nccl::NetV10, 10>},
    {9, &Start<nccl::NetV9, 9>},    {8, &Start<nccl::NetV8, 8>},    {7, &Start<nccl::NetV7, 7>},
    {6, &Start<nccl::NetV6, 6>},
};

}  // namespace

SharedObject::~SharedObject() {
  if (handle_ == nullptr) return;
  const std::lock_guard lock(loader_mutex);
  dlclose(handle_);
}

void* SharedObject::Symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

std::string_view ResultName(int result) {
  switch (result) {
    case nccl::kSuccess: return "ncclSuccess";
    case nccl::kUnhandledCudaError: return "ncclUnhandledCudaError";
    case nccl::kSystemError: return "ncclSystemError";
    case nccl::kInternalError: return "ncclInternalError";
    case nccl::kInvalidArgument: return "ncclInvalidArgument";
    case nccl::kInvalidUsage: return "ncclInvalidUsage";
    case nccl::kRemoteError: return "ncclRemoteError";
    case nccl::kInProgress: return "ncclInProgress";
    default: return "an unknown result code";
  }
}

Error PluginError(const std::string& plugin, std::string_view call, int result) {
  Code code = Code::kInternal;
  switch (result) {
    case nccl::kSystemError:
    case nccl::kRemoteError: code = Code::kUnavailable; break;
    case nccl::kInvalidArgument: code = Code::kInvalidArgument; break;
    case nccl::kInvalidUsage: code = Code::kFailedPrecondition; break;
    default: break;
  }
  return Error(code, fmt::format("net plugin \"{}\": {} returned {} ({})", plugin, call, ResultName(result), result));
}

uint64_t CommIdOfEnvironment() {
  const char* job = std::getenv("WEFT_JOB_ID");
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : std::string_view(job == nullptr ? "" : job)) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::string DefaultPluginPath() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "libnccl-net-weft.so";
  const auto root = program.parent_path().parent_path();
  // Beside the programs in a build folder, in a folder of its own where it was installed (CMAKE_INSTALL_LIBDIR).
  for (const char* folder : {"lib", "lib/weft", "lib/x86_64-linux-gnu/weft", "lib/aarch64-linux-gnu/weft", "lib64/weft"}) {
    const auto beside = root / folder / "libnccl-net-weft.so";
    if (std::filesystem::exists(beside, error)) return beside.string();
  }
  return "libnccl-net-weft.so";
}

Result<std::unique_ptr<NetPlugin>> NetPlugin::Load(const std::string& path, int newest_version) {
  WEFT_ASSIGN_OR_RETURN(SharedObject library, Open(path));
  for (const Version& version : kVersions) {
    if (version.number > newest_version) continue;
    void* table = library.Symbol(fmt::format("ncclNetPlugin_v{}", version.number));
    if (table != nullptr) return version.start(std::move(library), table, path);
  }
  return Fail(Code::kNotFound, fmt::format("net plugin \"{}\": exports no ncclNetPlugin_v6 to v{}", path,
                                           std::min(newest_version, 12)));
}

}  // namespace weft::collectives
