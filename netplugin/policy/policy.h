// The job's policy segment as the process holds it: mapped read-only, replaced when a restarted agent sends another one,
// never unmapped under a reader.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "netplugin/abi/segment.h"

namespace weft::net {

/// What is wrong with an entry, or nullptr: paths, weights, class, pacing, lease and window are each either plausible or the
/// whole entry is refused. `now` is CLOCK_MONOTONIC in nanoseconds.
const char* CheckFlowPolicy(const abi::FlowPolicy& entry, uint64_t now);

/// Whether what is leased in `entry` applies at `now`. `table` is where it was found, nullptr if the newest table does not
/// name it: then nobody renews it.
inline bool Leased(const abi::FlowPolicy& entry, const abi::PolicyTable* table, uint64_t now) {
  if (entry.lease_until_ns == 0) return false;
  if (now < entry.lease_until_ns) return true;
  // Relaxed: one number, true by itself.
  const uint64_t renewed = table ? table->renewed_until_ns.load(std::memory_order_relaxed) : 0;
  return now < renewed && renewed - now <= abi::kLongestLeaseNs;
}

/// One mapped segment, or the empty table that stands for none.
class PolicyMapping {
 public:
  /// The empty table: epoch 0.
  PolicyMapping();
  ~PolicyMapping();
  PolicyMapping(const PolicyMapping&) = delete;
  PolicyMapping& operator=(const PolicyMapping&) = delete;

  /// Maps `fd` after checking seals, size and header. On failure nullptr, and `why` says what was wrong.
  static std::unique_ptr<PolicyMapping> Map(int fd, std::string* why);

  const abi::PolicyTable& table() const { return segment_->table; }
  /// Grows by one with each mapping that is put in force; 0 is the empty table.
  uint64_t generation() const { return generation_; }

 private:
  friend class PolicyStore;
  explicit PolicyMapping(const abi::PolicySegment* segment) : segment_(segment) {}

  const abi::PolicySegment* segment_;  // mapped
  uint64_t generation_ = 0;
};

/// Which mapping is in force. A data thread reads current() without a lock; every reader publishes the generation of the
/// mapping that it uses, and a mapping is unmapped when all have gone past it. Background thread except where noted.
class PolicyStore {
 public:
  PolicyStore();

  /// Never nullptr. A reader may use the result until it publishes a later generation (release). Threads: any; acquire,
  /// so that the mapping's fields are there.
  const PolicyMapping* current() const { return current_.load(std::memory_order_acquire); }

  /// Puts `mapping` in force as soon as something was written to it; until then the present one stays.
  void Offer(std::unique_ptr<PolicyMapping> mapping) { offered_ = std::move(mapping); }
  /// The background thread's turn: puts an offered mapping in force, unmaps what nobody reads any more.
  void Turn();

  /// `generation` is what the reader publishes; set here to the present one. Threads: any.
  void AddReader(std::atomic<uint64_t>* generation);
  void RemoveReader(std::atomic<uint64_t>* generation);

 private:
  void Collect();

  std::mutex mutex_;  // guards what follows; current_ is written under it
  std::vector<std::unique_ptr<PolicyMapping>> kept_;  // ascending generation; the last is in force
  std::vector<std::atomic<uint64_t>*> readers_;
  std::unique_ptr<PolicyMapping> offered_;
  std::atomic<const PolicyMapping*> current_;
};

/// The newest good entry of one flow, as the thread that looks after the flow reads it. What is refused leaves the entry
/// before it in force. Not thread-safe.
class FlowEntry {
 public:
  /// True if there is a new entry of `flow`. One that is refused is logged, and counted in `rejected`, whose only writer
  /// the calling thread is.
  bool Read(const PolicyStore& store, uint64_t flow, uint64_t now, std::atomic<uint64_t>& rejected);

  bool present() const { return present_; }
  const abi::FlowPolicy& policy() const { return policy_; }  ///< all zero before the first one
  uint64_t epoch() const { return epoch_; }                  ///< of the newest table that was looked at
  /// Whether what is leased in it applies at `now`.
  bool Leased(const PolicyStore& store, uint64_t now) const;

 private:
  abi::FlowPolicy policy_{};
  bool present_ = false;
  bool listed_ = false;  // the newest table names it: its lease can be renewed
  uint64_t epoch_ = 0, generation_ = 0;
};

}  // namespace weft::net
