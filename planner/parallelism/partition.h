// How many layers each pipeline stage holds.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::planner::inline parallelism {

/// Layers of stage `stage`: as even as possible. If L is no multiple of p but L + 2 is, embedding and head stand for a
/// layer each (BLOOM, Llama 3 405B and the zero-bubble runs do so: first and last stage hold one fewer); otherwise stages
/// 1, 2 … take the remainder, which spares the stage of the embedding, and that of the head as long as possible.
/// Requires: 1 ≤ pp ≤ layers + 2, 0 ≤ stage < pp.
int64_t StageLayers(int64_t layers, int64_t pp, int64_t stage);

/// Layers before `stage`.
int64_t StageBegin(int64_t layers, int64_t pp, int64_t stage);

}  // namespace weft::planner::parallelism
