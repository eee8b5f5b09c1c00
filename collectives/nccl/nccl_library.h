// NCCL and the CUDA runtime as a job calls them, found at run time: no header of either is needed to build, and the same
// program runs with real GPUs and without. Declared by us from their documented interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::collectives {

struct NcclUniqueId {
  char bytes[128];
};
static_assert(sizeof(NcclUniqueId) == 128);

using NcclComm = void*;
using CudaStream = void*;

inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;  ///< ncclResult_t
inline constexpr int kCudaSuccess = 0, kCudaNotReady = 600;  ///< cudaError_t

/// ncclDataType_t, those that every release since 2.21 has.
enum class NcclType : int { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16 };
/// ncclRedOp_t.
enum class NcclOp : int { kSum, kProd, kMax, kMin, kAvg };

/// ncclConfig_t up to the communicator's name. NCCL takes what a smaller structure of an older version lacks as not set.
struct NcclConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* comm_name;
};
static_assert(offsetof(NcclConfig, net_name) == 32 && offsetof(NcclConfig, comm_name) == 48);

/// The calls of both libraries. All return NCCL's and CUDA's own codes.
struct NcclLibrary {
  /// Opens them. `nccl` and `cuda` are paths or names for the dynamic loader; empty: libnccl.so.2, and the newest
  /// libcudart.so that is there. Errors: kNotFound naming what was tried and what the loader said.
  static Result<std::unique_ptr<NcclLibrary>> Open(const std::string& nccl, const std::string& cuda);

  int (*get_version)(int*);
  int (*get_unique_id)(NcclUniqueId*);
  int (*init_rank)(NcclComm*, int ranks, NcclUniqueId, int rank);
  int (*init_rank_config)(NcclComm*, int ranks, NcclUniqueId, int rank, NcclConfig*);
  int (*split)(NcclComm, int color, int key, NcclComm*, NcclConfig*);
  int (*shrink)(NcclComm, int* without, int count, NcclComm*, NcclConfig*, int flags);  ///< null before 2.27
  int (*finalize)(NcclComm);
  int (*destroy)(NcclComm);
  int (*abort)(NcclComm);
  int (*async_error)(NcclComm, int*);
  const char* (*error_string)(int);
  const char* (*last_error)(NcclComm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, size_t, NcclType, NcclOp, NcclComm, CudaStream);
  int (*reduce)(const void*, void*, size_t, NcclType, NcclOp, int root, NcclComm, CudaStream);
  int (*broadcast)(const void*, void*, size_t, NcclType, int root, NcclComm, CudaStream);
  int (*reduce_scatter)(const void*, void*, size_t receive_count, NcclType, NcclOp, NcclComm, CudaStream);
  int (*all_gather)(const void*, void*, size_t send_count, NcclType, NcclComm, CudaStream);
  int (*send)(const void*, size_t, NcclType, int peer, NcclComm, CudaStream);
  int (*recv)(void*, size_t, NcclType, int peer, NcclComm, CudaStream);

  int (*cuda_device_count)(int*);
  int (*cuda_set_device)(int);
  int (*cuda_malloc)(void**, size_t);
  int (*cuda_free)(void*);
  int (*cuda_memcpy)(void* to, const void* from, size_t, int kind);
  int (*cuda_stream_create)(CudaStream*, unsigned flags);
  int (*cuda_stream_destroy)(CudaStream);
  int (*cuda_stream_query)(CudaStream);
  const char* (*cuda_error_string)(int);

  /// "2.30.7".
  std::string Version() const;
  /// kInternal with NCCL's words for the code, and for what it says of `comm` (may be null), where it is not success.
  Status Check(int code, const char* what, NcclComm comm = nullptr) const;
  Status CheckCuda(int code, const char* what) const;
};

/// What a communicator is called, and how it is marked.
struct NcclCommOptions {
  std::string name;                  ///< NCCL's profiler hands it on, where this release takes one (2.27)
  std::optional<int> traffic_class;  ///< TOS byte for its network traffic: kUnimplemented before 2.27
};

/// A communicator of `ranks`, numbers of `bootstrap`, in this order; its id comes from the first of them.
/// Requires: a call of all ranks of the bootstrap at once, each with the ranks of its own communicator, itself among them.
/// Errors: kInternal, with NCCL's words; those of Bootstrap::AllGather.
Result<NcclComm> OpenCommunicator(const NcclLibrary& nccl, Bootstrap& bootstrap, const std::vector<int>& ranks,
                                  const NcclCommOptions& options);

/// Until all is done that was begun on `stream`. `comm` may be null: an aborted one. Errors: kInternal, with what NCCL or CUDA says;
/// kDeadlineExceeded naming `what` after `timeout`.
[[nodiscard]] Status WaitForStream(const NcclLibrary& nccl, NcclComm comm, CudaStream stream, Seconds timeout, const std::string& what);

}  // namespace weft::collectives
