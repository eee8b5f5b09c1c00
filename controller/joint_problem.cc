#include "controller/joint_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "controller/flow_planner.h"

namespace weft::controller {
namespace {

constexpr double kShortestIteration = 1e-4;  // seconds: below it a period is noise
constexpr double kLongestIteration = 1e5;
constexpr double kSteadyPeriods = 8;
constexpr double kSteadySeconds = 5;
constexpr int64_t kMostBytes = int64_t{1} << 50;  // of one flow and iteration
constexpr int64_t kMostGpus = 1 << 20;

bool Plausible(double iteration_s) { return iteration_s >= kShortestIteration && iteration_s <= kLongestIteration; }

double Median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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
  Modeller(const JointView& view, const std::string& id, const Job& job, std::vector<const SendFlow*> flows)
      : view_(view), job_(job), flows_(std::move(flows)) {
    made_.name = id;
    made_.gpus = GpusOf(job, flows_);
  }

  /// "measured", "plan" or "none".
  std::string Run(double period_s, const JointInForce& force) {
    if (!TakeFlows()) return "none";
    if (Measure(period_s)) {
      if (force.shifted && force.release_s > 0) {
        made_.release = std::min(made_.release, Seconds(force.release_s));
        made_.compute = std::clamp(Seconds(force.compute_s), made_.release, std::max(made_.compute, made_.release));
      }
      return "measured";
    }
    if (TakePlan()) return "plan";
    return "none";
  }
  planner::JointJob Take() { return std::move(made_); }
  const std::string& missing() const { return missing_; }

 private:
  bool Miss(std::string what) {
    missing_ = std::move(what);
    return false;
  }

  /// Where the flows go and could go. A flow whose path no probe has shown (yet) is left out: what is then said of the job
  /// errs towards less traffic, and its bound stays one.
  bool TakeFlows() {
    if (flows_.empty()) return Miss("it has no flows yet");
    const auto& topology = view_.fabric->topology();
    const auto node = [&](const std::string* host) { return host == nullptr ? std::nullopt : topology.FindNode(*host); };
    std::erase_if(flows_, [&](const SendFlow* flow) {
      return !node(&flow->host) || !node(view_.fabric->HostOf(flow->identity.peer_address())) || CandidatesOf(*flow).empty();
    });
    if (flows_.empty()) return Miss("the paths of its flows are not known yet");
    for (const SendFlow* flow : flows_) {
      const std::vector<Candidate> candidates = CandidatesOf(*flow);
      const auto from_node = node(&flow->host);
      const auto to_node = node(view_.fabric->HostOf(flow->identity.peer_address()));
      planner::JointFlow made{.from = *from_node, .to = *to_node, .bytes = Bytes(0), .paths = {}, .shares = {}};
      double known = 0;
      for (const Candidate& candidate : candidates) known += candidate.present;
      for (const Candidate& candidate : candidates) {
        made.paths.push_back({candidate.links});
        made.shares.push_back(known > 0.5 ? candidate.present / known : 0);
      }
      if (known <= 0.5) made.shares.front() = 1;
      made_.flows.push_back(std::move(made));
    }
    return true;
  }

  bool Measure(double period_s) {
    if (!Plausible(period_s)) return Miss("no iteration period was found in its traffic");
    double busy = 0;
    for (size_t i = 0; i < flows_.size(); ++i) {
      const FlowMeter& meter = flows_[i]->meter;
      if (!meter.known) return Miss("its traffic was not measured for eight periods yet");
      busy = std::max(busy, meter.busy);
      made_.flows[i].bytes = Bytes(std::clamp<int64_t>(std::llround(meter.bytes_per_s * period_s), 0, kMostBytes));
    }
    const double planned = PlannedCompute();
    made_.release = Seconds(period_s * (1 - std::clamp(busy, 0.0, 1.0)));
    made_.compute = Seconds(std::max(made_.release.count(), std::min(planned, period_s)));
    return true;
  }

  /// Compute per iteration as planned or timed, 0 if unknown.
  double PlannedCompute() const {
    const double timed = job_.spec.measured_compute_s();
    if (Plausible(timed)) return timed;
    const v1::Prediction& predicted = job_.plan.predicted();
    const double compute = predicted.iteration_s() - predicted.exposed_communication_s();
    return Plausible(compute) ? compute : 0;
  }

