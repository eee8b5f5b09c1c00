#include "cli/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/parse_units.h"
#include "proto/change_text.h"
#include "proto/controller.pb.h"
#include "proto/operation_codec.h"

namespace weft::cli {
namespace {

constexpr size_t kPathDecisions = 10, kLateRanks = 5;  // the newest ones are shown

std::string Time(double seconds) { return seconds > 0 ? FormatDuration(Seconds(seconds)) : std::string("-"); }
std::string Percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

template <typename Lines>
void AddLines(const Lines& lines, std::string& text) {
  for (const auto& line : lines) text += fmt::format("  {}\n", line);
}

/// What came of a prediction, once it is known.
std::string MeasuredText(const v1::JobStatus& job) {
  const double predicted = job.plan().predicted().iteration_s();
  if (!(job.iteration_s() > 0 && predicted > 0)) return "";
  return fmt::format(", measured {} ({:+.1f} %)", Time(job.iteration_s()), 100 * (job.iteration_s() / predicted - 1));
}

/// Who decided what, for a job that was submitted or not.
std::string StrategyLine(const v1::JobStatus& job) {
  const v1::JobPlan& plan = job.plan();
  if (!job.has_plan()) return "none: the job was not submitted, or without a model that can be planned";
  if (!plan.has_strategy()) return "none: managed, not planned";
  if (plan.origin() == "given") {
    const std::string& source = job.spec().given_strategy().source();
    return fmt::format("given by the job's user ({}): {}", source.empty() ? "no file named" : source, GivenText(plan));
  }
  if (plan.origin() == "asked") return "asked for while it ran: " + GivenText(plan);
  const v1::Strategy& strategy = plan.strategy();
  return fmt::format("{}  bucket {}: predicted {} per iteration with what the fabric gave{}, bound {}, gap {}",
                     strategy.text().empty() ? fmt::format("dp={}", strategy.dp()) : strategy.text(),  // an older controller says none
                     FormatBytes(Bytes(strategy.bucket_bytes())), Time(plan.predicted().iteration_s()), MeasuredText(job), Time(plan.lower_bound_s()),
                     Percent(plan.gap()));
}

void AddStrategy(const v1::JobStatus& job, std::string& text) {
  const v1::JobPlan& plan = job.plan();
  text += fmt::format("strategy\n  {}\n", StrategyLine(job));
  AddLines(plan.why(), text);
  const char* const what = plan.has_strategy() ? "" : "not planned: ";
  for (const auto& error : job.planning_errors()) text += fmt::format("  {}{}\n", what, error);
  if (plan.rank_hosts_size() > 0) text += fmt::format("  ranks on {}\n", fmt::join(plan.rank_hosts(), ", "));
  if (plan.arguments_size() > 0) text += fmt::format("  arguments {}\n", fmt::join(plan.arguments(), " "));
  for (const v1::LaunchFile& file : plan.files()) text += fmt::format("  file {}: {} bytes, see --output json\n", file.name(), file.content().size());
}

/// "stages 1, 3 and 4".
std::string StagesText(const std::vector<int64_t>& stages) {
  constexpr size_t kMostNamed = 8;
  std::string text = stages.size() == 1 ? "stage" : "stages";
  for (size_t i = 0; i < std::min(stages.size(), kMostNamed); ++i) text += fmt::format("{} {}", i == 0 ? "" : ",", stages[i] + 1);
  if (stages.size() > kMostNamed) text += fmt::format(" and {} more", stages.size() - kMostNamed);
  return text;
}

/// The most that a process of the fullest of these stages holds, context and fragments included; nothing where the passes are too many
/// to be walked.
std::string PeakText(const planner::OperationList& list, const std::vector<int64_t>& stages) {
  constexpr int64_t kMostPasses = 1'000'000;
  if (list.micro_batches > kMostPasses / (list.chunks * list.stages)) return "";
  Bytes most;
  for (const int64_t stage : stages) {
    const Result<planner::MemoryOverTime> memory = planner::MemoryOfStage(list, stage);
    if (!memory) return "";
    most = std::max(most, memory->peak);
  }
  return fmt::format("; its process holds {:.1f} GiB at most", static_cast<double>(most.count()) / 0x1p30);
}

/// What one GPU of each kind of stage does in an iteration.
void AddOperations(const v1::JobPlan& plan, std::string& text) {
  if (!plan.has_operations()) return;
  text += fmt::format("one iteration of a GPU, as planned ({} micro-batches)\n", plan.operations().micro_batches());
  const Result<planner::OperationList> list = proto::OperationListFromProto(plan.operations());
  if (!list) {
    text += fmt::format("  not readable: {}\n", list.error().message());
    return;
  }
  for (const planner::StageOperations& equal : list->classes) {
    double computes = 0, sends = 0;
    for (const planner::Operation& o : equal.operations) {
      const double times = o.pass == planner::OperationPass::kOnce ? 1 : static_cast<double>(list->micro_batches);
      sends += times * planner::BytesSent(o);
      if (o.kind == planner::OperationKind::kCompute) computes += times * o.seconds;
    }
    text += fmt::format("  {}: computes {:.3g} s, sends {:.3g} GiB{}\n", StagesText(equal.stages), computes, sends / 0x1p30,
                        PeakText(*list, equal.stages));
  }
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

void AddMultiJob(const v1::JobStatus& job, std::string& text) {
  text += "class, shift and bound\n";
  if (!job.has_joint()) {
    text += "  not planned together with the other jobs yet\n";
    return;
  }
  const v1::MultiJobDecision& joint = job.joint();
  const std::string priority =
      joint.classes() <= 1 ? "one priority only: the fabric has one class"
                           : fmt::format("priority {} of {} (0 is served first; DSCP {})", joint.traffic_class(), joint.classes(),
                                         joint.dscp());
  text += fmt::format("  {}, {}, decided at {:.1f} s\n", priority,
                      joint.model() == "none" ? "iterations not predicted" : "iterations predicted from what is " + joint.model(),
                      joint.decided_s());
  if (joint.model() != "none") {
    text += fmt::format("  iteration {} predicted with all jobs, {} bound, gap {}; {} shift, window {}\n",
                        Time(joint.predicted_s()), Time(joint.bound_s()), Percent(joint.gap()), Time(joint.shift_s()),
                        Time(joint.window_s()));
  }
  AddLines(joint.why(), text);
  for (const auto& rejected : joint.rejected()) text += fmt::format("  rejected: {}\n", rejected);
}

void AddCommunicators(const v1::JobStatus& job, std::string& text) {
  if (job.communicators_size() == 0) return;
  text += "communicators, by the ranks at the ends of their flows\n";
  for (const v1::JobCommunicator& known : job.communicators()) {
    const std::string measured = known.measured_bytes() > 0 ? fmt::format("{:.3g} GiB", known.measured_bytes() / 0x1p30) : "not measured yet";
    text += fmt::format("  {:x}: {}, {} ranks from {} in steps of {}, {} flows; leaves hosts per iteration: {}, planned {:.3g} GiB{}\n",
                        known.comm(), known.kind(), known.group_ranks(), known.first_rank(), known.group_stride(), known.flows(), measured,
                        known.planned_bytes() / 0x1p30, known.slack() ? "; hides behind computation" : "");
  }
}

/// What a restart would give.
void AddAdvice(const v1::JobStatus& job, std::string& text) {
  if (!job.has_advice()) return;
  const v1::RestartAdvice& advice = job.advice();
  text += fmt::format("restart\n  as {}: an iteration would take {} in place of {} ({}), as {}\n  a restart of {} pays for itself {} after it; "
                      "seen at {:.1f} s\n", advice.strategy(), Time(advice.iteration_then_s()), Time(advice.iteration_now_s()),
                      advice.measured() ? "measured" : "predicted", advice.fabric(), Time(advice.restart_s()), Time(advice.pays_after_s()),
                      advice.decided_s());
}

/// The newest word of another strategy, and what became of it.
void AddChange(const v1::JobStatus& job, std::string& text) {
  if (!job.plan().has_change()) return;
  const v1::StrategyChange& change = job.plan().change();
  text += fmt::format("change of strategy\n  to {}: {}\n  word {}, {}{} at {:.1f} s\n", change.strategy(), proto::ChangeFigures(change),
                      change.epoch(), change.state(), change.reason().empty() ? "" : " (" + change.reason() + ")", change.decided_s());
  if (change.asked_by().empty()) return;
  text += fmt::format("  asked for by {}; once it is followed no other by the controller itself for {}\n", change.asked_by(),
                      Time(change.hold_s()));
}

/// After how long the shorter iterations have made up for the pause: t / then = (t + pause) / now.
std::string PaysText(const v1::StrategyChange& change) {
  const double ratio = change.iteration_then_s() / change.iteration_now_s();
  if (!(ratio < 1)) return fmt::format("iterations get longer by {}: it never pays", Percent(ratio - 1));
  return fmt::format("iterations get shorter by {}: it has paid for its pause {} later", Percent(1 - ratio),
                     Time(change.pause_s() * ratio / (1 - ratio)));
}

void AddDecisions(const v1::ExplainJobResponse& response, std::string& text) {
  std::vector<const v1::Decision*> late, others;
  for (const v1::Decision& decision : response.decisions()) (decision.kind() == "straggler" ? late : others).push_back(&decision);
  const auto add_newest = [&](const std::vector<const v1::Decision*>& decisions, size_t most, const auto& line) {
    const size_t first = decisions.size() - std::min(decisions.size(), most);
    if (first > 0) text += fmt::format("  ({} earlier ones)\n", first);
    for (size_t i = first; i < decisions.size(); ++i) text += line(*decisions[i]);
  };
  if (!late.empty()) text += "ranks that others waited for\n";
  add_newest(late, kLateRanks, [](const v1::Decision& d) { return fmt::format("  {:9.2f} s  {}\n", d.time_s(), d.reason()); });
  text += "paths and what happened\n";
  add_newest(others, kPathDecisions, [](const v1::Decision& d) {
    return fmt::format("  {:9.2f} s  {:<9} {:<12} {}\n", d.time_s(), d.kind(), d.job_id(), d.reason());
  });
  if (others.empty()) text += "  nothing was decided yet\n";
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

std::string GivenText(const v1::JobPlan& plan) {
  const v1::Prediction& p = plan.predicted();
  std::string text = plan.strategy().text();
  if (p.iteration_s() <= 0) return text + ": not priced";
  const int64_t needed = p.parameter_bytes() + p.gradient_bytes() + p.optimizer_bytes() + p.activation_bytes() + p.buffer_bytes();
  text += fmt::format(": predicted {} per iteration alone, {:.3g} tokens/s; memory {:.1f} GiB on the fullest GPU",
                      Time(p.iteration_s()), p.tokens_per_s(), static_cast<double>(needed) / 0x1p30);
  if (p.usable_bytes() <= 0) return text;
  return text + fmt::format(" of {:.1f} GiB: {}", static_cast<double>(p.usable_bytes()) / 0x1p30,
                            needed <= p.usable_bytes() ? "fits" : "does not fit");
}

std::string ReshardText(const std::string& job_id, const v1::JobPlan& plan, bool dry_run) {
  const v1::StrategyChange& change = plan.change();
  std::string text = fmt::format("job {}: {} -> {}\n  {}\n  {}\n", job_id, plan.strategy().text(), change.strategy(),
                                 proto::ChangeFigures(change), PaysText(change));
  if (dry_run) return text + "nothing was sent: a dry run\n";
  return text + fmt::format("word {} is {}; once it is followed the controller makes no other change by itself for {}\n"
                            "what becomes of it: weft explain {}\n", change.epoch(), change.state(), Time(change.hold_s()), job_id);
}

std::string ExplainText(const v1::ExplainJobResponse& response) {
  const v1::JobStatus& job = response.job();
  std::string text = fmt::format("{}  {}  {} flows  epoch {}  iteration {}  sending {}\n", job.spec().job_id(), job.state(),
                                 job.flows(), job.policy_epoch(), Time(job.iteration_s()),
                                 FormatRate(BitsPerSecond(job.send_rate_bps())));
  AddStrategy(job, text);
  AddOperations(job.plan(), text);
  AddCollectives(job.plan(), text);
  AddMultiJob(job, text);
  AddCommunicators(job, text);
  AddAdvice(job, text);
  AddChange(job, text);
  if (response.qos_size() > 0) text += "QoS that is not as declared (weft qos verify)\n";
  AddLines(response.qos(), text);
  if (response.would_size() > 0) text += "what mode enforce would do now\n";
  AddLines(response.would(), text);
  AddDecisions(response, text);
  AddCluster(response.cluster(), text);
  return text;
}

}  // namespace weft::cli
