// Slices on NICs: an open-shop-like problem with a choice of sender. Any schedule in which nothing could start earlier is
// a list schedule of the slices by their start, so a search over orders and senders finds the optimum.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "planner/tasks/resharding.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kMostNodes = 200'000;
constexpr int kRandomOrders = 64;

class Scheduler {
 public:
  Scheduler(std::span<const ReshardSlice> slices, std::span<const Seconds> durations)
      : slices_(slices), durations_(durations) {
    int32_t senders = 0, receivers = 0;
    for (const ReshardSlice& slice : slices) {
      for (const int32_t host : slice.senders) senders = std::max(senders, host + 1);
      for (const int32_t host : slice.receivers) receivers = std::max(receivers, host + 1);
    }
    sender_free_.assign(static_cast<size_t>(senders), 0);
    receiver_free_.assign(static_cast<size_t>(receivers), 0);
    receiver_load_.assign(static_cast<size_t>(receivers), 0);
    sender_.assign(slices.size(), -1);
    start_.assign(slices.size(), 0);
    Reset();
    best_.makespan = Seconds(-1);
  }

  /// Slices in `order`, each from the sender that is free first.
  void List(std::span<const size_t> order) {
    Reset();
    for (const size_t slice : order) Place(slice, EarliestSender(slice));
    Keep();
  }

  /// Longest first among those that can start first: a list schedule whose order follows time.
  void Greedy() {
    Reset();
    std::vector<char> done(slices_.size(), 0);
    for (size_t k = 0; k < slices_.size(); ++k) {
      size_t best = slices_.size();
      double best_start = 0;
      for (size_t slice = 0; slice < slices_.size(); ++slice) {
        if (done[slice] != 0) continue;
        const double start = StartOf(slice, EarliestSender(slice));
        if (best == slices_.size() || start < best_start ||
            (start == best_start && durations_[slice] > durations_[best])) {
          best = slice;
          best_start = start;
        }
      }
      done[best] = 1;
      Place(best, EarliestSender(best));
    }
    Keep();
  }

  /// All orders and senders, cut where no completion can be better. Returns whether all was seen.
  bool Search() {
    Reset();
    std::vector<char> done(slices_.size(), 0);
    Descend(done, 0);
    return nodes_ < kMostNodes;
  }

  ReshardSchedule Take() { return std::move(best_); }
  double best() const { return best_.makespan.count(); }

  /// No schedule is shorter: every receiver takes what it needs, senders share what must be sent.
  double Bound() const {
    double bound = makespan_;
    for (size_t host = 0; host < receiver_free_.size(); ++host) {
      bound = std::max(bound, receiver_free_[host] + receiver_load_[host]);
    }
    const double free = std::accumulate(sender_free_.begin(), sender_free_.end(), 0.0);
    return std::max(bound, (free + left_) / static_cast<double>(std::max<size_t>(1, sender_free_.size())));
  }

 private:
  void Reset() {
    std::fill(sender_free_.begin(), sender_free_.end(), 0.0);
    std::fill(receiver_free_.begin(), receiver_free_.end(), 0.0);
    std::fill(receiver_load_.begin(), receiver_load_.end(), 0.0);
    order_.clear();
    makespan_ = left_ = 0;
    for (size_t slice = 0; slice < slices_.size(); ++slice) {
      for (const int32_t host : slices_[slice].receivers) {
        receiver_load_[static_cast<size_t>(host)] += durations_[slice].count();
      }
      left_ += durations_[slice].count();
    }
  }

  double StartOf(size_t slice, int32_t sender) const {
    double start = sender_free_[static_cast<size_t>(sender)];
    for (const int32_t host : slices_[slice].receivers) start = std::max(start, receiver_free_[static_cast<size_t>(host)]);
    return start;
  }

  int32_t EarliestSender(size_t slice) const {
    int32_t best = slices_[slice].senders.front();
    for (const int32_t host : slices_[slice].senders) {
      if (sender_free_[static_cast<size_t>(host)] < sender_free_[static_cast<size_t>(best)]) best = host;
    }
    return best;
  }

