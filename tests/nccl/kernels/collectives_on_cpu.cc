#include "tests/nccl/kernels/collectives_on_cpu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace weft::nccl_test {
namespace {

using Source = Action::Source;

ptrdiff_t RoundUp(ptrdiff_t value, ptrdiff_t multiple) { return (value + multiple - 1) / multiple * multiple; }

Route RouteOf(const ncclDevWorkColl& work, const Reduction& reduction, std::vector<int> from, std::vector<int> to) {
  return {.from = std::move(from),
          .to = std::move(to),
          .input = static_cast<const char*>(work.sendbuff),
          .output = static_cast<char*>(work.recvbuff),
          .reduction = reduction};
}

Route RingRoute(const Block& block, const ncclDevWorkColl& work, const Reduction& reduction) {
  return RouteOf(work, reduction, {block.channel->ring.prev}, {block.channel->ring.next});
}

template <class Protocol>
void RingAllReduce(const Block& block, const Part& part, const ncclDevWorkColl& work, const Reduction& reduction) {
  const int ranks = block.comm->nRanks, mine = block.channel->ring.index;
  Protocol link(block, RingRoute(block, work, reduction),
                {ALLREDUCE_CHUNKSTEPS / ALLREDUCE_SLICESTEPS, ALLREDUCE_SLICESTEPS});
  ptrdiff_t chunk = part.chunk;
  for (ptrdiff_t done = 0; done < part.count && !link.aborted(); done += part.chunk * ranks) {
    const ptrdiff_t left = part.count - done;
    if (left < part.chunk * ranks) {
      chunk = RoundUp((left + ranks - 1) / ranks, 16 / static_cast<ptrdiff_t>(reduction.size()));
    }
    const auto act = [&](int which, const Action& action) {
      const ptrdiff_t at = (which >= ranks ? which - ranks : which) * chunk;
      link.Do(action, part.offset + done + at, part.offset + done + at, std::min(chunk, left - at));
    };
    act(mine + ranks - 1, {.send = true, .source = Source::kInput});
    for (int j = 2; j < ranks; ++j) act(mine + ranks - j, {.receive = true, .send = true, .source = Source::kInput});
    act(mine, {.receive = true, .send = true, .source = Source::kInput, .store = true, .finish = true});
    for (int j = 1; j < ranks - 1; ++j) act(mine + ranks - j, {.receive = true, .send = true, .store = true});
    act(mine + 1, {.receive = true, .store = true});
  }
}

template <class Protocol>
void RingAllGather(const Block& block, const Part& part, const ncclDevWorkColl& work, const Reduction& reduction) {
  const int ranks = block.comm->nRanks;
  const int* order = block.channel->ring.userRanks;
  Protocol link(block, RingRoute(block, work, reduction),
                {ALLGATHER_CHUNKSTEPS / ALLGATHER_SLICESTEPS, ALLGATHER_SLICESTEPS});
  for (ptrdiff_t done = 0; done < part.count && !link.aborted(); done += part.chunk) {
    const ptrdiff_t elements = std::min(part.chunk, part.count - done), at = part.offset + done;
    const auto act = [&](int which, const Action& action) {
      link.Do(action, at, at + order[which] * part.total, elements);
    };
    act(0, {.send = true, .source = Source::kInput, .store = true});
    for (int j = 1; j < ranks - 1; ++j) act(ranks - j, {.receive = true, .send = true, .store = true});
    act(1, {.receive = true, .store = true});
  }
}

template <class Protocol>
void RingReduceScatter(const Block& block, const Part& part, const ncclDevWorkColl& work, const Reduction& reduction) {
  const int ranks = block.comm->nRanks;
  const int* order = block.channel->ring.userRanks;
  Protocol link(block, RingRoute(block, work, reduction),
                {REDUCESCATTER_CHUNKSTEPS / REDUCESCATTER_SLICESTEPS, REDUCESCATTER_SLICESTEPS});
  for (ptrdiff_t done = 0; done < part.count && !link.aborted(); done += part.chunk) {
    const ptrdiff_t elements = std::min(part.chunk, part.count - done), at = part.offset + done;
    const auto act = [&](int which, const Action& action) {
      link.Do(action, at + order[which] * part.total, at, elements);
    };
    act(ranks - 1, {.send = true, .source = Source::kInput});
    for (int j = 2; j < ranks; ++j) act(ranks - j, {.receive = true, .send = true, .source = Source::kInput});
    act(0, {.receive = true, .source = Source::kInput, .store = true, .finish = true});
  }
}

template <class Protocol>
void RingBroadcast(const Block& block, const Part& part, const ncclDevWorkColl& work, const Reduction& reduction) {
  const int* order = block.channel->ring.userRanks;
  const auto root = static_cast<int>(work.root);
  Protocol link(block, RingRoute(block, work, reduction), {BROADCAST_CHUNKSTEPS / BROADCAST_SLICESTEPS, BROADCAST_SLICESTEPS});
  const Action action = order[0] == root   ? Action{.send = true, .source = Source::kInput, .store = true}
                        : order[1] == root ? Action{.receive = true, .store = true}
                                           : Action{.receive = true, .send = true, .store = true};
  for (ptrdiff_t done = 0; done < part.count && !link.aborted(); done += part.chunk) {
    link.Do(action, part.offset + done, part.offset + done, std::min(part.chunk, part.count - done));
  }
}

template <class Protocol>
void RingReduce(const Block& block, const Part& part, const ncclDevWorkColl& work, const Reduction& reduction) {
  const int* order = block.channel->ring.userRanks;
  const auto root = static_cast<int>(work.root);
  Protocol link(block, RingRoute(block, work, reduction), {REDUCE_CHUNKSTEPS / REDUCE_SLICESTEPS, REDUCE_SLICESTEPS});
  const Action action =
      order[block.comm->nRanks - 1] == root ? Action{.send = true, .source = Source::kInput}
      : order[0] == root ? Action{.receive = true, .source = Source::kInput, .store = true, .finish = true}
                         : Action{.receive = true, .send = true, .source = Source::kInput};
  for (ptrdiff_t done = 0; done < part.count && !link.aborted(); done += part.chunk) {
    link.Do(action, part.offset + done, part.offset + done, std::min(part.chunk, part.count - done));
  }
}

std::vector<int> There(const int* peers, int most) {
  std::vector<int> found;
  for (int i = 0; i < most && peers[i] >= 0; ++i) found.push_back(peers[i]);
  return found;
}

/// Sums go up while results come down, as two groups of a GPU's warps do it. The root does both in one.
template <class Protocol>
void TreeAllReduce(const Block& block, const Part& part, const ncclDevWorkColl& work, const Reduction& reduction) {
  const ncclTree& tree = block.channel->tree;
  const std::vector<int> down = There(tree.down, NCCL_MAX_TREE_ARITY), up = There(&tree.up, 1);
  const auto run = [&](const std::vector<int>& from, const std::vector<int>& to, const Action& action) {
    Protocol link(block, RouteOf(work, reduction, from, to), {1, 1});
    for (ptrdiff_t done = 0; done < part.count && !link.aborted(); done += part.chunk) {
      link.Do(action, part.offset + done, part.offset + done, std::min(part.chunk, part.count - done));
    }
  };
  if (up.empty()) {
    run(down, down, {.receive = true, .send = true, .source = Source::kInput, .store = true, .finish = true});
    return;
  }
  std::thread rising([&] { run(down, up, {.receive = !down.empty(), .send = true, .source = Source::kInput}); });
  run(up, down, {.receive = true, .send = !down.empty(), .store = true});
  rising.join();
}

template <class Protocol>
bool RunWith(const Block& block, const Function& function, const ncclDevWorkColl& work, const Reduction& reduction) {
  const Part part = PartOf(block, function, work, reduction.size());
  if (function.algorithm == NCCL_ALGO_TREE && function.collective == ncclFuncAllReduce) {
    TreeAllReduce<Protocol>(block, part, work, reduction);
    return true;
  }
  if (function.algorithm != NCCL_ALGO_RING) return false;
  switch (function.collective) {
    case ncclFuncAllReduce: RingAllReduce<Protocol>(block, part, work, reduction); return true;
    case ncclFuncAllGather: RingAllGather<Protocol>(block, part, work, reduction); return true;
    case ncclFuncReduceScatter: RingReduceScatter<Protocol>(block, part, work, reduction); return true;
    case ncclFuncBroadcast: RingBroadcast<Protocol>(block, part, work, reduction); return true;
    case ncclFuncReduce: RingReduce<Protocol>(block, part, work, reduction); return true;
    default: return false;
  }
}

}  // namespace

