#include "controller/multi_job_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "controller/flow_planner.h"
#include "controller/job_strategy.h"
#include "controller/link_load.h"

namespace weft::controller {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;  // of one flow and iteration
// Of the links' rates, that bursts reach alone: what is measured below that is taken for a burst that was in the way of
// others, and then the middle between the two is assumed until it is known.
constexpr double kLeastEfficiency = 0.85;
constexpr double kUnknownEfficiency = 0.95;
constexpr double kSameEfficiency = 0.02;
constexpr double kLeastBackground = 1.0 / 24;     // of a link
constexpr int64_t kMostGpus = 1 << 20;
constexpr double kLeastTurn = 0.02;               // of a job's bytes, that a communicator has a burst for
constexpr size_t kMostTurns = 16;                 // of more, all are one
// A burst ends when the wire was idle for 2 ms, as far as the plugin knows between two samples of TCP, 25 ms apart. Where
// the wire takes longer than the gap for what it was handed last, a chunk at least, bursts may be seen in pieces.
constexpr double kBurstGap = 0.002;
constexpr double kChunkBytes = 128 << 10;

int64_t GpusOf(const Job& job, const std::vector<const SendFlow*>& flows) {
  int64_t gpus = job.spec.gpus();
  if (gpus <= 0) gpus = job.spec.hosts_size() * std::max<int64_t>(1, job.spec.ranks_per_host());
  if (gpus <= 0) {
    std::set<std::pair<std::string, int32_t>> ranks;
    for (const SendFlow* flow : flows) ranks.insert({flow->host, flow->identity.rank()});
    gpus = static_cast<int64_t>(ranks.size());
  }
  return std::clamp<int64_t>(gpus, 1, kMostGpus);
}

/// One job in the making.
class Modeller {
 public:
  Modeller(const MultiJobView& view, const std::string& id, const Job& job, std::vector<const SendFlow*> flows)
      : view_(view), job_(job), flows_(std::move(flows)) {
    made_.name = id;
    made_.gpus = GpusOf(job, flows_);
  }

  /// "measured", "plan" or "none".
  std::string Run(double period_s, const MultiJobInForce& force, const KeptModel* kept) {
    if (!TakeFlows()) return "none";
    if (Measure(period_s, kept != nullptr)) {
      Keep(kept, force.shifted);
      return "measured";
    }
    if (TakePlan()) return "plan";
    return "none";
  }
  planner::MultiJobJob Take() { return std::move(made_); }
  std::vector<AskedFlow> TakeAsked() { return std::move(asked_); }
  const std::string& missing() const { return missing_; }
  const KeptModel& kept() const { return kept_; }

 private:
  bool Miss(std::string what) {
    missing_ = std::move(what);
    return false;
  }

  /// Where the flows go and could go. A flow whose path no probe has shown (yet) is left out: what is then said of the job
  /// errs towards less traffic, and its bound stays one.
  bool TakeFlows() {
    if (flows_.empty()) return Miss("it has no flows yet");
    const auto inside = [&](const SendFlow* flow) {
      const std::string* to = view_.fabric->HostOf(flow->identity.peer_address());
      return to != nullptr && *to == flow->host;
    };
    if (std::all_of(flows_.begin(), flows_.end(), inside)) return Miss("its flows stay on one host, no link carries them");
    const auto& topology = view_.fabric->topology();
    const auto node = [&](const std::string* host) { return host == nullptr ? std::nullopt : topology.FindNode(*host); };
    made_.placed = true;
    std::vector<const SendFlow*> known_flows;
    for (const SendFlow* flow : flows_) {
      const auto from_node = node(&flow->host);
      const auto to_node = node(view_.fabric->HostOf(flow->identity.peer_address()));
      if (!from_node || !to_node) continue;
      std::vector<Candidate> candidates = CandidatesOf(*flow);
      if (candidates.empty()) continue;
      // In an order that does not follow what is in use: the problem is the same whoever asks when.
      std::ranges::sort(candidates, {}, &Candidate::links);
      planner::MultiJobFlow made{.from = *from_node, .to = *to_node, .bytes = Bytes(0), .paths = {}, .shares = {}};
      double known = 0;
      for (const Candidate& candidate : candidates) known += candidate.present;
      for (const Candidate& candidate : candidates) {
        made.paths.push_back({candidate.links});
        made.shares.push_back(known > 0.5 ? candidate.present / known : 0);
      }
      if (known <= 0.5) made.shares.front() = 1;
      made_.placed &= !flow->decided.empty() && known > 0.5;
      made_.flows.push_back(std::move(made));
      asked_.push_back({.flow = flow->id, .candidates = std::move(candidates), .fixed = false});
      known_flows.push_back(flow);
    }
    flows_ = std::move(known_flows);
    if (flows_.empty()) return Miss("the paths of its flows are not known yet");
    return true;
  }

