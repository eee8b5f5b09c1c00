// The task graph of a pipelined iteration: every pass after the one before it on its stage and after the message that it
// needs; messages and gradient exchanges as tasks of their own; the optimizer of a stage after its exchanges.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "planner/tasks/pipeline_tables.h"
#include "planner/tasks/pipeline_order.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int32_t kNone = -1;

class Builder {
 public:
  Builder(const PipelineProblem& problem, const PipelineTraffic& traffic)
      : problem_(problem), traffic_(traffic), v_(problem.chunks),
        p_(static_cast<int64_t>(problem.stages.size()) / problem.chunks), m_(problem.micro_batches) {
    const auto slots = static_cast<size_t>(p_ * v_ * m_);
    output_.assign(slots, kNone);
    gradient_.assign(slots, kNone);
    last_.assign(static_cast<size_t>(p_), kNone);
    sent_.assign(static_cast<size_t>(2 * p_), kNone);
    ready_.assign(problem.stages.size(), kNone);
    for (int64_t i = 0; i < p_; ++i) orders_.push_back(StageOrder(problem.schedule, i, p_, m_, v_));
  }

  PipelineDemands Build() {
    AddPasses();
    for (int64_t i = 0; i < p_; ++i) AddExchanges(i);
    const std::vector<TaskWindow> windows = Windows(graph_);
    PipelineDemands demands;
    for (const TaskWindow& window : windows) demands.iteration = std::max(demands.iteration, window.earliest_end);
    for (size_t k = 0; k < transfers_.size(); ++k) {
      transfers_[k].window = windows[static_cast<size_t>(transfer_task_[k])];
    }
    demands.transfers = std::move(transfers_);
    for (size_t k = 0; k < passes_.size(); ++k) passes_[k].window = windows[static_cast<size_t>(pass_task_[k])];
    demands.passes = std::move(passes_);
    return demands;
  }

 private:
  size_t Slot(int64_t virtual_stage, int64_t micro_batch) const {
    return static_cast<size_t>(virtual_stage * m_ + micro_batch);
  }

  /// Stages take turns, each as far as its input is there, so that what a pass waits for is always added before.
  void AddPasses() {
    std::vector<size_t> next(orders_.size(), 0);
    for (bool more = true; more;) {
      more = false;
      for (int64_t i = 0; i < p_; ++i) {
        const std::vector<StagePass>& order = orders_[static_cast<size_t>(i)];
        size_t& at = next[static_cast<size_t>(i)];
        while (at < order.size() && TryPass(i, order[at])) ++at, more = true;
      }
    }
  }

  bool TryPass(int64_t stage, const StagePass& pass) {
    const int64_t k = VirtualStage(problem_.schedule, stage, pass.chunk, p_), j = pass.micro_batch;
    int32_t needs = kNone;
    if (pass.kind == PassKind::kForward && k > 0) {
      needs = output_[Slot(k - 1, j)];
      if (needs == kNone) return false;
    } else if (pass.kind == PassKind::kData && k + 1 < p_ * v_) {
      needs = gradient_[Slot(k + 1, j)];
      if (needs == kNone) return false;
    }
    const int32_t task = Add(stage, Duration(stage, pass), needs);
    passes_.push_back({.stage = stage, .pass = pass, .window = {}});
    pass_task_.push_back(task);
    if (pass.kind == PassKind::kForward) output_[Slot(k, j)] = Send(task, stage, pass, k + 1);
    if (pass.kind == PassKind::kData) gradient_[Slot(k, j)] = Send(task, stage, pass, k - 1);
    if (pass.kind != PassKind::kForward) ready_[static_cast<size_t>(stage * v_ + pass.chunk)] = task;
    return true;
  }

  int32_t Add(int64_t stage, Seconds duration, int32_t needs) {
    int32_t& last = last_[static_cast<size_t>(stage)];
    const std::array<int32_t, 2> both = {last, needs};
    const size_t first = last == kNone ? 1 : 0, end = needs == kNone ? 1 : 2;
    return last = graph_.Add(duration, std::span(both).subspan(first, end > first ? end - first : 0));
  }

  Seconds Duration(int64_t stage, const StagePass& pass) const {
    const StageTime& time = problem_.stages[static_cast<size_t>(stage * v_ + pass.chunk)];
    if (pass.kind == PassKind::kForward) return time.forward;
    if (pass.kind == PassKind::kWeight) return time.weight_gradient;
    return SplitsBackward(problem_.schedule) ? time.data_gradient : time.data_gradient + time.weight_gradient;
  }

  Seconds Hop(int64_t a, int64_t b) const {
    if (problem_.hops.empty()) return Seconds(0);
    if (problem_.hops.size() == 1) return problem_.hops[0];
    // From the last stage to the first chunks follow each other; with two stages that is told apart by the direction.
    const bool around = std::abs(a - b) != 1;
    return problem_.hops[static_cast<size_t>(around ? p_ - 1 : std::min(a, b))];
  }

  /// Of a stage's two ways out: to the next stage or the one before, round from the last to the first as from one stage to the next.
  size_t Link(int64_t stage, int64_t receiver, bool forward) const {
    const bool vee = problem_.schedule == ScheduleKind::kZbV;
    const bool down = p_ == 2 ? stage == 0 : vee ? receiver > stage : forward;
    return static_cast<size_t>(2 * stage + (down ? 0 : 1));
  }

