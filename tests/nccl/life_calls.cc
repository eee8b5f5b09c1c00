// One rank of a test of what becomes of communicators: split, shrunk, aborted in mid-collective. Every result is checked.
//
// usage: weft-nccl-life-calls split|shrink|abort RANK WORLD RENDEZVOUS NCCL
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/nccl/nccl_data.h"
#include "collectives/nccl/nccl_library.h"
#include "common/clock.h"
#include "common/exit_code.h"

namespace weft::collectives {
namespace {

constexpr size_t kElements = 1 << 18;
constexpr int kToDevice = 1, kToHost = 2;
constexpr double kTimeoutS = 30, kAbortAfterS = 0.3;
constexpr NcclType kType = NcclType::kFloat32;

class Rank {
 public:
  Rank(const NcclLibrary& nccl, Bootstrap& bootstrap) : nccl_(nccl), bootstrap_(bootstrap) {
    for (int rank = 0; rank < bootstrap.world(); ++rank) all_.push_back(rank);
  }

  Status Open() {
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_set_device(0), "cudaSetDevice"));
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_stream_create(&stream_, 1), "cudaStreamCreate"));
    for (void** side : {&send_, &receive_}) WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_malloc(side, kElements * 4), "cudaMalloc"));
    WEFT_ASSIGN_OR_RETURN(world_, OpenCommunicator(nccl_, bootstrap_, all_, {.name = "world", .traffic_class = {}}));
    return Reduce(world_, all_);
  }

  /// Two halves of the world, by parity, at work at once; then the world again.
  Status Split() {
    std::vector<int> half;
    std::copy_if(all_.begin(), all_.end(), std::back_inserter(half), [&](int rank) { return rank % 2 == mine() % 2; });
    NcclComm comm = nullptr;
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.split(world_, mine() % 2, mine(), &comm, nullptr), "ncclCommSplit"));
    for (int i = 0; i < 5; ++i) {
      WEFT_RETURN_IF_ERROR(Reduce(comm, half));
      WEFT_RETURN_IF_ERROR(Reduce(world_, all_));
    }
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.destroy(comm), "ncclCommDestroy"));
    return Reduce(world_, all_);
  }

  /// The last rank leaves; the others go on without it.
  Status Shrink() {
    if (nccl_.shrink == nullptr) return Fail(Code::kUnimplemented, "ncclCommShrink: not in that library");
    int last = all_.back();
    if (mine() == last) return Ok();
    NcclComm comm = nullptr;
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.shrink(world_, &last, 1, &comm, nullptr, 0), "ncclCommShrink"));
    const std::vector<int> left(all_.begin(), all_.end() - 1);
    for (int i = 0; i < 5; ++i) WEFT_RETURN_IF_ERROR(Reduce(comm, left));
    return nccl_.Check(nccl_.destroy(comm), "ncclCommDestroy");
  }

  /// All but rank 0 begin an all-reduce that cannot end, and abort it; then a communicator anew.
  Status Abort() {
    if (mine() != 0) {
      WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.all_reduce(send_, receive_, kElements, kType, NcclOp::kSum, world_, stream_), "ncclAllReduce"));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kAbortAfterS));
    if (mine() != 0 && nccl_.cuda_stream_query(stream_) != kCudaNotReady) return Fail(Code::kInternal, "the all-reduce ended without rank 0");
    const double began = SystemClock().Now().count();
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.abort(world_), "ncclCommAbort"));
    world_ = nullptr;
    const double took = SystemClock().Now().count() - began;
    WEFT_RETURN_IF_ERROR(Wait(nullptr));
    WEFT_ASSIGN_OR_RETURN(world_, OpenCommunicator(nccl_, bootstrap_, all_, {.name = "again", .traffic_class = {}}));
    WEFT_RETURN_IF_ERROR(Reduce(world_, all_));
    if (mine() == 0) return Ok();
    fmt::print("{{\"abort_s\":{:.3f}}}\n", took);
    return Ok();
  }

  Status Close() { return nccl_.Check(nccl_.destroy(world_), "ncclCommDestroy"); }

 private:
  int mine() const { return bootstrap_.rank().value(); }

  /// An all-reduce over the communicator of `ranks`, checked.
  Status Reduce(NcclComm comm, const std::vector<int>& ranks) {
    const uint64_t call = ++calls_[ranks.size()];
    const auto filled = FillWith(kType, kElements, [&](size_t i) { return Contribution(NcclOp::kSum, mine(), i, call); });
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_memcpy(send_, filled.data(), filled.size(), kToDevice), "cudaMemcpy"));
    WEFT_RETURN_IF_ERROR(nccl_.Check(nccl_.all_reduce(send_, receive_, kElements, kType, NcclOp::kSum, comm, stream_), "ncclAllReduce", comm));
    WEFT_RETURN_IF_ERROR(Wait(comm));
    const auto expected = FillWith(kType, kElements, [&](size_t i) {
      int sum = 0;
      for (const int rank : ranks) sum += Contribution(NcclOp::kSum, rank, i, call);
      return sum;
    });
    std::vector<uint8_t> got(expected.size());
    WEFT_RETURN_IF_ERROR(nccl_.CheckCuda(nccl_.cuda_memcpy(got.data(), receive_, got.size(), kToHost), "cudaMemcpy"));
    if (got == expected) return Ok();
    return Fail(Code::kDataLoss, fmt::format("all-reduce {} of {} ranks: wrong elements", call, ranks.size()));
  }

  /// `comm` may be null: one that was aborted.
  Status Wait(NcclComm comm) {
    return WaitForStream(nccl_, comm, stream_, Seconds(kTimeoutS), "an all-reduce");
  }

  const NcclLibrary& nccl_;
  Bootstrap& bootstrap_;
  std::vector<int> all_;
  NcclComm world_ = nullptr;
  CudaStream stream_ = nullptr;
  void *send_ = nullptr, *receive_ = nullptr;
  std::map<size_t, uint64_t> calls_;  // by ranks: the same on all of them
};

Status Main(const std::string& what, int rank, int world, const char* rendezvous, const char* library) {
  WEFT_ASSIGN_OR_RETURN(const auto nccl, NcclLibrary::Open(library, ""));
  WEFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::Join({.rank = RankId(rank), .world = world, .address = rendezvous,
                                                               .timeout = Seconds(60), .listener = -1}));
  Rank self(*nccl, *bootstrap);
  WEFT_RETURN_IF_ERROR(self.Open());
  if (what == "split") WEFT_RETURN_IF_ERROR(self.Split());
  if (what == "shrink") WEFT_RETURN_IF_ERROR(self.Shrink());
  if (what == "abort") WEFT_RETURN_IF_ERROR(self.Abort());
  return self.Close();
}

}  // namespace
}  // namespace weft::collectives

int main(int argc, char** argv) {
  const std::string what = argc == 6 ? argv[1] : "";
  if (what != "split" && what != "shrink" && what != "abort") {
    std::fprintf(stderr, "usage: %s split|shrink|abort RANK WORLD RENDEZVOUS NCCL\n", argv[0]);
    return weft::kExitUsage;
  }
  const weft::Status done = weft::collectives::Main(what, std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5]);
  if (done) return weft::kExitDone;
  std::fprintf(stderr, "rank %s: %s\n", argv[2], done.error().message().c_str());
  return weft::kExitFailed;
}
