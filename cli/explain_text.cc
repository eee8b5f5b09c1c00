#include "cli/explain_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/parse_units.h"
#include "proto/controller.pb.h"

namespace weft::cli {
namespace {

constexpr int kPathDecisions = 10;  // the newest ones are shown

std::string Time(double seconds) { return seconds > 0 ? FormatDuration(Seconds(seconds)) : std::string("-"); }
std::string Percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

template <typename Lines>
void AddLines(const Lines& lines, std::string& text) {
  for (const auto& line : lines) text += fmt::format("  {}\n", line);
}

void AddStrategy(const v1::JobStatus& job, std::string& text) {
  const v1::JobPlan& plan = job.plan();
  text += "strategy\n";
  if (plan.has_strategy()) {
    text += fmt::format("  dp {}  tp {}  pp {}  micro-batch {}  bucket {}: predicted {} per iteration alone, bound {}, gap {}\n",
                        plan.strategy().dp(), std::max<int64_t>(1, plan.strategy().tp()),
                        std::max<int64_t>(1, plan.strategy().pp()), plan.strategy().micro_batch(),
                        FormatBytes(Bytes(plan.strategy().bucket_bytes())), Time(plan.predicted().iteration_s()),
                        Time(plan.lower_bound_s()), Percent(plan.gap()));
  } else {
    text += "  none: the job was not submitted, or without a model that can be planned\n";
  }
  AddLines(plan.why(), text);
  for (const auto& error : job.planning_errors()) text += fmt::format("  not planned: {}\n", error);
  if (plan.rank_hosts_size() > 0) text += fmt::format("  ranks on {}\n", fmt::join(plan.rank_hosts(), ", "));
}

void AddCollectives(const v1::JobPlan& plan, std::string& text) {
  if (plan.collectives_size() == 0) return;
  text += "collectives\n";
  for (const v1::CollectiveChoice& choice : plan.collectives()) {
    text += fmt::format("  {} of {} ranks, {} to {} bytes: {}{}{}: {}\n", choice.collective(), choice.ranks(),
                        choice.least_bytes(), choice.most_bytes() > 0 ? fmt::format("{}", choice.most_bytes()) : "any",
                        choice.algorithm(), choice.protocol().empty() ? "" : " " + choice.protocol(),
                        choice.channels() > 0 ? fmt::format(" on {} channels", choice.channels()) : "", choice.why());
  }
}

void AddJoint(const v1::JobStatus& job, std::string& text) {
  text += "class, shift and bound\n";
  if (!job.has_joint()) {
    text += "  not planned together with the other jobs yet\n";
    return;
  }
  const v1::JointDecision& joint = job.joint();
  text += fmt::format("  class {} of {} (DSCP {}), model {}, decided at {:.1f} s\n", joint.traffic_class(), joint.classes(),
                      joint.dscp(), joint.model(), joint.decided_s());
  if (joint.model() != "none") {
    text += fmt::format("  iteration {} predicted with all jobs, {} bound, gap {}; {} shift, window {}\n",
                        Time(joint.predicted_s()), Time(joint.bound_s()), Percent(joint.gap()), Time(joint.shift_s()),
                        Time(joint.window_s()));
  }
  AddLines(joint.why(), text);
  for (const auto& rejected : joint.rejected()) text += fmt::format("  rejected: {}\n", rejected);
}

void AddDecisions(const v1::ExplainJobResponse& response, std::string& text) {
  text += "paths and what happened\n";
  const int first = std::max(0, response.decisions_size() - kPathDecisions);
  if (first > 0) text += fmt::format("  ({} earlier decisions)\n", first);
  for (int i = first; i < response.decisions_size(); ++i) {
    const v1::Decision& decision = response.decisions(i);
    text += fmt::format("  {:9.2f} s  {:<9} {:<12} {}\n", decision.time_s(), decision.kind(), decision.job_id(),
                        decision.reason());
  }
  if (response.decisions_size() == 0) text += "  nothing was decided yet\n";
}

void AddCluster(const v1::ClusterOutlook& cluster, std::string& text) {
  text += "all jobs\n";
  if (cluster.decided_s() <= 0) {
    text += "  not planned together yet\n";
    return;
  }
  text += fmt::format("  GPU use of {} modelled jobs {}, over plain ECMP {}, bound {}, gap {}{}\n", cluster.jobs(),
                      Percent(cluster.gpu_use()), Percent(cluster.gpu_use_default()), Percent(cluster.gpu_use_bound()),
                      Percent(cluster.gap()), cluster.complete() ? "" : "; a search was cut short");
  AddLines(cluster.notes(), text);
}

}  // namespace

std::string ExplainText(const v1::ExplainJobResponse& response) {
  const v1::JobStatus& job = response.job();
  std::string text = fmt::format("{}  {}  {} flows  epoch {}  iteration {}  sending {}\n", job.spec().job_id(), job.state(),
                                 job.flows(), job.policy_epoch(), Time(job.iteration_s()),
                                 FormatRate(BitsPerSecond(job.send_rate_bps())));
  AddStrategy(job, text);
  AddCollectives(job.plan(), text);
  AddJoint(job, text);
  AddDecisions(response, text);
  AddCluster(response.cluster(), text);
  return text;
}

}  // namespace weft::cli