  /// The message of `task` to virtual stage `to`, or `task` itself where nothing is sent.
  int32_t Send(int32_t task, int64_t stage, const StagePass& pass, int64_t to) {
    if (to < 0 || to >= p_ * v_) return task;
    const int64_t receiver = PlaceOf(problem_.schedule, to, p_).stage;
    if (receiver == stage) return task;
    const bool forward = pass.kind == PassKind::kForward;
    const bool around = p_ == 2 && problem_.schedule == ScheduleKind::kInterleaved && (forward ? stage == 1 : stage == 0);
    const Seconds time = around && problem_.hops.size() == 2 ? problem_.hops[1] : Hop(stage, receiver);
    int32_t& before = sent_[Link(stage, receiver, forward)];  // a link carries one message at a time
    const std::array<int32_t, 2> both = {task, before};
    const int32_t message = graph_.Add(time, std::span(both).first(before == kNone || !(time > Seconds(0)) ? 1 : 2));
    if (time > Seconds(0)) before = message;
    if (problem_.blocking_sends) last_[static_cast<size_t>(stage)] = message;
    transfer_task_.push_back(message);
    transfers_.push_back({.kind = forward ? TransferDemand::Kind::kActivation : TransferDemand::Kind::kGradientMessage,
                          .from = stage, .to = receiver, .chunk = pass.chunk, .micro_batch = pass.micro_batch,
                          .bytes = traffic_.message});
    return message;
  }

  /// Chunks exchange when their last weight gradient is there, one after another in the order in which that happens.
  void AddExchanges(int64_t stage) {
    std::vector<int64_t> chunks;
    for (int64_t c = 0; c < v_; ++c) chunks.push_back(c);
    const auto ready = [&](int64_t c) { return ready_[static_cast<size_t>(stage * v_ + c)]; };
    std::sort(chunks.begin(), chunks.end(), [&](int64_t a, int64_t b) { return ready(a) < ready(b); });
    int32_t exchange = kNone;
    for (const int64_t c : chunks) {
      const auto cell = static_cast<size_t>(stage * v_ + c);
      if (traffic_.gradients.empty()) break;
      const std::array<int32_t, 2> both = {ready(c), exchange};
      const Seconds time = traffic_.gradient_times.empty() ? Seconds(0) : traffic_.gradient_times[cell];
      exchange = graph_.Add(time, std::span(both).first(exchange == kNone ? 1 : 2));
      transfer_task_.push_back(exchange);
      transfers_.push_back({.kind = TransferDemand::Kind::kGradientExchange, .from = stage, .to = stage, .chunk = c,
                            .micro_batch = m_ - 1, .bytes = traffic_.gradients[cell]});
    }
    Add(stage, traffic_.optimizer, exchange);
  }

  const PipelineProblem& problem_;
  const PipelineTraffic& traffic_;
  int64_t v_, p_, m_;
  std::vector<std::vector<StagePass>> orders_;
  TaskGraph graph_;
  std::vector<int32_t> output_, gradient_;  // [virtual stage × micro-batch] task after which the next one may start
  std::vector<int32_t> last_;               // [p] task after which the stage is free
  std::vector<int32_t> sent_;               // [2p] last message on each of its ways out
  std::vector<int32_t> ready_;              // [p × v] last backward or weight gradient pass
  std::vector<PassWindow> passes_;
  std::vector<int32_t> pass_task_;          // [passes]
  std::vector<TransferDemand> transfers_;
  std::vector<int32_t> transfer_task_;      // [transfers]
};

Status CheckTraffic(const PipelineProblem& problem, const PipelineTraffic& traffic) {
  const size_t cells = problem.stages.size();
  for (const size_t size : {traffic.gradients.size(), traffic.gradient_times.size()}) {
    if (size != 0 && size != cells) {
      return Fail(Code::kInvalidArgument, fmt::format("pipeline traffic: {} gradients, expected none or {} (one per chunk "
                                                      "of each stage)", size, cells));
    }
  }
  for (size_t k = 0; k < traffic.gradient_times.size(); ++k) {
    if (!(traffic.gradient_times[k].count() >= 0)) {
      return Fail(Code::kInvalidArgument, fmt::format("pipeline traffic: gradient time {} is {} s, expected 0 or more", k,
                                                      traffic.gradient_times[k].count()));
    }
  }
  if (!(traffic.optimizer.count() >= 0) || traffic.message < Bytes(0)) {
    return Fail(Code::kInvalidArgument, fmt::format("pipeline traffic: optimizer {} s, message {} B, expected 0 or more",
                                                    traffic.optimizer.count(), traffic.message.count()));
  }
  return Ok();
}

}  // namespace

Result<PipelineDemands> DemandsOf(const PipelineProblem& problem, const PipelineTraffic& traffic) {
  WEFT_RETURN_IF_ERROR(CheckPipeline(problem));
  WEFT_RETURN_IF_ERROR(CheckTraffic(problem, traffic));
  return Builder(problem, traffic).Build();
}

}  // namespace weft::planner::tasks
