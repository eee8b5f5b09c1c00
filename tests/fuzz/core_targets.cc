#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"
#include "controller/testing/random_events.h"
#include "controller/testing/two_jobs.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

using namespace controller;

/// A core with two jobs of honest agents, answered by the real planners, and told nonsense in between; after some thousand events it
/// is replaced by a new one.
class ToldCore {
 public:
  std::string Run(const std::string& input) {
    if (core_ == nullptr || events_ % kLife == 0) Begin(input);
    ++events_;
    cluster_->answers_paths = events_ % 7 != 0;
    cluster_->answers = events_ % 5 != 0;
    cluster_->Send(random_->Make(0));
    if (events_ % 16 == 0) cluster_->Run(0.1);
    if (events_ % 200 == 0) cluster_->RegisterAll();
    if (events_ % 100 == 0) cluster_->Probe(events_ % 200 == 0 ? "a" : "b");
    for (const Action& action : std::exchange(cluster_->actions, {})) Check(action);
    if (events_ % 64 == 0) CheckViews();
    return "";
  }

  std::string Summary() {
    Count();
    Require(events_ < 20'000 || (plans_ > 0 && policies_ > 0), "no paths were planned or pushed: what is told is refused too early");
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
    CoreOptions options = controller::testing::two_jobs::Options();
    const size_t seed = std::hash<std::string>()(input);
    options.joint.dscp = seed % 2 == 0 ? std::vector<int32_t>{0} : std::vector<int32_t>{26, 18, 0};
    options.joint.shifts = seed % 4 == 1;
    core_ = std::make_unique<Core>(options);
    random_ = std::make_unique<RandomEvents>(static_cast<uint32_t>(seed));
    epochs_.clear();
    cluster_ = std::make_unique<controller::testing::FakeCluster>(*core_, 2, 2, 2);
    cluster_->RegisterAll();
    cluster_->Run(0.5);
    cluster_->Start(controller::testing::two_jobs::kJobA, 0);
    cluster_->Start(controller::testing::two_jobs::kJobB, 0);
    cluster_->Run(0.3);
    cluster_->Probe("a");
    cluster_->Probe("b");
    cluster_->Run(3);
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
    }
    for (const v1::JobStatus& job : core_->Jobs()) (void)core_->Would(job.spec().job_id());
    (void)core_->Hosts();
    Require(core_->host_count() <= 16 && core_->flow_count() < 100'000, "more than was ever named");
  }

  std::unique_ptr<Core> core_;
  std::unique_ptr<controller::testing::FakeCluster> cluster_;
  std::unique_ptr<RandomEvents> random_;
  std::map<std::string, int64_t> epochs_;
  int64_t events_ = 0, plans_ = 0, all_plans_ = 0, policies_ = 0;
};

}  // namespace

std::vector<Target> CoreTargets() {
  auto core = std::make_shared<ToldCore>();
  return {{"core", {"seed"}, [core](const std::string& text) { return core->Run(text); }, [core] { return core->Summary(); }}};
}

}  // namespace weft::fuzz
