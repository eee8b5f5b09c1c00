#include "controller/flow_demand.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "controller/flow_table.h"

namespace weft::controller {
namespace {

constexpr double kPeriodsSilent = 1.5;

/// A job's flows together.
struct JobSums {
  double first_s = 1e300;  ///< when it was first seen to send
  double active_s = 0;   ///< when it last sent
  double newest_s = 0;   ///< when it last sent or opened a flow
  double period_s = 0;   ///< the longest of its flows'
  bool measured = false;
  std::map<std::string, double> shortly, long_since;  ///< bytes by NIC, at `active_s`
  std::map<std::string, int> flows;                   ///< by NIC
};

double Largest(const std::map<std::string, double>& by_nic) {
  double largest = 0;
  for (const auto& [nic, bytes] : by_nic) largest = std::max(largest, bytes);
  return largest;
}

std::string NicOf(const SendFlow& flow) { return flow.host + " " + flow.identity.local_address(); }

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
  std::map<std::string, JobSums> jobs;
  for (const auto& [id, flow] : table.flows()) {
    JobSums& job = jobs[flow.identity.job_id()];
    job.period_s = std::max(job.period_s, flow.period_s);
    job.newest_s = std::max({job.newest_s, flow.opened_s, flow.active_s});
    ++job.flows[NicOf(flow)];
    if (flow.wire_bytes <= 0) continue;
    job.measured = true;
    job.first_s = std::min(job.first_s, flow.first_s);
    job.active_s = std::max(job.active_s, flow.active_s);
  }
  for (const auto& [id, flow] : table.flows()) {
    JobSums& job = jobs[flow.identity.job_id()];
    job.shortly[NicOf(flow)] += flow.lately.shortly.At(job.active_s);
    job.long_since[NicOf(flow)] += flow.lately.long_since.At(job.active_s);
  }
  std::map<std::string, std::pair<double, double>> busiest;
  for (const auto& [id, job] : jobs) busiest[id] = {Largest(job.shortly), Largest(job.long_since)};
  std::map<uint64_t, double> shares;
  for (const auto& [id, flow] : table.flows()) {
    const JobSums& job = jobs[flow.identity.job_id()];
    const auto [shortly, long_since] = busiest[flow.identity.job_id()];
    // Agents tell of a job's first bytes one after the other: until a second has passed, what carried nothing may yet.
    const bool young = job.active_s - std::max(job.first_s, flow.opened_s) < options.silent_after.count();
    double share = young ? 1.0 / job.flows.at(NicOf(flow)) : 0;
    if (job.measured) {
      const double silent_s = job.active_s - flow.active_s;
      const bool sends = flow.wire_bytes > 0 &&
                         silent_s <= std::max(options.silent_after.count(), kPeriodsSilent * job.period_s);
      if (sends && shortly > 0) share = std::max(share, flow.lately.shortly.At(job.active_s) / shortly);
      if (sends && long_since > 0) share = std::max(share, flow.lately.long_since.At(job.active_s) / long_since);
    }
    if (now.count() - job.newest_s > options.idle_after.count()) share = 0;
    shares[id] = std::clamp(share, kTraceOfDemand, 1.0);
  }
  return shares;
}

}  // namespace weft::controller
