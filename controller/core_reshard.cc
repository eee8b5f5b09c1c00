// Changes of strategy in running jobs. Rank 0 of a job that takes them asks its agent for the job's launch environment and says
// what it runs; a word is that environment of another plan, with a number. What was advised (job_advice.h) for long enough is sent,
// and what the ranks then run is the job's plan. A word that they refuse, or do not answer, is taken back and not sent again for a
// time that doubles. An operator may ask for a strategy, too; then nothing is changed for as long as he says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/launch_variable.h"
#include "common/parse_units.h"
#include "controller/core.h"
#include "controller/job_advice.h"
#include "formats/one_line.h"
#include "proto/change_text.h"

namespace weft::controller {
namespace {

constexpr double kAnswerWithin = 60;      // seconds: steps between two meetings of the ranks, and the change itself
constexpr double kLongestIteration = 1e6; // seconds
constexpr int32_t kMostDoublings = 10;
constexpr double kBackAfter = 4;          // of reshard.retry, until a strategy that was left is taken again; doubles each time
constexpr size_t kMostLeft = 64;
constexpr size_t kMostReason = 200;

/// Of the program that the plan's arguments name; empty: they name none.
std::string DigestOf(const v1::JobPlan& plan) {
  const auto& words = plan.arguments();
  const auto flag = std::find(words.begin(), words.end(), "--program-digest");
  return flag == words.end() || flag + 1 == words.end() ? "" : *(flag + 1);
}

std::string DigestText(uint64_t digest) { return fmt::format("{:016x}", digest); }

/// With the iteration that rank 0 has told since it was advised, and the other one in the same proportion.
v1::StrategyChange AsMeasured(v1::StrategyChange change, double iteration_s) {
  if (!(iteration_s > 0)) return change;
  change.set_iteration_then_s(change.iteration_then_s() / change.iteration_now_s() * iteration_s);
  change.set_iteration_now_s(iteration_s);
  return change;
}

/// In a decision, of a word that somebody wanted.
std::string AskedBy(const v1::StrategyChange& change) {
  return change.asked_by().empty() ? "" : fmt::format(", asked for by {}", change.asked_by());
}

std::string HoldText(const v1::StrategyChange& change) {
  if (!(change.hold_s() > 0)) return "";
  return fmt::format("; no other strategy by the controller itself for {}", FormatDuration(Seconds(change.hold_s())));
}

}  // namespace

/// What it says that it runs is what we know.
bool Core::Listens(const std::string& job_id, const Job& job) const {
  const auto listener = listeners_.find(job_id);
  return listener != listeners_.end() && DigestText(listener->second.digest) == DigestOf(job.plan);
}

/// Where a strategy is no longer run what speaks against it is not seen any more, and may be forgotten: a link that nobody fills.
bool Core::WasLeft(const Listener& listener, const std::string& strategy) const {
  const auto found = listener.left.find(strategy);
  if (found == listener.left.end()) return false;
  return now_s_ - found->second.since_s < kBackAfter * options_.reshard_retry.count() * std::exp2(found->second.times - 1);
}

void Core::KeepAndTell(const std::string& job_id, const Job& job) {
  actions_.push_back(KeepPlan{job_id, job.plan});
  for (const std::string& host : job.spec.hosts()) {
    if (IsConnected(host)) PushLaunchTo(host, job);
  }
}

/// A tenant's process says this: it can only speak of its own job, and bring about nothing but what was decided.
void Core::TakeStrategy(const std::string& host, const v1::StrategyNews& news) {
  Job* job = jobs_.Find(news.job_id());
  const bool ours = job != nullptr && job->submitted && job->state != JobState::kReleased && job->plan.rank_hosts_size() > 0 &&
                    job->plan.rank_hosts(0) == host && !DigestOf(job->plan).empty();
  if (!ours || news.epoch() < 0 || news.epoch() > kLargestTenantEpoch) {
    ++ignored_;
    return;
  }
  const auto [known, is_new] = listeners_.try_emplace(news.job_id());
  known->second.epoch = news.epoch();
  known->second.digest = news.digest();
  known->second.iteration_s = std::isfinite(news.iteration_s()) ? std::clamp(news.iteration_s(), 0.0, kLongestIteration) : 0;
  if (is_new) advice_[news.job_id()] = Advice{.fabric = {}, .advice = {}, .looked = -1, .change = {}, .change_since_s = 0};
  const v1::StrategyChange& change = job->plan.change();
  if (news.epoch() == 0 || news.epoch() != change.epoch() || !change.has_plan()) return;
  if (news.refused()) {
    if (change.state() == kWordSent) WordFailed(news.job_id(), *job, "refused", formats::OneLine(news.reason(), kMostReason));
  } else if (DigestText(news.digest()) == DigestOf(change.plan())) {
    Adopt(news.job_id(), *job);  // also one that was given up on before they came to it
  }
}

void Core::WordFailed(const std::string& job_id, Job& job, const std::string& state, const std::string& reason) {
  v1::StrategyChange& change = *job.plan.mutable_change();
  change.set_state(state);
  change.set_reason(reason);
  change.set_failures(std::min(change.failures() + 1, kMostDoublings));
  change.set_decided_s(now_s_);
  KeepAndTell(job_id, job);
  const std::string wait = FormatDuration(options_.reshard_retry * std::exp2(change.failures() - 1));
  Decide("reshard", job_id,
         fmt::format("word {} to run as {}{} is taken back: {}; {}", change.epoch(), change.strategy(), AskedBy(change), reason,
                     change.asked_by().empty() ? "not sent again for " + wait : "not sent again unless somebody asks"));
}

/// The ranks run what they were told.
void Core::Adopt(const std::string& job_id, Job& job) {
  v1::StrategyChange change = std::move(*job.plan.mutable_change());
  job.plan.clear_change();
  v1::JobPlan next = std::move(*change.mutable_plan());
  change.clear_plan();
  *change.mutable_before() = job.plan;
  change.clear_reason();
  change.set_state("followed");
  change.set_failures(0);
  change.set_decided_s(now_s_);
  Decide("reshard", job_id, fmt::format("the ranks run as {} from now on, by word {}{}{}", change.strategy(), change.epoch(),
                                        AskedBy(change), HoldText(change)));
  Listener& listener = listeners_.at(job_id);
  if (listener.left.size() >= kMostLeft) listener.left.clear();
  Listener::Left& left = listener.left[job.plan.strategy().text()];
  left = {.since_s = now_s_, .times = std::min(left.times + 1, kMostDoublings)};
  *next.mutable_change() = std::move(change);
  job.plan = std::move(next);
  job.planned_traffic = PlannedTraffic(job.plan);
  KeepAndTell(job_id, job);
  // What was measured, and advised, was of another program.
  advice_.erase(job_id);
  rhythms_.erase(job_id);
  kept_.erase(job_id);
  ++changes_;
  Touch(Change::kFlows, "job " + job_id + " runs with another strategy");
}

void Core::SendWord(const std::string& job_id, Job& job, const v1::StrategyChange& wanted) {
  const int32_t failures = job.plan.change().failures();
  const int64_t epoch = std::max(job.plan.change().epoch(), listeners_.at(job_id).epoch) + 1;
  v1::StrategyChange& change = *job.plan.mutable_change();
  const v1::StrategyChange last = std::move(change);
  change = wanted;
  if (last.has_before()) *change.mutable_before() = last.before();
  change.set_epoch(epoch);
  change.set_state(kWordSent);
  change.set_failures(failures);
  change.set_decided_s(now_s_);
  auto& environment = *change.mutable_plan()->mutable_environment();
  environment[kReshardVariable] = "on";
  environment[kReshardEpochVariable] = std::to_string(epoch);
  KeepAndTell(job_id, job);
  Decide("reshard", job_id,
         fmt::format("word {}: the ranks are told to run as {}{}: {}", epoch, change.strategy(), AskedBy(change),
                     proto::ChangeFigures(change)));
}

/// The operator's brake holds for what is under way, too: ranks that have not met over the word stay as they are.
void Core::WithdrawWords() {
  for (const auto& [job_id, known] : jobs_.jobs()) {
    if (known.state == JobState::kReleased || known.plan.change().state() != kWordSent) continue;
    Job& job = *jobs_.Find(job_id);
    v1::StrategyChange& change = *job.plan.mutable_change();
    change.set_state("withdrawn");
    change.set_reason("mode observe");
    change.set_decided_s(now_s_);
    KeepAndTell(job_id, job);
    Decide("reshard", job_id, fmt::format("word {} to run as {} is taken back: mode observe", change.epoch(), change.strategy()));
  }
}

/// What mode enforce would do to the job; told once for each strategy.
void Core::ForetellStrategy(const std::string& job_id, const v1::StrategyChange& wanted) {
  std::optional<v1::StrategyChange>& would = listeners_.at(job_id).would;
  const bool news = !would || would->strategy() != wanted.strategy();
  would = wanted;
  would->clear_plan();
  if (!news) return;
  Decide("would", job_id,
         fmt::format("mode enforce would have the ranks run as {}: {}", wanted.strategy(), proto::ChangeFigures(wanted)));
}

/// Of a job whose ranks listen: what is advised for long enough, and not lately refused or undone, is done, in mode observe told.
void Core::ChangeStrategy(const std::string& job_id, Job& job) {
  const v1::StrategyChange& last = job.plan.change();
  if (last.state() == kWordSent) {
    if (now_s_ - last.decided_s() > kAnswerWithin) {
      WordFailed(job_id, job, "unanswered", fmt::format("no answer in {:.0f} s", kAnswerWithin));
    }
    return;
  }
  if (last.state() == "followed" && now_s_ - last.decided_s() < last.hold_s()) {
    listeners_.at(job_id).would.reset();  // somebody has chosen
    return;
  }
  const auto known = advice_.find(job_id);
  const bool advised = known != advice_.end() && known->second.change && Listens(job_id, job);
  if (!advised || mode_ == v1::MODE_ENFORCE) listeners_.at(job_id).would.reset();
  if (!advised) return;
  const v1::StrategyChange wanted = AsMeasured(*known->second.change, listeners_.at(job_id).iteration_s);
  if (now_s_ - known->second.change_since_s < options_.reshard_hold.count()) return;
  // After a change too: what links give is seen anew, as the traffic is another.
  const bool made = last.state() == "followed" || last.failures() > 0;
  if (made && now_s_ - last.decided_s() < options_.reshard_retry.count() * std::exp2(std::max(last.failures() - 1, 0))) return;
  if (WasLeft(listeners_.at(job_id), wanted.strategy())) return;
  if (mode_ != v1::MODE_ENFORCE) return ForetellStrategy(job_id, wanted);
  const double gain = 1 - wanted.iteration_then_s() / wanted.iteration_now_s();
  if (!listeners_.at(job_id).brake.Passes(gain, {job_id}, 0, now_s_)) return;
  SendWord(job_id, job, wanted);
}

Result<AskedJob> Core::AskOf(const std::string& job_id, bool only_said) const {
  const auto refuse = [&](const std::string& why) {
    return Fail(Code::kFailedPrecondition, fmt::format("job \"{}\": {}", job_id, why));
  };
  const Job* job = jobs_.Find(job_id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job \"{}\"", job_id));
  if (!job->submitted || !CanBeAdvised(job->spec, job->plan) || DigestOf(job->plan).empty()) {
    return refuse("no strategy that the controller has searched for weft-train on several hosts: expected framework: weft-train, and none "
                  "given");
  }
  if (job->state != JobState::kRunning) return refuse(fmt::format("it is {}, expected a running one", JobStateName(*job)));
  const auto listener = listeners_.find(job_id);
  if (listener == listeners_.end()) {
    return refuse(job->spec.reshard() ? "its rank 0 has not said yet what it runs, expected that within seconds of its first step: is "
                                        "there an agent on its host?"
                                      : "it was not submitted with reshard: on, expected that, or WEFT_RESHARD=on where its ranks "
                                        "start");
  }
  if (!Listens(job_id, *job)) {
    return refuse(fmt::format("its ranks run program {}, expected {} as planned: nothing is known of that one",
                              DigestText(listener->second.digest), DigestOf(job->plan)));
  }
  const v1::StrategyChange& last = job->plan.change();
  if (!only_said && mode_ != v1::MODE_ENFORCE)
    return refuse("mode observe: nothing is sent to ranks, expected mode enforce, or a dry run");
  if (!only_said && last.state() == kWordSent) {
    return refuse(fmt::format("word {} to run as {} is not answered yet, expected that within {:.0f} s", last.epoch(), last.strategy(),
                              kAnswerWithin));
  }
  AskedJob asked{.question = QuestionOf(job_id, *job), .before = {}};
  if (last.has_before()) asked.before = last.before();
  return asked;
}

void Core::On(const StrategyAsked& event) {
  Job* job = jobs_.Find(event.job_id);
  if (job == nullptr || !event.change.has_plan() || !AskOf(event.job_id, false)) {
    ++ignored_;
    return;
  }
  SendWord(event.job_id, *job, event.change);
}

void Core::ChangeStrategies() {
  if (mode_ != v1::MODE_ENFORCE) WithdrawWords();  // of a life of the controller before this, that was to enforce
  std::erase_if(listeners_, [&](const auto& one) {
    const Job* job = jobs_.Find(one.first);
    return job == nullptr || job->state == JobState::kReleased;
  });
  for (const auto& [job_id, listener] : listeners_) {
    Job* job = jobs_.Find(job_id);
    if (job->state == JobState::kRunning) ChangeStrategy(job_id, *job);
  }
}

}  // namespace weft::controller
