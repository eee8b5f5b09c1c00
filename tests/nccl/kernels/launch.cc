// A kernel of NCCL's, launched: its arguments read, each of its blocks run on a thread.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>
#include <vector>

#include "tests/nccl/kernels/collectives_on_cpu.h"
#include "tests/nccl/kernels/entry.h"

namespace weft::nccl_test {
namespace {

/// NCCL's numbers of device functions, backwards: from the number to one of those that it stands for (NCCL gives functions
/// that do the same to the same bits one number).
std::map<int, Function> FunctionsByNumber() {
  std::map<int, Function> functions;
  const auto add = [&](int collective, int op, int type, int algorithm, int protocol) {
    const int number = ncclDevFuncId(collective, op, type, algorithm, protocol);
    if (number < 0) return;
    functions.try_emplace(number, Function{collective, static_cast<ncclDevRedOp_t>(op), static_cast<ncclDataType_t>(type),
                                           algorithm, protocol});
  };
  for (int protocol = 0; protocol < NCCL_NUM_PROTOCOLS; ++protocol) {
    add(ncclFuncBroadcast, ncclDevSum, ncclInt8, NCCL_ALGO_RING, protocol);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
    add(ncclFuncAllGatherV, ncclDevSum, ncclInt8, NCCL_ALGO_RING, protocol);
#endif
    for (const int algorithm : {NCCL_ALGO_RING, NCCL_ALGO_PAT}) {
      add(ncclFuncAllGather, ncclDevSum, ncclInt8, algorithm, protocol);
    }
    for (int op = 0; op < ncclNumDevRedOps; ++op) {
      for (int type = 0; type < ncclNumTypes; ++type) {
        add(ncclFuncAllReduce, op, type, NCCL_ALGO_TREE, protocol);
        add(ncclFuncAllReduce, op, type, NCCL_ALGO_RING, protocol);
        add(ncclFuncReduce, op, type, NCCL_ALGO_RING, protocol);
        add(ncclFuncReduceScatter, op, type, NCCL_ALGO_RING, protocol);
        add(ncclFuncReduceScatter, op, type, NCCL_ALGO_PAT, protocol);
      }
    }
  }
  return functions;
}

const Function& FunctionOf(int number) {
  static const std::map<int, Function> functions = FunctionsByNumber();
  const auto found = functions.find(number);
  if (found == functions.end()) {
    std::fprintf(stderr, "nccl kernels: device function %d is not one that a CPU can run\n", number);
    std::abort();
  }
  return found->second;
}

/// The arguments of a launch: a header, then the batches, then (or elsewhere) the works.
class Arguments {
 public:
  explicit Arguments(const std::vector<char>& bytes) : bytes_(bytes) {}

  const ncclDevKernelArgs& head() const { return *reinterpret_cast<const ncclDevKernelArgs*>(bytes_.data()); }
  const ncclDevWorkBatch& batch(int index) const { return reinterpret_cast<const ncclDevWorkBatch*>(&head() + 1)[index]; }

  /// The channel of a block: the index of the n-th bit that is set.
  int ChannelOf(unsigned block) const {
    for (int channel = 0; channel < MAXCHANNELS; ++channel) {
      if ((head().channelMask >> channel & 1) != 0 && block-- == 0) return channel;
    }
    return -1;
  }

  template <class Work>
  void AddWorks(const ncclDevWorkBatch& batch, std::vector<Work>& works) const {
    for (uint32_t i = 0; i < 64; ++i) {
      if ((batch.offsetBitset >> i & 1) == 0) continue;
      Work work;
      char* to = reinterpret_cast<char*>(&work);
      const uint32_t offset = batch.offsetBase + i * static_cast<uint32_t>(sizeof work);
      // Works in a ring may go round its end between two of their 16-byte units.
      for (uint32_t unit = 0; unit < sizeof work; unit += 16) {
        const char* from = head().workStorageType == ncclDevWorkStorageTypeArgs
                               ? bytes_.data() + offset + unit
                               : static_cast<const char*>(head().workBuf) + ((offset + unit) & head().workMask);
        std::memcpy(to + unit, from, 16);
      }
      works.push_back(work);
    }
  }

