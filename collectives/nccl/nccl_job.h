// The job `weft-nccl-job`: what a training program does with NCCL and nothing else. Communicators for tensor, data and
// pipeline parallelism as frameworks open them, collectives of given sizes in a given order, timed pauses for the computation,
// every element of every result checked. NCCL is any library that is named at run time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/nccl/nccl_library.h"
#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::collectives {

enum class NcclCall { kCompute, kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kNextStage };
enum class NcclGroup { kWorld, kTensor, kData, kPipeline };

/// One thing that an iteration does.
struct NcclStep {
  NcclCall call = NcclCall::kCompute;
  NcclGroup group = NcclGroup::kWorld;
  Bytes bytes{0};       ///< the larger side's buffer of a rank
  Seconds compute{0};
  int64_t calls = 1;    ///< in a row
  bool timed = false;   ///< waits for them, and says how long one took
};

/// "compute=150ms", "GROUP.CALL=BYTES" or "GROUP.CALL=BYTESxN", as in "dp.allreduce=2MiB". With N: so many in a row, timed.
/// Groups: world, tp, dp, pp. Calls: allreduce, allgather,
/// reducescatter, broadcast, reduce, alltoall, sendrecv (to the next rank of the group and from the one before).
/// Errors: kInvalidArgument naming the text and what was expected.
[[nodiscard]] Result<NcclStep> ParseNcclStep(const std::string& text);

/// A rank that is late once, for tests of who is blamed.
struct NcclDelay {
  int rank = 0;
  int64_t call = 0;     ///< the n-th collective of that rank, from 1
  Seconds time{0};
};
/// "RANK:CALL:TIME", as in "2:50:1s". Errors: kInvalidArgument.
[[nodiscard]] Result<NcclDelay> ParseNcclDelay(const std::string& text);

/// "GROUP=CLASS", as in "tp=104": the traffic class of that group's communicators, 0 to 255. Errors: kInvalidArgument.
[[nodiscard]] Result<std::pair<NcclGroup, int>> ParseNcclTrafficClass(const std::string& text);

struct NcclJobOptions {
  RankId rank{0};
  int world = 1;
  int tensor = 1, pipeline = 1;      ///< ranks of such a group; data parallel is what is left
  std::string rendezvous;            ///< "host:port" of rank 0
  std::string nccl, cuda;            ///< libraries; empty: as NcclLibrary::Open
  std::optional<int> device;         ///< empty: rank modulo devices
  std::vector<NcclStep> steps;       ///< of an iteration, in order
  NcclType type = NcclType::kFloat32;
  NcclOp op = NcclOp::kSum;
  std::optional<int64_t> iterations; ///< one of the two
  std::optional<Seconds> duration;   ///< rank 0 ends the job at the first iteration boundary past it
  int64_t min_iterations = 1;        ///< with duration: the last one is not before this many
  /// In the last of every so many iterations all ranks wait for each other after each computation and before what follows it, so that
  /// computation is timed by itself; 0: none.
  int64_t apart_every = 0;
  std::optional<NcclDelay> delay;
  std::map<NcclGroup, int> traffic_classes;  ///< TOS bytes of communicators, as a framework asks NCCL for them
  Seconds timeout{60};               ///< for all ranks to join, and for a call that stands still
  bool check = true;
};

/// Errors: kInvalidArgument naming the option, its value and what was expected.
[[nodiscard]] Status CheckNcclJobOptions(const NcclJobOptions& options);

/// The ranks of each group of one kind, tensor ranks side by side, then data, then pipeline, which is Megatron's order.
std::vector<std::vector<int>> RanksOfGroups(NcclGroup group, int world, int tensor, int pipeline);

/// Runs this process's rank to the end. Rank 0 prints what nccl_report.h says to stdout.
/// Errors: kInvalidArgument for wrong options; kNotFound where a library is missing; kDataLoss for a wrong element;
/// kInternal with NCCL's words; kDeadlineExceeded for a call that does not end (the communicators are aborted).
[[nodiscard]] Status RunNcclJob(const NcclJobOptions& options);

}  // namespace weft::collectives
