#include "planner/collectives/algorithm_kind.h"

namespace weft::planner::inline collectives {

std::string_view AlgorithmName(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing: return "ring";
    case Algorithm::kTree: return "tree";
    case Algorithm::kHalvingDoubling: return "halving-doubling";
    case Algorithm::kHierarchical: return "hierarchical";
    case Algorithm::kTorus: return "torus";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kPairwise: return "pairwise";
    case Algorithm::kParameterServer: return "ps";
    case Algorithm::kPipelined: return "pipelined";
    case Algorithm::kForest: return "forest";
    case Algorithm::kNvls: return "nvls";
    case Algorithm::kNvlsTree: return "nvls-tree";
  }
  return "unknown";
}

}  // namespace weft::planner::collectives
