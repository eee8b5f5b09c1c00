// ZB-V: every stage holds a chunk of the way down (virtual stage i) and one of the way up (2p-1-i), so that the loss lies
// on the stage that has the first layers. Its warm-up and drain are irregular; so the order is laid out once per (p, m) as
// a list of passes that agrees with the order on each stage and with every dependency, and a simulation is one walk
// through that list.
#include <algorithm>

#include "planner/tasks/pipeline_order.h"
#include "planner/tasks/pipeline_tables.h"

namespace weft::planner::inline tasks {
namespace {

/// Slots of `ready`: 0 is "always there"; then outputs and gradients per virtual stage and micro-batch; then the last
/// weight gradient per stage and chunk.
class Slots {
 public:
  Slots(int64_t p, int64_t m) : p_(p), m_(m) {}

  int64_t Virtual(int64_t stage, int64_t chunk) const {
    return VirtualStage(ScheduleKind::kZbV, stage, chunk, p_);
  }
  uint32_t Output(int64_t k, int64_t j) const { return static_cast<uint32_t>(1 + k * m_ + j); }
  uint32_t Gradient(int64_t k, int64_t j) const { return static_cast<uint32_t>(1 + (2 * p_ + k) * m_ + j); }
  uint32_t Weight(int64_t stage, int64_t chunk) const {
    return static_cast<uint32_t>(1 + 4 * p_ * m_ + 2 * stage + chunk);
  }
  size_t Count() const { return static_cast<size_t>(1 + 4 * p_ * m_ + 2 * p_); }

  uint32_t Needs(int64_t stage, const StagePass& pass) const {
    const int64_t k = Virtual(stage, pass.chunk), j = pass.micro_batch;
    if (pass.kind == PassKind::kForward) return k > 0 ? Output(k - 1, j) : 0;
    // The last virtual stage's own output; a weight gradient follows its data gradient on the same stage.
    if (pass.kind == PassKind::kData) return k + 1 < 2 * p_ ? Gradient(k + 1, j) : Output(k, j);
    return 0;
  }
  uint32_t Gives(int64_t stage, const StagePass& pass) const {
    const int64_t k = Virtual(stage, pass.chunk), j = pass.micro_batch;
    if (pass.kind == PassKind::kForward) return Output(k, j);
    return pass.kind == PassKind::kData ? Gradient(k, j) : Weight(stage, pass.chunk);
  }

 private:
  int64_t p_, m_;
};

/// Whether a pass sends to the next stage: down with chunk 0, and gradients with chunk 1. Weight gradients go nowhere.
bool GoesDown(PassKind kind, int64_t chunk) { return (kind == PassKind::kForward) == (chunk == 0); }

/// Index of a pass's cost.
uint16_t Cost(int64_t stage, PassKind kind, int64_t chunk) {
  return static_cast<uint16_t>(6 * stage + 2 * static_cast<int64_t>(kind) + chunk);
}

void LayOut(PipelineScratch::Tables& tables) {
  const int64_t p = tables.p, m = tables.m;
  const Slots slots(p, m);
  std::vector<std::vector<StagePass>> orders;
  for (int64_t i = 0; i < p; ++i) orders.push_back(StageOrder(ScheduleKind::kZbV, i, p, m, 2));
  std::vector<char> given(slots.Count(), 0);
  given[0] = 1;
  std::vector<size_t> next(static_cast<size_t>(p), 0);
  const auto total = static_cast<size_t>(6 * p * m);
  tables.order.clear();
  tables.order.reserve(total);
  while (tables.order.size() < total) {
    for (int64_t i = 0; i < p; ++i) {
      const std::vector<StagePass>& passes = orders[static_cast<size_t>(i)];
      size_t& at = next[static_cast<size_t>(i)];
      // As far as possible, so that a few sweeps do.
      for (; at < passes.size() && given[slots.Needs(i, passes[at])] != 0; ++at) {
        const uint32_t gives = slots.Gives(i, passes[at]);
        given[gives] = 1;
        tables.order.push_back({slots.Needs(i, passes[at]), gives, static_cast<uint16_t>(i),
                                Cost(i, passes[at].kind, passes[at].chunk)});
      }
    }
  }
  tables.order_p = p;
  tables.order_m = m;
}

}  // namespace

void RunZbV(PipelineScratch::Tables& tables) {
  using enum PassKind;
  const int64_t p = tables.p, m = tables.m;
  if (tables.order_p != p || tables.order_m != m) LayOut(tables);
  const Slots slots(p, m);
  tables.ready.resize(slots.Count());
  tables.over.resize(slots.Count());
  tables.ready[0] = 0;
  tables.pass_cost.resize(static_cast<size_t>(6 * p));
  tables.pass_send.resize(static_cast<size_t>(6 * p));
  tables.pass_down.resize(static_cast<size_t>(6 * p));
  for (int64_t i = 0; i < p; ++i) {
    tables.lanes[static_cast<size_t>(i)] = {};
    for (int64_t c = 0; c < 2; ++c) {
      const ChunkCost& cost = tables.costs[static_cast<size_t>(2 * i + c)];
      tables.pass_cost[Cost(i, kForward, c)] = cost.forward;
      tables.pass_cost[Cost(i, kData, c)] = cost.backward;
      tables.pass_cost[Cost(i, kWeight, c)] = cost.weight;
      tables.pass_send[Cost(i, kForward, c)] = cost.send_forward;
      tables.pass_send[Cost(i, kData, c)] = cost.send_backward;
      tables.pass_send[Cost(i, kWeight, c)] = 0;
      for (const PassKind kind : {kForward, kData, kWeight}) tables.pass_down[Cost(i, kind, c)] = GoesDown(kind, c) ? 1 : 0;
    }
  }
  for (const Pass& pass : tables.order) {
    Lane& lane = tables.lanes[pass.stage];
    const Tick send = tables.pass_send[pass.cost], done = std::max(lane.free, tables.ready[pass.needs]) + tables.pass_cost[pass.cost];
    tables.over[pass.gives] = tables.ready[pass.gives] = lane.free = done;
    if (send == 0) continue;
    // Behind what the stage has sent to that neighbour before.
    Tick& mail = tables.pass_down[pass.cost] != 0 ? lane.forward_mail : lane.backward_mail;
    tables.ready[pass.gives] = mail = std::max(done, mail) + send;
    lane.free = done + ((mail - done) & tables.blocking);
  }
  tables.simulated = static_cast<int64_t>(tables.order.size());
  for (int64_t i = 0; i < p; ++i) {
    for (int64_t c = 0; c < 2; ++c) {
      const ChunkCost& cost = tables.costs[static_cast<size_t>(2 * i + c)];
      const int64_t k = slots.Virtual(i, c);
      tables.chunks[static_cast<size_t>(2 * i + c)] = {
          .first_forward = tables.over[slots.Output(k, 0)] - cost.forward,
          .first_backward_end = tables.over[slots.Gradient(k, 0)],
          .last_backward = tables.over[slots.Gradient(k, m - 1)] - cost.backward,
          .gradients_ready = tables.over[slots.Weight(i, c)]};
    }
  }
}

}  // namespace weft::planner::tasks
