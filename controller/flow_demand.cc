#include "controller/flow_demand.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/flow_table.h"

namespace weft::controller {
namespace {

constexpr double kPeriodsSilent = 1.5;
constexpr double kYoung = 20;  // seconds since a flow's first bytes: its long memory is not full
// A flow's two shares, the short memory's over the long one's: up to the first the difference is that of the moment in the iteration,
// from the second on it sends more than it did.
constexpr double kNoise = 1.5, kMore = 2;

/// What the flows of a job have sent by one NIC.
struct NicSums {
  double shortly = 0, long_since = 0;  ///< bytes, as of the job's `active_s`
  int flows = 0;
};

/// A job's flows together.
struct JobSums {
  double first_s = 1e300;  ///< when it was first seen to send
  double active_s = 0;   ///< when it last sent
  double newest_s = 0;   ///< when it last sent or opened a flow
  double period_s = 0;   ///< the longest of its flows'
  bool measured = false;
  double shortly = 0, long_since = 0;                            ///< of its busiest NIC
  std::map<std::pair<std::string_view, std::string_view>, NicSums> nics;  ///< by host and address
};

/// A flow with the sums that it counts in.
struct Summed {
  const SendFlow* flow = nullptr;
  JobSums* job = nullptr;
  NicSums* nic = nullptr;
};

/// The flows in the table's order; `jobs` is filled with what they sum up to.
std::vector<Summed> SumUp(const FlowTable& table, std::unordered_map<std::string_view, JobSums>& jobs) {
  std::vector<Summed> flows;
  flows.reserve(table.flows().size());
  for (const auto& [id, flow] : table.flows()) {
    JobSums& job = jobs[flow.identity.job_id()];
    NicSums& nic = job.nics[{flow.host, flow.identity.local_address()}];
    flows.push_back({&flow, &job, &nic});
    ++nic.flows;
    job.period_s = std::max(job.period_s, flow.period_s);
    job.newest_s = std::max({job.newest_s, flow.opened_s, flow.active_s});
    if (flow.wire_bytes <= 0) continue;
    job.measured = true;
    job.first_s = std::min(job.first_s, flow.first_s);
    job.active_s = std::max(job.active_s, flow.active_s);
  }
  for (const Summed& one : flows) {
    one.nic->shortly += one.flow->lately.shortly.At(one.job->active_s);
    one.nic->long_since += one.flow->lately.long_since.At(one.job->active_s);
  }
  for (auto& [id, job] : jobs) {
    for (const auto& [name, nic] : job.nics) {
      job.shortly = std::max(job.shortly, nic.shortly);
      job.long_since = std::max(job.long_since, nic.long_since);
    }
  }
  return flows;
}

/// Of a flow's two shares, what it asks for.
double AsksFor(double shortly, double long_since, bool young) {
  if (young || long_since <= 0) return std::max(shortly, long_since);
  const double more = std::clamp((shortly / long_since - kNoise) / (kMore - kNoise), 0.0, 1.0);
  return long_since + more * std::max(0.0, shortly - long_since);
}

}  // namespace

void FadingBytes::Add(double bytes, double time_s) {
  time_s = std::max(time_s, time_s_);
  bytes_ = At(time_s) + bytes;
  time_s_ = time_s;
}

double FadingBytes::At(double time_s) const {
  return bytes_ <= 0 ? 0 : bytes_ * std::exp2(-std::max(0.0, time_s - time_s_) / half_s_);
}

std::map<uint64_t, double> DemandShares(const FlowTable& table, Seconds now, const DemandOptions& options) {
  std::unordered_map<std::string_view, JobSums> jobs;
  std::map<uint64_t, double> shares;
  for (const auto& [flow, job, nic] : SumUp(table, jobs)) {
    // Agents tell of a job's first bytes one after the other: until a second has passed, what carried nothing may yet.
    const bool young = job->active_s - std::max(job->first_s, flow->opened_s) < options.silent_after.count();
    double share = young ? 1.0 / nic->flows : 0;
    if (job->measured) {
      const double silent_s = job->active_s - flow->active_s;
      const bool sends = flow->wire_bytes > 0 &&
                         silent_s <= std::max(options.silent_after.count(), kPeriodsSilent * job->period_s);
      const double shortly = job->shortly > 0 ? flow->lately.shortly.At(job->active_s) / job->shortly : 0;
      const double long_since = job->long_since > 0 ? flow->lately.long_since.At(job->active_s) / job->long_since : 0;
      if (sends) share = std::max(share, AsksFor(shortly, long_since, job->active_s - flow->first_s < kYoung));
    }
    if (now.count() - job->newest_s > options.idle_after.count()) share = 0;
    shares.emplace_hint(shares.end(), flow->id, std::clamp(share, kTraceOfDemand, 1.0));
  }
  return shares;
}

std::map<uint64_t, double> SendingShares(const FlowTable& table, Seconds now, const std::map<uint64_t, double>& shares) {
  constexpr double kFull = 0.25;  // of the busiest NIC's bytes: from there on a flow counts as what it is while it sends
  using Slots = std::array<double, SlotRing::kSlots>;
  const auto newest = static_cast<int64_t>(std::floor(now.count() / table.slot_s()));
  std::map<std::pair<std::string_view, std::string_view>, Slots> nics;
  std::vector<std::pair<const SendFlow*, Slots>> flows;
  for (const auto& [id, flow] : table.flows()) {
    Slots slots{};
    for (const auto& [port, lane] : flow.lanes) {
      for (int64_t s = 0; s < SlotRing::kSlots; ++s) slots[static_cast<size_t>(s)] += lane.carried.At(newest - s);
    }
    Slots& nic = nics[{flow.host, flow.identity.local_address()}];
    for (size_t s = 0; s < slots.size(); ++s) nic[s] += slots[s];
    flows.emplace_back(&flow, slots);
  }
  std::map<uint64_t, double> sending;
  for (const auto& [flow, slots] : flows) {
    const Slots& nic = nics.at({flow->host, flow->identity.local_address()});
    double own = 0, all = 0;
    for (size_t s = 0; s < slots.size(); ++s) own += slots[s] * slots[s], all += slots[s] * nic[s];
    const auto known = shares.find(flow->id);
    const double share = known == shares.end() ? kTraceOfDemand : known->second;
    sending.emplace_hint(sending.end(), flow->id, all <= 0 ? share : std::max(share, std::min(1.0, share / kFull) * own / all));
  }
  return sending;
}

}  // namespace weft::controller
