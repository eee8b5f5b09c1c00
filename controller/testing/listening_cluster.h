// Two hosts of a fabric on which a job runs whose rank 0 listens for other strategies.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller::testing {

/// Digests of what runs and of what is advised.
inline constexpr uint64_t kOld = 0x11, kNew = 0x22;

inline v1::JobPlan PlanOf(const std::string& text, uint64_t digest) {
  v1::JobPlan plan;
  plan.set_origin("search");
  plan.mutable_strategy()->set_dp(2);
  plan.mutable_strategy()->set_text(text);
  for (const char* host : {"h1", "h2"}) plan.add_rank_hosts(host);
  for (const std::string& word : {std::string("--program-digest"), fmt::format("{:016x}", digest)}) plan.add_arguments(word);
  (*plan.mutable_environment())["WEFT_ARGUMENTS"] = fmt::format("--program-digest {:016x}", digest);
  return plan;
}

inline JobSubmitted Submitted() {
  JobSubmitted submitted;
  submitted.spec.set_job_id("job");
  submitted.spec.set_framework("weft-train");
  for (const char* host : {"h1", "h2"}) submitted.spec.add_hosts(host);
  submitted.spec.set_model_config_json("a model");
  submitted.plan = PlanOf("dp=2", kOld);
  return submitted;
}

inline CoreOptions ReshardOptions(v1::Mode mode = v1::MODE_ENFORCE) {
  CoreOptions options;
  options.mode = mode;
  options.reshard_hold = Seconds(3);
  options.reshard_retry = Seconds(20);
  return options;
}

class Running {
 public:
  explicit Running(v1::Mode mode = v1::MODE_ENFORCE) : core(ReshardOptions(mode)), cluster(core, 2, 2, 1) {
    cluster.measures_periods = true;
    cluster.RegisterAll();
    cluster.Send({.body = Submitted()});
    cluster.Start({.id = "job", .ring = {"h1", "h2"}, .compute_s = 0.6, .bytes = 5e6}, 0);
    cluster.Run(0.3);
    cluster.Probe("job");
    cluster.Run(5);
  }

  /// What rank 0 says, by way of `host`.
  void Say(int64_t epoch, uint64_t digest, const std::string& refused = "", const std::string& host = "h1") {
    v1::HostSample sample;
    v1::StrategyNews& news = *sample.add_strategies();
    news.set_job_id("job");
    news.set_epoch(epoch);
    news.set_digest(digest);
    news.set_iteration_s(3);
    news.set_refused(!refused.empty());
    news.set_reason(refused);
    cluster.Send({.body = SampleReceived{host, sample}});
  }

  /// Answers the question that is open, once there is one.
  void Advise(const std::string& strategy, bool change = true) {
    for (int i = 0; i < 300 && Asked() == answered_; ++i) cluster.Run(0.1);
    ASSERT_GT(Asked(), answered_) << "nobody asked";
    answered_ = Asked();
    JobAdvised answer{.job_id = "job", .fabric = "links give " + std::to_string(answered_), .advice = {}, .change = {}};
    if (change) {
      answer.change = v1::StrategyChange();
      answer.change->set_strategy(strategy);
      answer.change->set_iteration_now_s(2);
      answer.change->set_iteration_then_s(1);
      answer.change->set_pause_s(6);
      answer.change->set_moved_bytes(1 << 20);
      answer.change->set_fabric(answer.fabric);
      *answer.change->mutable_plan() = PlanOf(strategy, strategy == "dp=2" ? kOld : kNew);
    }
    cluster.Send({.body = answer});
  }

  /// To pp=2, by word 1.
  void IsToldToChange() {
    Say(0, kOld);
    Advise("pp=2");
    cluster.Run(5);
    ASSERT_EQ(Change().state(), "sent");
  }

  AdviseRestart LastAsked() const {
    AdviseRestart last;
    for (const Action& action : cluster.actions) {
      if (const auto* question = std::get_if<AdviseRestart>(&action)) last = *question;
    }
    return last;
  }
  size_t Asked() const {
    return static_cast<size_t>(std::count_if(cluster.actions.begin(), cluster.actions.end(), [](const Action& action) {
      const auto* question = std::get_if<AdviseRestart>(&action);
      return question != nullptr && question->listens;
    }));
  }
  std::vector<std::string> Reasons(const std::string& kind) const {
    std::vector<std::string> reasons;
    for (const v1::Decision& decision : core.decisions()) {
      if (decision.kind() == kind) reasons.push_back(decision.reason());
    }
    return reasons;
  }
  /// Of the newest launch environment that went to the host.
  std::string Told(const std::string& host, const std::string& name) const {
    std::string value;
    for (const Action& action : cluster.actions) {
      const auto* push = std::get_if<PushLaunch>(&action);
      if (push == nullptr || push->host != host) continue;
      const auto found = push->launch.environment().find(name);
      value = found == push->launch.environment().end() ? "" : found->second;
    }
    return value;
  }
  v1::StrategyChange Change() const { return core.FindJob("job")->plan().change(); }
  std::optional<v1::JobPlan> Kept() const {
    std::optional<v1::JobPlan> plan;
    for (const Action& action : cluster.actions) {
      if (const auto* keep = std::get_if<KeepPlan>(&action)) plan = keep->plan;
    }
    return plan;
  }

  Core core;
  FakeCluster cluster;

 private:
  size_t answered_ = 0;
};

}  // namespace weft::controller::testing
