#include "planner/flows/periodic.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kRememberedJobs = 12;  // rates of 2^12 sets are remembered at most

/// How late job j first starts in a phase, as a share of its iteration. Between any two jobs the differences of successive
/// phases are multiples of the golden ratio, which fill the circle evenly however many phases there are.
double LateBy(size_t j, int32_t phase) {
  const double turns = 0.6180339887498949 * static_cast<double>(j) * phase;
  return turns - std::floor(turns);
}

enum class Phase : uint8_t { kComputing, kSending, kFinishing };  // before release, sending, computing after sending

}  // namespace

Seconds CommunicationAlone(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  double worst = 0;
  for (const LinkLoad& load : job.loads) {
    if (load.bytes.count() == 0) continue;
    const double rate = capacity[load.link.index()].value();
    worst = std::max(worst, rate > 0 ? static_cast<double>(load.bytes.count()) * 8 / rate : kInfinity);
  }
  return Seconds(worst);
}

Seconds IterationAlone(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  return std::max(job.compute, job.release + CommunicationAlone(capacity, job));
}

/// Where every job stands. `due` is the end of its phase if no rate changes.
struct PeriodicSimulator::State {
  double now = 0;
  std::vector<Phase> phase;
  std::vector<double> began, due, left, rate;      // left: share of this iteration's bytes
  std::vector<double> first, last;                 // ends of iterations after warm-up
  std::vector<int64_t> count, whole;               // iterations between first and last; all
  std::vector<size_t> sending;
  bool changed = true;                             // the set of sending jobs
  int64_t events = 0;
  double warm = 0;
  std::vector<std::vector<double>>* remembered = nullptr;  // per set of sending jobs
};

PeriodicSimulator::PeriodicSimulator(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs,
                                     PeriodicOptions options)
    : options_(options) {
  std::vector<int32_t> users(capacity.size(), 0), dense(capacity.size(), -1);
  for (const PeriodicJob& job : jobs) {
    for (const LinkLoad& load : job.loads) users[load.link.index()] += load.bytes.count() > 0;
  }
  for (const PeriodicJob& job : jobs) {
    WEFT_CHECK(job.release.count() >= 0 && job.release <= job.compute, "a job whose communication starts after compute");
    Job made{job.gpus, job.compute.count(), job.release.count(), job.start.count(),
             CommunicationAlone(capacity, job).count(), 0, 0, {}};
    WEFT_CHECK(made.compute > 0 || made.alone > 0, "a job that neither computes nor sends");
    double largest = 0;
    for (const LinkLoad& load : job.loads) {
      const size_t l = load.link.index();
      const double bits = static_cast<double>(load.bytes.count()) * 8;
      largest = std::max(largest, bits / load.flows);
      if (bits == 0 || users[l] < 2) continue;
      if (dense[l] < 0) {
        dense[l] = static_cast<int32_t>(capacity_.size());
        capacity_.push_back(capacity[l].value());
      }
      made.shared.push_back({static_cast<size_t>(dense[l]), bits});
    }
    made.speed = largest > 0 ? 1 / largest : 0;
    made.period = made.alone < kInfinity ? std::max(made.compute, made.release + made.alone) : 0;
    slowest_ = std::max(slowest_, made.period);
    jobs_.push_back(std::move(made));
  }
}

/// Raises the members' rates together until links or their own pace hold all of them.
void PeriodicSimulator::FillClass(const std::vector<size_t>& members, std::vector<double>* left,
                                  std::vector<double>* rate) const {
  std::vector<size_t> growing = members;
  std::vector<double> demand(capacity_.size());
  while (!growing.empty()) {
    std::fill(demand.begin(), demand.end(), 0.0);
    double level = kInfinity;
    for (const size_t j : growing) {
      for (const Load& load : jobs_[j].shared) demand[load.link] += load.bits * jobs_[j].speed;
      level = std::min(level, 1 / (jobs_[j].alone * jobs_[j].speed));
    }
    for (size_t l = 0; l < demand.size(); ++l) {
      if (demand[l] > 0) level = std::min(level, std::max(0.0, (*left)[l]) / demand[l]);
    }
    const double reached = level * (1 + 1e-12);
    std::vector<size_t> still;
    for (const size_t j : growing) {
      bool held = 1 / (jobs_[j].alone * jobs_[j].speed) <= reached;
      for (const Load& load : jobs_[j].shared) held |= std::max(0.0, (*left)[load.link]) <= reached * demand[load.link];
      if (held) (*rate)[j] = level * jobs_[j].speed;
      else still.push_back(j);
    }
    for (const size_t j : growing) {
      if ((*rate)[j] < 0) continue;
      for (const Load& load : jobs_[j].shared) (*left)[load.link] -= load.bits * (*rate)[j];
    }
    growing = std::move(still);
  }
}

void PeriodicSimulator::Rates(const std::vector<size_t>& sending, std::span<const int32_t> classes,
                              std::vector<double>* rate) const {
  std::vector<double> left = capacity_;
  std::vector<size_t> by_class = sending, members;
  std::stable_sort(by_class.begin(), by_class.end(), [&](size_t a, size_t b) { return classes[a] < classes[b]; });
  for (const size_t j : sending) (*rate)[j] = -1;  // not known yet
  for (size_t i = 0; i < by_class.size();) {
    members.clear();
    const int32_t c = classes[by_class[i]];
    for (; i < by_class.size() && classes[by_class[i]] == c; ++i) {
      if (jobs_[by_class[i]].alone < kInfinity) members.push_back(by_class[i]);
      else (*rate)[by_class[i]] = 0;
    }
    FillClass(members, &left, rate);
  }
}

