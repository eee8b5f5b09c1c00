// Grouped broadcasts from several roots, which NCCL puts around one ring since 2.29, a chunk of each in turn.
#include <algorithm>
#include <utility>

#include "tests/nccl/kernels/collectives_on_cpu.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)

namespace weft::nccl_test {
namespace {

template <class Protocol>
void Run(const Block& block, std::vector<ncclDevWorkBcast>& works) {
  const int ranks = block.comm->nRanks;
  // Offsets are absolute here: each work has its own buffers.
  Route route;
  route.from = {block.channel->ring.prev};
  route.to = {block.channel->ring.next};
  Protocol link(block, std::move(route), {1, 1});
  const auto left = [&] {
    return std::any_of(works.begin(), works.end(), [](const ncclDevWorkBcast& work) { return work.bytes > 0; });
  };
  for (size_t i = 0; left() && !link.aborted(); i = i + 1 == works.size() ? 0 : i + 1) {
    ncclDevWorkBcast& work = works[i];
    const size_t bytes = std::min(work.bytes, static_cast<size_t>(work.chunkSize));
    if (bytes > 0) {
      link.Use(work.ringDepth == 0 ? static_cast<const char*>(work.sendbuff) : nullptr, static_cast<char*>(work.recvbuff));
      const Action action = work.ringDepth == 0 ? Action{.send = true, .source = Action::Source::kInput, .store = true}
                            : work.ringDepth == ranks - 1 ? Action{.receive = true, .store = true}
                                                          : Action{.receive = true, .send = true, .store = true};
      const auto at = static_cast<ptrdiff_t>(work.bytes_done);
      link.Do(action, at, at, static_cast<ptrdiff_t>(bytes));
    }
    work.bytes -= bytes;
    work.bytes_done += bytes;
  }
}

}  // namespace

void RunBroadcasts(const Block& block, const Function& function, std::vector<ncclDevWorkBcast> works) {
  switch (function.protocol) {
    case NCCL_PROTO_SIMPLE: Run<Simple>(block, works); return;
    case NCCL_PROTO_LL128: Run<LowLatency128>(block, works); return;
    default: Run<LowLatency>(block, works); return;
  }
}

}  // namespace weft::nccl_test

#endif