  /// By the flow whose bursts last longest: others of the job wait for it. Where the job was measured before, flows that
  /// opened since are left out until they are.
  bool Measure(double period_s, bool before) {
    if (!Plausible(period_s)) return Miss("no iteration period was found in its traffic");
    const FlowMeter* longest = nullptr;
    double burst_s = 0;
    for (size_t i = 0; i < flows_.size(); ++i) {
      const FlowMeter& meter = flows_[i]->meter;
      if (!meter.known && before) continue;
      if (!meter.known) return Miss("its traffic was not measured for eight iterations yet");
      const double each_s = BurstOf(meter, made_.flows[i]);
      if (longest == nullptr || each_s > burst_s) {
        longest = &meter;
        burst_s = each_s;
      }
      const int64_t bytes = std::clamp<int64_t>(std::llround(meter.bytes_each), 0, kMostBytes);
      kept_.bytes[flows_[i]->id] = bytes;
      made_.flows[i].bytes = Bytes(bytes);
    }
    if (longest == nullptr) return Miss("its traffic was not measured for eight iterations yet");
    if (!IsWholeIteration()) return Miss("bursts that follow each other at a steady pace are not its plan's iterations, by their bytes");
    // Nothing is faster than its bytes at what its links give; where they are thought to give too little, TCP knows better.
    burst_s = std::max(burst_s, std::min(OnPaths(), longest->wire_each_s));
    kept_.period_s = longest->period_s;
    kept_.release_s = std::max(0.0, longest->period_s - burst_s - longest->held_each_s);
    const double planned = std::min(PlannedCompute(), longest->period_s);
    // Flows that send in turns: what the longest one of them does not send is not all computation.
    if (planned > 0 && SendsInTurns()) kept_.release_s = std::min(kept_.release_s, planned);
    kept_.compute_s = std::max(kept_.release_s, planned);
    kept_.least_burst_s = burst_s;
    return true;
  }

  /// Whether the job's flows carry messages of its passes, of which one waits for the other, and not only sums of gradients.
  bool SendsInTurns() const { return job_.plan.has_strategy() && !SumsWholeGradients(job_.plan.strategy()); }

  /// Whether what was measured per period is near what the plan has per iteration, where it says that: pauses within an iteration may be
  /// as regular as those between two.
  bool IsWholeIteration() const {
    double measured = 0, planned = 0;
    for (const planner::MultiJobFlow& flow : made_.flows) measured += static_cast<double>(flow.bytes.count());
    for (const auto& [ends, bytes] : job_.planned_traffic) planned += bytes;
    return planned <= 0 || (measured > 0.75 * planned && measured < 1.33 * planned);
  }

  /// Seconds per iteration that the flow was sending. On slow links what TCP says, which counts the way back of the last
  /// acknowledgements too.
  double BurstOf(const FlowMeter& meter, const planner::MultiJobFlow& flow) const {
    double rate = 0;  // of the best path
    for (const auto& path : flow.paths) {
      double least = 1e300;
      for (const LinkId link : path.links) least = std::min(least, view_.monitor->Available(link).bytes_per_second());
      rate = std::max(rate, least);
    }
    if (kChunkBytes / std::max(1.0, rate) <= kBurstGap) return meter.busy_each_s;
    return std::clamp(meter.wire_each_s, meter.busy_each_s, std::max(meter.busy_each_s, meter.period_s - meter.held_each_s));
  }