  void Place(size_t slice, int32_t sender) {
    const double start = StartOf(slice, sender), time = durations_[slice].count(), end = start + time;
    sender_free_[static_cast<size_t>(sender)] = end;
    for (const int32_t host : slices_[slice].receivers) {
      receiver_free_[static_cast<size_t>(host)] = end;
      receiver_load_[static_cast<size_t>(host)] -= time;
    }
    left_ -= time;
    makespan_ = std::max(makespan_, end);
    order_.push_back(static_cast<int32_t>(slice));
    sender_[slice] = sender;
    start_[slice] = start;
  }

  void Keep() {
    if (best_.makespan.count() >= 0 && makespan_ >= best_.makespan.count()) return;
    best_.makespan = Seconds(makespan_);
    best_.order = order_;
    best_.sender = sender_;
    best_.start.clear();
    for (const double start : start_) best_.start.push_back(Seconds(start));
  }

  void Descend(std::vector<char>& done, double last_start) {
    if (order_.size() == slices_.size()) return Keep();
    if (++nodes_ >= kMostNodes) return;
    for (size_t slice = 0; slice < slices_.size(); ++slice) {
      if (done[slice] != 0) continue;
      for (const int32_t sender : slices_[slice].senders) {
        // Orders follow start times: the same schedule in another order is seen once.
        if (StartOf(slice, sender) < last_start) continue;
        Step(done, slice, sender);
      }
    }
  }

  void Step(std::vector<char>& done, size_t slice, int32_t sender) {
    const std::vector<double> senders = sender_free_, receivers = receiver_free_, load = receiver_load_;
    const double makespan = makespan_, left = left_;
    done[slice] = 1;
    Place(slice, sender);
    if (best_.makespan.count() < 0 || Bound() < best_.makespan.count() * (1 - 1e-12)) Descend(done, start_[slice]);
    done[slice] = 0;
    order_.pop_back();
    sender_free_ = senders;
    receiver_free_ = receivers;
    receiver_load_ = load;
    makespan_ = makespan;
    left_ = left;
  }

  std::span<const ReshardSlice> slices_;
  std::span<const Seconds> durations_;
  std::vector<double> sender_free_, receiver_free_, receiver_load_;  // load: still to come
  std::vector<int32_t> order_, sender_;
  std::vector<double> start_;
  double makespan_ = 0, left_ = 0;
  int64_t nodes_ = 0;
  ReshardSchedule best_;
};

Status Check(std::span<const ReshardSlice> slices, std::span<const Seconds> durations) {
  if (slices.size() != durations.size()) {
    return Fail(Code::kInvalidArgument, fmt::format("resharding: {} durations, expected one for each of {} slices",
                                                    durations.size(), slices.size()));
  }
  for (size_t k = 0; k < slices.size(); ++k) {
    const auto wrong = [](const std::vector<int32_t>& hosts) {
      return hosts.empty() || std::any_of(hosts.begin(), hosts.end(), [](int32_t host) { return host < 0; });
    };
    if (wrong(slices[k].senders) || wrong(slices[k].receivers) || !(durations[k].count() >= 0)) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("resharding: slice {} has {} senders, {} receivers and takes {} s, expected hosts of 0 or "
                              "more and a time of 0 or more",
                              k, slices[k].senders.size(), slices[k].receivers.size(), durations[k].count()));
    }
  }
  return Ok();
}

}  // namespace

Result<ReshardSchedule> ScheduleSlices(std::span<const ReshardSlice> slices, std::span<const Seconds> durations,
                                       size_t exact_up_to) {
  WEFT_RETURN_IF_ERROR(Check(slices, durations));
  Scheduler scheduler(slices, durations);
  const double bound = scheduler.Bound();
  scheduler.Greedy();
  std::vector<size_t> order(slices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(1);
  for (int k = 0; k < kRandomOrders && scheduler.best() > bound; ++k) {
    // Fisher and Yates by hand: std::shuffle may differ between libraries.
    for (size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random() % n]);
    scheduler.List(order);
  }
  bool optimal = scheduler.best() <= bound;
  if (!optimal && slices.size() <= exact_up_to) optimal = scheduler.Search();
  ReshardSchedule schedule = scheduler.Take();
  schedule.optimal = optimal;
  return schedule;
}

}  // namespace weft::planner::tasks
