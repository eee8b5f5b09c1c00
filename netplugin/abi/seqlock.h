// Reader and writer of a PolicyTable, a seqlock in shared memory. Neither side ever waits: a reader that keeps meeting
// a writer gives up after a few tries and asks again at its next message.
//
// The table is copied word by word with atomic accesses, so that a torn read is detected instead of undefined. No fence
// is used (the thread sanitizer does not know them): every word is stored with release, which keeps it behind the odd
// `sequence`, and loaded with acquire, which keeps the second load of `sequence` behind it. Both are plain moves on x86.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

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

/// Copies the entry of `flow` out of `table`, which may be hostile: nothing outside the table is touched whatever it
/// holds, but the entry's values are not checked. Complexity: O(entries), at most four tries. Threads: any.
inline PolicyRead ReadFlowPolicy(const PolicyTable& table, uint64_t flow, FlowPolicy* out) {
  using seqlock_internal::kEntryWords;
  using seqlock_internal::Word;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const uint64_t before = table.sequence.load(std::memory_order_acquire);
    if (before & 1) continue;
    const uint32_t count = table.count.load(std::memory_order_acquire);
    PolicyRead result = count > kMaxFlows ? PolicyRead::kCorrupt : PolicyRead::kAbsent;
    for (uint32_t i = 0; i < count && count <= kMaxFlows; ++i) {
      const auto* words = reinterpret_cast<const Word*>(&table.flows[i]);
      if (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) != flow) continue;
      uint64_t copy[kEntryWords<FlowPolicy>];
      for (size_t w = 0; w < std::size(copy); ++w) copy[w] = __atomic_load_n(&words[w], __ATOMIC_ACQUIRE);
      std::memcpy(out, copy, sizeof copy);
      result = PolicyRead::kFound;
      break;
    }
    if (table.sequence.load(std::memory_order_relaxed) == before) return result;
  }
  return PolicyRead::kBusy;
}

/// Replaces the whole table by `flows` and announces it: `epoch` grows by one. Entries past kMaxFlows are left out, and in a
/// table of version 1 what its entries do not have; the return value is the number written. Threads: one writer per table.
template <typename Entry>
uint32_t WritePolicies(PolicyTableOf<Entry>& table, std::span<const FlowPolicy> flows) {
  using seqlock_internal::kEntryWords;
  using seqlock_internal::Word;
  const uint32_t count = flows.size() < kMaxFlows ? static_cast<uint32_t>(flows.size()) : kMaxFlows;
  // A writer that died in the middle left an odd number: go on from there.
  const uint64_t odd = table.sequence.load(std::memory_order_relaxed) | 1;
  table.sequence.store(odd, std::memory_order_relaxed);
  table.count.store(count, std::memory_order_release);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t copy[kEntryWords<Entry>];
    std::memcpy(copy, &flows[i], sizeof copy);
    auto* words = reinterpret_cast<Word*>(&table.flows[i]);
    for (size_t w = 0; w < std::size(copy); ++w) __atomic_store_n(&words[w], copy[w], __ATOMIC_RELEASE);
  }
  table.sequence.store(odd + 1, std::memory_order_release);
  table.epoch.store(table.epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return count;
}

}  // namespace weft::abi
