#include "planner/collectives/schedule.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

namespace weft::planner::inline collectives {
namespace {

struct NamedCollective {
  std::string_view name;
  Collective collective;
};

constexpr std::array kCollectives = {
    NamedCollective{"sendrecv", Collective::kSendRecv},           NamedCollective{"allreduce", Collective::kAllReduce},
    NamedCollective{"allgather", Collective::kAllGather},         NamedCollective{"alltoall", Collective::kAllToAll},
    NamedCollective{"reducescatter", Collective::kReduceScatter}, NamedCollective{"broadcast", Collective::kBroadcast},
};

bool CutsByRank(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
         collective == Collective::kAllToAll;
}

tl::unexpected<Error> FailAt(int32_t rank, size_t step, const std::string& what) {
  return Fail(Code::kInvalidArgument, fmt::format("schedule: rank {}, step {}: {}", rank, step, what));
}

bool Reads(const Step& step) { return step.kind != StepKind::kRecv; }
bool Writes(const Step& step) { return step.kind != StepKind::kSend; }
bool Travels(const Step& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; }

Status CheckChunk(const Schedule& schedule, int32_t rank, size_t step, const ChunkRef& ref) {
  int32_t limit = schedule.scratch_chunks;
  std::string_view buffer = "scratch";
  if (ref.buffer == BufferKind::kInput) {
    limit = schedule.input_chunks();
    buffer = "input";
  } else if (ref.buffer == BufferKind::kOutput) {
    limit = schedule.output_chunks();
    buffer = "output";
  }
  if (ref.chunk < 0 || ref.chunk >= limit) {
    return FailAt(rank, step, fmt::format("{} chunk {} of {}", buffer, ref.chunk, limit));
  }
  return Ok();
}

Status CheckStep(const Schedule& schedule, int32_t rank, size_t index, const Step& step) {
  if (Travels(step)) {
    const int32_t peer = step.peer.value();
    if (peer < 0 || peer >= schedule.rank_count() || peer == rank) {
      return FailAt(rank, index, fmt::format("peer {}, expected another rank below {}", peer, schedule.rank_count()));
    }
  }
  if (Reads(step)) WEFT_RETURN_IF_ERROR(CheckChunk(schedule, rank, index, step.source));
  if (Writes(step)) {
    WEFT_RETURN_IF_ERROR(CheckChunk(schedule, rank, index, step.destination));
    if (step.destination.buffer == BufferKind::kInput) return FailAt(rank, index, "writes to its input");
  }
  int32_t last = -1;
  for (const StepId need : step.needs) {
    if (need.value() <= last || need.index() >= index) {
      return FailAt(rank, index, fmt::format("needs step {}, expected ascending earlier steps", need.value()));
    }
    last = need.value();
  }
  return Ok();
}

/// Where each step lies when the steps of all ranks are numbered through.
struct Numbering {
  std::vector<size_t> first;  // of each rank
  std::vector<std::pair<int32_t, size_t>> step_of;
};

Numbering Number(const Schedule& schedule) {
  Numbering numbering;
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    numbering.first.push_back(numbering.step_of.size());
    const size_t count = schedule.ranks[static_cast<size_t>(rank)].size();
    for (size_t step = 0; step < count; ++step) numbering.step_of.emplace_back(rank, step);
  }
  return numbering;
}

using Pair = std::pair<int32_t, int32_t>;  // sender, receiver

struct Channel {
  std::vector<size_t> sends, receives;  // numbered steps in order
};

std::map<Pair, Channel> Channels(const Schedule& schedule, const Numbering& numbering) {
  std::map<Pair, Channel> channels;
  for (size_t i = 0; i < numbering.step_of.size(); ++i) {
    const auto [rank, index] = numbering.step_of[i];
    const Step& step = schedule.ranks[static_cast<size_t>(rank)][index];
    if (step.kind == StepKind::kSend) channels[{rank, step.peer.value()}].sends.push_back(i);
    if (step.kind == StepKind::kRecv) channels[{step.peer.value(), rank}].receives.push_back(i);
  }
  return channels;
}

/// Runs the schedule with rendezvous: a send and its receive end together, once both may start and the pair's earlier
/// transfers have ended. Returns the steps that never end.
class Rendezvous {
 public:
  Rendezvous(const Schedule& schedule, const Numbering& numbering, const std::map<Pair, Channel>& channels)
      : waits_(numbering.step_of.size(), 0), successors_(numbering.step_of.size()), partner_(numbering.step_of.size()) {
    for (size_t i = 0; i < partner_.size(); ++i) partner_[i] = i;
    for (size_t i = 0; i < numbering.step_of.size(); ++i) {
      const auto [rank, index] = numbering.step_of[i];
      for (const StepId need : schedule.ranks[static_cast<size_t>(rank)][index].needs) {
        AddEdge(numbering.first[static_cast<size_t>(rank)] + need.index(), i);
      }
    }
    for (const auto& [pair, channel] : channels) {
      for (size_t k = 0; k < channel.sends.size(); ++k) {
        partner_[channel.sends[k]] = channel.receives[k];
        partner_[channel.receives[k]] = channel.sends[k];
        if (k > 0) AddEdge(channel.sends[k - 1], channel.sends[k]);
      }
    }
  }

