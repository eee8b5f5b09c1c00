// Runs a schedule on symbols: what a chunk holds is written down as how often each rank's input chunk has been added into
// it. Steps run in a random order that respects nothing but `needs` and the order of each pair's transfers.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/collectives/schedule.h"

namespace weft::planner::testing {

/// Contributions to a chunk: (rank, input chunk) -> how often. Empty: never written.
using Content = std::map<std::pair<int32_t, int32_t>, int32_t>;

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, uint32_t seed) : schedule_(schedule), random_(seed) {
    memory_.resize(static_cast<size_t>(schedule.rank_count()));
    for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
      Memory& memory = memory_[static_cast<size_t>(rank)];
      memory.resize(3);
      memory[0].resize(static_cast<size_t>(schedule.input_chunks()));
      memory[1].resize(static_cast<size_t>(schedule.output_chunks()));
      memory[2].resize(static_cast<size_t>(schedule.scratch_chunks));
      for (int32_t c = 0; c < schedule.input_chunks(); ++c) memory[0][static_cast<size_t>(c)][{rank, c}] = 1;
    }
    Link();
  }

  /// False when some steps never get their turn.
  bool Run() {
    std::vector<size_t> ready;
    for (size_t t = 0; t < tasks_.size(); ++t) {
      if (tasks_[t].waits == 0) ready.push_back(t);
    }
    size_t done = 0;
    while (!ready.empty()) {
      const size_t pick = random_() % ready.size();
      const size_t task = std::exchange(ready[pick], ready.back());
      ready.pop_back();
      Execute(tasks_[task]);
      ++done;
      for (const size_t next : tasks_[task].dependents) {
        if (--tasks_[next].waits == 0) ready.push_back(next);
      }
    }
    return done == tasks_.size();
  }

  const Content& Output(int32_t rank, int32_t chunk) const {
    return memory_[static_cast<size_t>(rank)][1][static_cast<size_t>(chunk)];
  }

  /// What rank `rank` must hold in chunk `chunk` of its output.
  Content Expected(int32_t rank, int32_t chunk, int32_t root) const {
    const int32_t n = schedule_.rank_count();
    const int32_t own = schedule_.chunk_count / n;
    Content content;
    switch (schedule_.collective) {
      case Collective::kAllReduce:
        for (int32_t r = 0; r < n; ++r) content[{r, chunk}] = 1;
        return content;
      case Collective::kReduceScatter:
        for (int32_t r = 0; r < n; ++r) content[{r, rank * own + chunk}] = 1;
        return content;
      case Collective::kAllGather: return {{{chunk / own, chunk % own}, 1}};
      case Collective::kAllToAll: return {{{chunk / own, rank * own + chunk % own}, 1}};
      case Collective::kBroadcast: return {{{root, chunk}, 1}};
      case Collective::kSendRecv: return rank == 1 ? Content{{{0, chunk}, 1}} : Content{};
    }
    return content;
  }

 private:
  using Memory = std::vector<std::vector<Content>>;  // [buffer][chunk]
  struct Task {
    int32_t rank = 0;
    size_t step = 0;
    int32_t to = -1;  // of a transfer, with the receiver's step
    size_t to_step = 0;
    int32_t waits = 0;
    std::vector<size_t> dependents;
  };

  const Step& At(int32_t rank, size_t step) const { return schedule_.ranks[static_cast<size_t>(rank)][step]; }

  void Link() {
    const int32_t n = schedule_.rank_count();
    std::vector<std::vector<size_t>> task_of(static_cast<size_t>(n));
    std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> sends;
    for (int32_t r = 0; r < n; ++r) {
      task_of[static_cast<size_t>(r)].resize(schedule_.ranks[static_cast<size_t>(r)].size());
      for (size_t i = 0; i < task_of[static_cast<size_t>(r)].size(); ++i) {
        if (At(r, i).kind == StepKind::kRecv) continue;
        task_of[static_cast<size_t>(r)][i] = tasks_.size();
        if (At(r, i).kind == StepKind::kSend) sends[{r, At(r, i).peer.value()}].push_back(tasks_.size());
        tasks_.push_back({.rank = r, .step = i});
      }
    }
    std::map<std::pair<int32_t, int32_t>, size_t> received;
    for (int32_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < task_of[static_cast<size_t>(r)].size(); ++i) {
        if (At(r, i).kind != StepKind::kRecv) continue;
        const std::pair pair{At(r, i).peer.value(), r};
        const size_t task = sends[pair].at(received[pair]++);
        tasks_[task].to = r;
        tasks_[task].to_step = i;
        task_of[static_cast<size_t>(r)][i] = task;
      }
    }
    const auto after = [&](size_t first, size_t second) {
      tasks_[first].dependents.push_back(second);
      ++tasks_[second].waits;
    };
    for (int32_t r = 0; r < n; ++r) {
      const auto& own = task_of[static_cast<size_t>(r)];
      for (size_t i = 0; i < own.size(); ++i) {
        for (const StepId need : At(r, i).needs) after(own[need.index()], own[i]);
      }
    }
    for (const auto& [pair, list] : sends) {
      for (size_t k = 1; k < list.size(); ++k) after(list[k - 1], list[k]);
    }
  }

  Content& Place(int32_t rank, ChunkRef chunk) {
    return memory_[static_cast<size_t>(rank)][static_cast<size_t>(chunk.buffer)].at(static_cast<size_t>(chunk.chunk));
  }

  void Execute(const Task& task) {
    const Step& step = At(task.rank, task.step);
    const Content source = Place(task.rank, step.source);
    if (step.kind == StepKind::kSend) {
      Place(task.to, At(task.to, task.to_step).destination) = source;
    } else if (step.kind == StepKind::kCopy) {
      Place(task.rank, step.destination) = source;
    } else {
      for (const auto& [from, count] : source) Place(task.rank, step.destination)[from] += count;
    }
  }

  const Schedule& schedule_;
  std::mt19937 random_;
  std::vector<Memory> memory_;
  std::vector<Task> tasks_;
};

/// "" or what is wrong after one run in the order that `seed` gives.
inline std::string WhatIsWrong(const Schedule& schedule, int32_t root, uint32_t seed) {
  Interpreter run(schedule, seed);
  if (!run.Run()) return "some steps never run";
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    for (int32_t chunk = 0; chunk < schedule.output_chunks(); ++chunk) {
      if (run.Output(rank, chunk) != run.Expected(rank, chunk, root)) {
        return fmt::format("rank {} has a wrong chunk {}", rank, chunk);
      }
    }
  }
  return "";
}

}  // namespace weft::planner::testing
