#include "agent/probe/tracer.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace weft::agent {
namespace {

constexpr Seconds kNever{1e18};
constexpr Seconds kAnswersLate{3};     // an answer later than this is nobody's
constexpr size_t kMaxCachedPorts = 8192;
constexpr uint16_t kFirstClosedPort = 33434;  // traceroute's range: by custom nobody listens there
constexpr uint16_t kClosedPorts = 100;

}  // namespace

PathTracer::PathTracer(const TracerOptions& options, uint64_t seed)
    : options_(options), random_(seed), budget_(options) {}

DestinationTrace& PathTracer::Destination(const TraceTarget& target) {
  const Ends ends{target.source, target.destination};
  const auto it = destinations_.find(ends);
  if (it != destinations_.end()) return it->second;
  const auto source_port = static_cast<uint16_t>(30000 + random_() % 2000);
  const auto closed_port = static_cast<uint16_t>(kFirstClosedPort + random_() % kClosedPorts);
  return destinations_
      .try_emplace(ends, target.source, target.destination, source_port, closed_port)
      .first->second;
}

void PathTracer::Track(TraceTarget target, Seconds now) {
  const auto [it, is_new] = flows_.try_emplace(target.flow);
  Flow& flow = it->second;
  if (is_new) {
    for (const std::vector<uint16_t>* list : {&target.lanes, &target.candidates}) {
      for (const uint16_t port : *list) {
        const auto cached = ports_.find({target.source, target.destination, target.destination_port, port});
        if (cached != ports_.end() && cached->second.done && now - cached->second.done_at > options_.cache_age) {
          ports_.erase(cached);
        }
      }
    }
  }
  flow.target = std::move(target);
  flow.finished = false;
  flow.reported_lanes = 0;
  Destination(flow.target);
  Purge(now);
}

void PathTracer::Forget(uint64_t flow) { flows_.erase(flow); }

void PathTracer::Purge(Seconds now) {
  std::erase_if(sent_, [&](const auto& entry) { return now - entry.second.at > kAnswersLate; });
  if (ports_.size() <= kMaxCachedPorts) return;
  std::set<Tuple> used;
  for (const auto& [id, flow] : flows_) {
    const TraceTarget& t = flow.target;
    for (const std::vector<uint16_t>* list : {&t.lanes, &t.candidates}) {
      for (const uint16_t port : *list) used.insert({t.source, t.destination, t.destination_port, port});
    }
  }
  std::erase_if(ports_, [&](const auto& entry) { return !used.contains(entry.first); });
}

void PathTracer::Settle(PortTrace& port, Seconds now) {
  if (port.done) return;
  for (ProbeQuery& query : port.middle) query.Expire(now, options_);
  port.done = std::all_of(port.middle.begin(), port.middle.end(), [](const ProbeQuery& q) { return q.done; });
  port.done_at = now;
}

size_t PathTracer::Wanted(const Progress& progress, size_t since_new) const {
  if (options_.exhaustive) return std::numeric_limits<size_t>::max();
  const auto more = [](size_t enough, size_t have) { return enough > have ? enough - have : 0; };
  const size_t known = progress.paths.size();
  const size_t allowed = more(static_cast<size_t>(options_.max_candidates) + progress.lanes_known, known);
  if (progress.distinct <= 1) return std::min(allowed, more(static_cast<size_t>(options_.single_path_ports), known));
  return std::min(allowed, more(std::max<size_t>(4, 2 * progress.distinct), since_new));
}

PathTracer::Progress PathTracer::Assess(const Flow& flow, Seconds now) {
  Progress progress;
  const TraceTarget& target = flow.target;
  const DestinationTrace& way = Destination(target);
  std::set<std::vector<Ipv4>> seen;
  std::set<uint16_t> counted;
  size_t since_new = 0;
  const auto count = [&](uint16_t source_port, bool lane) {
    if (!counted.insert(source_port).second) return;
    const auto it = ports_.find({target.source, target.destination, target.destination_port, source_port});
    if (it != ports_.end()) Settle(it->second, now);
    if (it == ports_.end() || !it->second.done) {
      progress.unknown_lanes += lane;
      progress.in_flight += it != ports_.end() && !lane;
      progress.asked += it != ports_.end() && !it->second.middle.empty() && it->second.middle[0].attempts > 0;
      return;
    }
    ++progress.asked;
    progress.lanes_known += lane;
    TracedPath path{.source_port = source_port};
    if (way.hops() > 0) path.hops.push_back(way.first());
    for (const ProbeQuery& query : it->second.middle) path.hops.push_back(query.answer);
    if (way.hops() > 1) path.hops.push_back(way.last());
    path.complete = std::find(path.hops.begin(), path.hops.end(), 0u) == path.hops.end();
    // A way known in part is no evidence for or against another one.
    if (path.complete) since_new = seen.insert(path.hops).second ? 0 : since_new + 1;
    progress.paths.push_back(std::move(path));
  };
  for (const uint16_t port : target.lanes) count(port, true);
  for (const uint16_t port : target.candidates) count(port, false);
  progress.distinct = seen.size();
  progress.wanted = Wanted(progress, since_new);
  return progress;
}

