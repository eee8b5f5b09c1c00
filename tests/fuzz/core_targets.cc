#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "controller/core.h"
#include "controller/testing/random_events.h"
#include "planner/planner.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

using namespace controller;

/// A core that is told nonsense for some thousand events, answered by the real planners, and then replaced by a new one.
class ToldCore {
 public:
  std::string Run(const std::string& input) {
    if (core_ == nullptr || ++events_ % kLife == 0) Begin(input);
    time_ += events_ % 50 == 0 ? -0.5 : 0.05;
    Handle(random_->Make(time_));
    if (events_ % 64 == 0) CheckViews();
    return "";
  }

  std::string Summary() {
    Count();
    Require(events_ < 100'000 || (plans_ > 0 && policies_ > 0), "no paths were planned or pushed: what is told is refused too early");
    return fmt::format("; {} plans of paths, {} of all jobs, {} policies", plans_, all_plans_, policies_);
  }

 private:
  static constexpr int kLife = 4000;

  void Count() {
    plans_ += core_->counters().plans;
    all_plans_ += core_->counters().multi_job_plans;
    policies_ += core_->counters().policies;
  }

  void Begin(const std::string& input) {
    if (core_ != nullptr) Count();
    CoreOptions options;
    const size_t seed = std::hash<std::string>()(input);
    options.joint.dscp = seed % 2 == 0 ? std::vector<int32_t>{0} : std::vector<int32_t>{26, 18, 0};
    options.joint.shifts = seed % 4 == 1;
    core_ = std::make_unique<Core>(options);
    random_ = std::make_unique<RandomEvents>(static_cast<uint32_t>(seed));
    epochs_.clear();
    time_ = 0;
  }

  void Handle(const Event& event) {
    std::vector<Event> answers;
    for (const Action& action : core_->Handle(event)) {
      Check(action);
      if (const auto* paths = std::get_if<PlanPaths>(&action)) {
        // One in three answers comes for a question that is no longer the newest.
        const uint64_t number = events_ % 3 == 0 ? paths->number - 1 : paths->number;
        auto plan = std::make_shared<const planner::FlowPlan>(planner::ChoosePaths(*paths->problem));
        answers.push_back({Seconds(time_), PathsPlanned{number, std::move(plan)}});
      } else if (const auto* jobs = std::get_if<PlanJobs>(&action)) {
        auto plan = std::make_shared<const planner::MultiJobPlan>(planner::PlanMultiJob(*jobs->problem));
        answers.push_back({Seconds(time_), JobsPlanned{jobs->digest, std::move(plan)}});
      }
    }
    for (const Event& answer : answers) Handle(answer);
  }

  void Check(const Action& action) {
    if (const auto* kept = std::get_if<KeepEpoch>(&action)) {
      Require(kept->epoch > epochs_[kept->job_id], "an epoch that does not rise");
      epochs_[kept->job_id] = kept->epoch;
    } else if (const auto* forgotten = std::get_if<ForgetEpoch>(&action)) {
      epochs_.erase(forgotten->job_id);
    } else if (const auto* push = std::get_if<PushPolicy>(&action)) {
      Require(push->policy.flows_size() <= 256, "more flows than a policy has room for");
      for (const v1::FlowPolicy& flow : push->policy.flows()) CheckFlow(flow);
    }
  }

  static void CheckFlow(const v1::FlowPolicy& flow) {
    int32_t sum = 0;
    for (const v1::LanePolicy& lane : flow.lanes()) {
      Require(lane.weight() >= 0, "a weight below 0");
      sum += lane.weight();
    }
    Require(sum == kWeightSum, "weights that do not sum to one");
    Require(flow.lanes_size() <= 8, "more lanes than a flow has");
  }

  void CheckViews() {
    for (const v1::LinkStatus& link : core_->Links()) {
      Require(std::isfinite(link.used_bps()) && link.used_bps() >= 0, "a link that carries no number");
      Require(link.available_bps() > 0 && link.available_bps() <= link.line_rate_bps(), "an estimate out of range");
      Require(link.available_bps() >= std::min(link.used_bps(), link.line_rate_bps()) * (1 - 1e-9), "an estimate below what is carried");
    }
    for (const v1::JobStatus& job : core_->Jobs()) (void)core_->Would(job.spec().job_id());
    (void)core_->Hosts();
    Require(core_->host_count() <= 8 && core_->flow_count() < 100'000, "more than was ever named");
  }

  std::unique_ptr<Core> core_;
  std::unique_ptr<RandomEvents> random_;
  std::map<std::string, int64_t> epochs_;
  int64_t events_ = 0, plans_ = 0, all_plans_ = 0, policies_ = 0;
  double time_ = 0;
};

}  // namespace

std::vector<Target> CoreTargets() {
  auto core = std::make_shared<ToldCore>();
  return {{"core", {"seed"}, [core](const std::string& text) { return core->Run(text); }, [core] { return core->Summary(); }}};
}

}  // namespace weft::fuzz