/// Takes the rates of the present set of sending jobs into use.
void PeriodicSimulator::Refresh(State* state, std::span<const int32_t> classes) const {
  state->changed = false;
  if (state->remembered->empty()) {
    Rates(state->sending, classes, &state->rate);
  } else {
    size_t set = 0;
    for (const size_t j : state->sending) set |= size_t{1} << j;
    std::vector<double>& known = (*state->remembered)[set];
    if (known.empty()) {
      Rates(state->sending, classes, &state->rate);
      known = state->rate;
    }
    state->rate = known;
  }
  for (const size_t j : state->sending) {
    state->due[j] = state->rate[j] > 0 ? state->now + state->left[j] / state->rate[j] : kInfinity;
  }
}

/// Ends the phases that are due now.
void PeriodicSimulator::Step(State* state) const {
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const Job& job = jobs_[j];
    if (state->due[j] > state->now) continue;
    ++state->events;
    if (state->phase[j] == Phase::kComputing && job.alone > 0) {
      state->phase[j] = Phase::kSending;
      state->left[j] = 1;
      state->sending.insert(std::upper_bound(state->sending.begin(), state->sending.end(), j), j);
      state->changed = true;
      continue;
    }
    if (state->phase[j] == Phase::kSending) {
      state->sending.erase(std::find(state->sending.begin(), state->sending.end(), j));
      state->changed = true;
    }
    const double computed = state->began[j] + job.compute;
    if (state->phase[j] != Phase::kFinishing && computed > state->now) {
      state->phase[j] = Phase::kFinishing;
      state->due[j] = computed;
      continue;
    }
    ++state->whole[j];
    if (state->now >= state->warm) {
      if (state->first[j] < 0) state->first[j] = state->now;
      else ++state->count[j];
      state->last[j] = state->now;
    }
    state->phase[j] = Phase::kComputing;
    state->began[j] = state->now;
    state->due[j] = state->now + job.release;
    if (job.release == 0) --j;  // what follows is due at once
  }
}

SteadyState PeriodicSimulator::Measure(const State& state) const {
  SteadyState result{.whole = state.whole, .horizon = Seconds(state.now), .events = state.events};
  double gpus = 0;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    double iteration = kInfinity;
    if (state.count[j] > 0) iteration = (state.last[j] - state.first[j]) / static_cast<double>(state.count[j]);
    else if (state.whole[j] > 0) iteration = state.now / static_cast<double>(state.whole[j]);
    result.iteration.push_back(Seconds(iteration));
    gpus += jobs_[j].gpus;
    if (iteration < kInfinity) result.gpu_use += jobs_[j].gpus * jobs_[j].compute / iteration;
  }
  if (gpus > 0) result.gpu_use /= gpus;
  return result;
}

SteadyState PeriodicSimulator::RunPhase(std::span<const int32_t> classes, int32_t phase,
                                        std::vector<std::vector<double>>* remembered) const {
  const size_t n = jobs_.size();
  State state;
  state.remembered = remembered;
  state.phase.assign(n, Phase::kComputing);
  state.began.resize(n);
  state.due.resize(n);
  state.left.assign(n, 0);
  state.rate.assign(n, 0);
  state.first.assign(n, -1);
  state.last.assign(n, -1);
  state.count.assign(n, 0);
  state.whole.assign(n, 0);
  state.warm = options_.warmup * slowest_;
  const double horizon = state.warm + options_.measured * slowest_;
  for (size_t j = 0; j < n; ++j) {
    state.began[j] = jobs_[j].start + LateBy(j, phase) * jobs_[j].period;
    state.due[j] = state.began[j] + jobs_[j].release;
  }
  for (;;) {
    if (state.changed) Refresh(&state, classes);
    double next = horizon;
    for (size_t j = 0; j < n; ++j) next = std::min(next, state.due[j]);
    if (next > state.now) {
      for (const size_t j : state.sending) state.left[j] -= state.rate[j] * (next - state.now);
      state.now = next;
    }
    if (next >= horizon) break;
    Step(&state);
  }
  return Measure(state);
}

SteadyState PeriodicSimulator::Run(std::span<const int32_t> classes) const {
  WEFT_CHECK(classes.size() == jobs_.size(), "not one class per job");
  std::vector<std::vector<double>> remembered;
  if (jobs_.size() <= kRememberedJobs) remembered.resize(size_t{1} << jobs_.size());
  SteadyState mean = RunPhase(classes, 0, &remembered);
  if (options_.phases <= 1) return mean;
  std::vector<double> speed;
  for (const Seconds iteration : mean.iteration) speed.push_back(1 / iteration.count());
  for (int32_t phase = 1; phase < options_.phases; ++phase) {
    const SteadyState state = RunPhase(classes, phase, &remembered);
    mean.gpu_use += state.gpu_use;
    mean.horizon += state.horizon;
    mean.events += state.events;
    for (size_t j = 0; j < speed.size(); ++j) {
      speed[j] += 1 / state.iteration[j].count();
      mean.whole[j] += state.whole[j];
    }
  }
  mean.gpu_use /= options_.phases;
  for (size_t j = 0; j < speed.size(); ++j) mean.iteration[j] = Seconds(options_.phases / speed[j]);
  return mean;
}

}  // namespace weft::planner
