// From the flow table to the flows-only fast path of the planner and back: candidate paths from probed ports, one
// problem for the flows of all jobs, shares to lane weights. Pure: what it returns, the core asks for and applies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/flow_demand.h"
#include "controller/flow_table.h"
#include "controller/link_monitor.h"
#include "planner/planner.h"

namespace weft::controller {

/// Sum of the weights of a flow's lanes in a policy.
inline constexpr int32_t kWeightSum = 16;
/// Paths that a flow is given lanes for.
inline constexpr size_t kMaxCandidates = 4;

/// One way for a flow, and the port that stands for it.
struct Candidate {
  int32_t port = 0;
  std::vector<std::string> hops;
  std::vector<LinkId> links;
  double present = 0;  ///< share of the flow's bytes that this way is given now, as planned; 0 if not known
};

/// How each job's flows count, from its plan.
struct JobWeight {
  bool managed = true;     ///< its flows may be moved
  double intensity = 1;
};

struct FlowMove {
  uint64_t flow = 0;
  std::map<int32_t, int32_t> weights;  ///< source port -> weight, the whole policy of the flow
  std::map<int32_t, int32_t> planned;  ///< as the plan has it, where its owner's findings change that; else empty
  bool shares_changed = false;         ///< its bytes go another way than before, not only that lanes were added
  bool live = false;                   ///< it had carried bytes
  bool first = false;                  ///< it had no decision before
  std::string text;                    ///< "flow 1a of job a (h1 to h3): 100 % over s1 -> 100 % over s2"
};

struct FlowDecision {
  std::vector<FlowMove> moves;         ///< flows whose weights differ from what was decided, by flow id
  std::string outcome;                 ///< what they come to: "fullest link 50 % of what it gives, before 100 %, bound 50 %"
};

struct FlowPlannerOptions {
  double switching_gain = 0.05;
  size_t quick_from = 4096;            ///< flows from which on a change is answered by a quick plan first, and then by a whole one
  bool quick = true;                   ///< as above; false: whole
  DemandOptions demand;
};

/// The distinct paths of a flow's probed ports, at most kMaxCandidates. Of the ports of one path the one in use
/// stands for it, then an open lane, then the least port; ports of failed lanes are left out, and so are paths that
/// do not answer, if others do. Paths in use come first, then by hops.
std::vector<Candidate> CandidatesOf(const SendFlow& flow);

/// Weights of sum kWeightSum for `shares` of sum 1, by largest remainder. Requires: shares not empty.
std::vector<int32_t> ToWeights(const std::vector<double>& shares);

/// A flow that a plan is asked for.
struct AskedFlow {
  uint64_t flow = 0;
  std::vector<Candidate> candidates;
  bool fixed = false;                  ///< counts as load, stays as it is
  double part = 1;                     ///< of the flow that this is: a fixed one on several paths is asked for in parts
};

/// What the flows of all jobs are to be planned from. What it costs to build and to carry out is linear in flows; the plan
/// itself is made apart from the table, of `problem` alone.
struct FlowQuestion {
  std::shared_ptr<const planner::FlowProblem> problem;  ///< flow i is `flows[i]`
  std::vector<AskedFlow> flows;
  std::map<uint64_t, double> shares;   ///< what flows are taken to ask for (flow_demand.h)
  std::map<uint64_t, double> rounded;  ///< with which the problem has them
};

/// `jobs` has an entry per job; flows of unknown jobs are left as they are, and so are those that all jobs were planned with
/// (SendFlow::settled). `before`: `rounded` of the last question, which stands as long as it is near.
FlowQuestion AskForPaths(const FlowTable& table, const FabricView& fabric, const LinkMonitor& monitor,
                         const std::map<std::string, JobWeight>& jobs, Seconds now, const FlowPlannerOptions& options,
                         const std::map<uint64_t, double>& before = {});

/// What the plan comes to for the flows that are still there with the lanes that it is for. Requires: a plan of the
/// question's problem. What an owner alone has found of links (link_monitor.h) moves his own flows, and nobody else's:
/// they keep of what is planned for such a way what he has found it to give, and the rest goes over their other ways. The
/// planner never sees it.
FlowDecision CarryOut(const FlowTable& table, const LinkMonitor& monitor, const FlowQuestion& question,
                      const planner::FlowPlan& plan);

/// Whether the flow still has the paths that it was asked about with.
bool StillStands(const SendFlow& flow, const AskedFlow& asked);

/// What it takes to bring flows to these shares, one per candidate, and to what their owners' findings make of them: flows
/// that are still there with the lanes that they were asked about. Empty shares: as they are.
std::vector<FlowMove> MovesTo(const FlowTable& table, const LinkMonitor& monitor, const std::vector<AskedFlow>& asked,
                              const std::vector<std::vector<double>>& shares);

}  // namespace weft::controller
