// ZB-V: every stage holds a chunk of the way down (virtual stage i) and one of the way up (2p-1-i), so that the loss lies
// on the stage that has the first layers. Its warm-up and drain are irregular; so the order is laid out once per (p, m) as
// a list of passes that agrees with the order on each stage and with every dependency, and a simulation is one walk
// through that list. The order on a stage (handcrafted ZB-V of arXiv 2401.10241, section 6, for F = D = W):
//   warm-up   2(p-i)-1 forwards of chunk 0; i times a forward of chunk 1 and of chunk 0;
//             p-i times forward, data gradient, weight gradient of chunk 1
//   steady    forward, D, W of chunk 0, then of chunk 1, until no forward is left
//   drain     i times D of chunk 0 and of chunk 1; p-i times D and W of chunk 0; then the weight gradients that wait
// With fewer than 2p-1 micro-batches the passes of those that do not exist are left out.
#include <algorithm>

#include "planner/tasks/pipeline_tables.h"

namespace weft::planner {
namespace {

enum Kind : uint8_t { kForward, kData, kWeight };

struct StagePass {
  Kind kind;
  uint8_t chunk;
  int64_t micro_batch;
};

/// The order on one stage.
class StageOrder {
 public:
  StageOrder(int64_t p, int64_t m, int64_t stage) : m_(m) {
    const int64_t padded = std::max(m, 2 * p - 1);
    Repeat(2 * (p - stage) - 1, [&] { Add(kForward, 0); });
    Repeat(stage, [&] { Add(kForward, 1), Add(kForward, 0); });
    Repeat(p - stage, [&] { Add(kForward, 1), Add(kData, 1), Add(kWeight, 1); });
    while (next_[kForward][1] < padded) {
      if (next_[kForward][0] < padded) Add(kForward, 0);
      Add(kData, 0), Add(kWeight, 0);
      Add(kForward, 1), Add(kData, 1), Add(kWeight, 1);
    }
    Repeat(stage, [&] { Add(kData, 0), Add(kData, 1); });
    Repeat(p - stage, [&] { Add(kData, 0), Add(kWeight, 0); });
    while (next_[kWeight][1] < next_[kData][1]) Add(kWeight, 1);
    while (next_[kWeight][0] < next_[kData][0]) Add(kWeight, 0);
  }

  const std::vector<StagePass>& passes() const { return passes_; }

 private:
  template <typename Body>
  static void Repeat(int64_t times, Body body) {
    for (int64_t k = 0; k < times; ++k) body();
  }

  void Add(Kind kind, uint8_t chunk) {
    const int64_t micro_batch = next_[kind][chunk]++;
    if (micro_batch < m_) passes_.push_back({kind, chunk, micro_batch});
  }

  int64_t m_;
  int64_t next_[3][2] = {};
  std::vector<StagePass> passes_;
};

/// Slots of `ready`: 0 is "always there"; then outputs and gradients per virtual stage and micro-batch; then the last
/// weight gradient per stage and chunk.
class Slots {
 public:
  Slots(int64_t p, int64_t m) : p_(p), m_(m) {}

  int64_t Virtual(int64_t stage, int64_t chunk) const { return chunk == 0 ? stage : 2 * p_ - 1 - stage; }
  uint32_t Output(int64_t k, int64_t j) const { return static_cast<uint32_t>(1 + k * m_ + j); }
  uint32_t Gradient(int64_t k, int64_t j) const { return static_cast<uint32_t>(1 + (2 * p_ + k) * m_ + j); }
  uint32_t Weight(int64_t stage, int64_t chunk) const {
    return static_cast<uint32_t>(1 + 4 * p_ * m_ + 2 * stage + chunk);
  }
  size_t Count() const { return static_cast<size_t>(1 + 4 * p_ * m_ + 2 * p_); }

  uint32_t Needs(int64_t stage, const StagePass& pass) const {
    const int64_t k = Virtual(stage, pass.chunk), j = pass.micro_batch;
    if (pass.kind == kForward) return k > 0 ? Output(k - 1, j) : 0;
    // The last virtual stage's own output; a weight gradient follows its data gradient on the same stage.
    if (pass.kind == kData) return k + 1 < 2 * p_ ? Gradient(k + 1, j) : Output(k, j);
    return 0;
  }
  uint32_t Gives(int64_t stage, const StagePass& pass) const {
    const int64_t k = Virtual(stage, pass.chunk), j = pass.micro_batch;
    return pass.kind == kForward ? Output(k, j) : pass.kind == kData ? Gradient(k, j) : Weight(stage, pass.chunk);
  }

