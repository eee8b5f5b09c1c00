// What NCCL's kernels do with the connections of a channel, one class per protocol: receive, reduce, store, send.
//
//   Simple   data in slots of a ring of NCCL_STEPS steps; sizes in the connection's queue; head and tail count steps
//   LL       lines of 8 bytes of data and two flags of 4; who receives polls the flags
//   LL128    lines of 120 bytes of data and one flag of 8
//
// The three follow src/device/prims_simple.h, prims_ll.h and prims_ll128.h of NCCL: the same steps, sizes and flags, so that
// NCCL's proxy threads and the net plugin see what they would see of a GPU. How data lies within an LL128 slice differs (a GPU
// deals it to threads), which both ends have in common and nobody between them reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/nccl/kernels/reduction.h"
#include "tests/nccl/kernels/release.h"
#include "tests/nccl/kernels/wait.h"

namespace weft::nccl_test {

/// A block of a kernel: one channel of one communicator. Lives as long as the block runs.
struct Block {
  DeviceComm* comm = nullptr;
  ncclDevChannel* channel = nullptr;
  int id = 0;  ///< of the channel
};

/// How a Simple connection is cut, from NCCL's ProtoSimple<slices per chunk, steps per slice>.
struct SimpleShape {
  int slices = 1, steps = 1;
};

/// What an operation does beside its data.
struct Action {
  bool receive = false, send = false;
  enum class Source { kNone, kInput, kOutput } source = Source::kNone;
  bool store = false;   ///< to the user's output
  bool finish = false;  ///< the reduction's last step
};

/// The peers of an algorithm, as far as they are there, and the user's buffers.
struct Route {
  std::vector<int> from, to;
  const char* input = nullptr;
  char* output = nullptr;
  Reduction reduction;
  int connection_in = 0, connection_out = 0;  ///< which of the connections between two ranks
};

/// Up to how many peers an algorithm has on a side.
inline constexpr int kMostPeers = NCCL_MAX_TREE_ARITY;

/// One end of a connection.
struct End {
  ncclConnInfo* connection = nullptr;
  uint64_t step = 0;
};

/// What the three protocols share. Steps are written back when it is destroyed, as the next operation goes on from there.
class Primitives {
 public:
  Primitives(const Primitives&) = delete;
  Primitives& operator=(const Primitives&) = delete;

  const Reduction& reduction() const { return route_.reduction; }
  bool aborted() const { return waits_.aborted(); }
  /// Other buffers of the user's from now on.
  void Use(const char* input, char* output) { route_.input = input, route_.output = output; }

 protected:
  /// `round`: steps are rounded up to a multiple of it.
  Primitives(const Block& block, Route route, uint64_t round);
  ~Primitives();

  const char* SourceOf(const Action& action, ptrdiff_t input, ptrdiff_t output) const;
  /// Waits until each receiver's next `steps` steps are free.
  void WaitForSpace(uint64_t steps);

  Route route_;
  Waits waits_;
  std::vector<End> in_, out_;
};

class Simple : public Primitives {
 public:
  static constexpr int kProtocol = NCCL_PROTO_SIMPLE;

  Simple(const Block& block, Route route, SimpleShape shape);

  /// `elements` of the user's buffers from element `input` and to element `output` on.
  void Do(const Action& action, ptrdiff_t input, ptrdiff_t output, ptrdiff_t elements);

 private:
  void DoSlice(const Action& action, const char* source, char* store, size_t bytes);

  SimpleShape shape_;
  size_t slice_bytes_;
};

class LowLatency : public Primitives {
 public:
  static constexpr int kProtocol = NCCL_PROTO_LL;

  LowLatency(const Block& block, Route route, SimpleShape);

  void Do(const Action& action, ptrdiff_t input, ptrdiff_t output, ptrdiff_t elements);

 private:
  ncclLLFifoLine* LinesOf(const End& end) const;

  size_t step_lines_;
};

class LowLatency128 : public Primitives {
 public:
  static constexpr int kProtocol = NCCL_PROTO_LL128;

  LowLatency128(const Block& block, Route route, SimpleShape);

  void Do(const Action& action, ptrdiff_t input, ptrdiff_t output, ptrdiff_t elements);

 private:
  char* BytesOf(const End& end) const;

  size_t step_bytes_;
};

/// The buffer of a Simple connection's step: where its queue says, or in the ring of steps.
char* SimpleBuffer(const ncclConnInfo& connection, uint64_t step);
/// Tells the proxy how many bytes a step holds, where there is one.
void SetSize(ncclConnInfo& connection, uint64_t step, size_t bytes);

}  // namespace weft::nccl_test
