// How many messages of each tag there have been, modulo 2^32. Tags are NCCL's numbers of peers: a flow has a handful.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace weft::net {

/// Stands for "no tag" where a tag is kept: no tag is equal to it.
inline constexpr int64_t kNoTag = INT64_MIN;

using TagCounts = std::unordered_map<int32_t, uint32_t>;

}  // namespace weft::net
