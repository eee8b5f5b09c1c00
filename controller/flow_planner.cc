#include "controller/flow_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <numeric>
#include <set>

namespace weft::controller {
namespace {

constexpr double kSound = 0.9;  // of what all are planned with, that an owner's own estimate leaves

/// Where the flow's bytes go by port: by the weights that were given, or as the plugin reports while none were.
std::map<int32_t, double> PresentByPort(const SendFlow& flow, const std::map<int32_t, int32_t>& given) {
  std::map<int32_t, double> shares;
  double sum = 0;
  if (!given.empty() && !flow.unapplied) {
    for (const auto& [port, weight] : given) {
      const auto lane = flow.lanes.find(port);
      if (lane != flow.lanes.end() && lane->second.failed) continue;  // the plugin has left it already
      sum += shares[port] = weight;
    }
  } else {
    for (const auto& [port, lane] : flow.lanes) {
      if (lane.active) sum += shares[port] = lane.weight;
    }
  }
  if (sum <= 0) return {};
  for (auto& [port, share] : shares) share /= sum;
  return shares;
}

/// How well a port stands for its path; larger is better.
int PortRank(const SendFlow& flow, int32_t port, const std::map<int32_t, double>& present) {
  const auto share = present.find(port);
  if (share != present.end() && share->second > 0) return 3;
  if (flow.decided.contains(port)) return 2;
  const auto lane = flow.lanes.find(port);
  return lane != flow.lanes.end() && lane->second.active ? 1 : 0;
}

/// Ways of lanes that go unanswered, by whatever port. None where no other is known: the fault may be the other host's.
std::set<std::vector<std::string>> SilentWays(const SendFlow& flow) {
  if (std::ranges::none_of(flow.lanes, [](const auto& entry) { return entry.second.silent; })) return {};
  std::set<std::vector<std::string>> all, silent;
  for (const auto& [port, path] : flow.probed) {
    if (path.links.empty()) continue;
    all.insert(path.hops);
    if (const auto lane = flow.lanes.find(port); lane != flow.lanes.end() && lane->second.silent) silent.insert(path.hops);
  }
  return all.size() > silent.size() ? silent : std::set<std::vector<std::string>>();
}

std::string Describe(const std::vector<Candidate>& candidates, const std::vector<double>& shares) {
  std::string text;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (shares[i] <= 0) continue;
    if (!text.empty()) text += " + ";
    const std::string way =
        candidates[i].hops.empty() ? "the cable" : fmt::format("{}", fmt::join(candidates[i].hops, ","));
    text += fmt::format("{:.0f} % over {}", 100 * shares[i], way);
  }
  return text.empty() ? "a path not known" : text;
}

double LineRateOf(const FabricView& fabric, const std::vector<Candidate>& candidates) {
  double rate = 0;
  for (const Candidate& candidate : candidates) {
    double least = 1e300;
    for (const LinkId link : candidate.links) {
      least = std::min(least, fabric.topology().link(link).line_rate.value());
    }
    rate = std::max(rate, least);
  }
  return rate;
}

/// A flow that nobody may move keeps the path that takes most of its bytes.
void KeepMain(AskedFlow& asked) {
  const auto main = std::max_element(asked.candidates.begin(), asked.candidates.end(),
                                     [](const Candidate& a, const Candidate& b) { return a.present < b.present; });
  asked.candidates = {*main};
  asked.candidates.front().present = 1;
}

/// A flow that all jobs were planned with keeps each of its paths.
void AddParts(const AskedFlow& asked, std::vector<AskedFlow>* flows) {
  for (const Candidate& candidate : asked.candidates) {
    if (!(candidate.present > 0)) continue;
    flows->push_back({.flow = asked.flow, .candidates = {candidate}, .fixed = true, .part = candidate.present});
    flows->back().candidates.front().present = 1;
  }
}

std::vector<AskedFlow> CollectFlows(const FlowTable& table, const std::map<std::string, JobWeight>& jobs) {
  std::vector<AskedFlow> flows;
  for (const auto& [id, flow] : table.flows()) {
    AskedFlow asked{.flow = id, .candidates = CandidatesOf(flow)};
    if (asked.candidates.empty()) continue;
    const auto job = jobs.find(flow.identity.job_id());
    asked.fixed = flow.stale() || job == jobs.end() || !job->second.managed;
    if (asked.fixed) KeepMain(asked);
    if (!asked.fixed && flow.settled) AddParts(asked, &flows);
    else flows.push_back(std::move(asked));
  }
  return flows;
}

/// To a power of a half. Flows of one ring carry the same, but are never measured at the same moment: differences that are noise
/// would make splits that serve nobody look fair. What was asked for before stands while it is nearly as near, so that a share between
/// two powers is not another one with every look.
double RoundedShare(double share, const double* before) {
  constexpr double kNear = 0.75;  // in powers
  if (before != nullptr && std::abs(std::log2(share / *before)) <= kNear) return *before;
  return std::exp2(std::round(std::log2(share)));
}

/// What the owner's own findings make of these shares; empty: nothing, as none of his ways is worse than all know, or all are.
std::vector<double> OwnShares(const LinkMonitor& monitor, Owner owner, const std::vector<Candidate>& candidates,
                              const std::vector<double>& shares) {
  std::vector<double> left;
  size_t sound = 0;
  for (const Candidate& candidate : candidates) {
    double factor = 1;
    for (const LinkId link : candidate.links) {
      factor = std::min(factor, monitor.Available(link, owner).value() / monitor.Available(link).value());
    }
    left.push_back(factor);
    sound += factor >= kSound;
  }
  if (sound == 0 || sound == candidates.size()) return {};
  double freed = 0;
  for (size_t i = 0; i < left.size(); ++i) freed += left[i] < kSound ? shares[i] * (1 - left[i]) : 0;
  if (freed <= 0) return {};
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = left[i] < kSound ? shares[i] * left[i] : shares[i] + freed / static_cast<double>(sound);
  }
  return left;
}

