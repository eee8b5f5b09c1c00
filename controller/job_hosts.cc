#include "controller/job_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "common/parse_units.h"
#include "controller/job_strategy.h"

namespace weft::controller {
namespace {

constexpr int64_t kMostIterations = int64_t{1} << 40;
constexpr double kLongestDeadline = 1e9;    // seconds
constexpr size_t kMostHoldersNamed = 4;
constexpr double kWorthMoreHosts = 0.02;    // of an iteration: less is within what predictions err by

Error Refused(const v1::JobSpec& spec, const std::string& why, Code code = Code::kInvalidArgument) {
  return {code, fmt::format("job \"{}\": {}", spec.job_id(), why)};
}

Status CheckNumbers(const v1::JobSpec& spec) {
  const std::pair<const char*, int64_t> numbers[] = {
      {"min_gpus", spec.min_gpus()}, {"max_gpus", spec.max_gpus()}, {"iterations", spec.iterations()}};
  for (const auto& [name, value] : numbers) {
    if (value >= 0 && value <= kMostIterations) continue;
    return Fail(Refused(spec, fmt::format("{}: {}, expected 0 to {}", name, value, kMostIterations)));
  }
  if (!(spec.deadline_s() >= 0) || spec.deadline_s() > kLongestDeadline) {
    return Fail(Refused(spec, fmt::format("deadline_s: {}, expected 0 to {:.0f}", spec.deadline_s(), kLongestDeadline)));
  }
  if (spec.max_gpus() > 0 && spec.min_gpus() > spec.max_gpus()) {
    return Fail(Refused(spec, fmt::format("min_gpus: {}, expected at most max_gpus, {}", spec.min_gpus(), spec.max_gpus())));
  }
  if (spec.hosts_size() > 0 || spec.gpus() > 0) {
    return Fail(Refused(spec, fmt::format("{} beside min_gpus or max_gpus, expected one of them", spec.hosts_size() > 0 ? "hosts" : "gpus")));
  }
  if (spec.model_config_json().empty()) {
    return Fail(Refused(spec, "min_gpus or max_gpus without a model: how long it runs on how many cannot be told"));
  }
  if (spec.deadline_s() > 0 && spec.iterations() == 0) {
    return Fail(Refused(spec, "deadline_s without iterations: when it ends cannot be told, expected both"));
  }
  return Ok();
}

/// Hosts with an agent, and which of them no job has.
struct Places {
  std::vector<std::string> names;
  std::vector<bool> free;
  planner::PlaceMap map;

  explicit Places(const PlacementView& view)
      : names(view.connected.begin(), view.connected.end()), map(view.topology, Senders(names, view.topology)) {
    for (const std::string& name : names) free.push_back(!view.used.contains(name));
  }

  int32_t Free() const { return static_cast<int32_t>(std::count(free.begin(), free.end(), true)); }

  /// At most `most` sets of hosts, free ones where there are enough of these.
  std::vector<std::vector<std::string>> Sets(int32_t hosts, size_t most) const {
    const std::vector<bool> all(names.size(), true);
    std::vector<std::vector<std::string>> sets;
    for (const std::vector<size_t>& set : map.Sets(hosts <= Free() ? free : all, hosts, most)) {
      std::vector<std::string>& named = sets.emplace_back();
      for (const size_t p : set) named.push_back(names[p]);
    }
    return sets;
  }

