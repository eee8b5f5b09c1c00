// Reader and writer of a PolicyTable, a seqlock in shared memory. Neither side ever waits: a reader that keeps meeting
// a writer gives up after a few tries and asks again at its next message.
//
// The table is copied word by word with atomic accesses, so that a torn read is detected instead of undefined. No fence
// is used (the thread sanitizer does not know them): every word is stored with release, which keeps it behind the odd
// `sequence`, and loaded with acquire, which keeps the second load of `sequence` behind it. Both are plain moves on x86.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

#include "netplugin/abi/segment.h"

namespace weft::abi {

namespace seqlock_internal {
// The entries are not made of 64-bit words by type; the attribute permits to see them so.
using Word [[gnu::may_alias]] = uint64_t;
template <typename Entry>
inline constexpr size_t kEntryWords = sizeof(Entry) / sizeof(uint64_t);
static_assert(sizeof(FlowPolicy) % sizeof(uint64_t) == 0 && offsetof(FlowPolicy, flow) == 0);
}  // namespace seqlock_internal

enum class PolicyRead {
  kFound,
  kAbsent,   ///< the table names no such flow
  kBusy,     ///< the writer was at it at every try: keep what you have, ask again
  kCorrupt,  ///< `count` is out of range
};

namespace seqlock_internal {
/// Whether a table's entries are sorted by flow: those of version 3.
template <typename Table>
inline constexpr bool kSorted = std::is_same_v<Table, PolicyTable>;

template <typename Table>
uint64_t FlowAt(const Table& table, uint32_t index) {
  return __atomic_load_n(reinterpret_cast<const Word*>(&table.flows[index]), __ATOMIC_ACQUIRE);
}

/// Which of the first `count` entries may be that of `flow`; `count` if none. Requires: count is at most the table's room. Ends after
/// a bounded number of looks whatever the memory holds or becomes: entries in a wrong order are only not found.
template <typename Table>
uint32_t FindFlow(const Table& table, uint32_t count, uint64_t flow) {
  if constexpr (kSorted<Table>) {
    uint32_t from = 0, to = count;
    while (from < to) {
      const uint32_t middle = from + (to - from) / 2;
      if (FlowAt(table, middle) < flow) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  } else {
    uint32_t index = 0;
    while (index < count && FlowAt(table, index) != flow) ++index;
    return index;
  }
}
}  // namespace seqlock_internal

/// Copies the entry of `flow` out of `table`, which may be hostile: nothing outside the table is touched whatever it
/// holds, but the entry's values are not checked, except that it is of `flow`. Complexity: O(log entries), in tables before
/// version 3 O(entries); at most four tries. Threads: any.
template <typename Entry, uint32_t kEntries>
PolicyRead ReadFlowPolicy(const PolicyTableOf<Entry, kEntries>& table, uint64_t flow, Entry* out) {
  using seqlock_internal::kEntryWords;
  using seqlock_internal::Word;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const uint64_t before = table.sequence.load(std::memory_order_acquire);
    if (before & 1) continue;
    const uint32_t count = table.count.load(std::memory_order_acquire);
    PolicyRead result = count > kEntries ? PolicyRead::kCorrupt : PolicyRead::kAbsent;
    const uint32_t index = count > kEntries ? count : seqlock_internal::FindFlow(table, count, flow);
    if (index < count) {
      const auto* words = reinterpret_cast<const Word*>(&table.flows[index]);
      uint64_t copy[kEntryWords<Entry>];
      for (size_t w = 0; w < std::size(copy); ++w) copy[w] = __atomic_load_n(&words[w], __ATOMIC_ACQUIRE);
      if (copy[0] == flow) {
        std::memcpy(out, copy, sizeof copy);
        result = PolicyRead::kFound;
      }
    }
    if (table.sequence.load(std::memory_order_relaxed) == before) return result;
  }
  return PolicyRead::kBusy;
}

/// Replaces the whole table by `flows` and announces it: `epoch` grows by one. Entries past the table's room are left out, and in a
/// table of version 1 what its entries do not have; in one of version 3 entries are sorted. The return value is the number written.
/// Threads: one writer per table.
template <typename Entry, uint32_t kEntries>
uint32_t WritePolicies(PolicyTableOf<Entry, kEntries>& table, std::span<const FlowPolicy> flows) {
  using seqlock_internal::kEntryWords;
  using seqlock_internal::Word;
  std::vector<const FlowPolicy*> order;  // made before readers have to wait
  for (const FlowPolicy& flow : flows.first(std::min<size_t>(flows.size(), kEntries))) order.push_back(&flow);
  if constexpr (seqlock_internal::kSorted<PolicyTableOf<Entry, kEntries>>) {
    std::ranges::sort(order, {}, [](const FlowPolicy* entry) { return entry->flow; });
  }
  const auto count = static_cast<uint32_t>(order.size());
  // A writer that died in the middle left an odd number: go on from there.
  const uint64_t odd = table.sequence.load(std::memory_order_relaxed) | 1;
  table.sequence.store(odd, std::memory_order_relaxed);
  table.count.store(count, std::memory_order_release);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t copy[kEntryWords<Entry>];
    std::memcpy(copy, order[i], sizeof copy);
    auto* words = reinterpret_cast<Word*>(&table.flows[i]);
    for (size_t w = 0; w < std::size(copy); ++w) __atomic_store_n(&words[w], copy[w], __ATOMIC_RELEASE);
  }
  table.sequence.store(odd + 1, std::memory_order_release);
  table.epoch.store(table.epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return count;
}

}  // namespace weft::abi
