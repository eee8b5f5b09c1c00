#include "planner/network/max_min.h"

#include <queue>

#include "common/check.h"

namespace weft::planner {
namespace {

/// A link's filling level: the common ratio rate/weight at which it is full. Levels only rise while other flows freeze,
/// so an entry that has become stale is too small, never too large: it is brought up to date when it comes out.
struct Level {
  double level;
  int32_t link;  // past the topology's links: the cap of flow `link - links`
  friend bool operator>(const Level& a, const Level& b) {
    return a.level != b.level ? a.level > b.level : a.link > b.link;
  }
};

class ProgressiveFilling {
 public:
  ProgressiveFilling(std::span<const BitsPerSecond> capacity, std::span<const MaxMinFlow> flows)
      : flows_(flows), links_(capacity.size()), rates_(flows.size()), frozen_(flows.size(), false) {
    size_t crossings = 0;
    for (size_t l = 0; l < capacity.size(); ++l) links_[l].left = capacity[l].value();
    for (const MaxMinFlow& flow : flows) {
      WEFT_CHECK(flow.weight > 0, "a flow's weight is not positive");
      crossings += flow.links.size();
      for (const LinkId link : flow.links) {
        links_[link.index()].weight += flow.weight;
        ++links_[link.index()].growing;
      }
    }
    crossing_.resize(crossings);
    size_t end = 0;
    for (LinkState& link : links_) {
      link.all_weight = link.weight;
      link.begin = link.end = end;
      end += link.growing;
    }
    for (size_t f = 0; f < flows.size(); ++f) {
      for (const LinkId link : flows[f].links) crossing_[links_[link.index()].end++] = static_cast<int32_t>(f);
    }
  }

  std::vector<BitsPerSecond> Run() {
    Start();
    while (!queue_.empty()) {
      const Level top = queue_.top();
      queue_.pop();
      const size_t index = static_cast<size_t>(top.link);
      if (index >= links_.size()) {
        const size_t flow = index - links_.size();
        if (!frozen_[flow]) Freeze(flow, flows_[flow].cap.value());
        continue;
      }
      if (links_[index].growing == 0) continue;
      if (const double now = LevelOf(links_[index]); now > top.level) {
        queue_.push({now, top.link});
        continue;
      }
      for (size_t i = links_[index].begin; i < links_[index].end; ++i) {
        const size_t flow = static_cast<size_t>(crossing_[i]);
        if (!frozen_[flow]) Freeze(flow, top.level * flows_[flow].weight);
      }
    }
    return std::move(rates_);
  }

 private:
  static constexpr double kNoCap = 1e299;

  struct LinkState {
    double left = 0;        // capacity that no frozen flow has
    double weight = 0;      // of the flows that still grow
    double all_weight = 0;  // of all flows
    size_t growing = 0;
    size_t begin = 0, end = 0;  // its flows in crossing_
  };

  static double LevelOf(const LinkState& link) { return link.left > 0 ? link.left / link.weight : 0; }

  void Start() {
    std::vector<Level> levels;
    levels.reserve(links_.size());
    for (size_t l = 0; l < links_.size(); ++l) {
      if (links_[l].growing > 0) levels.push_back({LevelOf(links_[l]), static_cast<int32_t>(l)});
    }
    for (size_t f = 0; f < flows_.size(); ++f) {
      if (flows_[f].links.empty()) {
        rates_[f] = flows_[f].cap;
        frozen_[f] = true;
      } else if (flows_[f].cap.value() < kNoCap) {
        levels.push_back({flows_[f].cap.value() / flows_[f].weight, static_cast<int32_t>(links_.size() + f)});
      }
    }
    queue_ = Queue(std::greater<>(), std::move(levels));
  }

  void Freeze(size_t flow, double rate) {
    frozen_[flow] = true;
    rates_[flow] = BitsPerSecond(rate);
    for (const LinkId id : flows_[flow].links) {
      LinkState& link = links_[id.index()];
      link.left -= rate;
      link.weight -= flows_[flow].weight;
      --link.growing;
      // What is left of a difference of nearly equal sums is rounding: add up again what still grows.
      if (link.growing > 0 && link.weight < 1e-6 * link.all_weight) {
        link.weight = 0;
        for (size_t i = link.begin; i < link.end; ++i) {
          const size_t other = static_cast<size_t>(crossing_[i]);
          if (!frozen_[other]) link.weight += flows_[other].weight;
        }
        link.all_weight = link.weight;
      }
    }
  }

  using Queue = std::priority_queue<Level, std::vector<Level>, std::greater<>>;

  std::span<const MaxMinFlow> flows_;
  std::vector<LinkState> links_;
  std::vector<int32_t> crossing_;
  std::vector<BitsPerSecond> rates_;
  std::vector<char> frozen_;
  Queue queue_;
};

}  // namespace

std::vector<BitsPerSecond> MaxMinRates(std::span<const BitsPerSecond> capacity, std::span<const MaxMinFlow> flows) {
  return ProgressiveFilling(capacity, flows).Run();
}

}  // namespace weft::planner