void PathTracer::StartPorts(Flow& flow, Seconds now) {
  const TraceTarget& target = flow.target;
  const int hops = Destination(target).hops();
  const auto start = [&](uint16_t source_port) {
    const auto [it, is_new] =
        ports_.try_emplace({target.source, target.destination, target.destination_port, source_port});
    if (!is_new) return false;
    for (int ttl = 2; ttl < hops; ++ttl) it->second.middle.push_back({.ttl = ttl});
    Settle(it->second, now);
    return true;
  };
  for (const uint16_t port : target.lanes) start(port);
  for (const uint16_t port : target.candidates) {
    const Progress progress = Assess(flow, now);
    const size_t coming = progress.in_flight + progress.unknown_lanes;
    if (coming >= progress.wanted || progress.in_flight >= static_cast<size_t>(options_.burst)) return;
    start(port);
  }
}

Probe PathTracer::Register(Probe probe, bool to_destination, Seconds now) {
  do {
    probe.sequence = static_cast<uint32_t>(random_());
  } while (sent_.contains(probe.sequence) || probe.sequence >> 16 == 0 || (probe.sequence & 0xFFFF) == 0);
  sent_[probe.sequence] = {{probe.source, probe.destination, probe.destination_port, probe.source_port},
                           probe.ttl, to_destination, now};
  ++counters_.sent;
  return probe;
}

std::optional<Probe> PathTracer::NextOfDestinations(Seconds now) {
  for (auto& [ends, way] : destinations_) {
    const auto before = way.state();
    std::optional<Probe> probe = way.Next(now, options_, budget_);
    counters_.silent_destinations +=
        before != way.state() && way.state() == DestinationTrace::State::kSilent && !before_.contains(ends);
    if (probe) return Register(*probe, true, now);
  }
  return std::nullopt;
}

std::optional<Probe> PathTracer::NextOfFlow(Flow& flow, Seconds now) {
  const TraceTarget& target = flow.target;
  for (const std::vector<uint16_t>* list : {&target.lanes, &target.candidates}) {
    for (const uint16_t source_port : *list) {
      const auto it = ports_.find({target.source, target.destination, target.destination_port, source_port});
      if (it == ports_.end()) continue;
      for (ProbeQuery& query : it->second.middle) {
        if (!query.Due(now, options_) || !budget_.Take({target.source, 0, query.ttl}, now)) continue;
        query.Sent(now);
        return Register({.source = target.source,
                         .destination = target.destination,
                         .source_port = source_port,
                         .destination_port = target.destination_port,
                         .ttl = static_cast<uint8_t>(query.ttl)},
                        false, now);
      }
    }
  }
  return std::nullopt;
}

PathTracer::Step PathTracer::Next(Seconds now) {
  ReprobeOverdue(now);
  if (const auto changed = watch_.TakeChanged(now)) AskChanged(*changed, now);
  if (auto probe = NextOfDestinations(now)) return {probe, now};
  CompareEnds();
  // Least-known flows first, so that every flow soon has an alternative before any has all of its own.
  std::vector<std::tuple<bool, size_t, uint64_t>> order;  // idle, ports asked, flow
  for (auto& [id, flow] : flows_) {
    if (flow.finished || Destination(flow.target).state() != DestinationTrace::State::kReady) continue;
    StartPorts(flow, now);
    order.emplace_back(!carrying_.contains(id), Assess(flow, now).asked, id);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [idle, asked, id] : order) {
    if (auto probe = NextOfFlow(flows_.at(id), now)) return {probe, now};
  }
  if (auto probe = NextOfDscp(now)) return {probe, now};
  if (auto probe = NextOfWatch(now)) return {probe, now};
  return {std::nullopt, WakeTime(now)};
}

