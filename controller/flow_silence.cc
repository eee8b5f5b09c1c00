// The flow table's half that keeps which lanes go unanswered: their paths carry nothing until they answer again.
#include <algorithm>
#include <cmath>

#include "controller/flow_table.h"

namespace weft::controller {
namespace {

constexpr double kLongestSilence = 3600;  // seconds
constexpr double kFirstShun = 5;             // seconds for which a path that was silent carries nothing after it answers again,
constexpr double kLastShun = 320;            // then twice as long each time, up to this
constexpr double kShunForgotten = 640;       // seconds after which a path's earlier silences count no more
constexpr size_t kMaxSilences = 10'000;

}  // namespace

/// What the sender says of one lane's silence. Each one in a row keeps the path unused for twice as long.
void FlowTable::Hear(SendFlow& flow, int32_t port, double silent_s, double now_s) {
  Lane& lane = flow.lanes.at(port);
  lane.silent_at_s = now_s;
  lane.silent_s = std::isfinite(silent_s) ? std::clamp(silent_s, 0.0, kLongestSilence) : 0;
  if (lane.silent_s < kSilentAfter) return;
  if (!lane.silent) {
    if (now_s > lane.shunned_until_s + kShunForgotten) lane.silences = 0;
    lane.silent = true;
    silent_flows_.insert(flow.id);
    ++lane.silences;
    flow.settled = false;
    if (silences_.size() < kMaxSilences) silences_.push_back({flow.id, port, lane.silent_s});
  }
  lane.shunned_until_s = now_s + std::min(kLastShun, std::ldexp(kFirstShun, std::min(lane.silences - 1, 20)));
}

Change FlowTable::Stall(const std::string& host, uint64_t id, bool begins, double stalled_s, double now_s) {
  SendFlow* flow = Find(id);
  if (flow == nullptr || flow->host != host) return Change::kNone;  // of a receive flow, or closed meanwhile
  const size_t before = silences_.size();
  // A plugin that says it of lanes has said so long before: the others of this flow do answer.
  const bool told = std::ranges::any_of(flow->lanes, [](const auto& entry) { return entry.second.silent; });
  for (const auto& [port, lane] : flow->lanes) {
    if (begins && !told && lane.active && lane.weight > 0) Hear(*flow, port, std::max(stalled_s, kSilentAfter), now_s);
    if (!begins) Hear(*flow, port, 0, now_s);
  }
  return silences_.size() > before ? Change::kFlows : Change::kNone;
}

bool FlowTable::ForgiveSilences(double now_s) {
  bool any = false;
  std::erase_if(silent_flows_, [&](uint64_t id) {
    bool silent = false;
    for (auto& [port, lane] : flows_.at(id).lanes) {
      if (!lane.silent) continue;
      const bool good = lane.silent_s < kSilentAfter && now_s >= lane.shunned_until_s;
      lane.silent = !good;
      any |= good;
      silent |= !good;
    }
    return !silent;
  });
  return any;
}

}  // namespace weft::controller
