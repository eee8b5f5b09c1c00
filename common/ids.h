// Distinct types for the indices that the whole project passes around, so that no signature has an `int rank, int host`
// pair to swap. An id is an index into the table of its kind; what the table is, its owner says.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace weft {

/// An index that only compares and hashes with its own kind.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  explicit constexpr Id(int32_t value) : value_(value) {}

  constexpr int32_t value() const { return value_; }
  constexpr size_t index() const { return static_cast<size_t>(value_); }
  constexpr bool valid() const { return value_ >= 0; }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  int32_t value_ = -1;
};

using RankId = Id<struct RankTag>;   ///< a rank of one job
using NodeId = Id<struct NodeTag>;   ///< a host or switch of a topology
using LinkId = Id<struct LinkTag>;   ///< a directed link of a topology
using FlowId = Id<struct FlowTag>;   ///< a flow of one problem or simulation
using StepId = Id<struct StepTag>;   ///< a step of one rank's schedule

}  // namespace weft

template <typename Tag>
struct std::hash<weft::Id<Tag>> {
  size_t operator()(weft::Id<Tag> id) const noexcept { return std::hash<int32_t>()(id.value()); }
};
