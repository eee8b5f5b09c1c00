#include "collectives/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/parse_units.h"

namespace weft::collectives {
namespace {

/// The first of `names` that the loader opens, for good: NCCL's threads may outlive main.
Result<void*> OpenOneOf(const std::vector<std::string>& names) {
  std::string said;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    said += fmt::format("{}{}", said.empty() ? "" : "; ", dlerror());
  }
  return Fail(Code::kNotFound, said + "; give its path with --nccl or --cuda, or put its folder into LD_LIBRARY_PATH");
}

/// For as long as the process lives: NCCL keeps the pointer, and hands it on with every communicator that is split off later.
const char* Kept(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string>& names = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

template <class Function>
Status Find(void* library, const char* name, Function& into, bool required = true) {
  into = reinterpret_cast<Function>(dlsym(library, name));
  if (into == nullptr && required) return Fail(Code::kNotFound, fmt::format("{}: not in that library", name));
  return Ok();
}

Status FindNccl(void* from, NcclLibrary& into) {
  WEFT_RETURN_IF_ERROR(Find(from, "ncclGetVersion", into.get_version));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclGetUniqueId", into.get_unique_id));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommInitRank", into.init_rank));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommInitRankConfig", into.init_rank_config, false));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommSplit", into.split, false));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommShrink", into.shrink, false));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommFinalize", into.finalize));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommDestroy", into.destroy));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommAbort", into.abort));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclCommGetAsyncError", into.async_error));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclGetErrorString", into.error_string));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclGetLastError", into.last_error));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclGroupStart", into.group_start));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclGroupEnd", into.group_end));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclAllReduce", into.all_reduce));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclReduce", into.reduce));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclBroadcast", into.broadcast));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclReduceScatter", into.reduce_scatter));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclAllGather", into.all_gather));
  WEFT_RETURN_IF_ERROR(Find(from, "ncclSend", into.send));
  return Find(from, "ncclRecv", into.recv);
}

Status FindCuda(void* from, NcclLibrary& into) {
  WEFT_RETURN_IF_ERROR(Find(from, "cudaGetDeviceCount", into.cuda_device_count));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaSetDevice", into.cuda_set_device));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaMalloc", into.cuda_malloc));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaFree", into.cuda_free));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaMemcpy", into.cuda_memcpy));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaStreamCreateWithFlags", into.cuda_stream_create));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaStreamDestroy", into.cuda_stream_destroy));
  WEFT_RETURN_IF_ERROR(Find(from, "cudaStreamQuery", into.cuda_stream_query));
  return Find(from, "cudaGetErrorString", into.cuda_error_string);
}

constexpr int kNamedSince = 22700;  // the release whose configuration has a name
constexpr unsigned kMagic = 0xcafebeef;
constexpr int kUnset = -2147483647 - 1;

}  // namespace

Result<std::unique_ptr<NcclLibrary>> NcclLibrary::Open(const std::string& nccl, const std::string& cuda) {
  const std::vector<std::string> runtimes = cuda.empty()
                                                ? std::vector<std::string>{"libcudart.so.13", "libcudart.so.12", "libcudart.so"}
                                                : std::vector<std::string>{cuda};
  WEFT_ASSIGN_OR_RETURN(void* const runtime, OpenOneOf(runtimes));
  WEFT_ASSIGN_OR_RETURN(void* const library, OpenOneOf({nccl.empty() ? "libnccl.so.2" : nccl}));
  auto found = std::make_unique<NcclLibrary>();
  WEFT_RETURN_IF_ERROR(FindNccl(library, *found));
  WEFT_RETURN_IF_ERROR(FindCuda(runtime, *found));
  return found;
}

std::string NcclLibrary::Version() const {
  int version = 0;
  get_version(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Status NcclLibrary::Check(int code, const char* what, NcclComm comm) const {
  if (code == kNcclSuccess || code == kNcclInProgress) return Ok();
  const char* last = last_error(comm);
  return Fail(Code::kInternal, fmt::format("{}: {} ({})", what, error_string(code), last == nullptr ? "" : last));
}

Status NcclLibrary::CheckCuda(int code, const char* what) const {
  if (code == kCudaSuccess) return Ok();
  return Fail(Code::kInternal, fmt::format("{}: {}", what, cuda_error_string(code)));
}

Result<NcclComm> OpenCommunicator(const NcclLibrary& nccl, Bootstrap& bootstrap, const std::vector<int>& ranks,
                                  const NcclCommOptions& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), bootstrap.rank().value()) - ranks.begin();
  NcclUniqueId id{};
  if (mine == 0) WEFT_RETURN_IF_ERROR(nccl.Check(nccl.get_unique_id(&id), "ncclGetUniqueId"));
  std::array<uint8_t, sizeof id> bytes;
  std::memcpy(bytes.data(), &id, sizeof id);
  WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap.AllGather(bytes));
  const auto& first = all[static_cast<size_t>(ranks.front())];
  if (first.size() != sizeof id) return Fail(Code::kInternal, "a rank sent an id of another size");
  std::memcpy(&id, first.data(), sizeof id);

  const int count = static_cast<int>(ranks.size()), rank = static_cast<int>(mine);
  NcclComm comm = nullptr;
  int version = 0;
  nccl.get_version(&version);
  if (version >= kNamedSince && nccl.init_rank_config != nullptr) {
    NcclConfig config{sizeof(NcclConfig), kMagic, static_cast<unsigned>(kNamedSince), kUnset, kUnset, kUnset, kUnset,
                      nullptr,            kUnset, options.traffic_class.value_or(kUnset), Kept(options.name)};
    WEFT_RETURN_IF_ERROR(nccl.Check(nccl.init_rank_config(&comm, count, id, rank, &config), "ncclCommInitRankConfig"));
    return comm;
  }
  if (options.traffic_class) return Fail(Code::kUnimplemented, "NCCL " + nccl.Version() + " takes no traffic class, expected 2.27 or later");
  WEFT_RETURN_IF_ERROR(nccl.Check(nccl.init_rank(&comm, count, id, rank), "ncclCommInitRank"));
  return comm;
}

Status WaitForStream(const NcclLibrary& nccl, NcclComm comm, CudaStream stream, Seconds timeout, const std::string& what) {
  const Seconds until = SystemClock().Now() + timeout;
  for (int turn = 0;; ++turn) {
    const int state = nccl.cuda_stream_query(stream);
    if (state == kCudaSuccess) return Ok();
    if (state != kCudaNotReady) return nccl.CheckCuda(state, "cudaStreamQuery");
    int error = kNcclSuccess;
    if (comm != nullptr) WEFT_RETURN_IF_ERROR(nccl.Check(nccl.async_error(comm, &error), "ncclCommGetAsyncError", comm));
    WEFT_RETURN_IF_ERROR(nccl.Check(error, "a collective failed", comm));
    if (SystemClock().Now() > until) {
      return Fail(Code::kDeadlineExceeded, fmt::format("{} has not ended within {}", what, FormatDuration(timeout)));
    }
    if (turn < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace weft::collectives
