#include "controller/flow_demand.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/flow_table.h"

namespace weft::controller {
namespace {

constexpr double kPeriodsSilent = 1.5;

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
      if (sends && job->shortly > 0) share = std::max(share, flow->lately.shortly.At(job->active_s) / job->shortly);
      if (sends && job->long_since > 0) share = std::max(share, flow->lately.long_since.At(job->active_s) / job->long_since);
    }
    if (now.count() - job->newest_s > options.idle_after.count()) share = 0;
    shares.emplace_hint(shares.end(), flow->id, std::clamp(share, kTraceOfDemand, 1.0));
  }
  return shares;
}

}  // namespace weft::controller