Part PartOf(const Block& block, const Function& function, const ncclDevWorkColl& work, size_t element) {
  Part part;
  ncclDevWorkColl copy = work;  // the function takes what it does not change as changeable
  ncclCollCbdPart<ptrdiff_t>(&copy, static_cast<uint32_t>(block.id), function.protocol, static_cast<int>(element), &part.total,
                             &part.offset, &part.count, &part.chunk);
  return part;
}

void RunCollective(const Block& block, const Function& function, ncclDevWorkColl work) {
  if (function.algorithm == NCCL_ALGO_PAT) {
    RunPat(block, function, work);
    return;
  }
  uint64_t argument = work.redOpArg;
  const Reduction plain(function.op, function.type, 0);
  if (work.redOpArgIsPtr != 0) {
    argument = 0;
    __builtin_memcpy(&argument, reinterpret_cast<const void*>(work.redOpArg), plain.size());
  }
  const Reduction reduction(function.op, function.type, argument);
  const bool done = function.protocol == NCCL_PROTO_SIMPLE  ? RunWith<Simple>(block, function, work, reduction)
                    : function.protocol == NCCL_PROTO_LL128 ? RunWith<LowLatency128>(block, function, work, reduction)
                                                            : RunWith<LowLatency>(block, function, work, reduction);
  if (done) return;
  std::fprintf(stderr, "nccl kernels: collective %d with algorithm %d is not there\n", function.collective,
               function.algorithm);
  std::abort();
}

}  // namespace weft::nccl_test