/// Of the flow's bytes over this way now, by whatever port.
double PresentOn(const SendFlow& flow, const std::vector<std::string>& hops) {
  double share = 0;
  for (const auto& [port, of] : PresentByPort(flow, flow.decided)) {
    const auto probed = flow.probed.find(port);
    if (probed != flow.probed.end() && probed->second.hops == hops) share += of;
  }
  return share;
}

/// Nothing: the flow goes on as it was decided.
std::optional<FlowMove> MakeMove(const SendFlow& flow, const LinkMonitor& monitor, const AskedFlow& asked,
                                 const std::vector<double>& shares) {
  const std::vector<int32_t> planned = ToWeights(shares);
  const std::vector<double> own = OwnShares(monitor, flow.owner, asked.candidates, shares);
  const std::vector<int32_t> weights = own.empty() ? planned : ToWeights(own);
  FlowMove move{.flow = flow.id, .live = flow.wire_bytes > 0, .first = flow.decided.empty()};
  for (size_t i = 0; i < weights.size(); ++i) {
    move.weights[asked.candidates[i].port] = weights[i];
    if (!own.empty()) move.planned[asked.candidates[i].port] = planned[i];
  }
  if (move.weights == flow.decided && move.planned == flow.planned && !flow.unapplied) return std::nullopt;
  std::vector<double> before;
  std::vector<double> after;
  for (size_t i = 0; i < weights.size(); ++i) {
    before.push_back(flow.planned.empty() ? asked.candidates[i].present : PresentOn(flow, asked.candidates[i].hops));
    after.push_back(static_cast<double>(weights[i]) / kWeightSum);
    move.shares_changed |= std::abs(after.back() - before.back()) > 0.5 / kWeightSum;
  }
  const std::string ways = move.shares_changed ? fmt::format("{} -> {}", Describe(asked.candidates, before),
                                                             Describe(asked.candidates, after))
                                               : "stays with " + Describe(asked.candidates, after);
  move.text = fmt::format("flow {:x} of job {} ({} to {}): {}", flow.id, flow.identity.job_id(),
                          flow.identity.local_address(), flow.identity.peer_address(), ways);
  return move;
}

}  // namespace

bool StillStands(const SendFlow& flow, const AskedFlow& asked) {
  return std::all_of(asked.candidates.begin(), asked.candidates.end(), [&](const Candidate& candidate) {
    const auto probed = flow.probed.find(candidate.port);
    const auto lane = flow.lanes.find(candidate.port);
    return probed != flow.probed.end() && probed->second.links == candidate.links && (lane == flow.lanes.end() || lane->second.usable());
  });
}

std::vector<Candidate> CandidatesOf(const SendFlow& flow) {
  const std::map<int32_t, double> present = PresentByPort(flow, flow.planned.empty() ? flow.decided : flow.planned);
  const std::set<std::vector<std::string>> silent = SilentWays(flow);
  std::vector<Candidate> candidates;
  for (const auto& [port, path] : flow.probed) {
    if (path.links.empty()) continue;
    const auto lane = flow.lanes.find(port);
    if ((lane != flow.lanes.end() && lane->second.failed) || silent.contains(path.hops)) continue;
    auto candidate = std::ranges::find(candidates, path.hops, &Candidate::hops);
    if (candidate == candidates.end()) {
      candidates.push_back({.port = port, .hops = path.hops, .links = path.links});
      candidate = candidates.end() - 1;
    } else if (PortRank(flow, port, present) > PortRank(flow, candidate->port, present)) {
      candidate->port = port;
    }
    if (const auto share = present.find(port); share != present.end()) candidate->present += share->second;
  }
  std::ranges::sort(candidates, [&](const Candidate& a, const Candidate& b) {
    const int rank_a = PortRank(flow, a.port, present), rank_b = PortRank(flow, b.port, present);
    return rank_a != rank_b ? rank_a > rank_b : a.hops < b.hops;
  });
  if (candidates.size() > kMaxCandidates) candidates.resize(kMaxCandidates);
  return candidates;
}