  /// Whether what was measured is what it was when `old` was kept, up to `drift` of an iteration.
  bool SameAs(const KeptModel& old, double drift) const {
    const double tolerance_s = drift * old.period_s;
    if (std::abs(kept_.release_s - old.release_s) > tolerance_s || std::abs(kept_.compute_s - old.compute_s) > tolerance_s) {
      return false;
    }
    return SameBytes(old, drift);
  }
  bool SameBytes(const KeptModel& old, double drift) const {
    double most = 0;
    for (const auto& [flow, bytes] : old.bytes) most = std::max(most, static_cast<double>(bytes));
    return std::equal(kept_.bytes.begin(), kept_.bytes.end(), old.bytes.begin(), old.bytes.end(),
                      [&](const auto& a, const auto& b) {
                        return a.first == b.first && std::abs(static_cast<double>(a.second - b.second)) <= drift * most;
                      });
  }

  /// Settles what the model is: the old one, as long as it is good enough. What a job does between windows, where it comes
  /// late or waits, differs a little from what it does without.
  void Keep(const KeptModel* old, bool shifted) {
    const double drift = shifted ? 2 * view_.drift : view_.drift;
    const double now_s = kept_.least_burst_s;
    if (old != nullptr && old->least_burst_s > 0 && SameBytes(*old, drift)) {
      kept_.efficiency = old->efficiency;
      // Between windows nobody is in the way, so that the newest is the best; else the shortest is.
      if (!shifted) kept_.least_burst_s = std::min(now_s, old->least_burst_s);
    } else {
      kept_.efficiency = 0;
    }
    if (old != nullptr && SameAs(*old, drift)) {
      kept_.release_s = old->release_s;
      kept_.compute_s = old->compute_s;
      kept_.bytes = old->bytes;
      if (std::abs(kept_.period_s - old->period_s) <= view_.drift / 2 * old->period_s) kept_.period_s = old->period_s;
    }
    for (size_t i = 0; i < flows_.size(); ++i) {
      const auto known = kept_.bytes.find(flows_[i]->id);
      made_.flows[i].bytes = Bytes(known == kept_.bytes.end() ? 0 : known->second);
    }
    made_.release = Seconds(kept_.release_s);
    made_.compute = Seconds(kept_.compute_s);
    made_.measured = Seconds(kept_.period_s);
    if (SendsInTurns()) TakeTurns();
    const double seen = kept_.least_burst_s > 0 ? std::min(1.0, OnPaths() / kept_.least_burst_s) : 0;
    const double efficiency = seen < kLeastEfficiency ? kUnknownEfficiency : seen;
    if (std::abs(efficiency - kept_.efficiency) > kSameEfficiency) kept_.efficiency = efficiency;
    made_.efficiency = kept_.efficiency;
  }

  /// A burst for each communicator that sends much, in the order of their numbers, as if what passes send in one were waited for before
  /// the other's is sent, with equal parts of the computation between them. Leaves out: which of them send at the same time.
  void TakeTurns() {
    double all = 0;
    std::map<uint64_t, double> bytes_of;
    for (size_t i = 0; i < flows_.size(); ++i) {
      const auto bytes = static_cast<double>(made_.flows[i].bytes.count());
      bytes_of[flows_[i]->identity.comm()] += bytes;
      all += bytes;
    }
    std::erase_if(bytes_of, [&](const auto& entry) { return entry.second < kLeastTurn * all; });
    if (bytes_of.size() < 2 || bytes_of.size() > kMostTurns) return;
    const auto turns = static_cast<double>(bytes_of.size());
    for (size_t turn = 0; turn < bytes_of.size(); ++turn) {
      const Seconds at = made_.release * (static_cast<double>(turn + 1) / turns);
      made_.bursts.push_back({at, turn + 1 < bytes_of.size() ? at : made_.compute});
    }
    for (size_t i = 0; i < flows_.size(); ++i) {
      const auto at = bytes_of.find(flows_[i]->identity.comm());
      made_.flows[i].burst = at == bytes_of.end() ? bytes_of.size() - 1 : static_cast<size_t>(std::distance(bytes_of.begin(), at));
    }
  }

