#include "planner/tasks/port_sharing.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace weft::planner::inline tasks {
namespace {

constexpr double kFull = 1 + 1e-9;  // of a port

class Runner {
 public:
  Runner(const TaskGraph& graph, std::span<const PortUse> use, int32_t ports)
      : graph_(graph), use_(use), spans_(Size(graph)), waits_(Size(graph), 0), moving_(Size(graph)), on_(static_cast<size_t>(ports)),
        demand_(static_cast<size_t>(ports), 0), place_(static_cast<size_t>(ports), -1), left_(static_cast<size_t>(ports)),
        slope_(static_cast<size_t>(ports)) {
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
    return At(task) < use_.size() && !use_[At(task)].empty() && graph_.duration(task).count() > 0;
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
    for (const auto& [port, share, flow] : use_[At(task)]) {
      on_[At(port)].push_back(task);
      full |= (demand_[At(port)] += share) > kFull;
    }
    if (full) Solve(Tied({task}));
  }

  void Leave(int32_t task) {
    std::vector<int32_t> others;
    for (const auto& [port, share, flow] : use_[At(task)]) {
      if (demand_[At(port)] > kFull) others.insert(others.end(), on_[At(port)].begin(), on_[At(port)].end());
      std::erase(on_[At(port)], task);
      demand_[At(port)] = on_[At(port)].empty() ? 0 : demand_[At(port)] - share;
    }
    std::erase(others, task);
    if (!others.empty()) Solve(Tied(std::move(others)));
  }

  /// These and all that full ports tie to them, once each.
  std::vector<int32_t> Tied(std::vector<int32_t> tasks) const {
    std::ranges::sort(tasks);
    tasks.erase(std::ranges::unique(tasks).begin(), tasks.end());
    for (size_t k = 0; k < tasks.size(); ++k) {
      for (const auto& [port, share, flow] : use_[At(tasks[k])]) {
        if (demand_[At(port)] <= kFull) continue;
        for (const int32_t other : on_[At(port)]) {
          if (std::ranges::find(tasks, other) == tasks.end()) tasks.push_back(other);
        }
      }
    }
    return tasks;
  }

  /// Of one task while rates are solved: how fast one of its flows is by itself, and how fast it is so far.
  struct Filling {
    double most = 0, rate = 0;
    bool held = false;
  };

  /// Raises the rates of all that are not held, until a port is full or one of them is as fast as alone: these are held then.
  void Fill(const std::vector<int32_t>& tasks, std::vector<Filling>* fill) {
    std::vector<int32_t> ports;
    for (size_t k = 0; k < tasks.size(); ++k) {
      for (const auto& [port, share, flow] : use_[At(tasks[k])]) {
        (*fill)[k].most = std::max((*fill)[k].most, flow > 0 ? flow : share);
        if (std::exchange(place_[At(port)], 0) < 0) ports.push_back(port);
      }
    }
    for (size_t held = 0; held < tasks.size();) {
      for (const int32_t port : ports) left_[At(port)] = 1, slope_[At(port)] = 0;
      for (size_t k = 0; k < tasks.size(); ++k) {
        const Filling& of = (*fill)[k];
        for (const auto& [port, share, flow] : use_[At(tasks[k])]) {
          left_[At(port)] -= of.rate * share / of.most;
          if (!of.held) slope_[At(port)] += share / of.most;
        }
      }
      double raise = std::numeric_limits<double>::infinity();
      for (const Filling& of : *fill) {
        if (!of.held) raise = std::min(raise, of.most - of.rate);
      }
      for (const int32_t port : ports) {
        if (slope_[At(port)] > 0) raise = std::min(raise, std::max(0.0, left_[At(port)]) / slope_[At(port)]);
      }
      const auto full = [&](const PortShare& use) { return left_[At(use.port)] - raise * slope_[At(use.port)] <= kFull - 1; };
      for (size_t k = 0; k < tasks.size(); ++k) {
        Filling& of = (*fill)[k];
        if (of.held) continue;
        of.rate += raise;
        of.held = of.rate >= of.most * (2 - kFull) || std::ranges::any_of(use_[At(tasks[k])], full);
        held += of.held ? 1 : 0;
      }
    }
    for (const int32_t port : ports) place_[At(port)] = -1;
  }

  void Solve(const std::vector<int32_t>& tasks) {
    std::vector<Filling> fill(tasks.size());
    Fill(tasks, &fill);
    for (size_t k = 0; k < tasks.size(); ++k) {
      Moving& moving = moving_[At(tasks[k])];
      const double rate = std::min(fill[k].rate / fill[k].most, 1.0);
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
  std::vector<int32_t> place_;            // of a port while rates are solved: 0 once it is listed, else -1
  std::vector<double> left_, slope_;      // by port, while rates are solved: what of it is free, and taken as rates are raised
  std::priority_queue<Event> ends_;
  double now_ = 0;
};

}  // namespace

std::vector<TaskSpan> RunTasks(const TaskGraph& graph, std::span<const PortUse> use, int32_t ports) {
  return Runner(graph, use, ports).Run();
}

}  // namespace weft::planner::tasks