  /// A ring all-reduce of the planned gradients, spread over the flows of each sender.
  bool TakePlan() {
    const v1::Prediction& predicted = job_.plan.predicted();
    const double compute = PlannedCompute();
    const auto ranks = static_cast<double>(job_.plan.strategy().dp());
    const auto gradients = static_cast<double>(predicted.gradient_bytes());
    if (compute <= 0 || ranks < 2 || gradients <= 0 || gradients > 1e15) return Miss(missing_ + ", and no plan says what it sends");
    std::map<std::pair<std::string, int32_t>, int> siblings;
    for (const SendFlow* flow : flows_) ++siblings[{flow->host, flow->identity.rank()}];
    std::map<LinkId, double> bytes_on;
    for (size_t i = 0; i < flows_.size(); ++i) {
      const double share = siblings[{flows_[i]->host, flows_[i]->identity.rank()}];
      const double bytes = 2 * (ranks - 1) / ranks * gradients / share;
      made_.flows[i].bytes = Bytes(static_cast<int64_t>(bytes));
      for (size_t p = 0; p < made_.flows[i].paths.size(); ++p) {
        for (const LinkId link : made_.flows[i].paths[p].links) bytes_on[link] += bytes * made_.flows[i].shares[p];
      }
    }
    double alone = 0;
    for (const auto& [link, bytes] : bytes_on) {
      alone = std::max(alone, bytes / std::max(1.0, view_.monitor->Available(link).bytes_per_second()));
    }
    made_.compute = Seconds(compute);
    // So that it is alone as fast as planned: what the plan hides behind compute is hidden here too.
    made_.release = Seconds(std::clamp(predicted.iteration_s() - alone, 0.0, compute));
    return true;
  }

  const JointView& view_;
  const Job& job_;
  std::vector<const SendFlow*> flows_;
  planner::JointJob made_;
  std::string missing_;
};

}  // namespace

std::map<std::string, double> MeasuredPeriods(const FlowTable& table) {
  std::map<std::string, std::vector<double>> periods;
  for (const auto& [id, flow] : table.flows()) {
    if (!flow.stale() && flow.period_s > 0) periods[flow.identity.job_id()].push_back(flow.period_s);
  }
  std::map<std::string, double> medians;
  for (auto& [job, values] : periods) medians[job] = Median(values);
  return medians;
}

void Follow(JobRhythm& rhythm, double measured_s, double drift, double now_s) {
  if (!Plausible(measured_s)) {
    rhythm = JobRhythm();
    return;
  }
  if (rhythm.period_s <= 0 || std::abs(measured_s - rhythm.period_s) > 0.5 * rhythm.period_s) {
    rhythm = {measured_s, now_s};  // another job than before
    return;
  }
  if (std::abs(measured_s - rhythm.period_s) > drift * rhythm.period_s) rhythm.steady_since_s = now_s;
  rhythm.period_s += (measured_s - rhythm.period_s) * std::min(1.0, 1 / (kSteadyPeriods * measured_s));
}

bool IsSteady(const JobRhythm& rhythm, double now_s) {
  return rhythm.period_s > 0 &&
         now_s - rhythm.steady_since_s >= std::max(kSteadySeconds, kSteadyPeriods * rhythm.period_s);
}

JointInput BuildJointProblem(const JointView& view, const planner::JointOptions& options) {
  JointInput input;
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
    const JointInForce force = found == view.in_force->end() ? JointInForce() : found->second;
    Modeller modeller(view, id, job, flows[id]);
    JobModel& model = input.models[id];
    model.period_s = known.period_s;
    model.source = modeller.Run(known.period_s, force);
    if (model.source == "none") {
      model.missing = modeller.missing();
      continue;
    }
    planner::JointJob made = modeller.Take();
    made.shifted = force.shifted && model.source == "measured";
    made.stable = model.source == "measured" && (made.shifted || IsSteady(known, view.now_s));
    made.present_class = force.traffic_class;
    made.present_shift = Seconds(force.shift_s);
    model.place = input.problem.jobs.size();
    input.problem.jobs.push_back(std::move(made));
  }
  return input;
}

}  // namespace weft::controller
