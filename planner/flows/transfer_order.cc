#include "planner/flows/transfer_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "common/check.h"

namespace weft::planner {

std::vector<Seconds> ServeByRank(BitsPerSecond rate, std::span<const TransferNeed> needs,
                                 std::span<const int32_t> rank) {
  std::vector<double> left(needs.size());
  for (size_t i = 0; i < needs.size(); ++i) left[i] = (needs[i].bytes / rate).count();
  std::vector<bool> done(needs.size(), false);
  std::vector<Seconds> finish(needs.size());
  double now = 0;
  for (size_t served = 0; served < needs.size();) {
    size_t next = needs.size();
    double arrival = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < needs.size(); ++i) {
      if (done[i]) continue;
      if (needs[i].ready.count() > now) arrival = std::min(arrival, needs[i].ready.count());
      else if (next == needs.size() || rank[i] < rank[next]) next = i;
    }
    if (next == needs.size()) {
      now = arrival;
    } else if (now + left[next] <= arrival) {
      now += left[next];
      finish[next] = Seconds(now);
      done[next] = true;
      ++served;
    } else {  // until something becomes ready, which may go first
      left[next] -= arrival - now;
      now = arrival;
    }
  }
  return finish;
}

std::vector<TransferTurn> OrderTransfers(BitsPerSecond rate, std::span<const TransferNeed> needs) {
  WEFT_CHECK(rate.value() > 0, "transfers over a path without a rate");
  std::vector<TransferTurn> turns;
  std::vector<double> pace;
  for (const TransferNeed& need : needs) {
    const Seconds alone = need.bytes / rate;
    turns.push_back({.key = need.key, .needed = need.ready + alone + need.slack});
    pace.push_back(alone.count() > 0 ? alone / (alone + need.slack) : 0);
  }
  const double fastest = pace.empty() ? 0 : *std::max_element(pace.begin(), pace.end());
  std::vector<size_t> order(needs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(turns[a].needed, turns[a].key) < std::tie(turns[b].needed, turns[b].key);
  });
  std::vector<int32_t> rank(needs.size());
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<int32_t>(i);
  const std::vector<Seconds> finish = ServeByRank(rate, needs, rank);
  for (size_t i = 0; i < turns.size(); ++i) {
    turns[i].rank = rank[i];
    if (fastest > 0) turns[i].weight = static_cast<int32_t>(std::clamp(std::lround(64 * pace[i] / fastest), 1L, 64L));
    turns[i].finish = finish[i];
    turns[i].delay = std::max(Seconds(0), finish[i] - turns[i].needed);
  }
  return turns;
}

}  // namespace weft::planner