 private:
  const std::vector<char>& bytes_;
};

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)
/// When works of a channel began and ended, for NCCL's profiler events of kernels.
class Stamps {
 public:
  Stamps(const Block& block) : block_(block), counter_(block.channel->workCounter) {}
  ~Stamps() { block_.channel->workCounter = counter_; }

  template <class Work>
  void Begin(const std::vector<Work>& works) {
    Stamp(works, block_.comm->workStarted);
  }
  template <class Work>
  void End(const std::vector<Work>& works) {
    Stamp(works, block_.comm->workCompleted);
    counter_ += works.size();
  }

 private:
  template <class Work>
  void Stamp(const std::vector<Work>& works, ncclDevProfiler* events) const {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < works.size(); ++i) {
      if constexpr (requires { works[i].profilerEnabled; }) {
        if (works[i].profilerEnabled == 0) continue;
        auto& slot = events[block_.id].data[(counter_ + 1 + i) % MAX_PROFILER_EVENTS_PER_CHANNEL];
        slot.timestamp = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
        __atomic_store_n(&slot.counter, counter_ + 1 + i, __ATOMIC_RELEASE);
      }
    }
  }

  const Block& block_;
  uint64_t counter_;
};
#else
/// Releases before 2.26 have no such events.
struct Stamps {
  explicit Stamps(const Block&) {}
  void Begin(const auto&) {}
  void End(const auto&) {}
};
#endif

void RunBlock(const Arguments& arguments, unsigned index) {
  auto* all = reinterpret_cast<DeviceCommAndChannels*>(arguments.head().comm);
  const int channel = arguments.ChannelOf(index);
  if (channel < 0) return;
  const Block block{&all->comm, &all->channels[channel], channel};
  Stamps stamps(block);
  for (int at = static_cast<int>(index);;) {
    std::vector<ncclDevWorkColl> collectives;
    std::vector<ncclDevWorkP2p> transfers;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
    std::vector<ncclDevWorkBcast> broadcasts;
#endif
    const ncclDevWorkBatch* batch = &arguments.batch(at);
    for (;; batch = &arguments.batch(at)) {  // batches that extend each other are one
      switch (batch->workType) {
        case ncclDevWorkTypeP2p: arguments.AddWorks(*batch, transfers); break;
        case ncclDevWorkTypeColl: arguments.AddWorks(*batch, collectives); break;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
        case ncclDevWorkTypeBcast: arguments.AddWorks(*batch, broadcasts); break;
#endif
        default: {
          std::vector<ncclDevWorkCollReg> registered;
          arguments.AddWorks(*batch, registered);
          for (const ncclDevWorkCollReg& work : registered) collectives.push_back(work.coll);
        }
      }
      if (batch->nextExtends == 0) break;
      at += batch->nextJump;
    }
    if (batch->workType == ncclDevWorkTypeP2p) {
      stamps.Begin(transfers);
      RunSendReceive(block, transfers);
      stamps.End(transfers);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
    } else if (batch->workType == ncclDevWorkTypeBcast) {
      stamps.Begin(broadcasts);
      RunBroadcasts(block, FunctionOf(batch->funcId), broadcasts);
      stamps.End(broadcasts);
#endif
    } else {
      stamps.Begin(collectives);
      for (const ncclDevWorkColl& work : collectives) RunCollective(block, FunctionOf(batch->funcId), work);
      stamps.End(collectives);
    }
    if (batch->nextJump == 0 || (block.comm->abortFlag != nullptr && *block.comm->abortFlag != 0)) return;
    at += batch->nextJump;
  }
}

}  // namespace
}  // namespace weft::nccl_test

void weft_run_nccl_kernel(unsigned blocks, const void* bytes, size_t size) {
  const auto* first = static_cast<const char*>(bytes);
  const std::vector<char> copy(first, first + size);
  const weft::nccl_test::Arguments arguments(copy);
  std::vector<std::thread> threads;
  for (unsigned block = 1; block < blocks; ++block) {
    threads.emplace_back([&arguments, block] { weft::nccl_test::RunBlock(arguments, block); });
  }
  weft::nccl_test::RunBlock(arguments, 0);
  for (std::thread& thread : threads) thread.join();
}
