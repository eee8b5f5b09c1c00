#include "controller/run_learning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/clock.h"
#include "controller/job_change.h"
#include "formats/hf_config.h"
#include "planner/plan/price_given.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

constexpr size_t kMostNamed = 4;   // constants in a line

/// A run with all that was parsed of it.
struct Question {
  planner::JobSpec job;
  planner::ClusterSpec cluster;
  planner::Strategy strategy;
  std::string framework;
};

Result<Question> QuestionOf(const v1::MeasuredRun& run, const JobPlannerOptions& planner) {
  Question question;
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model, formats::ParseHfConfig(run.spec().model_config_json(), "model_config_json"));
  WEFT_ASSIGN_OR_RETURN(question.job, proto::JobSpecFromProto(run.spec(), model));
  WEFT_ASSIGN_OR_RETURN(question.strategy, proto::StrategyFromProto(run.strategy()));
  question.framework = run.spec().framework();
  question.cluster = planner.cluster;
  question.cluster.nodes = run.nodes();
  question.cluster.gpus_per_node = std::max<int64_t>(run.spec().ranks_per_host(), 1);
  question.cluster.nic_rate = BitsPerSecond(run.nic_rate_bps());
  question.cluster.tiers.clear();
  for (const v1::RunTier& tier : run.tiers()) {
    question.cluster.tiers.push_back({.name = tier.name(), .nodes = tier.nodes(), .out = BitsPerSecond(tier.out_bps())});
  }
  if (question.job.gpus == 0) question.job.gpus = question.cluster.TotalGpus();
  return question;
}

Result<double> Price(const Question& question, std::vector<planner::MeasuredConstant> constants) {
  planner::ClusterSpec cluster = question.cluster;
  cluster.measured = std::move(constants);
  WEFT_ASSIGN_OR_RETURN(const planner::GivenPrice price,
                        planner::PriceGiven(question.job, cluster, question.framework, question.strategy));
  return price.plan.predicted.iteration.count();
}

/// Of each submitter no more than all others have together, the newest; of one who is alone, and where nobody is told apart, all.
std::vector<const v1::MeasuredRun*> Counted(std::span<const v1::MeasuredRun> runs) {
  std::map<std::string, size_t> left;
  for (const v1::MeasuredRun& run : runs) ++left[run.spec().submitter()];
  if (left.size() > 1) {
    for (auto& [submitter, count] : left) count = std::min(count, runs.size() - count);
  }
  std::vector<const v1::MeasuredRun*> counted;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    size_t& more = left[run->spec().submitter()];
    if (more == 0) continue;
    --more;
    counted.push_back(&*run);
  }
  std::ranges::reverse(counted);
  return counted;
}

std::string Describe(const LearnedRuns& learned, std::vector<planner::CalibrationConstant> moved, const planner::Calibration& base) {
  const auto before = [&](const planner::CalibrationConstant& c) {
    const auto found = std::ranges::find(base.constants(), c.name, &planner::CalibrationConstant::name);
    return found == base.constants().end() ? c.value : found->value;
  };
  const auto change = [&](const planner::CalibrationConstant& c) { return std::abs(std::log(c.value / before(c))); };
  std::ranges::sort(moved, [&](const auto& a, const auto& b) { return change(a) > change(b); });
  std::string text = fmt::format("{} runs took {:.1f} % more or less than was predicted in the median, and {:.1f} % with what they say", learned.runs,
                                 100 * learned.before, 100 * learned.after);
  for (size_t i = 0; i < std::min(moved.size(), kMostNamed); ++i) {
    text += fmt::format("{} {} {:.3g} in place of {:.3g}", i == 0 ? ":" : ",", moved[i].name, moved[i].value, before(moved[i]));
  }
  return moved.size() > kMostNamed ? text + fmt::format(", and {} more", moved.size() - kMostNamed) : text;
}

}  // namespace

std::string MachineOf(const planner::ClusterSpec& cluster) {
  return fmt::format("{} {} {} {} {}", cluster.device.name, cluster.device.memory.count(), cluster.intra_node_rate.value(), cluster.nics_per_node,
                     static_cast<int>(cluster.nic_kind));
}

bool RunWatch::See(const Key& job, double iteration_s, double now_s) {
  Watched& watched = jobs_.try_emplace(job, Watched{.since_s = now_s, .iteration_s = iteration_s}).first->second;
  if (std::abs(iteration_s - watched.iteration_s) > kSame * watched.iteration_s) {
    watched.since_s = now_s;
    watched.iteration_s = iteration_s;
    watched.again_s = 0;
  }
  if (now_s - watched.since_s < kHeld || now_s < watched.again_s) return false;
  if (watched.taken_s > 0 && iteration_s > (1 - kSame) * watched.taken_s) return false;
  watched.again_s = now_s + kAgain;
  return true;
}

void RunWatch::Taken(const std::string& job_id, double iteration_s) {
  for (auto& [job, watched] : jobs_) {
    if (job.first == job_id) watched.taken_s = iteration_s;
  }
}

void RunWatch::KeepOnly(const std::set<Key>& jobs) {
  std::erase_if(jobs_, [&](const auto& entry) { return !jobs.contains(entry.first); });
}

std::string RunBook::KeyOf(const v1::MeasuredRun& run) { return run.spec().submitter() + "\n" + run.spec().job_id(); }

