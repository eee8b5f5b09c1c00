// Collectives of one job's ranks over any ncclNet plugin, on host memory: what NCCL's kernels do on a GPU, an
// interpreter of planner::Schedule does here. The plugin is loaded by dlopen exactly as NCCL would.
//
//   WEFT_ASSIGN_OR_RETURN(auto plugin, NetPlugin::Load("libnccl-net-weft.so"));
//   WEFT_ASSIGN_OR_RETURN(auto bootstrap,
//                         Bootstrap::Join({.rank = RankId(0), .world = 4, .address = "10.0.0.1:4000"}));
//   WEFT_ASSIGN_OR_RETURN(auto comm, Communicator::Create(*plugin, *bootstrap, {}));
//   WEFT_RETURN_IF_ERROR(comm->AllReduce(gradients));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "collectives/bootstrap.h"
#include "collectives/net_plugin.h"
#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/schedule.h"

namespace weft::collectives {

/// kByte: what is moved and not summed.
enum class DataType : uint8_t { kInt32, kFloat32, kFloat64, kByte };
inline constexpr size_t ElementBytes(DataType type) { return type == DataType::kByte ? 1 : type == DataType::kFloat64 ? 8 : 4; }

/// What a reducing step makes of two elements.
enum class ReduceOperation : uint8_t { kSum, kLargest };

struct CommunicatorOptions {
  int device = 0;                       ///< NIC of the plugin
  Bytes slice{512 << 10};               ///< pipelining grain; smaller: earlier overlap, more messages
  Seconds stall_timeout{60};            ///< a step without progress for so long fails the collective
  /// After so long without progress the poll loop sleeps between polls, and leaves the core to the computation.
  Seconds idle_spin{200e-6};
  /// A collective table (table_choice.h), for AllReduce() and Broadcast(); empty: rings.
  std::string table;
};

/// The ranks' connections. One thread at a time; a failed collective leaves the communicator unusable (every later call
/// returns the same error), since the ranks no longer agree on what was sent.
class Communicator {
 public:
  /// Connects lazily: a pair of ranks is connected when a schedule first needs it (collectively, all ranks at once).
  /// Requires: the same options on all ranks; `plugin` and `bootstrap` outlive the communicator.
  /// Errors: kInvalidArgument for options out of range, or as TableChoice::Parse.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> Create(NetPlugin& plugin, Bootstrap& bootstrap,
                                                                    const CommunicatorOptions& options);
  ~Communicator();

  RankId rank() const;
  int world() const;
  /// Payload handed to the plugin so far by this rank.
  Bytes bytes_sent() const;

  /// Runs `schedule`, the same on all ranks, on `input` and `output` (sizes as schedule.h says; `count` elements in
  /// the full buffer, cut into chunks at element boundaries: chunk c covers elements [c·count/k, (c+1)·count/k)).
  /// `input` and `output` may be the same memory where both hold all chunks; where they overlap in a way that the
  /// schedule cannot bear, the input is copied first. Blocks until this rank's part is done. The buffers stay
  /// registered with the plugin for the next run: call Forget before freeing them.
  /// Errors: kInvalidArgument for sums of kByte, and sizes that do not fit (all-to-all: `count` not a multiple of the chunks),
  /// which leave the communicator usable; kUnavailable or kDeadlineExceeded naming the peer.
  [[nodiscard]] Status Run(const planner::Schedule& schedule, DataType type, int64_t count, const void* input, void* output,
                           ReduceOperation operation = ReduceOperation::kSum);

  /// Opens the connections of every pair of ranks now, so that no later run needs the bootstrap. Collective.
  /// Errors: kDeadlineExceeded or kUnavailable naming the peers that could not be reached.
  [[nodiscard]] Status ConnectAll();

  /// The same for some pairs, sender first: in any order, perhaps twice. Collective: the same pairs on all ranks.
  [[nodiscard]] Status Connect(std::span<const std::pair<int32_t, int32_t>> pairs);

  /// All-reduce (sum) in place, by the table's algorithm for its size. The order of additions depends on position only,
  /// never on timing: results are bit-identical from run to run and on all ranks.
  [[nodiscard]] Status AllReduce(std::span<float> data);

  /// Broadcast from `root`, in place; by the table's algorithm for its size where `root` is 0, else a ring.
  [[nodiscard]] Status Broadcast(std::span<float> data, RankId root);

  /// Drops the plugin's registrations of memory that overlaps [data, data + bytes).
  void Forget(const void* data, Bytes bytes);

  /// Returns when every rank has called it (a one-element all-reduce).
  [[nodiscard]] Status Barrier();

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::collectives
