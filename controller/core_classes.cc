// Classes that links do not honour (class_watch.h): the job's is withdrawn, and tried again later.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "common/parse_units.h"
#include "controller/core.h"

namespace weft::controller {

void Core::SeeClasses() {
  const auto last = static_cast<int32_t>(options_.joint.dscp.size()) - 1;
  if (last < 1 || mode_ != v1::MODE_ENFORCE) return;
  const std::vector<LinkMonitor::LaneUse>& uses = monitor_.uses();
  const bool several = std::ranges::any_of(uses, [&](const auto& use) { return use.flow->owner != uses.front().flow->owner; });
  classes_.See(
      monitor_,
      [&](const SendFlow& flow) -> std::optional<int32_t> {
        const std::string& job_id = flow.identity.job_id();
        const auto host = hosts_.find(flow.host);
        // Packets that are not marked yet as was decided, and bytes that nobody but their sender vouches for.
        if (flow.doubted || flow.unapplied || awaited_.contains({job_id, flow.host})) return std::nullopt;
        const auto job = multi_job_.find(job_id);
        const bool raised = job != multi_job_.end() && job->second.force.traffic_class >= 0 && !classes_.IsWithdrawn(job_id);
        const int32_t own = raised ? std::min(job->second.force.traffic_class, last) : last;
        if (own == last && several && (host == hosts_.end() || host->second.nic_bytes < 0)) return std::nullopt;
        return own;
      },
      last, now_s_);
}

void Core::WatchClasses() {
  std::set<std::string> changed;
  for (const std::string& job_id : classes_.EndHolds(now_s_)) {
    const Job* job = jobs_.Find(job_id);
    if (job == nullptr || job->state == JobState::kReleased) {
      classes_.Forget(job_id);
      continue;
    }
    if (mode_ != v1::MODE_ENFORCE || DscpOf(job_id) == options_.joint.dscp.back()) continue;
    Decide("class", job_id, fmt::format("DSCP {} again: a link did not honour it some time ago", DscpOf(job_id)));
    changed.insert(job_id);
  }
  for (const Inversion& found : classes_.Take()) {
    const int32_t dscp = DscpOf(found.job);
    const double hold_s = classes_.Withdraw(found.job, now_s_);
    Decide("inversion", found.job,
           fmt::format("DSCP {} is withdrawn for {}: link {} does not honour it: in {} slots in which the job's lanes waited for it they got {:.0f} % "
                       "of what it carried, {:.0f} % is their class's share; see `weft qos verify`, and the switch's DSCP map",
                       dscp, FormatDuration(Seconds(hold_s)), fabric_.topology().LinkName(found.link), ClassWatch::kLooks, 100 * found.got,
                       100 * found.declared));
    changed.insert(found.job);
  }
  if (changed.empty()) return;
  classes_.Changed(now_s_);
  PushJobs(changed);
}

}  // namespace weft::controller
