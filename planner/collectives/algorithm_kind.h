// The algorithms of collectives by name. Those that Weft's own runtime runs have a schedule (algorithm.h); the last two are
// NCCL's, which let the NVSwitch sum.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::planner::inline collectives {

enum class Algorithm : uint8_t {
  kRing, kTree, kHalvingDoubling, kHierarchical, kTorus, kDirect, kPairwise, kParameterServer, kPipelined, kForest,
  kNvls, kNvlsTree
};
/// "ring", "halving-doubling", "nvls-tree".
std::string_view AlgorithmName(Algorithm algorithm);

/// How NCCL moves a chunk: 8-byte words with a flag each, lines of 128 bytes with one flag, or whole chunks behind a fence. The
/// first two start sooner and give up bandwidth. Schedules of our own are always kSimple.
enum class Protocol : uint8_t { kLl, kLl128, kSimple };
inline constexpr int kProtocols = 3;

}  // namespace weft::planner::collectives
