// One rank of a test that calls NCCL at random: sequences of collectives and point-to-point calls, grouped or not, on up to four
// communicators at once, all ranks the same by their seed, every element of every result checked.
//
// usage: weft-nccl-random-calls RANK WORLD RENDEZVOUS SEED SEQUENCES NCCL
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/nccl/nccl_data.h"
#include "collectives/nccl/nccl_library.h"
#include "common/units.h"
#include "common/exit_code.h"

namespace weft::collectives {
namespace {

constexpr size_t kMostElements = 1 << 18;
constexpr int kMostCalls = 6;
constexpr size_t kCommunicators = 4;
constexpr int kToDevice = 1, kToHost = 2;
constexpr double kTimeoutS = 60;

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kRingShift, kKinds };

/// A call as all ranks of its communicator make it.
struct Call {
  Kind kind = Kind::kAllReduce;
  size_t communicator = 0, share = 1;  ///< share: elements for each rank
  NcclType type = NcclType::kFloat32;
  NcclOp op = NcclOp::kSum;
  int root = 0;
  uint64_t number = 0;
  void *send = nullptr, *receive = nullptr;
};

struct Member {
  NcclComm comm = nullptr;
  CudaStream stream = nullptr;
  std::vector<int> ranks;
  size_t mine = 0;
};

class Caller {
 public:
  Caller(const NcclLibrary& nccl, Bootstrap& bootstrap, uint64_t seed) : nccl_(nccl), bootstrap_(bootstrap), random_(seed) {}

