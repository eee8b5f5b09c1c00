#include "planner/network/flow_classes.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace weft::planner::inline network {
namespace {

/// One round of multiply and fold; enough to spread small ids over a table of a power of two.
uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

/// Open addressing over indices of flows, by the flows' contents.
class FlowTable {
 public:
  FlowTable(std::span<const MaxMinFlow> flows, size_t capacity)
      : flows_(flows), slots_(std::bit_ceil(2 * capacity + 1), kEmpty) {}

  /// The class of the equal flow that is there, or `fresh` after putting `flow` there.
  int64_t FindOrAdd(size_t flow, int64_t fresh, const std::vector<size_t>& representative) {
    for (size_t at = ClassHash(flows_[flow]);; ++at) {
      int64_t& slot = slots_[at & (slots_.size() - 1)];
      if (slot == kEmpty) return slot = fresh;
      if (SameClass(flows_[representative[static_cast<size_t>(slot)]], flows_[flow])) return slot;
    }
  }

 private:
  static constexpr int64_t kEmpty = -1;
  std::span<const MaxMinFlow> flows_;
  std::vector<int64_t> slots_;
};

FlowClasses Merge(std::span<const MaxMinFlow> flows, size_t stride) {
  FlowClasses classes;
  FlowTable table(flows, flows.size() / stride + 1);
  classes.of_flow.reserve(flows.size() / stride + 1);
  for (size_t f = 0; f < flows.size(); f += stride) {
    const int64_t fresh = static_cast<int64_t>(classes.representative.size());
    classes.representative.push_back(f);
    const int64_t found = table.FindOrAdd(f, fresh, classes.representative);
    if (found == fresh) {
      classes.count.push_back(1);
    } else {
      classes.representative.pop_back();
      ++classes.count[static_cast<size_t>(found)];
    }
    classes.of_flow.push_back(static_cast<size_t>(found));
  }
  return classes;
}

/// n samples of c classes hold about n²/2c equal pairs: a twentieth of n means that a class has several flows.
bool MergingPays(std::span<const MaxMinFlow> flows) {
  constexpr size_t kSample = 1024;
  if (flows.size() < 2) return false;
  const FlowClasses sample = Merge(flows, std::max<size_t>(1, flows.size() / kSample));
  return sample.representative.size() * 20 <= sample.of_flow.size() * 19;
}

}  // namespace

bool SameClass(const MaxMinFlow& a, const MaxMinFlow& b) {
  return a.weight == b.weight && a.cap == b.cap && a.priority == b.priority && std::ranges::equal(a.links, b.links);
}

uint64_t ClassHash(const MaxMinFlow& flow) {
  uint64_t hash = Mix(std::bit_cast<uint64_t>(flow.weight), static_cast<uint64_t>(flow.priority));
  hash = Mix(hash, std::bit_cast<uint64_t>(flow.cap.value()));
  for (const LinkId link : flow.links) hash = Mix(hash, static_cast<uint64_t>(link.value()));
  return hash;
}

FlowClasses MergeFlows(std::span<const MaxMinFlow> flows) {
  if (MergingPays(flows)) return Merge(flows, 1);
  FlowClasses classes;
  classes.of_flow.resize(flows.size());
  std::iota(classes.of_flow.begin(), classes.of_flow.end(), size_t{0});
  classes.representative = classes.of_flow;
  classes.count.assign(flows.size(), 1);
  return classes;
}

}  // namespace weft::planner::network
