#include "cli/perf_data.h"

namespace weft::cli {
namespace {

using planner::Collective;

/// A mix of its arguments (the finaliser of MurmurHash3), cut to 16 bits.
float Value(uint32_t seed, int64_t position) {
  uint32_t x = static_cast<uint32_t>(position) * 0x9E3779B1u ^ seed;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  return static_cast<float>(static_cast<int32_t>(x & 0xFFFF));
}

uint32_t Seed(int rank, uint32_t iteration) {
  return (static_cast<uint32_t>(rank) + 1) * 0xC2B2AE35u + iteration * 0x27D4EB2Fu;
}

/// Rank `rank`'s piece of the full buffer begins at floor(rank · count / ranks).
int64_t PieceBegin(int rank, const PerfRun& run) {
  return rank * (run.count / run.ranks) + rank * (run.count % run.ranks) / run.ranks;
}
int64_t PieceLength(int rank, const PerfRun& run) { return PieceBegin(rank + 1, run) - PieceBegin(rank, run); }

/// Compares `output` with what rank `from` holds from `position` on.
int64_t WrongFrom(std::span<const float> output, uint32_t seed, int64_t position) {
  int64_t wrong = 0;
  for (size_t i = 0; i < output.size(); ++i) wrong += output[i] != Value(seed, position + static_cast<int64_t>(i));
  return wrong;
}

int64_t WrongSum(const PerfRun& run, std::span<const float> output, int64_t position) {
  int64_t wrong = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    float sum = 0;
    for (int rank = 0; rank < run.ranks; ++rank) {
      sum += Value(Seed(rank, run.iteration), position + static_cast<int64_t>(i));
    }
    wrong += output[i] != sum;
  }
  return wrong;
}

}  // namespace

int64_t InputElements(const PerfRun& run) {
  if (run.collective == Collective::kAllGather) return PieceLength(run.rank, run);
  return run.count;
}

int64_t OutputElements(const PerfRun& run) {
  if (run.collective == Collective::kReduceScatter) return PieceLength(run.rank, run);
  return run.count;
}

void FillInput(const PerfRun& run, std::span<float> input) {
  const int64_t position = run.collective == Collective::kAllGather ? PieceBegin(run.rank, run) : 0;
  const uint32_t seed = Seed(run.rank, run.iteration);
  for (size_t i = 0; i < input.size(); ++i) input[i] = Value(seed, position + static_cast<int64_t>(i));
}

int64_t CountWrong(const PerfRun& run, std::span<const float> output) {
  const auto piece = [&](int64_t begin, int64_t length) {
    return output.subspan(static_cast<size_t>(begin), static_cast<size_t>(length));
  };
  int64_t wrong = 0;
  switch (run.collective) {
    case Collective::kAllReduce: return WrongSum(run, output, 0);
    case Collective::kReduceScatter: return WrongSum(run, output, PieceBegin(run.rank, run));
    case Collective::kBroadcast: return WrongFrom(output, Seed(0, run.iteration), 0);
    case Collective::kSendRecv:
      return run.rank == run.from ? 0 : WrongFrom(output, Seed(run.from, run.iteration), 0);
    case Collective::kAllGather:
      for (int from = 0; from < run.ranks; ++from) {
        const int64_t begin = PieceBegin(from, run);
        wrong += WrongFrom(piece(begin, PieceLength(from, run)), Seed(from, run.iteration), begin);
      }
      return wrong;
    case Collective::kAllToAll: {
      const int64_t block = run.count / run.ranks;
      for (int from = 0; from < run.ranks; ++from) {
        wrong += WrongFrom(piece(from * block, block), Seed(from, run.iteration), run.rank * block);
      }
      return wrong;
    }
  }
  return wrong;
}

}  // namespace weft::cli