std::vector<std::string> RunBook::Add(v1::MeasuredRun run) {
  const std::string submitter = run.spec().submitter(), key = KeyOf(run);
  std::erase_if(runs_, [&](const v1::MeasuredRun& other) { return KeyOf(other) == key; });
  runs_.push_back(std::move(run));
  std::vector<std::string> gone;
  const auto drop = [&](auto which) {
    gone.push_back(KeyOf(*which));
    runs_.erase(which);
  };
  const auto is_his = [&](const v1::MeasuredRun& other) { return other.spec().submitter() == submitter; };
  const bool one_too_many = !submitter.empty() && static_cast<size_t>(std::ranges::count_if(runs_, is_his)) > kMostRunsOfOne;
  if (one_too_many) drop(std::ranges::find_if(runs_, is_his));
  if (runs_.size() > kMostRuns) drop(runs_.begin());
  return gone;
}

Result<v1::MeasuredRun> RunOf(const AdviseRestart& question, const JobPlannerOptions& planner) {
  const auto nothing = [&](const char* why) { return Fail(Code::kFailedPrecondition, fmt::format("job \"{}\": {}", question.spec.job_id(), why)); };
  if (!planner.cluster.groups.empty()) return nothing("the cluster has several kinds of machines");
  if (question.spec.model_config_json().size() > kMostRunModelBytes) return nothing("its model is longer than 64 KiB");
  // What others carry, on links as they are built: what links are believed to give less is no load.
  AdviseRestart asked = question;
  for (size_t i = 0; i < question.view.topology.links().size(); ++i) {
    const planner::Link& link = question.view.topology.links()[i];
    if (link.capacity.value() > 0) asked.view.topology.SetCapacity(LinkId(static_cast<int32_t>(i)), link.line_rate);
  }
  if (FabricOf(asked, planner).loaded) return nothing("its links carry others' bytes too");
  asked.view = question.view;
  asked.view.carried.assign(asked.view.carried.size(), BitsPerSecond(0));
  const JobFabric fabric = FabricOf(asked, planner);
  if (!fabric.known && fabric.now.nodes > 1) return nothing("probes have not joined its hosts");
  v1::MeasuredRun run;
  *run.mutable_spec() = question.spec;
  run.mutable_spec()->clear_hosts();
  run.mutable_spec()->clear_given_strategy();
  *run.mutable_strategy() = question.plan.strategy();
  run.set_machine(MachineOf(planner.cluster));
  run.set_nodes(fabric.now.nodes);
  run.set_nic_rate_bps(fabric.now.nic_rate.value());
  run.set_iteration_s(question.iteration_s);
  for (const planner::FabricTier& tier : fabric.now.tiers) {
    v1::RunTier* const kept = run.add_tiers();
    kept->set_name(tier.name);
    kept->set_nodes(tier.nodes);
    kept->set_out_bps(tier.out.value());
  }
  // What cannot be priced now cannot be later either.
  WEFT_ASSIGN_OR_RETURN(const Question parsed, QuestionOf(run, planner));
  const Seconds begin = ThreadProcessorTime();
  WEFT_RETURN_IF_ERROR(Price(parsed, planner.cluster.measured));
  if (ThreadProcessorTime() - begin > kMostPricing) return nothing("its model takes too long to price");
  return run;
}

Result<LearnedRuns> LearnFromRuns(std::span<const v1::MeasuredRun> runs, const JobPlannerOptions& planner, const std::stop_token& stop) {
  std::vector<Question> questions;
  std::vector<double> measured;
  const std::vector<planner::MeasuredConstant>& configured = planner.cluster.measured;
  for (const v1::MeasuredRun* run : Counted(runs)) {
    if (run->machine() != MachineOf(planner.cluster) || !(run->iteration_s() > 0)) continue;
    Result<Question> question = QuestionOf(*run, planner);
    if (!question || !Price(*question, configured)) continue;
    questions.push_back(*std::move(question));
    measured.push_back(run->iteration_s());
  }
  if (questions.empty() || !planner.cluster.groups.empty()) return Fail(Code::kFailedPrecondition, "no run of such machines");
  const auto predict = [&](const planner::Calibration& constants) -> Result<std::vector<double>> {
    std::vector<planner::MeasuredConstant> all;
    for (const planner::CalibrationConstant& c : constants.constants()) all.push_back({.name = c.name, .value = c.value});
    std::vector<double> predicted;
    for (const Question& question : questions) {
      if (stop.stop_requested()) return Fail(Code::kCancelled, "learning from runs was stopped");
      const Result<double> price = Price(question, all);
      predicted.push_back(price ? *price : std::numeric_limits<double>::quiet_NaN());
    }
    return predicted;
  };
  const planner::Calibration base = planner::Calibration().With(planner.cluster.measured);
  WEFT_ASSIGN_OR_RETURN(const planner::LearnedConstants found, planner::LearnConstants(base, measured, predict));
  LearnedRuns learned{.constants = {}, .runs = questions.size(), .before = planner::MedianError(found.before, measured),
                      .after = planner::MedianError(found.after, measured), .text = {}};
  for (const planner::CalibrationConstant& c : found.moved) learned.constants.push_back({.name = c.name, .value = c.value});
  learned.text = Describe(learned, found.moved, base);
  return learned;
}

}  // namespace weft::controller
