#include "agent/collective_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft::agent {
namespace {

constexpr const char* kOperationNames[abi::kOperations] = {"broadcast",     "reduce",    "allgather",
                                                           "reducescatter", "allreduce", "point-to-point"};
constexpr auto kPointToPoint = static_cast<uint32_t>(abi::Operation::kPointToPoint);
constexpr uint64_t kLongestNs = 86'400'000'000'000;  // a day: more is nonsense

/// The name in a field that another process writes: what can stand in a log line, the rest as '?'.
std::string CheckedName(const char* field, size_t bytes) {
  std::string name(field, strnlen(field, bytes));
  for (char& letter : name) {
    if (letter < ' ' || letter > '~' || letter == '"' || letter == '\\') letter = '?';
  }
  return name;
}

/// The power of two next to `seconds`.
double Rounded(double seconds) { return std::exp2(std::round(std::log2(std::max(seconds, 1e-9)))); }

}  // namespace

const char* OperationName(uint32_t operation) { return kOperationNames[operation]; }

CollectiveReader::Slot* CollectiveReader::Follow(uint32_t index) {
  const abi::CommunicatorSlot& from = observations_->communicators[index];
  Slot& slot = slots_[index];
  const uint32_t generation = from.generation.load(std::memory_order_acquire);
  const bool open = from.state.load(std::memory_order_acquire) == static_cast<uint32_t>(abi::SlotState::kOpen);
  if (!open || generation % 2 != 0 || from.rank < 0) {
    slot.known = false;
    return nullptr;
  }
  if (!slot.known || slot.generation != generation) {
    slot = Slot{.known = true, .generation = generation, .read = from.recent_count.load(std::memory_order_acquire)};
  }
  return &slot;
}

std::vector<std::pair<uint64_t, CollectiveReader::Finished>> CollectiveReader::ReadRing(const abi::CommunicatorSlot& slot) {
  std::vector<std::pair<uint64_t, Finished>> ring;
  const uint64_t count = slot.recent_count.load(std::memory_order_acquire);
  for (uint64_t number = count - std::min<uint64_t>(count, abi::kRecentOperations); number < count; ++number) {
    const abi::OperationRecord& record = slot.recent[number % abi::kRecentOperations];
    Finished finished;
    finished.end_ns = record.end_ns.load(std::memory_order_acquire);
    finished.operation = record.operation.load(std::memory_order_relaxed);
    finished.sequence = record.sequence.load(std::memory_order_relaxed);
    finished.start_ns = record.start_ns.load(std::memory_order_relaxed);
    finished.bytes = record.bytes.load(std::memory_order_relaxed);
    const auto receive = static_cast<uint32_t>(abi::Wait::kReceive);
    finished.receive_wait_ns = record.waits_ns[receive].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    // Being written meanwhile: it reads 0 or another end, or the ring has come round.
    if (finished.end_ns == 0 || record.end_ns.load(std::memory_order_relaxed) != finished.end_ns ||
        slot.recent_count.load(std::memory_order_relaxed) > number + abi::kRecentOperations) {
      continue;
    }
    const bool sane = finished.operation < abi::kOperations && finished.end_ns >= finished.start_ns &&
                      finished.end_ns - finished.start_ns < kLongestNs && finished.receive_wait_ns < abi::kMaxPeers * kLongestNs;
    if (sane) ring.emplace_back(number, finished);
  }
  return ring;
}

std::optional<double> CollectiveReader::Usual(const std::vector<std::pair<uint64_t, Finished>>& ring, uint64_t except,
                                              uint32_t operation, std::optional<uint64_t> bytes) {
  std::vector<double> times;
  for (const auto& [number, other] : ring) {
    if (number == except || other.operation != operation) continue;
    if (bytes && (other.bytes / 2 > *bytes || *bytes / 2 > other.bytes)) continue;
    times.push_back(other.seconds());
  }
  if (times.size() < kLeastKnown) return std::nullopt;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void CollectiveReader::AppendSlow(v1::HostSample* sample) {
  if (observations_ == nullptr) return;
  int told = 0;
  for (uint32_t i = 0; i < abi::kMaxCommunicators; ++i) {
    Slot* const slot = Follow(i);
    const abi::CommunicatorSlot& from = observations_->communicators[i];
    if (slot == nullptr || from.recent_count.load(std::memory_order_acquire) == slot->read) continue;
    const auto ring = ReadRing(from);
    for (const auto& [number, finished] : ring) {
      // Point-to-point operations are numbered by each rank for itself: nothing to compare.
      if (number < slot->read || finished.operation == kPointToPoint || finished.seconds() < kLeastDelayS) continue;
      const auto usual = Usual(ring, number, finished.operation, finished.bytes);
      if (!usual || finished.seconds() - *usual < kLeastDelayS || finished.seconds() < 2 * *usual || told == kMostSlow) continue;
      ++told;
      v1::SlowCollective* slow = sample->add_slow();
      slow->set_job_id(job_);
      slow->set_comm(from.comm);
      slow->set_operation(OperationName(finished.operation));
      slow->set_sequence(finished.sequence);
      slow->set_rank(from.rank);
      slow->set_took_s(finished.seconds());
      slow->set_usual_s(*usual);
      slow->set_receive_wait_s(static_cast<double>(finished.receive_wait_ns) * 1e-9);
    }
    if (!ring.empty()) slot->read = std::max(slot->read, ring.back().first + 1);
  }
}

void CollectiveReader::AppendRanks(v1::HostSample* sample) {
  if (observations_ == nullptr) return;
  for (uint32_t i = 0; i < abi::kMaxCommunicators; ++i) {
    Slot* const slot = Follow(i);
    if (slot == nullptr) continue;
    const abi::CommunicatorSlot& from = observations_->communicators[i];
    const uint64_t count = from.recent_count.load(std::memory_order_acquire);
    const auto ring = count == slot->ranked ? decltype(ReadRing(from)){} : ReadRing(from);
    slot->ranked = count;
    for (uint32_t operation = 0; operation < kPointToPoint; ++operation) {
      double& told = slot->usual_s[operation];
      // What has left the ring stays as it was.
      if (const auto usual = Usual(ring, UINT64_MAX, operation, std::nullopt)) {
        if (told == 0 || *usual > 2 * told || *usual < told / 2) told = Rounded(*usual);
      }
      if (told == 0) continue;
      v1::CommunicatorRank* rank = sample->add_communicator_ranks();
      rank->set_job_id(job_);
      rank->set_comm(from.comm);
      rank->set_name(CheckedName(from.name, sizeof from.name));
      rank->set_rank(from.rank);
      rank->set_job_rank(job_rank_);
      rank->set_operation(OperationName(operation));
      rank->set_usual_s(told);
    }
  }
}

}  // namespace weft::agent
