// PAT: parallel aggregated trees, for all-gather and reduce-scatter with one rank per node. NCCL's own schedule says what is
// done; this does it, one operation after another.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/nccl/kernels/collectives_on_cpu.h"

namespace weft::nccl_test {
namespace {

/// A peer 2^dim ranks away.
struct Peer {
  ncclConnInfo* connection = nullptr;
  uint64_t step = 0;
  int64_t reached = 0;  ///< elements of the stream of steps that have been written or copied
};

class Pat {
 public:
  Pat(const Block& block, const ncclDevWorkColl& work, const Reduction& reduction, bool gathers)
      : waits_(block.comm->abortFlag),
        reduction_(reduction),
        input_(static_cast<const char*>(work.sendbuff)),
        output_(static_cast<char*>(work.recvbuff)) {
    const int ranks = block.comm->nRanks, rank = block.comm->rank;
    for (int dim = 0; (1 << dim) < ranks; ++dim) {
      const int before = (rank - (1 << dim) + ranks) % ranks, after = (rank + (1 << dim)) % ranks;
      in_[dim] = Load(&block.channel->peers[gathers ? after : before]->recv[0]);
      out_[dim] = Load(&block.channel->peers[gathers ? before : after]->send[0]);
    }
  }

  bool aborted() const { return waits_.aborted(); }

  /// Sum of what came in and what this rank has for it, into a peer's buffer or the user's.
  void Reduce(const PatStep& step) {
    const auto elements = static_cast<int64_t>(std::max(step.elements, 0));
    Peer* from = step.receive_dim >= 0 ? &in_.at(static_cast<size_t>(step.receive_dim)) : nullptr;
    Peer* to = step.send_dim >= 0 ? &out_.at(static_cast<size_t>(step.send_dim)) : nullptr;
    if (from != nullptr) WaitForData(*from, from->step + 1);
    char* result = output_ + step.output * reduction_.size();
    int64_t* reached = &own_reached_;
    auto end = static_cast<int64_t>(step.output) + elements;
    if (to != nullptr) {
      const uint64_t slot = to->step + static_cast<uint64_t>(step.step_offset);
      WaitForSpace(*to, slot + 1);
      result = At(*to, slot, step.send_offset);
      reached = &to->reached;
      end = step.send_offset + elements + static_cast<int64_t>(slot) * StepElements(*to);
    }
    if (aborted()) return;
    const size_t bytes = static_cast<size_t>(elements) * reduction_.size();
    if (*reached < end) {  // nothing is there yet: this rank's own input
      std::memmove(result, input_ + step.input * reduction_.size(), bytes);
      *reached = end;
    }
    if (from != nullptr) reduction_.Combine(result, At(*from, from->step, step.receive_offset), bytes);
    Post(step, from, to);
  }

  /// What came in, or this rank's own input, to the user's output and on to a peer.
  void Copy(const PatStep& step) {
    const auto elements = static_cast<int64_t>(std::max(step.elements, 0));
    Peer* from = step.receive_dim >= 0 ? &in_.at(static_cast<size_t>(step.receive_dim)) : nullptr;
    Peer* to = step.send_dim >= 0 ? &out_.at(static_cast<size_t>(step.send_dim)) : nullptr;
    const char* source = input_ + step.input * reduction_.size();
    int64_t* reached = &own_reached_;
    auto end = static_cast<int64_t>(step.input) + elements;
    if (from != nullptr) {
      const uint64_t slot = from->step + static_cast<uint64_t>(step.step_offset);
      WaitForData(*from, slot + 1);
      source = At(*from, slot, step.receive_offset);
      reached = &from->reached;
      end = step.receive_offset + elements + static_cast<int64_t>(slot) * StepElements(*from);
    }
    if (to != nullptr) WaitForSpace(*to, to->step + 1);
    if (aborted()) return;
    const size_t bytes = static_cast<size_t>(elements) * reduction_.size();
    if (to != nullptr) std::memcpy(At(*to, to->step, step.send_offset), source, bytes);
    if (*reached < end) {
      std::memmove(output_ + step.output * reduction_.size(), source, bytes);
      *reached = end;
    }
    Post(step, from, to);
  }

 private:
  static Peer Load(ncclConnInfo* connection) { return {connection, connection->step, 0}; }

  int64_t StepElements(const Peer& peer) const {
    return peer.connection->stepSize / static_cast<int64_t>(reduction_.size());
  }
  char* At(const Peer& peer, uint64_t slot, int64_t offset) const {
    return SimpleBuffer(*peer.connection, slot) + offset * static_cast<int64_t>(reduction_.size());
  }
  void WaitForData(const Peer& peer, uint64_t step) {
    waits_.Until([&] { return LoadAcquire(peer.connection->tail) >= step; });
  }
  void WaitForSpace(const Peer& peer, uint64_t step) {
    waits_.Until([&] { return LoadAcquire(peer.connection->head) + NCCL_STEPS >= step; });
  }

  void Post(const PatStep& step, Peer* from, Peer* to) {
    if (to != nullptr && step.post_send) {
      const auto bytes = static_cast<size_t>(step.send_offset + std::max(step.elements, 0)) * reduction_.size();
      SetSize(*to->connection, to->step, bytes);
      to->connection->step = ++to->step;
      StoreRelease(to->connection->tail, to->step);
    }
    if (from != nullptr && step.post_receive) {
      from->connection->step = ++from->step;
      StoreRelease(from->connection->head, from->step);
    }
  }

  Waits waits_;
  Reduction reduction_;
  const char* input_;
  char* output_;
  int64_t own_reached_ = 0;
  std::array<Peer, 32> in_, out_;
};

/// NCCL's schedules are templates of the element's type and use nothing of it but the size.
template <class Element>
void RunOf(const Block& block, const Function& function, const ncclDevWorkColl& work) {
  const Part part = PartOf(block, function, work, sizeof(Element));
  const bool gathers = function.collective == ncclFuncAllGather;
  Pat pat(block, work, Reduction(function.op, function.type, work.redOpArg), gathers);
  const auto run = [&](auto schedule, const auto& act) {
    for (PatStep step = schedule.Next(); !pat.aborted(); step = schedule.Next()) {
      act(step);
      if (step.last) return;
    }
  };
  const auto from = static_cast<size_t>(part.offset), end = static_cast<size_t>(part.offset + part.count);
  const auto chunk = static_cast<size_t>(part.chunk), total = static_cast<size_t>(part.total);
  if (gathers) {
    run(PatSchedule<PatAGAlgorithm<Element>, Element>(chunk, from, end, total, block.comm->rank, block.comm->nRanks),
        [&](const PatStep& step) { pat.Copy(step); });
  } else {
    run(PatSchedule<PatRSAlgorithm<Element>, Element>(chunk, from, end, total, block.comm->rank, block.comm->nRanks),
        [&](const PatStep& step) { pat.Reduce(step); });
  }
}

}  // namespace

void RunPat(const Block& block, const Function& function, const ncclDevWorkColl& work) {
  switch (Reduction(function.op, function.type, 0).size()) {
    case 1: RunOf<uint8_t>(block, function, work); return;
    case 2: RunOf<uint16_t>(block, function, work); return;
    case 4: RunOf<uint32_t>(block, function, work); return;
    default: RunOf<uint64_t>(block, function, work); return;
  }
}

}  // namespace weft::nccl_test