  /// Seconds that the job's bytes take alone at the links' rates.
  double OnPaths() const {
    std::map<LinkId, double> bytes_on;
    for (const planner::MultiJobFlow& flow : made_.flows) {
      for (size_t p = 0; p < flow.paths.size(); ++p) {
        for (const LinkId link : flow.paths[p].links) bytes_on[link] += static_cast<double>(flow.bytes.count()) * flow.shares[p];
      }
    }
    double alone = 0;
    for (const auto& [link, bytes] : bytes_on) {
      alone = std::max(alone, bytes / std::max(1.0, view_.monitor->Available(link).bytes_per_second()));
    }
    return alone;
  }

  /// Compute per iteration as planned or timed, 0 if unknown.
  double PlannedCompute() const {
    const double timed = job_.spec.measured_compute_s();
    if (Plausible(timed)) return timed;
    const v1::Prediction& predicted = job_.plan.predicted();
    const double compute = predicted.iteration_s() - predicted.exposed_communication_s();
    return Plausible(compute) ? compute : 0;
  }

  /// Flows from one host to another share what the plan says that it sends there, as TakePlan() has a rank's share its ring.
  bool TakeList(double compute) {
    const HostTraffic& planned = job_.planned_traffic;
    if (planned.empty() || compute <= 0) return Miss(missing_ + ", and no plan says what it sends");
    using Ends = std::pair<std::string, std::string>;
    std::map<Ends, Siblings> siblings;
    const auto ends = [&](const SendFlow* flow) {
      const std::string* to = view_.fabric->HostOf(flow->identity.peer_address());
      return Ends{flow->host, to == nullptr ? "" : *to};
    };
    for (const SendFlow* flow : flows_) siblings[ends(flow)].Add(Lately(flow));
    double all = 0;
    for (size_t i = 0; i < flows_.size(); ++i) {
      const auto known = planned.find(ends(flows_[i]));
      const double bytes = known == planned.end() ? 0 : known->second * siblings[ends(flows_[i])].ShareOf(Lately(flows_[i]));
      made_.flows[i].bytes = Bytes(std::llround(std::min(bytes, static_cast<double>(kMostBytes))));
      all += bytes;
    }
    if (all <= 0) return Miss(missing_ + ", and its plan has nothing for its flows to send");
    SetTimes(compute);
    return true;
  }

  /// Flows that carry one thing together. Their shares are as even as what they carried lately nearly is: a share that is another one
  /// with every look would call for another plan.
  struct Siblings {
    int flows = 0;
    double bytes = 0;
    void Add(double lately) { ++flows, bytes += lately; }
    double ShareOf(double lately) const { return bytes > 0 ? lately / bytes : 1.0 / flows; }
  };
  double Lately(const SendFlow* flow) const {
    const double bytes = flow->lately.long_since.At(view_.now_s);
    return bytes < 1 ? 0 : std::exp2(std::round(std::log2(bytes)));
  }

  void SetTimes(double compute) {
    made_.compute = Seconds(compute);
    // So that it is alone as fast as planned: what the plan hides behind compute is hidden here too.
    made_.release = Seconds(std::clamp(job_.plan.predicted().iteration_s() - OnPaths(), 0.0, compute));
  }

  /// By the plan's list of operations; without one, a ring all-reduce of the planned gradients, spread over the flows of each sender: as they carried lately, so that connections that
  /// stand idle get nothing, or evenly where none of them has carried anything.
  bool TakePlan() {
    if (job_.plan.has_operations()) return TakeList(PlannedCompute());
    if (SendsInTurns()) {
      return Miss(missing_ + ", and its plan has no list of operations that says what the strategy sends");
    }
    const v1::Prediction& predicted = job_.plan.predicted();
    const double compute = PlannedCompute();
    const auto ranks = static_cast<double>(job_.plan.strategy().dp());
    const auto gradients = static_cast<double>(predicted.gradient_bytes());
    if (compute <= 0 || ranks < 2 || gradients <= 0 || gradients > 1e15) return Miss(missing_ + ", and no plan says what it sends");
    std::map<std::pair<std::string, int32_t>, Siblings> siblings;
    for (const SendFlow* flow : flows_) siblings[{flow->host, flow->identity.rank()}].Add(Lately(flow));
    for (size_t i = 0; i < flows_.size(); ++i) {
      const double share = siblings[{flows_[i]->host, flows_[i]->identity.rank()}].ShareOf(Lately(flows_[i]));
      made_.flows[i].bytes = Bytes(std::llround(2 * (ranks - 1) / ranks * gradients * share));
    }
    SetTimes(compute);
    return true;
  }