Seconds PathTracer::WakeTime(Seconds now) {
  Seconds wake = std::min(dscp_.Wake(), watch_.Wake());
  for (auto& [ends, way] : destinations_) wake = std::min(wake, way.Wake(now, options_, budget_));
  for (auto& [id, flow] : flows_) {
    if (flow.finished) {
      wake = std::min(wake, DueAgain(flow));
      continue;
    }
    const TraceTarget& t = flow.target;
    for (const std::vector<uint16_t>* list : {&t.lanes, &t.candidates}) {
      for (const uint16_t port : *list) {
        const auto it = ports_.find({t.source, t.destination, t.destination_port, port});
        if (it == ports_.end() || it->second.done) continue;
        for (const ProbeQuery& query : it->second.middle) {
          Seconds at = query.Wake(now, options_);
          if (query.Due(now, options_)) at = std::max(at, budget_.ReadyAt({t.source, 0, query.ttl}, now));
          wake = std::min(wake, at);
        }
      }
    }
  }
  return wake;
}

void PathTracer::OnTimeExceeded(const TimeExceeded& answer, Seconds now) {
  const Probe& quoted = answer.probe;
  const auto it = sent_.find(quoted.sequence);
  if (it == sent_.end() || answer.from == 0) return;
  const Sent sent = it->second;
  const Tuple tuple{quoted.source, quoted.destination, quoted.destination_port, quoted.source_port};
  if (sent.tuple != tuple || now - sent.at > kAnswersLate) return;  // somebody guesses, or a very late one
  sent_.erase(it);
  ++counters_.answered;
  if (sent.to_destination) {
    const auto way = destinations_.find({tuple.source, tuple.destination});
    if (way != destinations_.end()) way->second.OnTimeExceeded(sent.ttl, answer.from, budget_);
    return;
  }
  budget_.Answered({tuple.source, 0, sent.ttl}, answer.from);
  if (sent.tos) {
    const Probe asked{.source = tuple.source, .destination = tuple.destination, .source_port = tuple.source_port,
                      .destination_port = tuple.destination_port, .ttl = static_cast<uint8_t>(sent.ttl), .tos = *sent.tos};
    dscp_.OnTimeExceeded(asked, answer.from, quoted.tos, now);
    return;
  }
  if (sent.watch) {
    watch_.OnTimeExceeded({.source = tuple.source, .destination = tuple.destination, .source_port = tuple.source_port,
                           .destination_port = tuple.destination_port, .ttl = static_cast<uint8_t>(sent.ttl)}, answer.from);
    return;
  }
  const auto port = ports_.find(tuple);
  if (port == ports_.end()) return;
  for (ProbeQuery& query : port->second.middle) {
    if (query.ttl == sent.ttl) query.Answer(answer.from);
  }
}

void PathTracer::OnTcpAnswer(const TcpAnswer& answer) {
  const auto it = sent_.find(answer.sequence);
  if (it == sent_.end() || !it->second.to_destination) return;
  const Sent sent = it->second;
  if (sent.tuple != Tuple{answer.to, answer.from, answer.from_port, answer.to_port}) return;
  sent_.erase(it);
  ++counters_.answered;
  const auto way = destinations_.find({answer.to, answer.from});
  if (way != destinations_.end()) way->second.OnArrived(sent.ttl, answer.ttl);
}

std::vector<TraceReport> PathTracer::TakeReports(Seconds now) {
  std::vector<TraceReport> reports;
  for (auto& [id, flow] : flows_) {
    const DestinationTrace& way = Destination(flow.target);
    if (flow.finished || way.state() != DestinationTrace::State::kReady) continue;
    StartPorts(flow, now);
    const Progress progress = Assess(flow, now);
    const bool finished = progress.unknown_lanes == 0 && progress.in_flight == 0;
    const bool has_first = progress.lanes_known > 0 || flow.target.lanes.empty();
    const bool news = progress.distinct > flow.reported_distinct || progress.lanes_known > flow.reported_lanes;
    const bool enough = progress.distinct >= 2 || progress.paths.size() >= static_cast<size_t>(options_.first_report_ports);
    if (!finished && !(has_first && enough && news)) continue;
    flow.reported_distinct = progress.distinct;
    flow.reported_lanes = progress.lanes_known;
    flow.finished = finished;
    flow.finished_at = now;
    flow.again_at = Seconds(0);
    if (finished) AskGaps(flow, progress);
    reports.push_back({id, flow.target.source, flow.target.destination, flow.target.destination_port, way.hops(),
                       progress.paths, finished});
  }
  return reports;
}

bool PathTracer::AwaitsArrival() const {
  return std::any_of(destinations_.begin(), destinations_.end(), [](const auto& entry) {
    return entry.second.state() == DestinationTrace::State::kAsking;
  });
}

}  // namespace weft::agent
