#include "netplugin/rdma/split.h"

#include <algorithm>

namespace weft::net::rdma {

uint32_t SplitMessage(uint64_t size, uint64_t split_bytes, std::span<LaneShare> lanes,
                      std::array<Part, kMaxParts>* parts) {
  // Least served first, equal ones by index.
  std::array<uint8_t, kMaxParts> order;
  uint32_t usable = 0;
  for (uint32_t i = 0; i < lanes.size() && i < kMaxParts; ++i) {
    if (lanes[i].weight == 0) continue;
    uint32_t place = usable++;
    for (; place > 0 && lanes[i].served < lanes[order[place - 1]].served; --place) order[place] = order[place - 1];
    order[place] = static_cast<uint8_t>(i);
  }
  const uint64_t affordable = std::max<uint64_t>(1, size / std::max<uint64_t>(1, split_bytes));
  const auto chosen = static_cast<uint32_t>(std::min<uint64_t>(usable, affordable));

  uint64_t weights = 0;
  for (uint32_t i = 0; i < chosen; ++i) weights += lanes[order[i]].weight;
  uint32_t count = 0;
  uint64_t offset = 0;
  uint64_t weight_so_far = 0;
  for (uint32_t i = 0; i < chosen; ++i) {
    LaneShare& lane = lanes[order[i]];
    weight_so_far += lane.weight;
    // 128 bits: sizes reach 2^40, sums of weights 2^23.
    const auto ideal = static_cast<uint64_t>(static_cast<unsigned __int128>(size) * weight_so_far / weights);
    const uint64_t end = i + 1 == chosen ? size : ideal / kLineBytes * kLineBytes;
    const uint64_t length = end - offset;
    if (length == 0 && !(i + 1 == chosen && count == 0)) continue;
    (*parts)[count++] = {offset, length, order[i]};
    // An empty message costs its lane something too, or all of them would go one way.
    lane.served += static_cast<double>(std::max<uint64_t>(length, kLineBytes)) / lane.weight;
    offset = end;
  }
  return count;
}

}  // namespace weft::net::rdma
