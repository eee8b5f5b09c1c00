#include "controller/job_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/parse_units.h"
#include "controller/job_strategy.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

constexpr size_t kMostHoldersNamed = 4;
constexpr double kWorthMoreHosts = 0.02;    // of an iteration: less is within what predictions err by

Error Refused(const v1::JobSpec& spec, const std::string& why, Code code = Code::kInvalidArgument) {
  return {code, fmt::format("job \"{}\": {}", spec.job_id(), why)};
}

Status CheckNumbers(const v1::JobSpec& spec) {
  if (spec.max_gpus() > 0 && spec.min_gpus() > spec.max_gpus()) {
    return Fail(Refused(spec, fmt::format("min_gpus: {}, expected at most max_gpus, {}", spec.min_gpus(), spec.max_gpus())));
  }
  if (spec.hosts_size() > 0 || spec.gpus() > 0) {
    return Fail(Refused(spec, fmt::format("{} beside min_gpus or max_gpus, expected one of them", spec.hosts_size() > 0 ? "hosts" : "gpus")));
  }
  if (spec.model_config_json().empty()) {
    return Fail(Refused(spec, "min_gpus or max_gpus without a model: how long it runs on how many cannot be told"));
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

int64_t RanksPerHost(const v1::JobSpec& spec) { return std::max<int64_t>(spec.ranks_per_host(), 1); }

v1::JobSpec On(const v1::JobSpec& spec, const std::vector<std::string>& hosts) {
  v1::JobSpec on = spec;
  on.clear_min_gpus();
  on.clear_max_gpus();
  on.mutable_hosts()->Assign(hosts.begin(), hosts.end());
  on.set_gpus(static_cast<int64_t>(hosts.size()) * RanksPerHost(spec));
  return on;
}

/// GPUs of a strategy that the user gave; 0: none, or one that pricing will refuse with what is wrong.
int64_t GivenGpus(const v1::JobSpec& spec) {
  if (!spec.has_given_strategy()) return 0;
  const Result<planner::Strategy> strategy = proto::StrategyFromProto(spec.given_strategy());
  return strategy ? planner::GpuCount(*strategy) : 0;
}

/// Numbers that a job is likely to divide by: their GPUs divide the batch, or are a power of two, or the user's strategy has as many.
std::vector<int32_t> LikelySizes(const v1::JobSpec& spec, int64_t least, int64_t most, int64_t each) {
  const int64_t given = GivenGpus(spec);
  std::vector<int32_t> likely;
  for (int64_t hosts = least; hosts <= most; ++hosts) {
    const int64_t gpus = hosts * each;
    const bool divides = spec.global_batch() > 0 && spec.global_batch() % gpus == 0;
    const bool power = (gpus & (gpus - 1)) == 0;
    if (given > 0 ? gpus == given : divides || power) likely.push_back(static_cast<int32_t>(hosts));
  }
  return likely;
}

/// At most kMostSizes, in the order in which they are tried: the largest that can begin now, the largest, the smallest, and what lies
/// evenly between these on a scale of powers.
std::vector<int32_t> SizesOf(const v1::JobSpec& spec, int64_t least, int64_t most, int32_t free) {
  const int64_t each = RanksPerHost(spec);
  const std::vector<int32_t> likely = LikelySizes(spec, least, most, each);
  std::vector<int32_t> sizes;
  const auto add = [&](int64_t size) {
    const auto number = static_cast<int32_t>(size);
    if (sizes.size() < kMostSizes && std::ranges::find(sizes, number) == sizes.end()) sizes.push_back(number);
  };
  if (likely.empty()) {
    if (free >= least) add(std::min<int64_t>(free, most));
    add(most);
    add(least);
    return sizes;
  }
  const auto above = std::ranges::upper_bound(likely, free);
  if (above != likely.begin()) add(*std::prev(above));
  add(likely.back());
  add(likely.front());
  for (size_t part = 1; part < kMostSizes && likely.size() > 1; ++part) {
    const double share = static_cast<double>(part) / kMostSizes;
    const double wanted = std::pow(static_cast<double>(likely.front()), 1 - share) * std::pow(static_cast<double>(likely.back()), share);
    add(*std::ranges::min_element(likely, {}, [&](int32_t size) { return std::abs(std::log(size / wanted)); }));
  }
  return sizes;
}

/// A number of hosts that the job was planned for.
struct Size {
  int32_t hosts = 0;
  PlannedJob planned;

  Seconds iteration() const { return Seconds(planned.plan.predicted().iteration_s()); }
};

struct Tried {
  std::vector<Size> sizes;                  ///< that take the job, ascending
  std::vector<int32_t> numbers;             ///< all that were tried
  std::string refused;                      ///< why the last of the others did not
  bool complete = true;
};

/// The job on these hosts, or what stands in the way.
Result<Size> PlanOn(const v1::JobSpec& spec, const std::vector<std::string>& hosts, const PlacementView& view,
                    const JobPlannerOptions& options, const std::stop_token& stop) {
  Size size{.hosts = static_cast<int32_t>(hosts.size()), .planned = {}};
  size.planned.spec = On(spec, hosts);
  size.planned.order = OrderHosts(hosts, view);
  WEFT_RETURN_IF_ERROR(DecideStrategy(size.planned.spec, view, options, stop, size.planned));
  if (size.iteration().count() > 0) return size;
  return Fail(Code::kFailedPrecondition, size.planned.errors.empty() ? "it has no plan" : size.planned.errors.front());
}

Tried Try(const v1::JobSpec& spec, const Places& places, const std::vector<int32_t>& sizes, const PlacementView& view,
          const JobPlannerOptions& options, const std::stop_token& stop) {
  Tried tried;
  for (const int32_t hosts : sizes) {
    if (stop.stop_requested()) break;
    const std::vector<std::vector<std::string>> sets = places.Sets(hosts, 1);
    if (sets.empty()) continue;
    tried.numbers.push_back(hosts);
    Result<Size> size = PlanOn(spec, sets.front(), view, options, stop);
    if (size) tried.sizes.push_back(std::move(*size));
    else tried.refused = fmt::format("{} hosts: {}", hosts, size.error().message());
  }
  tried.complete = !stop.stop_requested();
  std::ranges::sort(tried.sizes, {}, &Size::hosts);
  return tried;
}

Seconds RuntimeOf(const v1::JobSpec& spec, const Size& size) {
  return size.iteration() * static_cast<double>(std::max<int64_t>(spec.iterations(), 1));
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
  for (const Size& size : sizes) job.sizes.push_back({size.hosts, RuntimeOf(spec, size)});
  state.waiting.push_back(std::move(job));
  return state;
}

/// The smallest number of hosts that is hardly slower than `chosen`, and late only if that is. Requires: ascending.
const Size& Smallest(const v1::JobSpec& spec, const std::vector<Size>& sizes, const Size& chosen) {
  const Seconds runtime = RuntimeOf(spec, chosen);
  const auto late = [&](Seconds time) { return spec.deadline_s() > 0 && time.count() > spec.deadline_s(); };
  for (const Size& size : sizes) {
    const Seconds time = RuntimeOf(spec, size);
    if (size.hosts < chosen.hosts && time.count() <= runtime.count() * (1 + kWorthMoreHosts) && (!late(time) || late(runtime))) return size;
  }
  return chosen;
}

/// How many hosts are free, who has the others, and what could be done.
std::string TooFew(const v1::JobSpec& spec, const Places& places, int32_t wanted, Seconds begin, const PlacementView& view) {
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
  if (std::isfinite(begin.count()) && begin.count() > 0) {
    text += fmt::format("; {} hosts are free in about {}: submit it again then", wanted, FormatDuration(begin));
  } else {
    text += named.empty() ? "; start agents on more hosts" : "; when those end is not known: submit it again later, or release jobs that have ended";
  }
  const int64_t each = RanksPerHost(spec);
  if (places.Free() > 0 && places.Free() * each >= spec.min_gpus()) {
    return text + fmt::format(", or set max_gpus to {} for it to begin at once", places.Free() * each);
  }
  return text + (places.Free() > 0 ? ", or lower min_gpus" : "");
}

/// The number of hosts, of their sets the fastest.
Size BestSet(const v1::JobSpec& spec, Size size, const Places& places, const PlacementView& view, const JobPlannerOptions& options,
             const std::stop_token& stop) {
  const std::set<std::string> first(size.planned.order.begin(), size.planned.order.end());
  for (const std::vector<std::string>& set : places.Sets(size.hosts, planner::kMostPlacements)) {
    if (stop.stop_requested()) break;
    if (std::set<std::string>(set.begin(), set.end()) == first) continue;
    Result<Size> other = PlanOn(spec, set, view, options, stop);
    if (other && other->iteration().count() < size.iteration().count() * (1 - kWorthMoreHosts)) size = std::move(*other);
  }
  return size;
}

std::vector<std::string> ReasonsFor(const v1::JobSpec& spec, const Tried& tried, const Size& size, const Places& places) {
  std::vector<std::string> others, why;
  for (const Size& other : tried.sizes) {
    if (other.hosts != size.hosts) others.push_back(fmt::format("{} hosts: {}", other.hosts, FormatDuration(other.iteration())));
  }
  why.push_back(fmt::format("hosts: {} of {} that no job has, {} per iteration{}", size.hosts, places.Free(), FormatDuration(size.iteration()),
                            others.empty() ? "" : fmt::format(" ({})", fmt::join(others, ", "))));
  if (!tried.complete) why.emplace_back("hosts: time was up before all numbers and sets of hosts were planned");
  if (spec.iterations() == 0) return why;
  const Seconds runtime = RuntimeOf(spec, size);
  std::string text = fmt::format("hosts: started now, the job ends after {}", FormatDuration(runtime));
  if (spec.deadline_s() > 0) {
    const double spare = spec.deadline_s() - runtime.count();
    text += spare >= 0 ? fmt::format(", {} before its deadline", FormatDuration(Seconds(spare)))
                       : fmt::format(", {} AFTER its deadline: no number of hosts that was planned ends in time", FormatDuration(Seconds(-spare)));
  }
  why.push_back(std::move(text));
  return why;
}

}  // namespace

bool AsksForHosts(const v1::JobSpec& spec) { return spec.min_gpus() != 0 || spec.max_gpus() != 0; }

Result<PlannedJob> GiveHosts(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options, const std::stop_token& stop) {
  WEFT_RETURN_IF_ERROR(CheckNumbers(spec));
  const Places places(view);
  const int64_t each = RanksPerHost(spec);
  const int64_t there = std::min({static_cast<int64_t>(places.names.size()), kMostJobHosts, kMostJobRanks / each});
  const int64_t least = std::max<int64_t>(1, (spec.min_gpus() + each - 1) / each);
  const int64_t most = spec.max_gpus() > 0 ? std::min(there, spec.max_gpus() / each) : there;
  if (spec.max_gpus() > 0 && spec.max_gpus() / each < least) {
    return Fail(Refused(spec, fmt::format("min_gpus {}, max_gpus {}: no number of whole hosts with {} GPUs lies between", spec.min_gpus(),
                                          spec.max_gpus(), each)));
  }
  if (most < least) {
    return Fail(Refused(spec, fmt::format("min_gpus: {} hosts, and {} have an agent", least, there), Code::kFailedPrecondition));
  }
  const Tried tried = Try(spec, places, SizesOf(spec, least, most, places.Free()), view, options, stop);
  if (tried.sizes.empty()) {
    return Fail(Refused(spec, tried.numbers.empty() ? std::string("time was up before a number of hosts was planned")
                                                    : fmt::format("none of the numbers of hosts that were tried ({}) takes it: {}",
                                                                  fmt::join(tried.numbers, ", "), tried.refused), Code::kFailedPrecondition));
  }
  const planner::PlannedStart start = planner::PlanStarts(StateOf(spec, places, tried.sizes, view)).starts.front();
  const Size& chosen = Smallest(spec, tried.sizes, tried.sizes[start.size]);
  if (chosen.hosts > places.Free()) {
    return Fail(Refused(spec, TooFew(spec, places, chosen.hosts, start.begin, view), Code::kFailedPrecondition));
  }
  Size size = BestSet(spec, chosen, places, view, options, stop);
  std::vector<std::string> why = ReasonsFor(spec, tried, size, places);
  for (const std::string& reason : size.planned.plan.why()) why.push_back(reason);
  size.planned.plan.mutable_why()->Assign(why.begin(), why.end());
  return std::move(size.planned);
}

}  // namespace weft::controller
