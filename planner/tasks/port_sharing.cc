#include "planner/tasks/port_sharing.h"

#include <algorithm>
#include <queue>

#include "planner/network/max_min.h"

namespace weft::planner::inline tasks {
namespace {

constexpr double kFull = 1 + 1e-9;  // of a port

class Runner {
 public:
  Runner(const TaskGraph& graph, std::span<const PortUse> use, int32_t ports)
      : graph_(graph), use_(use), spans_(Size(graph)), waits_(Size(graph), 0), moving_(Size(graph)), on_(static_cast<size_t>(ports)),
        demand_(static_cast<size_t>(ports), 0), place_(static_cast<size_t>(ports), -1) {
    std::vector<size_t> count(Size(graph), 0);
    for (int32_t task = 0; task < graph.size(); ++task) {
      for (const int32_t before : graph.after(task)) ++count[At(before)];
      waits_[At(task)] = static_cast<int32_t>(graph.after(task).size());
    }
    first_then_.assign(Size(graph) + 1, 0);
    for (size_t t = 0; t < count.size(); ++t) first_then_[t + 1] = first_then_[t] + count[t];
    then_.resize(first_then_.back());
    std::vector<size_t> next(first_then_.begin(), first_then_.end() - 1);
    for (int32_t task = 0; task < graph.size(); ++task) {
      for (const int32_t before : graph.after(task)) then_[next[At(before)]++] = task;
    }
  }

  std::vector<TaskSpan> Run() {
    for (int32_t task = 0; task < graph_.size(); ++task) {
      if (waits_[At(task)] == 0) Begin(task);
    }
    while (!ends_.empty()) {
      const Event event = ends_.top();
      ends_.pop();
      Moving& moving = moving_[At(event.task)];
      if (event.version != moving.version) continue;  // its rate has changed since
      now_ = event.at;
      End(event.task);
    }
    return std::move(spans_);
  }

 private:
  struct Moving {
    double left = 0, rate = 1, updated = 0;  // share of it at `updated`, and of its lone speed
    int32_t version = 0;
  };
  struct Event {
    double at;
    int32_t task, version;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : task > other.task; }
  };

  static size_t At(int32_t task) { return static_cast<size_t>(task); }
  static size_t Size(const TaskGraph& graph) { return static_cast<size_t>(graph.size()); }
  bool Shares(int32_t task) const {
    return At(task) < use_.size() && use_[At(task)].share > 0 && graph_.duration(task).count() > 0;
  }

  void Schedule(int32_t task) {
    Moving& moving = moving_[At(task)];
    ends_.push({moving.updated + moving.left * graph_.duration(task).count() / moving.rate, task, ++moving.version});
  }

  void Begin(int32_t task) {
    spans_[At(task)].begin = Seconds(now_);
    moving_[At(task)] = {.left = 1, .rate = 1, .updated = now_, .version = moving_[At(task)].version};
    Schedule(task);
    if (Shares(task)) Enter(task);
  }

  void End(int32_t task) {
    spans_[At(task)].end = Seconds(now_);
    if (Shares(task)) Leave(task);
    for (size_t k = first_then_[At(task)]; k < first_then_[At(task) + 1]; ++k) {
      if (--waits_[At(then_[k])] == 0) Begin(then_[k]);
    }
  }

  void Enter(int32_t task) {
    bool full = false;
    for (const int32_t port : use_[At(task)].ports) {
      on_[At(port)].push_back(task);
      full |= (demand_[At(port)] += use_[At(task)].share) > kFull;
    }
    if (full) Solve(Tied({task}));
  }

  void Leave(int32_t task) {
    std::vector<int32_t> others;
    for (const int32_t port : use_[At(task)].ports) {
      if (demand_[At(port)] > kFull) others.insert(others.end(), on_[At(port)].begin(), on_[At(port)].end());
      std::erase(on_[At(port)], task);
      demand_[At(port)] = on_[At(port)].empty() ? 0 : demand_[At(port)] - use_[At(task)].share;
    }
    std::erase(others, task);
    if (!others.empty()) Solve(Tied(std::move(others)));
  }

  /// These and all that full ports tie to them, once each.
  std::vector<int32_t> Tied(std::vector<int32_t> tasks) const {
    std::ranges::sort(tasks);
    tasks.erase(std::ranges::unique(tasks).begin(), tasks.end());
    for (size_t k = 0; k < tasks.size(); ++k) {
      for (const int32_t port : use_[At(tasks[k])].ports) {
        if (demand_[At(port)] <= kFull) continue;
        for (const int32_t other : on_[At(port)]) {
          if (std::ranges::find(tasks, other) == tasks.end()) tasks.push_back(other);
        }
      }
    }
    return tasks;
  }

  void Solve(const std::vector<int32_t>& tasks) {
    std::vector<int32_t> ports;
    std::vector<std::vector<LinkId>> links(tasks.size());
    for (size_t k = 0; k < tasks.size(); ++k) {
      for (const int32_t port : use_[At(tasks[k])].ports) {
        int32_t& place = place_[At(port)];
        if (place < 0) place = static_cast<int32_t>(ports.size()), ports.push_back(port);
        links[k].push_back(LinkId(static_cast<uint32_t>(place)));
      }
    }
    for (const int32_t port : ports) place_[At(port)] = -1;
    std::vector<MaxMinFlow> flows;
    for (size_t k = 0; k < tasks.size(); ++k) flows.push_back({.links = links[k], .cap = BitsPerSecond(use_[At(tasks[k])].share)});
    const std::vector<BitsPerSecond> capacity(ports.size(), BitsPerSecond(1));
    const std::vector<BitsPerSecond> rates = MaxMinRates(capacity, flows);
    for (size_t k = 0; k < tasks.size(); ++k) {
      Moving& moving = moving_[At(tasks[k])];
      const double rate = std::min(rates[k].value() / use_[At(tasks[k])].share, 1.0);
      if (rate == moving.rate) continue;
      moving.left -= (now_ - moving.updated) * moving.rate / graph_.duration(tasks[k]).count();
      moving.left = std::max(moving.left, 0.0);
      moving.rate = rate;
      moving.updated = now_;
      Schedule(tasks[k]);
    }
  }

  const TaskGraph& graph_;
  const std::span<const PortUse> use_;
  std::vector<TaskSpan> spans_;
  std::vector<int32_t> waits_, then_;    // what each waits for yet; those behind it
  std::vector<size_t> first_then_;
  std::vector<Moving> moving_;
  std::vector<std::vector<int32_t>> on_;  // by port, tasks that run
  std::vector<double> demand_;            // of them at their lone speed
  std::vector<int32_t> place_;            // of a port while rates are solved
  std::priority_queue<Event> ends_;
  double now_ = 0;
};

}  // namespace

std::vector<TaskSpan> RunTasks(const TaskGraph& graph, std::span<const PortUse> use, int32_t ports) {
  return Runner(graph, use, ports).Run();
}

}  // namespace weft::planner::tasks