  Status Run(int64_t sequences) {
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_set_device(0), "cudaSetDevice"));
    for (size_t i = 0; i < kCommunicators; ++i) WEFT_RETURN_IF_ERROR(Open(i));
    for (auto& buffer : buffers_) {
      for (void*& side : buffer) WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_malloc(&side, kMostElements * 8), "cudaMalloc"));
    }
    for (int64_t i = 0; i < sequences; ++i) WEFT_RETURN_IF_ERROR(Sequence(i));
    for (Member& member : members_) nccl_.destroy(member.comm);
    if (bootstrap_.rank().value() == 0) fmt::print("{{\"sequences\":{},\"calls\":{},\"elements\":{}}}\n", sequences, calls_, checked_);
    return Ok();
  }

 private:
  /// The first two hold all ranks, the others those of equal parity.
  Status Open(size_t index) {
    Member& member = members_[index];
    for (int rank = 0; rank < bootstrap_.world(); ++rank) {
      if (index >= 2 && rank % 2 != bootstrap_.rank().value() % 2) continue;
      if (rank == bootstrap_.rank().value()) member.mine = member.ranks.size();
      member.ranks.push_back(rank);
    }
    WEFT_ASSIGN_OR_RETURN(member.comm, OpenCommunicator(nccl_, bootstrap_, member.ranks, {.name = fmt::format("random{}", index), .traffic_class = {}}));
    return nccl_.CheckCuda(nccl_.cuda_stream_create(&member.stream, 1), "cudaStreamCreate");
  }

  uint64_t Draw(uint64_t below) { return random_() % below; }

  /// The same on all ranks: nothing of the draw depends on who draws.
  std::vector<Call> DrawCalls() {
    std::vector<Call> calls(1 + Draw(kMostCalls));
    for (size_t i = 0; i < calls.size(); ++i) {
      Call& call = calls[i];
      call.kind = static_cast<Kind>(Draw(static_cast<uint64_t>(Kind::kKinds)));
      call.communicator = Draw(kCommunicators);
      const uint64_t size_class = Draw(10);
      const uint64_t limit = size_class < 6 ? 64 : size_class < 9 ? 8192 : kMostElements / 8;
      call.share = 1 + Draw(limit);
      call.type = static_cast<NcclType>(Draw(10));
      call.op = static_cast<NcclOp>(Draw(4));  // averages are exact only for some numbers of ranks
      call.root = static_cast<int>(Draw(2));   // there in every communicator
      call.number = ++calls_;
      call.send = buffers_[i][0];
      call.receive = buffers_[i][1];
    }
    return calls;
  }

  Status Sequence(int64_t index) {
    const bool grouped = Draw(2) == 1;
    const std::vector<Call> calls = DrawCalls();
    for (const Call& call : calls) WEFT_RETURN_IF_ERROR(Fill(call));
    if (grouped) WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.group_start(), "ncclGroupStart"));
    for (const Call& call : calls) WEFT_RETURN_IF_ERROR(Begin(call));
    if (grouped) WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.group_end(), "ncclGroupEnd"));
    for (const Member& member : members_) WEFT_RETURN_IF_ERROR(Wait(member, index));
    for (const Call& call : calls) WEFT_RETURN_IF_ERROR(Check(call, index));
    return Ok();
  }

  double Value(const Call& call, size_t rank, size_t position) const {
    return Contribution(call.op, members_[call.communicator].ranks[rank], position, call.number);
  }

  Status Fill(const Call& call) {
    const Member& member = members_[call.communicator];
    const auto bytes = FillWith(call.type, call.share * member.ranks.size(), [&](size_t i) { return Value(call, member.mine, i); });
    return nccl_.CheckCuda(nccl_.cuda_memcpy(call.send, bytes.data(), bytes.size(), kToDevice), "cudaMemcpy");
  }

  Status Begin(const Call& call) {
    const Member& m = members_[call.communicator];
    const size_t all = call.share * m.ranks.size();
    switch (call.kind) {
      case Kind::kAllReduce:
        return nccl_.Check(nccl_.all_reduce(call.send, call.receive, all, call.type, call.op, m.comm, m.stream), "ncclAllReduce");
      case Kind::kReduce:
        return nccl_.Check(nccl_.reduce(call.send, call.receive, all, call.type, call.op, call.root, m.comm, m.stream), "ncclReduce");
      case Kind::kBroadcast:
        return nccl_.Check(nccl_.broadcast(call.send, call.receive, all, call.type, call.root, m.comm, m.stream), "ncclBroadcast");
      case Kind::kReduceScatter:
        return nccl_.Check(nccl_.reduce_scatter(call.send, call.receive, call.share, call.type, call.op, m.comm, m.stream),
                           "ncclReduceScatter");
      case Kind::kAllGather:
        return nccl_.Check(nccl_.all_gather(call.send, call.receive, call.share, call.type, m.comm, m.stream), "ncclAllGather");
      case Kind::kAllToAll: return Exchange(call, m);
      case Kind::kRingShift: return Shift(call, m, all);
      case Kind::kKinds: break;
    }
    return Ok();
  }

  Status Exchange(const Call& call, const Member& m) {
    const size_t bytes = call.share * SizeOf(call.type);
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.group_start(), "ncclGroupStart"));
    for (size_t peer = 0; peer < m.ranks.size(); ++peer) {
      char* to = static_cast<char*>(call.send) + peer * bytes;
      char* from = static_cast<char*>(call.receive) + peer * bytes;
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.send(to, call.share, call.type, static_cast<int>(peer), m.comm, m.stream), "ncclSend"));
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.recv(from, call.share, call.type, static_cast<int>(peer), m.comm, m.stream), "ncclRecv"));
    }
    return nccl_.Check(nccl_.group_end(), "ncclGroupEnd");
  }

  Status Shift(const Call& call, const Member& m, size_t all) {
    const size_t ranks = m.ranks.size();
    const int next = static_cast<int>((m.mine + 1) % ranks), before = static_cast<int>((m.mine + ranks - 1) % ranks);
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.group_start(), "ncclGroupStart"));
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.send(call.send, all, call.type, next, m.comm, m.stream), "ncclSend"));
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.recv(call.receive, all, call.type, before, m.comm, m.stream), "ncclRecv"));
    return nccl_.Check(nccl_.group_end(), "ncclGroupEnd");
  }

  Status Wait(const Member& member, int64_t sequence) {
    return WaitForStream(nccl_, member.comm, member.stream, Seconds(kTimeoutS), fmt::format("sequence {}", sequence));
  }

  std::vector<uint8_t> Expected(const Call& call) const {
    const Member& m = members_[call.communicator];
    const size_t ranks = m.ranks.size(), all = call.share * ranks;
    const auto reduced = [&](size_t position) {
      std::vector<int> values;
      for (const int rank : m.ranks) values.push_back(Contribution(call.op, rank, position, call.number));
      return Reduced(call.op, call.type, values);
    };
    const auto root = static_cast<size_t>(call.root);
    const size_t share = call.share, mine = m.mine;
    switch (call.kind) {
      case Kind::kAllReduce: return FillWith(call.type, all, reduced);
      case Kind::kReduce: return mine == root ? FillWith(call.type, all, reduced) : std::vector<uint8_t>();
      case Kind::kBroadcast: return FillWith(call.type, all, [&](size_t i) { return Value(call, root, i); });
      case Kind::kReduceScatter: return FillWith(call.type, share, [&](size_t i) { return reduced(mine * share + i); });
      case Kind::kAllGather: return FillWith(call.type, all, [&](size_t i) { return Value(call, i / share, i % share); }, share);
      case Kind::kAllToAll:
        return FillWith(call.type, all, [&](size_t i) { return Value(call, i / share, mine * share + i % share); }, share);
      case Kind::kRingShift: return FillWith(call.type, all, [&](size_t i) { return Value(call, (mine + ranks - 1) % ranks, i); });
      case Kind::kKinds: break;
    }
    return {};
  }

  Status Check(const Call& call, int64_t sequence) {
    const auto expected = Expected(call);
    std::vector<uint8_t> got(expected.size());
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_memcpy(got.data(), call.receive, got.size(), kToHost), "cudaMemcpy"));
    const size_t size = SizeOf(call.type);
    checked_ += static_cast<int64_t>(got.size() / size);
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == expected[i]) continue;
      return Fail(Code::kDataLoss, fmt::format("sequence {}: call {} (kind {}, type {}, op {}, {} elements for each of {} ranks): "
                                               "element {} is wrong", sequence, call.number, static_cast<int>(call.kind),
                                               static_cast<int>(call.type), static_cast<int>(call.op), call.share,
                                               members_[call.communicator].ranks.size(), i / size));
    }
    return Ok();
  }

  const NcclLibrary& nccl_;
  Bootstrap& bootstrap_;
  std::mt19937_64 random_;
  std::array<Member, kCommunicators> members_;
  std::array<std::array<void*, 2>, kMostCalls> buffers_{};
  uint64_t calls_ = 0;
  int64_t checked_ = 0;
};

Status Main(char** argv) {
  const int rank = std::atoi(argv[1]), world = std::atoi(argv[2]);
  if (world < 4 || world > 8) return Fail(Code::kInvalidArgument, "WORLD: expected 4 to 8, so that both halves have a rank 1");
  WEFT_ASSIGN_OR_RETURN(const auto nccl, NcclLibrary::Open(argv[6], ""));
  WEFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::Join({.rank = RankId(rank), .world = world, .address = argv[3],
                                                               .timeout = Seconds(60), .listener = -1}));
  return Caller(*nccl, *bootstrap, std::strtoull(argv[4], nullptr, 10)).Run(std::atoll(argv[5]));
}

}  // namespace
}  // namespace weft::collectives

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: %s RANK WORLD RENDEZVOUS SEED SEQUENCES NCCL\n", argv[0]);
    return weft::kExitUsage;
  }
  const weft::Status done = weft::collectives::Main(argv);
  if (done) return weft::kExitDone;
  std::fprintf(stderr, "rank %s: %s\n", argv[1], done.error().message().c_str());
  return weft::kExitFailed;
}
