#include "controller/link_load.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::controller {
namespace {

constexpr double kSilent = 30;        // s
constexpr double kPeriodsSilent = 3;
constexpr double kHalf = 10;          // s: of CarriedLately::long_since
constexpr double kLeastAge = 1;       // s: of a flow before its bytes are a rate

}  // namespace

double CarriedRate(const SendFlow& flow, double now_s) {
  if (flow.wire_bytes <= 0 || now_s - flow.active_s > std::max(kSilent, kPeriodsSilent * flow.period_s)) return 0;
  if (flow.meter.known && flow.meter.period_s > 0) return flow.meter.bytes_each / flow.meter.period_s;
  // A steady rate r leaves r · half / ln 2 · (1 - 2^(-age / half)) in a memory that fades so.
  const double age = std::max(now_s - flow.first_s, kLeastAge);
  return flow.lately.long_since.At(now_s) * std::numbers::ln2 / kHalf / (1 - std::exp2(-age / kHalf));
}

std::vector<BitsPerSecond> LinkLoad(const FlowTable& table, size_t links, const std::set<std::string>& except, Seconds now) {
  std::vector<BitsPerSecond> load(links, BitsPerSecond(0));
  for (const auto& [id, flow] : table.flows()) {
    if (flow.doubted || except.contains(flow.identity.job_id())) continue;
    const double rate = CarriedRate(flow, now.count());
    if (!(rate > 0) || !std::isfinite(rate)) continue;
    double weights = 0, lanes = 0;
    for (const auto& [port, lane] : flow.lanes) {
      if (!lane.active) continue;
      weights += lane.weight;
      ++lanes;
    }
    for (const auto& [port, lane] : flow.lanes) {
      const std::vector<LinkId>* path = flow.PathOf(port);
      if (path == nullptr || !lane.active) continue;
      const double share = weights > 0 ? lane.weight / weights : 1 / lanes;
      for (const LinkId link : *path) {
        if (link.index() < links) load[link.index()] = load[link.index()] + BitsPerSecond(8 * rate * share);
      }
    }
  }
  return load;
}

}  // namespace weft::controller