 private:
  /// A host that no probe has shown yet is under no switch.
  static std::vector<std::vector<NodeId>> Senders(const std::vector<std::string>& names, const planner::Topology& topology) {
    std::vector<std::vector<NodeId>> senders;
    for (const std::string& name : names) {
      const auto node = topology.FindNode(name);
      senders.push_back(node ? std::vector<NodeId>{*node} : std::vector<NodeId>{});
    }
    return senders;
  }
};

v1::JobSpec On(const v1::JobSpec& spec, const std::vector<std::string>& hosts) {
  v1::JobSpec on = spec;
  on.clear_min_gpus();
  on.clear_max_gpus();
  on.mutable_hosts()->Assign(hosts.begin(), hosts.end());
  on.set_gpus(static_cast<int64_t>(hosts.size()) * std::max<int64_t>(spec.ranks_per_host(), 1));
  return on;
}

/// The smallest and the largest, those that are a power of two, and as many as are free, which is what begins now.
std::vector<int32_t> SizesOf(int32_t least, int32_t most, int32_t free) {
  std::set<int32_t> sizes{least, most};
  if (free >= least) sizes.insert(std::min(most, free));
  // The larger powers: they are apart from each other by more of a job's time.
  for (int32_t power = int32_t{1} << 30; power > least && sizes.size() < kMostSizes; power /= 2) {
    if (power < most) sizes.insert(power);
  }
  for (int32_t size = least; size < most && sizes.size() < kMostSizes; ++size) sizes.insert(size);
  return {sizes.begin(), sizes.end()};
}

/// A number of hosts that the job was planned for.
struct Size {
  int32_t hosts = 0;
  std::vector<std::string> names;
  Seconds iteration{0};
};

struct Tried {
  std::vector<Size> sizes;                  ///< that take the job
  std::optional<std::string> refused;       ///< why one did not
  bool complete = true;
};

/// Time per iteration on these hosts, or what stands in the way.
Result<Seconds> IterationOn(const v1::JobSpec& spec, const std::vector<std::string>& hosts, const PlacementView& view,
                            const JobPlannerOptions& options, const std::stop_token& stop) {
  const v1::JobSpec on = On(spec, hosts);
  PlannedJob planned{.plan = {}, .spec = on, .order = OrderHosts(hosts, view), .errors = {}};
  WEFT_RETURN_IF_ERROR(DecideStrategy(on, view, options, stop, planned));
  if (planned.plan.predicted().iteration_s() > 0) return Seconds(planned.plan.predicted().iteration_s());
  return Fail(Code::kFailedPrecondition, planned.errors.empty() ? "it has no plan" : planned.errors.front());
}

Tried Try(const v1::JobSpec& spec, const Places& places, const std::vector<int32_t>& sizes, const PlacementView& view,
          const JobPlannerOptions& options, const std::stop_token& stop) {
  Tried tried;
  for (const int32_t hosts : sizes) {
    if (stop.stop_requested()) {
      tried.complete = false;
      break;
    }
    const std::vector<std::vector<std::string>> sets = places.Sets(hosts, 1);
    if (sets.empty()) continue;
    if (const Result<Seconds> iteration = IterationOn(spec, sets.front(), view, options, stop); iteration) {
      tried.sizes.push_back({hosts, sets.front(), *iteration});
    } else {
      tried.refused = fmt::format("{} hosts: {}", hosts, iteration.error().message());
    }
  }
  return tried;
}

/// The question of which of the sizes begins when, this job alone: those that wait elsewhere are not the controller's.
planner::StartState StateOf(const v1::JobSpec& spec, const Places& places, const std::vector<Size>& sizes, const PlacementView& view) {
  planner::StartState state{.hosts = static_cast<int32_t>(places.names.size()), .free = places.Free()};
  state.load = 1 - static_cast<double>(state.free) / state.hosts;
  for (const auto& [host, use] : view.used) {
    if (use.left && view.connected.contains(host)) state.freed.push_back({*use.left, 1});
  }
  planner::WaitingJob job;
  if (spec.deadline_s() > 0) job.deadline = Seconds(spec.deadline_s());
  const auto iterations = static_cast<double>(std::max<int64_t>(spec.iterations(), 1));
  double fastest = std::numeric_limits<double>::infinity();
  for (const Size& size : sizes) {
    // Sorted by hosts: what takes more of them and hardly less time is no choice.
    const bool faster = size.iteration.count() < fastest * (1 - kWorthMoreHosts);
    fastest = std::min(fastest, size.iteration.count());
    job.sizes.push_back({size.hosts, size.iteration * iterations * (faster ? 1 : 1 + kWorthMoreHosts)});
  }
  state.waiting.push_back(std::move(job));
  return state;
}

/// "1 of 4 hosts are free, the others have: a (h2), b (h3, h4)", and what could be done.
std::string TooFew(const v1::JobSpec& spec, const Places& places, int32_t wanted, const planner::PlannedStart& start, const PlacementView& view) {
  std::set<std::string> holders;
  for (const std::string& name : places.names) {
    if (const auto use = view.used.find(name); use != view.used.end()) holders.insert(use->second.job);
  }
  std::vector<std::string> named(holders.begin(), holders.end());
  const size_t more = named.size() - std::min(named.size(), kMostHoldersNamed);
  named.resize(named.size() - more);
  std::string text = fmt::format("{} of {} hosts with an agent are free, the job takes {}", places.Free(), places.names.size(), wanted);
  if (!named.empty()) {
    text += fmt::format("; the others have: {}{}", fmt::join(named, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  }
  if (std::isfinite(start.begin.count())) {
    return text + fmt::format("; {} hosts are free in about {}: submit it again then", wanted, FormatDuration(start.begin));
  }
  return text + (named.empty() ? std::string("; start agents on more hosts")
                               : std::string("; when those end is not known: submit it again later, or weft release JOB one that has ended")) +
         (spec.min_gpus() > 1 ? ", or lower min_gpus" : "");
}

/// The number of hosts, of their sets the fastest.
Size BestSet(const v1::JobSpec& spec, Size size, const Places& places, const PlacementView& view, const JobPlannerOptions& options,
             const std::stop_token& stop) {
  for (const std::vector<std::string>& set : places.Sets(size.hosts, planner::kMostPlacements)) {
    if (set == size.names || stop.stop_requested()) continue;
    const Result<Seconds> iteration = IterationOn(spec, set, view, options, stop);
    if (iteration && iteration->count() < size.iteration.count() * (1 - kWorthMoreHosts)) size = {size.hosts, set, *iteration};
  }
  return size;
}

void SayWhy(const v1::JobSpec& spec, const Tried& tried, const Size& size, const Places& places, std::vector<std::string>& why) {
  std::vector<std::string> others;
  for (const Size& other : tried.sizes) {
    if (other.hosts != size.hosts) others.push_back(fmt::format("{} hosts: {}", other.hosts, FormatDuration(other.iteration)));
  }
  why.push_back(fmt::format("hosts: {} of {} that no job has, {} per iteration{}", size.hosts, places.Free(), FormatDuration(size.iteration),
                            others.empty() ? "" : fmt::format(" ({})", fmt::join(others, ", "))));
  if (!tried.complete) why.emplace_back("hosts: time was up before other numbers were planned");
  if (spec.iterations() == 0) return;
  const Seconds runtime = size.iteration * static_cast<double>(spec.iterations());
  std::string text = fmt::format("hosts: begun now it ends after {}", FormatDuration(runtime));
  if (spec.deadline_s() > 0) {
    const double spare = spec.deadline_s() - runtime.count();
    text += spare >= 0 ? fmt::format(", {} before its deadline", FormatDuration(Seconds(spare)))
                       : fmt::format(", {} AFTER its deadline: no number of the hosts that are free is fast enough", FormatDuration(Seconds(-spare)));
  }
  why.push_back(std::move(text));
}

}  // namespace

bool AsksForHosts(const v1::JobSpec& spec) { return spec.min_gpus() != 0 || spec.max_gpus() != 0; }

Result<GivenHosts> GiveHosts(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options, const std::stop_token& stop) {
  WEFT_RETURN_IF_ERROR(CheckNumbers(spec));
  const Places places(view);
  const auto each = std::max<int64_t>(spec.ranks_per_host(), 1);
  const auto there = static_cast<int64_t>(places.names.size());
  const int64_t least = std::max<int64_t>(1, (spec.min_gpus() + each - 1) / each);
  const int64_t most = spec.max_gpus() > 0 ? std::min(there, spec.max_gpus() / each) : there;
  if (spec.max_gpus() > 0 && spec.max_gpus() / each < least) {
    return Fail(Refused(spec, fmt::format("min_gpus {}, max_gpus {}: no number of whole hosts with {} GPUs lies between", spec.min_gpus(),
                                          spec.max_gpus(), each)));
  }
  if (most < least) {
    return Fail(Refused(spec, fmt::format("min_gpus: {} hosts, and {} have an agent", least, there), Code::kFailedPrecondition));
  }
  const Tried tried = Try(spec, places, SizesOf(static_cast<int32_t>(least), static_cast<int32_t>(most), places.Free()), view, options, stop);
  if (tried.sizes.empty()) {
    return Fail(Refused(spec, fmt::format("no number of hosts from {} to {} takes it: {}", least, most,
                                          tried.refused.value_or("time was up before one was planned")), Code::kFailedPrecondition));
  }
  const planner::PlannedStart start = planner::PlanStarts(StateOf(spec, places, tried.sizes, view)).starts.front();
  const Size& wanted = tried.sizes[start.size];
  if (start.begin.count() > 0) {
    return Fail(Refused(spec, TooFew(spec, places, wanted.hosts, start, view), Code::kFailedPrecondition));
  }
  const Size size = BestSet(spec, wanted, places, view, options, stop);
  GivenHosts given{.spec = On(spec, size.names), .why = {}};
  SayWhy(spec, tried, size, places, given.why);
  return given;
}

}  // namespace weft::controller
