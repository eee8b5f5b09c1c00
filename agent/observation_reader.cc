#include "agent/observation_reader.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "agent/collective_reader.h"

namespace weft::agent {
namespace {

const char* CauseName(uint32_t cause) {
  switch (static_cast<abi::StallCause>(cause)) {
    case abi::StallCause::kPeerDoesNotRead: return "peer does not read";
    case abi::StallCause::kNoAcknowledgement: return "no acknowledgement";
    case abi::StallCause::kPeerSendsNothing: return "peer sends nothing";
    case abi::StallCause::kNoLane: return "no usable connection";
    default: return "unknown";
  }
}

std::string PeerText(const abi::StallSlot& stall) {
  char text[INET6_ADDRSTRLEN] = "?";
  const bool v6 = stall.family == 6;
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, stall.peer_address, text, sizeof text);
  if (stall.peer_port == 0) return text;
  return v6 ? fmt::format("[{}]:{}", text, stall.peer_port) : fmt::format("{}:{}", text, stall.peer_port);
}

/// The stall in a slot, if its identity stood still while it was read.
std::optional<StallNews> Read(const abi::StallSlot& from, uint32_t generation) {
  StallNews news;
  news.flow = from.flow;
  news.send = from.direction == static_cast<uint32_t>(abi::Direction::kSend);
  news.rank = from.rank;
  news.peer_rank = from.peer_rank;
  news.peer = PeerText(from);
  for (const uint16_t port : from.ports) {
    if (port != 0) news.ports.push_back(port);
  }
  const uint64_t since = from.since_ns, until = from.until_ns.load(std::memory_order_relaxed);
  news.stalled_s = until > since ? static_cast<double>(until - since) * 1e-9 : 0;
  news.bytes = from.bytes_in_flight.load(std::memory_order_relaxed);
  news.requests = from.requests.load(std::memory_order_relaxed);
  news.cause = CauseName(from.cause.load(std::memory_order_relaxed));
  news.given_up = from.aborted.load(std::memory_order_relaxed) != 0;
  if (from.generation.load(std::memory_order_acquire) != generation) return std::nullopt;
  return news;
}

}  // namespace

std::vector<StallNews> ObservationReader::TakeStalls() {
  std::vector<StallNews> result;
  if (!observations_) return result;
  for (uint32_t i = 0; i < abi::kMaxStalls; ++i) {
    const abi::StallSlot& slot = observations_->stalls[i];
    const uint32_t state = slot.state.load(std::memory_order_acquire);
    const uint32_t generation = slot.generation.load(std::memory_order_acquire);
    const bool open = state == static_cast<uint32_t>(abi::SlotState::kOpen);
    if (generation % 2 != 0 || (!open && state != static_cast<uint32_t>(abi::SlotState::kClosed))) continue;
    const auto told = told_.find(i);
    const bool known = told != told_.end() && told->second == generation;
    if (known == open) continue;  // told already; or over before it was seen
    std::optional<StallNews> news = Read(slot, generation);
    if (!news) continue;  // next time
    news->begins = open;
    if (open) told_[i] = generation;
    else told_.erase(told);
    result.push_back(std::move(*news));
  }
  return result;
}

std::optional<SilenceNews> ObservationReader::TakeSilence(uint64_t now_ns) {
  if (!background_) return std::nullopt;
  const auto state = static_cast<abi::BackgroundState>(background_->state.load(std::memory_order_relaxed));
  const uint64_t swept = background_->swept_ns.load(std::memory_order_relaxed);
  const uint64_t since = now_ns - std::min(now_ns, swept);
  const bool failed = state == abi::BackgroundState::kFailed;
  const bool silent = failed || (state == abi::BackgroundState::kRuns && swept != 0 && since >= kSilentNs);
  if (silent == silent_) return std::nullopt;
  silent_ = silent;
  return SilenceNews{.begins = silent, .failed = failed, .silent_s = static_cast<double>(since) * 1e-9};
}

void ObservationReader::AppendProgress(std::vector<RankProgress>* progress) const {
  if (!observations_) return;
  for (const abi::CommunicatorSlot& slot : observations_->communicators) {
    if (slot.state.load(std::memory_order_acquire) != static_cast<uint32_t>(abi::SlotState::kOpen)) continue;
    const uint32_t generation = slot.generation.load(std::memory_order_acquire);
    if (generation % 2 != 0 || slot.rank < 0) continue;
    std::vector<RankProgress> of_slot;
    for (uint32_t i = 0; i < abi::kOperations; ++i) {
      // Point-to-point operations are numbered by each rank for itself: nothing to compare.
      if (i == static_cast<uint32_t>(abi::Operation::kPointToPoint)) continue;
      const abi::OperationCounters& counters = slot.operations[i];
      of_slot.push_back({.comm = slot.comm,
                         .operation = OperationName(i),
                         .rank = slot.rank,
                         .ranks = slot.ranks,
                         .started = counters.started.load(std::memory_order_relaxed),
                         .finished = counters.finished.load(std::memory_order_relaxed),
                         .last_started = counters.last_started.load(std::memory_order_relaxed),
                         .last_started_ns = counters.last_started_ns.load(std::memory_order_relaxed)});
    }
    if (slot.generation.load(std::memory_order_acquire) != generation) continue;
    progress->insert(progress->end(), of_slot.begin(), of_slot.end());
  }
}

std::vector<Straggle> FindStraggles(const std::vector<RankProgress>& progress, uint64_t now_ns, double least_s) {
  std::map<std::tuple<uint64_t, std::string>, std::vector<const RankProgress*>> groups;
  for (const RankProgress& each : progress) groups[{each.comm, each.operation}].push_back(&each);
  std::vector<Straggle> result;
  for (const auto& [key, ranks] : groups) {
    Straggle straggle{.comm = std::get<0>(key), .operation = std::get<1>(key)};
    for (const RankProgress* rank : ranks) {
      if (rank->started > 0) straggle.sequence = std::max(straggle.sequence, rank->last_started);
    }
    for (const RankProgress* rank : ranks) {
      straggle.ranks = rank->ranks;
      if (rank->started == 0 || rank->last_started < straggle.sequence) {
        straggle.behind.push_back(rank->rank);
      } else if (rank->started > rank->finished) {
        straggle.waiting.push_back(rank->rank);
        const uint64_t waited = now_ns - std::min(now_ns, rank->last_started_ns);
        straggle.waited_s = std::max(straggle.waited_s, static_cast<double>(waited) * 1e-9);
      }
    }
    if (straggle.waiting.empty() || straggle.waited_s < least_s) continue;
    std::ranges::sort(straggle.waiting);
    std::ranges::sort(straggle.behind);
    result.push_back(std::move(straggle));
  }
  return result;
}

}  // namespace weft::agent