 private:
  int64_t p_, m_;
};

void LayOut(PipelineScratch::Tables& tables) {
  const int64_t p = tables.p, m = tables.m;
  const Slots slots(p, m);
  std::vector<StageOrder> orders;
  for (int64_t i = 0; i < p; ++i) {
    orders.emplace_back(p, m, i);
  }
  std::vector<char> given(slots.Count(), 0);
  given[0] = 1;
  std::vector<size_t> next(static_cast<size_t>(p), 0);
  const auto total = static_cast<size_t>(6 * p * m);
  tables.order.clear();
  tables.order.reserve(total);
  while (tables.order.size() < total) {
    for (int64_t i = 0; i < p; ++i) {
      const std::vector<StagePass>& passes = orders[static_cast<size_t>(i)].passes();
      size_t& at = next[static_cast<size_t>(i)];
      // As far as possible, so that a few sweeps do.
      for (; at < passes.size() && given[slots.Needs(i, passes[at])] != 0; ++at) {
        const uint32_t gives = slots.Gives(i, passes[at]);
        given[gives] = 1;
        tables.order.push_back({slots.Needs(i, passes[at]), gives, static_cast<uint16_t>(i),
                                static_cast<uint16_t>(6 * i + 2 * passes[at].kind + passes[at].chunk)});
      }
    }
  }
  tables.order_p = p;
  tables.order_m = m;
}

}  // namespace

void RunZbV(PipelineScratch::Tables& tables) {
  const int64_t p = tables.p, m = tables.m;
  if (tables.order_p != p || tables.order_m != m) LayOut(tables);
  const Slots slots(p, m);
  tables.ready.resize(slots.Count());
  tables.ready[0] = 0;
  tables.pass_cost.resize(static_cast<size_t>(6 * p));
  tables.pass_send.resize(static_cast<size_t>(6 * p));
  for (int64_t i = 0; i < p; ++i) {
    tables.lanes[static_cast<size_t>(i)] = {};
    for (int64_t c = 0; c < 2; ++c) {
      const ChunkCost& cost = tables.costs[static_cast<size_t>(2 * i + c)];
      const auto at = static_cast<size_t>(6 * i + c);
      tables.pass_cost[at + 2 * kForward] = cost.forward;
      tables.pass_cost[at + 2 * kData] = cost.backward;
      tables.pass_cost[at + 2 * kWeight] = cost.weight;
      tables.pass_send[at + 2 * kForward] = cost.send_forward;
      tables.pass_send[at + 2 * kData] = cost.send_backward;
      tables.pass_send[at + 2 * kWeight] = 0;
    }
  }
  for (const Pass& pass : tables.order) {
    Tick& free = tables.lanes[pass.stage].free;
    const Tick send = tables.pass_send[pass.cost];
    const Tick sent = std::max(free, tables.ready[pass.needs]) + tables.pass_cost[pass.cost] + send;
    tables.ready[pass.gives] = sent;
    free = sent - (send & ~tables.blocking);
  }
  tables.simulated = static_cast<int64_t>(tables.order.size());
  for (int64_t i = 0; i < p; ++i) {
    for (int64_t c = 0; c < 2; ++c) {
      const ChunkCost& cost = tables.costs[static_cast<size_t>(2 * i + c)];
      const int64_t k = slots.Virtual(i, c);
      tables.chunks[static_cast<size_t>(2 * i + c)] = {
          .first_forward = tables.ready[slots.Output(k, 0)] - cost.send_forward - cost.forward,
          .first_backward_end = tables.ready[slots.Gradient(k, 0)] - cost.send_backward,
          .last_backward = tables.ready[slots.Gradient(k, m - 1)] - cost.send_backward - cost.backward,
          .gradients_ready = tables.ready[slots.Weight(i, c)]};
    }
  }
}

}  // namespace weft::planner