  const MultiJobView& view_;
  const Job& job_;
  std::vector<const SendFlow*> flows_;
  planner::MultiJobJob made_;
  std::vector<AskedFlow> asked_;
  KeptModel kept_;
  std::string missing_;
};

/// What flows of jobs without a model take of each link in the mean, to a power of a half of the link: less would only be noise. They
/// give way, as all traffic of such networks does: never more than half.
std::vector<BitsPerSecond> Background(const MultiJobView& view, const MultiJobInput& input) {
  const std::span<const planner::Link> links = input.problem.topology.links();
  std::set<std::string> modelled;
  for (const auto& [id, asked] : input.asked) modelled.insert(id);
  std::vector<BitsPerSecond> background = LinkLoad(*view.table, links.size(), modelled, Seconds(view.now_s));
  for (size_t l = 0; l < background.size(); ++l) {
    const double capacity = links[l].capacity.value(), share = capacity > 0 ? background[l].value() / capacity : 0;
    background[l] = BitsPerSecond(share < kLeastBackground ? 0 : capacity * std::min(0.5, std::exp2(std::round(std::log2(share)))));
  }
  return background;
}

}  // namespace

MultiJobInput BuildMultiJobProblem(const MultiJobView& view, const planner::MultiJobOptions& options) {
  MultiJobInput input;
  input.problem.options = options;
  input.problem.topology = view.fabric->topology();
  for (size_t i = 0; i < input.problem.topology.links().size(); ++i) {
    const LinkId link(static_cast<int32_t>(i));
    input.problem.topology.SetCapacity(link, view.monitor->Available(link));
  }
  std::map<std::string, std::vector<const SendFlow*>> flows;
  for (const auto& [id, flow] : view.table->flows()) {
    if (!flow.stale()) flows[flow.identity.job_id()].push_back(&flow);
  }
  for (const auto& [id, job] : *view.jobs) {
    if (job.state == JobState::kReleased) continue;
    const auto rhythm = view.rhythms->find(id);
    const JobRhythm known = rhythm == view.rhythms->end() ? JobRhythm() : rhythm->second;
    const auto found = view.in_force->find(id);
    const MultiJobInForce force = found == view.in_force->end() ? MultiJobInForce() : found->second;
    const auto kept = view.kept->find(id);
    Modeller modeller(view, id, job, flows[id]);
    JobModel& model = input.models[id];
    model.period_s = known.period_s;
    model.source = modeller.Run(known.period_s, force, kept == view.kept->end() ? nullptr : &kept->second);
    if (model.source == "measured") input.kept[id] = modeller.kept();
    if (model.source == "none") {
      model.missing = modeller.missing();
      continue;
    }
    input.asked[id] = modeller.TakeAsked();
    planner::MultiJobJob made = modeller.Take();
    made.shifted = force.shifted && model.source == "measured";
    made.stable = model.source == "measured" && (made.shifted || IsSteady(known, view.now_s)) &&
                  view.now_s >= force.not_before_s;
    if (!made.stable) made.measured = Seconds(0);
    if (made.shifted) made.measured = Seconds(force.before_s);
    made.present_class = force.traffic_class;
    made.present_shift = Seconds(force.shift_s);
    model.place = input.problem.jobs.size();
    input.problem.jobs.push_back(std::move(made));
  }
  input.problem.background = Background(view, input);
  return input;
}

}  // namespace weft::controller
