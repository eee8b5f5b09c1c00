#include "planner/network/lane_events.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "planner/network/fair_shares.h"

namespace weft::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Ends this close to each other, relative to the clock, are one event: rates are exact to about as much.
constexpr double kTogether = 4e-12;

/// Times are seconds, amounts bytes, rates bytes per second.
class LaneEvents {
 public:
  LaneEvents(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes,
             std::span<const LaneRate> rates, const std::vector<bool>& chosen, SimulationResult* result)
      : lanes_(lanes), rates_(rates), chosen_(chosen), result_(result), shares_(capacity, Options(lanes)),
        state_(lanes.size()), dependents_(lanes.size()) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (!chosen[i]) continue;
      for (const LaneDependency& need : lanes[i].needs) dependents_[static_cast<size_t>(need.lane)].push_back(Lane(i));
    }
  }

  void Run() {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (chosen_[i]) candidates_.push_back(Lane(i));
    }
    Prepare();
    for (;;) {
      if (reshare_) FollowShares();
      const double end = NextEnd();
      const double next = std::min(end, waiting_.empty() ? kNever : waiting_.top().time);
      if (next == kNever) break;  // all that is left is blocked for ever
      now_ = next;
      EndTransfers();
      StartTransfers();
      Prepare();
      // What ended and did not start again leaves its links.
      for (const int32_t lane : ended_) {
        State& state = state_[Index(lane)];
        if (state.sending || state.share < 0) continue;
        shares_.Remove(state.share);
        state.share = -1;
        reshare_ = true;
      }
      ended_.clear();
    }
    Account();
  }

 private:
  struct State {
    int32_t step = 0;           // that runs, or is to start
    int32_t share = -1;         // its class in shares_
    int32_t place = -1;         // in active_
    bool sending = false;       // its bytes flow
    bool pending = false;       // started, its latency runs
    double left = 0;
    double rate = 0;
    double since = 0;           // when `left` was so much
  };
  struct Start {
    double time;
    int32_t lane;
    friend bool operator>(const Start& a, const Start& b) {
      return a.time != b.time ? a.time > b.time : a.lane > b.lane;
    }
  };

  static size_t Index(int32_t id) { return static_cast<size_t>(id); }
  static int32_t Lane(size_t index) { return static_cast<int32_t>(index); }

  static FairShareOptions Options(std::span<const TransferLane> lanes) {
    FairShareOptions options{.merge = false};
    for (const TransferLane& lane : lanes) options.priorities = std::max(options.priorities, lane.priority + 1);
    return options;
  }

  bool Ready(int32_t lane) const {
    const State& state = state_[Index(lane)];
    if (state.sending || state.pending || state.step == lanes_[Index(lane)].steps) return false;
    return std::ranges::all_of(lanes_[Index(lane)].needs, [&](const LaneDependency& need) {
      const int32_t done = state_[Index(need.lane)].step;  // steps 0 … done - 1 have ended
      return done == lanes_[Index(need.lane)].steps || state.step - need.lag < done;
    });
  }

  /// Candidates whose needs are met begin: their latency runs, or their bytes flow at once.
  void Prepare() {
    while (!candidates_.empty()) {
      const int32_t lane = candidates_.back();
      candidates_.pop_back();
      if (!Ready(lane)) continue;
      State& state = state_[Index(lane)];
      const TransferLane& data = lanes_[Index(lane)];
      const double begin = state.step == 0 ? std::max(now_, data.start.count()) : now_;
      ++result_->events;
      state.pending = true;
      const double flows = begin + std::max(0.0, data.latency.count());
      if (flows > now_) {
        waiting_.push({flows, lane});
      } else {
        Send(lane);
      }
    }
  }

  void Send(int32_t lane) {
    State& state = state_[Index(lane)];
    const TransferLane& data = lanes_[Index(lane)];
    state.pending = false;
    if (data.bytes.count() <= 0) {
      End(lane);
      return;
    }
    state.sending = true;
    state.left = static_cast<double>(data.bytes.count());
    state.since = now_;
    if (!rates_[Index(lane)].shared) {
      state.rate = rates_[Index(lane)].peak;
    } else if (state.share < 0) {
      state.rate = 0;
      state.share =
          shares_.Add({.links = data.links, .weight = data.weight, .cap = data.cap, .priority = data.priority});
      if (lane_of_share_.size() <= Index(state.share)) lane_of_share_.resize(Index(state.share) + 1);
      lane_of_share_[Index(state.share)] = lane;
      reshare_ = true;
    }
    if (state.place < 0) {
      state.place = Lane(active_.size());
      active_.push_back(lane);
      end_.push_back(kNever);
    }
    SetEnd(state);
  }

  void SetEnd(const State& state) {
    end_[Index(state.place)] = state.rate > 0 ? state.since + state.left / state.rate : kNever;
  }

  void End(int32_t lane) {
    State& state = state_[Index(lane)];
    state.sending = false;
    ++state.step;
    ++result_->events;
    if (state.step == lanes_[Index(lane)].steps) result_->finish[Index(lane)] = Seconds(now_);
    candidates_.push_back(lane);
    candidates_.insert(candidates_.end(), dependents_[Index(lane)].begin(), dependents_[Index(lane)].end());
  }

  double NextEnd() const {
    // Four minima at once: the comparisons of one would wait for each other.
    double least[4] = {kNever, kNever, kNever, kNever};
    size_t i = 0;
    for (; i + 4 <= end_.size(); i += 4) {
      for (size_t j = 0; j < 4; ++j) least[j] = end_[i + j] < least[j] ? end_[i + j] : least[j];
    }
    for (; i < end_.size(); ++i) least[0] = std::min(least[0], end_[i]);
    return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  }

  void EndTransfers() {
    const double until = now_ * (1 + kTogether);
    for (size_t place = 0; place < end_.size();) {
      if (end_[place] > until) {
        ++place;
        continue;
      }
      const int32_t lane = active_[place];
      ended_.push_back(lane);
      state_[Index(lane)].left = 0;
      state_[Index(lane)].place = -1;
      active_[place] = active_.back();
      end_[place] = end_.back();
      active_.pop_back();
      end_.pop_back();
      if (place < active_.size()) state_[Index(active_[place])].place = Lane(place);
    }
    for (const int32_t lane : ended_) End(lane);
  }

  void StartTransfers() {
    while (!waiting_.empty() && waiting_.top().time <= now_ * (1 + kTogether)) {
      const int32_t lane = waiting_.top().lane;
      waiting_.pop();
      Send(lane);
    }
  }

  void FollowShares() {
    reshare_ = false;
    shares_.Update();
    for (const FairShares::ClassId id : shares_.changed()) {
      State& state = state_[Index(lane_of_share_[Index(id)])];
      state.left = std::max(0.0, state.left - state.rate * (now_ - state.since));
      state.since = now_;
      state.rate = shares_.rate(id).bytes_per_second();
      SetEnd(state);
    }
  }

  /// Bytes per link: all of what ended, and what got through of the rest.
  void Account() {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (!chosen_[i]) continue;
      const double bytes = static_cast<double>(lanes_[i].bytes.count());
      double moved = bytes * state_[i].step;
      if (state_[i].sending) moved += bytes - state_[i].left;
      for (const LinkId link : lanes_[i].links) result_->link_busy_bytes[link.index()] += moved;
    }
  }

  std::span<const TransferLane> lanes_;
  std::span<const LaneRate> rates_;
  const std::vector<bool>& chosen_;
  SimulationResult* result_;
  FairShares shares_;
  double now_ = 0;
  bool reshare_ = false;
  std::vector<State> state_;
  std::vector<std::vector<int32_t>> dependents_;
  std::vector<int32_t> lane_of_share_;
  std::vector<int32_t> candidates_;     // may have become ready
  std::vector<int32_t> ended_;          // in this event
  std::vector<int32_t> active_;         // lanes that send
  std::vector<double> end_;             // of active_, when they end at their present rate
  std::priority_queue<Start, std::vector<Start>, std::greater<>> waiting_;
};

}  // namespace

std::vector<LaneRate> LaneRates(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes) {
  std::vector<LaneRate> rates(lanes.size());
  std::vector<double> wanted(capacity.size(), 0);
  for (size_t i = 0; i < lanes.size(); ++i) {
    double peak = lanes[i].cap.value();
    for (const LinkId link : lanes[i].links) peak = std::min(peak, capacity[link.index()].value());
    for (const LinkId link : lanes[i].links) wanted[link.index()] += peak;
    rates[i].peak = peak / 8;
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    for (const LinkId link : lanes[i].links) {
      rates[i].shared |= wanted[link.index()] > capacity[link.index()].value() * (1 + 1e-12);
    }
  }
  return rates;
}

void RunLaneEvents(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes,
                   std::span<const LaneRate> rates, const std::vector<bool>& chosen, SimulationResult* result) {
  LaneEvents(capacity, lanes, rates, chosen, result).Run();
}

}  // namespace weft::planner