std::vector<int32_t> ToWeights(const std::vector<double>& shares) {
  std::vector<int32_t> weights;
  std::vector<std::pair<double, size_t>> rests;
  int32_t sum = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double exact = std::clamp(shares[i], 0.0, 1.0) * kWeightSum;
    weights.push_back(static_cast<int32_t>(exact + 1e-9));
    sum += weights.back();
    rests.emplace_back(weights.back() - exact, i);  // most negative first: the largest remainder
  }
  std::stable_sort(rests.begin(), rests.end(), [](const auto& a, const auto& b) { return a.first < b.first - 1e-9; });
  for (size_t i = 0; sum < kWeightSum; ++i, ++sum) ++weights[rests[i % rests.size()].second];
  return weights;
}

FlowQuestion AskForPaths(const FlowTable& table, const FabricView& fabric, const LinkMonitor& monitor,
                         const std::map<std::string, JobWeight>& jobs, Seconds now, const FlowPlannerOptions& options,
                         const std::map<uint64_t, double>& before) {
  FlowQuestion question{
      .problem = nullptr, .flows = CollectFlows(table, jobs), .shares = DemandShares(table, now, options.demand), .rounded = {}};
  for (const auto& [flow, share] : SendingShares(table, now, question.shares)) {
    const auto known = before.find(flow);
    question.rounded.emplace_hint(question.rounded.end(), flow, RoundedShare(share, known == before.end() ? nullptr : &known->second));
  }
  planner::FlowProblem problem;
  problem.topology = fabric.topology();
  problem.switching_gain = options.switching_gain;
  for (size_t i = 0; i < problem.topology.links().size(); ++i) {
    const LinkId link(static_cast<int32_t>(i));
    problem.topology.SetCapacity(link, monitor.Available(link));
  }
  for (const AskedFlow& asked : question.flows) {
    const SendFlow& flow = table.flows().at(asked.flow);
    planner::FlowDemand demand;
    demand.key = flow.id;
    demand.job = flow.identity.job_id();
    demand.demand = BitsPerSecond(LineRateOf(fabric, asked.candidates) * question.rounded.at(flow.id) * asked.part);
    if (const auto job = jobs.find(demand.job); job != jobs.end()) demand.intensity = job->second.intensity;
    double known = 0;
    for (const Candidate& candidate : asked.candidates) known += candidate.present;
    for (const Candidate& candidate : asked.candidates) {
      demand.paths.push_back({candidate.links});
      // Bytes on a lane of unknown path: the flow counts as new, since what would be kept is not known.
      if (known > 0.5) demand.present_shares.push_back(candidate.present / known);
    }
    problem.flows.push_back(std::move(demand));
  }
  problem.quick = options.quick && problem.flows.size() >= options.quick_from;
  question.problem = std::make_shared<const planner::FlowProblem>(std::move(problem));
  return question;
}

FlowDecision CarryOut(const FlowTable& table, const LinkMonitor& monitor, const FlowQuestion& question,
                      const planner::FlowPlan& plan) {
  std::vector<std::vector<double>> shares;
  for (size_t i = 0; i < question.flows.size(); ++i) {
    const auto flow = table.flows().find(question.flows[i].flow);
    const bool free = !question.flows[i].fixed && flow != table.flows().end() && !flow->second.settled;
    shares.push_back(free ? plan.flows[i].shares : std::vector<double>());
  }
  return {.moves = MovesTo(table, monitor, question.flows, shares),
          .outcome = fmt::format("fullest link {:.0f} % of what it gives, before {:.0f} %, bound {:.0f} %", 100 * plan.bottleneck_after,
                                 100 * plan.bottleneck_before, 100 * plan.bottleneck_bound)};
}

std::vector<FlowMove> MovesTo(const FlowTable& table, const LinkMonitor& monitor, const std::vector<AskedFlow>& asked,
                              const std::vector<std::vector<double>>& shares) {
  std::vector<FlowMove> moves;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto flow = table.flows().find(asked[i].flow);
    if (shares[i].empty() || flow == table.flows().end() || !StillStands(flow->second, asked[i])) continue;
    if (std::optional<FlowMove> move = MakeMove(flow->second, monitor, asked[i], shares[i])) moves.push_back(*std::move(move));
  }
  return moves;
}

}  // namespace weft::controller
