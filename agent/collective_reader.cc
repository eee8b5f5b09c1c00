#include "agent/collective_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

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

bool Alike(uint32_t operation, uint32_t other_operation, uint64_t bytes, uint64_t other_bytes) {
  return operation == other_operation && bytes / 2 <= other_bytes && other_bytes / 2 <= bytes;
}

}  // namespace

const char* OperationName(uint32_t operation) { return kOperationNames[operation]; }

std::vector<CollectiveReader::Finished> CollectiveReader::ReadEntries(const abi::CommunicatorSlot& slot) {
  std::vector<Finished> entries;
  const uint64_t count = slot.recent_count.load(std::memory_order_acquire);
  for (uint64_t number = count - std::min<uint64_t>(count, abi::kRecentOperations); number < count; ++number) {
    const abi::OperationRecord& record = slot.recent[number % abi::kRecentOperations];
    Finished finished{.number = number};
    finished.end_ns = record.end_ns.load(std::memory_order_acquire);
    finished.operation = record.operation.load(std::memory_order_relaxed);
    finished.sequence = record.sequence.load(std::memory_order_relaxed);
    finished.start_ns = record.start_ns.load(std::memory_order_relaxed);
    finished.bytes = record.bytes.load(std::memory_order_relaxed);
    finished.receive_wait_ns = record.waits_ns[static_cast<uint32_t>(abi::Wait::kReceive)].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    // Being written meanwhile: it reads 0 or another end, or the ring has come round.
    if (finished.end_ns == 0 || record.end_ns.load(std::memory_order_relaxed) != finished.end_ns ||
        slot.recent_count.load(std::memory_order_relaxed) > number + abi::kRecentOperations) {
      continue;
    }
    const bool sane = finished.operation < abi::kOperations && finished.end_ns >= finished.start_ns &&
                      finished.end_ns - finished.start_ns < kLongestNs && finished.receive_wait_ns < abi::kMaxPeers * kLongestNs;
    if (sane) entries.push_back(finished);
  }
  // The plugin enters them when it finds that they have finished, in any order.
  std::stable_sort(entries.begin(), entries.end(), [](const Finished& a, const Finished& b) { return a.start_ns < b.start_ns; });
  uint64_t latest_end = 0;
  std::array<std::optional<uint64_t>, abi::kOperations> newest;
  for (Finished& entry : entries) {
    // Where the profiler was off, or found no room, numbers are missing.
    entry.idle_known = newest[entry.operation] && *newest[entry.operation] + 1 == entry.sequence;
    entry.idle_ns = latest_end > 0 && entry.start_ns > latest_end ? std::min(entry.start_ns - latest_end, kLongestNs) : 0;
    newest[entry.operation] = entry.sequence;
    latest_end = std::max(latest_end, entry.end_ns);
  }
  return entries;
}

