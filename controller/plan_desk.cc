#include "controller/plan_desk.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace weft::controller {
namespace {

/// What a tenant's job makes the planner throw must not end the controller.
Result<v1::JobPlan> PlanOf(const PlanDesk::Call& call) {
  if (call.gone.stop_requested()) return Fail(Code::kCancelled, "the caller has gone");
  try {
    return call.plan(call.gone);
  } catch (const std::exception& thrown) {
    return Fail(Code::kInternal,
                fmt::format("the planner has thrown \"{}\": report it with the job's model and hosts", thrown.what()));
  } catch (...) {
    return Fail(Code::kInternal, "the planner has thrown something: report it with the job's model and hosts");
  }
}

}  // namespace

PlanDesk::PlanDesk(size_t threads, const PlanDeskLimits& limits) : limits_(limits) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { Run(stop); });
}

Status PlanDesk::Ask(const std::string& caller, Call call) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = waiting_.find(caller);
    const size_t of_caller = known == waiting_.end() ? 0 : known->second.size();
    if (of_caller >= limits_.of_caller) {
      return Fail(Code::kResourceExhausted,
                  fmt::format("{} plans of {} wait already, expected at most that: call again later", of_caller, caller));
    }
    // The first of a caller finds room, or a few who ask for as many as they may would keep all others off.
    const size_t most = of_caller > 0 ? limits_.waiting : limits_.waiting + limits_.callers;
    if (count_ >= most) {
      return Fail(Code::kResourceExhausted,
                  fmt::format("{} plans wait already, expected at most that: call again later", count_));
    }
    if (known == waiting_.end()) turns_.push_back(caller);
    waiting_[caller].push_back(std::move(call));
    ++count_;
  }
  changed_.notify_one();
  return Ok();
}

PlanDesk::Call PlanDesk::TakeNext() {
  std::string caller = std::move(turns_.front());
  turns_.pop_front();
  const auto of_caller = waiting_.find(caller);
  Call call = std::move(of_caller->second.front());
  of_caller->second.pop_front();
  --count_;
  if (of_caller->second.empty()) {
    waiting_.erase(of_caller);
  } else {
    turns_.push_back(std::move(caller));
  }
  return call;
}

void PlanDesk::Run(const std::stop_token& stop) {
  for (;;) {
    Call call;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return count_ > 0; })) return;
      call = TakeNext();
    }
    call.answer(PlanOf(call));
  }
}

}  // namespace weft::controller
