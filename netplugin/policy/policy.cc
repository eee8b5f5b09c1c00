#include "netplugin/policy/policy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "netplugin/abi/seqlock.h"
#include "netplugin/log.h"
#include "netplugin/telemetry/telemetry.h"

namespace weft::net {
namespace {

/// A segment of zero bits, which are never written and so take no memory.
const abi::PolicySegment* MapEmpty() {
  void* memory = mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();  // stopped at the plugin's edge
  return static_cast<const abi::PolicySegment*>(memory);
}

}  // namespace

const char* CheckFlowPolicy(const abi::FlowPolicy& entry, uint64_t now) {
  uint64_t total_weight = 0;
  uint32_t lanes = 0;
  for (; lanes < abi::kMaxLanes && entry.lanes[lanes].source_port != 0; ++lanes) {
    const abi::LanePolicy& lane = entry.lanes[lanes];
    if (lane.weight > abi::kLargestWeight) return "a lane's weight is above 1048576";
    total_weight += lane.weight;
    for (uint32_t i = 0; i < lanes; ++i) {
      if (entry.lanes[i].source_port == lane.source_port) return "two lanes have the same source port";
    }
  }
  if (lanes > 0 && total_weight == 0) return "no lane has a weight";
  if (entry.traffic_class > 255) return "the traffic class is above 255";
  if (entry.pacing_bps != 0 && entry.pacing_bps < abi::kLeastPacingBps) return "the pacing is below 1 Mbit/s";
  if (entry.lease_until_ns > now && entry.lease_until_ns - now > abi::kLongestLeaseNs) {
    return "the lease is longer than 60 s";
  }
  if (entry.window_period_ns == 0) return nullptr;
  if (entry.window_period_ns < abi::kShortestWindowPeriodNs || entry.window_period_ns > abi::kLongestWindowPeriodNs) {
    return "the window's period is not 1 ms to 60 s";
  }
  if (entry.window_length_ns == 0 || entry.window_length_ns > entry.window_period_ns) {
    return "the window's length is 0 or above its period";
  }
  return nullptr;
}

PolicyMapping::PolicyMapping() : segment_(MapEmpty()) {}

PolicyMapping::~PolicyMapping() { munmap(const_cast<abi::PolicySegment*>(segment_), sizeof(abi::PolicySegment)); }

std::unique_ptr<PolicyMapping> PolicyMapping::Map(int fd, std::string* why) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
    // Reading a file that shrinks is a SIGBUS in the training process.
    *why = "the memory file is not sealed against shrinking";
    return nullptr;
  }
  struct stat status {};
  if (fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) < sizeof(abi::PolicySegment)) {
    *why = "the memory file has " + std::to_string(status.st_size) + " bytes, expected " +
           std::to_string(sizeof(abi::PolicySegment));
    return nullptr;
  }
  void* memory = mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    *why = std::string("mmap: ") + std::strerror(errno);
    return nullptr;
  }
  std::unique_ptr<PolicyMapping> mapping(new PolicyMapping(static_cast<const abi::PolicySegment*>(memory)));
  if (const char* wrong = abi::ValidateSegment(memory, sizeof(abi::PolicySegment), abi::kPolicyMagic)) {
    const abi::SegmentHeader& header = mapping->segment_->header;
    *why = std::string(wrong) + " (version " + std::to_string(header.version) + ", this plugin reads " +
           std::to_string(abi::kSegmentVersion) + ")";
    return nullptr;
  }
  if (const uint32_t count = mapping->table().count.load(std::memory_order_relaxed); count > abi::PolicyTable::kRoom) {
    *why = "the table claims " + std::to_string(count) + " entries, at most " + std::to_string(abi::PolicyTable::kRoom) + " fit";
    return nullptr;
  }
  return mapping;
}

PolicyStore::PolicyStore() {
  kept_.push_back(std::make_unique<PolicyMapping>());
  current_.store(kept_.back().get(), std::memory_order_relaxed);  // no reader yet
}

void PolicyStore::Turn() {
  const std::lock_guard lock(mutex_);
  if (offered_ && offered_->table().epoch.load(std::memory_order_acquire) != 0) {
    offered_->generation_ = kept_.back()->generation() + 1;
    kept_.push_back(std::move(offered_));
    current_.store(kept_.back().get(), std::memory_order_release);  // release: the mapping is complete
  }
  if (kept_.size() > 1) Collect();
}

void PolicyStore::AddReader(std::atomic<uint64_t>* generation) {
  const std::lock_guard lock(mutex_);
  generation->store(kept_.back()->generation(), std::memory_order_relaxed);
  readers_.push_back(generation);
}

void PolicyStore::RemoveReader(std::atomic<uint64_t>* generation) {
  const std::lock_guard lock(mutex_);
  std::erase(readers_, generation);
}

void PolicyStore::Collect() {
  uint64_t oldest = kept_.back()->generation();
  for (const auto* reader : readers_) oldest = std::min(oldest, reader->load(std::memory_order_acquire));
  std::erase_if(kept_, [oldest](const auto& mapping) { return mapping->generation() < oldest; });
}

bool FlowEntry::Read(const PolicyStore& store, uint64_t flow, uint64_t now, std::atomic<uint64_t>& rejected) {
  const PolicyMapping* mapping = store.current();
  const uint64_t epoch = mapping->table().epoch.load(std::memory_order_acquire);
  if (epoch == epoch_ && mapping->generation() == generation_) return false;
  abi::FlowPolicy entry;
  const abi::PolicyRead result = abi::ReadFlowPolicy(mapping->table(), flow, &entry);
  if (result == abi::PolicyRead::kBusy) return false;  // the writer is at it: the next time
  epoch_ = epoch;
  generation_ = mapping->generation();
  listed_ = false;
  const char* wrong = nullptr;
  if (result == abi::PolicyRead::kCorrupt) wrong = "the table's entry count is out of range";
  if (result == abi::PolicyRead::kFound) wrong = CheckFlowPolicy(entry, now);
  if (wrong) {
    Log(nccl::kLogWarn, "policy of epoch %llu for flow %016llx refused: %s; keeping the last one",
        static_cast<unsigned long long>(epoch), static_cast<unsigned long long>(flow), wrong);
    Bump(rejected, 1);
    return false;
  }
  if (result != abi::PolicyRead::kFound) return false;
  policy_ = entry;
  present_ = listed_ = true;
  return true;
}

bool FlowEntry::Leased(const PolicyStore& store, uint64_t now) const {
  return present_ && net::Leased(policy_, listed_ ? &store.current()->table() : nullptr, now);
}

}  // namespace weft::net