  std::vector<size_t> Stuck() {
    std::vector<size_t> ready;
    std::vector<bool> done(waits_.size(), false);
    for (size_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const size_t i = ready.back();
      ready.pop_back();
      const size_t other = partner_[i];
      if (done[i] || waits_[other] != 0) continue;  // the partner brings both in when it is ready
      End(i, &ready, &done);
      if (other != i) End(other, &ready, &done);
    }
    std::vector<size_t> stuck;
    for (size_t i = 0; i < done.size(); ++i) {
      if (!done[i]) stuck.push_back(i);
    }
    return stuck;
  }

 private:
  void AddEdge(size_t from, size_t to) {
    successors_[from].push_back(to);
    ++waits_[to];
  }
  void End(size_t i, std::vector<size_t>* ready, std::vector<bool>* done) {
    (*done)[i] = true;
    for (const size_t next : successors_[i]) {
      if (--waits_[next] == 0) ready->push_back(next);
    }
  }

  std::vector<int> waits_;
  std::vector<std::vector<size_t>> successors_;
  std::vector<size_t> partner_;  // the other end of a transfer; itself for local steps
};

}  // namespace

std::string_view CollectiveName(Collective collective) {
  for (const NamedCollective& known : kCollectives) {
    if (known.collective == collective) return known.name;
  }
  return "unknown";
}

Result<Collective> ParseCollective(std::string_view name) {
  std::string accepted;
  for (const NamedCollective& known : kCollectives) {
    if (known.name == name) return known.collective;
    accepted += (accepted.empty() ? "" : ", ") + std::string(known.name);
  }
  return Fail(Code::kInvalidArgument, fmt::format("collective \"{}\", expected one of {}", name, accepted));
}

int32_t Schedule::input_chunks() const {
  return collective == Collective::kAllGather && !ranks.empty() ? chunk_count / rank_count() : chunk_count;
}

int32_t Schedule::output_chunks() const {
  return collective == Collective::kReduceScatter && !ranks.empty() ? chunk_count / rank_count() : chunk_count;
}

Status ValidateSchedule(const Schedule& schedule) {
  if (schedule.ranks.empty()) return Fail(Code::kInvalidArgument, "schedule: no ranks, expected at least 1");
  if (schedule.chunk_count < 1 || schedule.scratch_chunks < 0) {
    return Fail(Code::kInvalidArgument, fmt::format("schedule: {} chunks and {} scratch chunks, expected at least 1 and 0",
                                                    schedule.chunk_count, schedule.scratch_chunks));
  }
  if (CutsByRank(schedule.collective) && schedule.chunk_count % schedule.rank_count() != 0) {
    return Fail(Code::kInvalidArgument, fmt::format("schedule: {} chunks, expected a multiple of the {} ranks",
                                                    schedule.chunk_count, schedule.rank_count()));
  }
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const std::vector<Step>& steps = schedule.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < steps.size(); ++i) WEFT_RETURN_IF_ERROR(CheckStep(schedule, rank, i, steps[i]));
  }
  const Numbering numbering = Number(schedule);
  const std::map<Pair, Channel> channels = Channels(schedule, numbering);
  for (const auto& [pair, channel] : channels) {
    if (channel.sends.size() != channel.receives.size()) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("schedule: rank {} sends {} times to rank {}, which receives {} times from it", pair.first,
                              channel.sends.size(), pair.second, channel.receives.size()));
    }
  }
  const std::vector<size_t> stuck = Rendezvous(schedule, numbering, channels).Stuck();
  if (!stuck.empty()) {
    const auto [rank, step] = numbering.step_of[stuck.front()];
    return FailAt(rank, step, fmt::format("deadlock: it and {} other steps never end", stuck.size() - 1));
  }
  return Ok();
}

}  // namespace weft::planner::collectives
