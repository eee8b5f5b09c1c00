// What a PathTracer asks again of ways that it knows: at signs, after a time, whether they are the same, and with which DSCP.
#include <algorithm>
#include <limits>

#include "agent/probe/tracer.h"

namespace weft::agent {
namespace {

constexpr Seconds kSoon{1};
constexpr Seconds kNever{1e18};

}  // namespace

/// Only lanes to destinations of which it is known how many switches are on the way, which keeps probes from arriving.
std::optional<Probe> PathTracer::NextOfDscp(Seconds now) {
  if (dscp_.WantsWays(now)) {
    std::vector<DscpWay> ways;
    for (const bool carries : {true, false}) {
      for (auto& [id, flow] : flows_) {
        const TraceTarget& t = flow.target;
        const auto old = before_.find({t.source, t.destination});  // while it is asked again, what was known stands
        const DestinationTrace& way = old != before_.end() ? old->second : Destination(t);
        if (carrying_.contains(id) != carries || way.state() != DestinationTrace::State::kReady) continue;
        for (const uint16_t port : t.lanes) ways.push_back({t.source, t.destination, t.destination_port, port, way.hops()});
      }
    }
    dscp_.SetWays(std::move(ways));
  }
  std::optional<Probe> probe = dscp_.Next(now, budget_);
  if (!probe) return std::nullopt;
  const Probe sent = Register(*probe, false, now);
  sent_[sent.sequence].tos = sent.tos;
  return sent;
}

/// Of flows that are known now.
std::optional<Probe> PathTracer::NextOfWatch(Seconds now) {
  if (watch_.WantsWays(now)) {
    Purge(now);
    std::vector<WatchedWay> ways;
    for (const auto& [id, flow] : flows_) {
      const TraceTarget& t = flow.target;
      if (!flow.finished) continue;
      for (const std::vector<uint16_t>* list : {&t.lanes, &t.candidates}) {
        for (const uint16_t port : *list) {
          const auto known = ports_.find({t.source, t.destination, t.destination_port, port});
          if (known == ports_.end() || !known->second.done) continue;
          for (const ProbeQuery& query : known->second.middle) {
            if (query.answer != 0) ways.push_back({id, t.source, t.destination, t.destination_port, port, query.ttl, query.answer, list == &t.lanes});
          }
        }
      }
    }
    watch_.SetWays(ways);
  }
  const std::optional<Probe> probe = watch_.Next(now, budget_, random_());
  if (!probe) return std::nullopt;
  const Probe sent = Register(*probe, false, now);
  sent_[sent.sequence].watch = true;
  return sent;
}

/// Forgets which way its ports go, so that they are asked again. Ports that other flows share are asked once for all of them.
void PathTracer::Restart(Flow& flow) {
  const TraceTarget& t = flow.target;
  for (const std::vector<uint16_t>* list : {&t.lanes, &t.candidates}) {
    for (const uint16_t port : *list) ports_.erase({t.source, t.destination, t.destination_port, port});
  }
  flow.finished = false;
  flow.reported_lanes = flow.reported_distinct = 0;
}

/// The flow's ports, and how many switches lie between its hosts and which is the last: the way may have become longer or shorter. The ends
/// are asked once for all flows between them.
void PathTracer::AskAgain(Flow& flow, Seconds now) {
  Restart(flow);
  const Ends ends{flow.target.source, flow.target.destination};
  DestinationTrace& way = Destination(flow.target);
  const auto asked = asked_again_.find(ends);
  if (way.state() != DestinationTrace::State::kReady) return;
  if (asked != asked_again_.end() && now < asked->second + options_.probe_again_after) return;
  asked_again_[ends] = now;
  before_.insert_or_assign(ends, way);
  way = way.Afresh();
}

/// The flow's ports over a hop that is not where it was, at once; then all of them, since those over others may go elsewhere too.
void PathTracer::AskChanged(const WatchedWay& way, Seconds now) {
  const auto found = flows_.find(way.flow);
  if (found == flows_.end()) return;
  Flow& flow = found->second;
  if (!flow.finished || now < flow.changed_at + options_.probe_again_after) return Defer(flow);
  flow.changed_at = now;
  const TraceTarget& t = flow.target;
  for (const std::vector<uint16_t>* list : {&t.lanes, &t.candidates}) {
    for (const uint16_t port : *list) {
      const auto known = ports_.find({t.source, t.destination, t.destination_port, port});
      if (known == ports_.end()) continue;
      if (std::ranges::any_of(known->second.middle, [&](const ProbeQuery& q) { return q.ttl == way.ttl && q.answer == way.hop; })) ports_.erase(known);
    }
  }
  flow.finished = false;
  flow.again_after = kSoon;
  flow.reported_lanes = flow.reported_distinct = 0;
}

/// Ends that have been asked again: if the answer differs, all flows between them are probed again; if there is none, the old one stands.
void PathTracer::CompareEnds() {
  for (auto it = before_.begin(); it != before_.end();) {
    const auto& [ends, before] = *it;
    DestinationTrace& way = destinations_.at(ends);
    if (way.state() == DestinationTrace::State::kAsking) {
      ++it;
      continue;
    }
    const auto same = [](Ipv4 now, Ipv4 then) { return now == 0 || now == then; };
    const bool ready = way.state() == DestinationTrace::State::kReady;
    if (ready && (way.hops() != before.hops() || !same(way.first(), before.first()) || !same(way.last(), before.last()))) {
      for (auto& [id, flow] : flows_) {
        if (Ends{flow.target.source, flow.target.destination} == ends) Restart(flow);
      }
    } else {
      way = before;
    }
    it = before_.erase(it);
  }
}

/// A large value: never. Hosts that began together must not go on asking together.
Seconds PathTracer::DueAgain(Flow& flow) {
  if (flow.again_at.count() <= 0) {
    if (!flow.again_after && options_.reprobe_interval.count() <= 0) return kNever;
    const double part = static_cast<double>(random_() >> 11) / static_cast<double>(uint64_t{1} << 53);
    const double least = flow.again_after ? 1 : 0.75;  // a sign waits as long as it has to, at least
    flow.again_at = flow.finished_at + flow.again_after.value_or(options_.reprobe_interval) * (least + (1.25 - least) * part);
    flow.again_after.reset();
  }
  return flow.again_at;
}

void PathTracer::ReprobeOverdue(Seconds now) {
  for (auto& [id, flow] : flows_) {
    if (flow.finished && now >= DueAgain(flow)) AskAgain(flow, now);
  }
}

/// A sign that comes too soon after the flow was probed, or while it is, is not forgotten.
void PathTracer::Defer(Flow& flow) {
  if (!flow.finished && flow.again_after && *flow.again_after <= options_.probe_again_after) return;
  if (flow.finished && DueAgain(flow) <= flow.finished_at + 1.25 * options_.probe_again_after) return;
  flow.again_at = Seconds(0);
  flow.again_after = options_.probe_again_after;
}

/// A lane that was asked for while routes changed may have got no answer: it is asked again soon, less and less often.
void PathTracer::AskGaps(Flow& flow, const Progress& progress) {
  const std::vector<uint16_t>& lanes = flow.target.lanes;
  const bool gap = std::ranges::any_of(progress.paths, [&](const TracedPath& path) {
    return !path.complete && std::ranges::find(lanes, path.source_port) != lanes.end();
  });
  flow.gaps = gap ? std::min(flow.gaps + 1, 10) : 0;
  if (!gap || flow.again_after) return;
  const Seconds after = options_.probe_again_after * static_cast<double>(1 << (flow.gaps - 1));
  if (after < options_.reprobe_interval) flow.again_after = after;
}

void PathTracer::ProbeAgain(uint64_t id, Seconds now) {
  const auto flow = flows_.find(id);
  if (flow == flows_.end()) return;
  if (!flow->second.finished || now < flow->second.finished_at + options_.probe_again_after) return Defer(flow->second);
  AskAgain(flow->second, now);
}

}  // namespace weft::agent