std::vector<CollectiveReader::Ring> CollectiveReader::ReadRings() {
  std::vector<Ring> rings;
  bool news = false;
  for (uint32_t i = 0; i < abi::kMaxCommunicators; ++i) {
    const abi::CommunicatorSlot& from = observations_->communicators[i];
    Slot& slot = slots_[i];
    const uint32_t generation = from.generation.load(std::memory_order_acquire);
    const bool open = from.state.load(std::memory_order_acquire) == static_cast<uint32_t>(abi::SlotState::kOpen);
    const uint64_t count = from.recent_count.load(std::memory_order_acquire);
    if (!open || generation % 2 != 0 || from.rank < 0) {
      slot.known = false;
      continue;
    }
    if (!slot.known || slot.generation != generation) slot = Slot{.known = true, .generation = generation, .read = count};
    if (count == 0) continue;
    news |= count != slot.read;
    rings.push_back({.slot = i, .generation = generation, .first_new = slot.read, .end_new = count});
    slot.read = count;
  }
  if (!news) return {};
  // All of them, also those without news: a rank may come late to one because it waited in another.
  for (Ring& ring : rings) {
    const abi::CommunicatorSlot& from = observations_->communicators[ring.slot];
    ring.comm = from.comm;
    ring.rank = from.rank;
    ring.ranks = from.ranks;
    ring.name = CheckedName(from.name, sizeof from.name);
    ring.entries = ReadEntries(from);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  std::erase_if(rings, [&](const Ring& ring) {  // somebody else's by now
    return observations_->communicators[ring.slot].generation.load(std::memory_order_relaxed) != ring.generation;
  });
  return rings;
}

std::optional<double> CollectiveReader::WaitOf(const std::vector<Finished>& entries, const Finished& entry) {
  std::vector<double> times;
  for (const Finished& other : entries) {
    if (other.number != entry.number && Alike(other.operation, entry.operation, other.bytes, entry.bytes)) times.push_back(other.took_s());
  }
  if (times.size() < kLeastKnown) return std::nullopt;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return std::max(0.0, entry.took_s() - *middle);
}

std::optional<double> CollectiveReader::LateOf(const std::vector<Finished>& entries, const std::vector<LongGap>& long_gaps,
                                               const Finished& entry) {
  constexpr size_t kUsual = 2;  // from the longest
  if (!entry.idle_known) return std::nullopt;
  const auto usual_of = [](std::vector<double> times) {
    if (times.size() <= kUsual) return 0.0;
    std::nth_element(times.begin(), times.begin() + kUsual, times.end(), std::greater<>());
    return times[kUsual];
  };
  std::vector<double> times;
  for (const Finished& other : entries) {
    const bool alike = Alike(other.operation, entry.operation, other.bytes, entry.bytes);
    if (other.number != entry.number && other.idle_known && alike) times.push_back(other.idle_s());
  }
  if (times.size() < kLeastKnown) return std::nullopt;
  std::vector<double> remembered;
  for (const LongGap& gap : long_gaps) {
    if (gap.until_ns + kRememberedNs > entry.start_ns) remembered.push_back(gap.seconds);
  }
  return std::max(0.0, entry.idle_s() - std::max(usual_of(std::move(times)), usual_of(std::move(remembered))));
}

double CollectiveReader::WaitedElsewhere(const std::vector<Ring>& rings, uint64_t comm, const Finished& entry) {
  const uint64_t from = entry.start_ns - std::min(entry.start_ns, entry.idle_ns);
  std::vector<std::pair<uint64_t, uint64_t>> waits;  // from, to
  for (const Ring& ring : rings) {
    if (ring.comm == comm) continue;
    for (const Finished& other : ring.entries) {
      const uint64_t begin = std::max(from, other.start_ns), end = std::min(entry.start_ns, other.end_ns);
      if (end <= begin) continue;
      // Where nothing is usual yet all of it may have been a wait.
      const auto wait = WaitOf(ring.entries, other);
      const uint64_t longest = wait ? static_cast<uint64_t>(*wait * 1e9) : end - begin;
      waits.emplace_back(begin, begin + std::min(end - begin, longest));
    }
  }
  std::sort(waits.begin(), waits.end());
  uint64_t waited_ns = 0, until = from;  // in two communicators at once counts once
  for (const auto& [begin, end] : waits) {
    if (end <= until) continue;
    waited_ns += end - std::max(begin, until);
    until = end;
  }
  return static_cast<double>(waited_ns) * 1e-9;
}

std::optional<double> CollectiveReader::JudgeLate(const std::vector<Ring>& rings, const Ring& ring, const Finished& entry, int& looked) {
  std::vector<LongGap>& long_gaps = slots_[ring.slot].long_gaps;
  std::optional<double> late_s = LateOf(ring.entries, long_gaps, entry);
  if (entry.idle_known && entry.idle_s() >= kLeastDelayS) {
    if (long_gaps.size() == kLongGaps) long_gaps.erase(long_gaps.begin());
    long_gaps.push_back({entry.start_ns, entry.idle_s()});
  }
  if (late_s.value_or(0) < kLeastDelayS) return late_s;
  if (++looked > kMostDelays) return std::nullopt;
  return std::max(0.0, *late_s - WaitedElsewhere(rings, ring.comm, entry));
}

void CollectiveReader::AppendDelays(v1::HostSample* sample) {
  if (observations_ == nullptr) return;
  const std::vector<Ring> rings = ReadRings();
  int told = 0, looked = 0;
  for (const Ring& ring : rings) {
    for (const Finished& entry : ring.entries) {
      const bool fresh = entry.number >= ring.first_new && entry.number < ring.end_new;
      // Point-to-point operations are numbered by each rank for itself: nothing to compare.
      if (!fresh || entry.operation == kPointToPoint || told == kMostDelays) continue;
      const double waited_s = WaitOf(ring.entries, entry).value_or(0);
      const std::optional<double> late_s = JudgeLate(rings, ring, entry, looked);
      const bool waited = waited_s >= kLeastDelayS && 2 * waited_s >= entry.took_s();
      if (!waited && late_s.value_or(0) < kLeastDelayS) continue;
      ++told;
      v1::CollectiveDelay* delay = sample->add_delays();
      delay->set_job_id(job_);
      delay->set_comm(ring.comm);
      delay->set_name(ring.name);
      delay->set_operation(OperationName(entry.operation));
      delay->set_sequence(entry.sequence);
      delay->set_rank(ring.rank);
      delay->set_ranks(ring.ranks);
      delay->set_job_rank(job_rank_);
      delay->set_waited_s(waited_s);
      delay->set_late_s(late_s.value_or(0));
      delay->set_late_known(late_s.has_value());
      delay->set_receive_wait_s(static_cast<double>(entry.receive_wait_ns) * 1e-9);
    }
  }
}

}  // namespace weft::agent
