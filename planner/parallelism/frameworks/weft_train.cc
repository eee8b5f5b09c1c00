// weft-train, of this release: what it runs as programs, besides what can be one (program_rules.cc), and without a plan.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "planner/collectives/collective_cost.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/program/program_limits.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::frameworks {
namespace {

using namespace literals;
using Question = FrameworkQuestion;

constexpr int64_t kWords = 256;
constexpr auto kMostInstructions = static_cast<double>(StepProgram::kMostInstructions);

/// The most replicas that sum among themselves under gossip, in either order of ranks: GossipUnit().
int64_t MostInUnit(const Question& q) {
  const Strategy& s = q.strategy;
  int64_t most = 1;
  for (const int64_t stride : {s.tp, s.tp * s.pp}) {
    const Group group{s.dp, stride};
    int64_t unit = RanksInside(group, q.cluster.gpus_per_node);
    for (const FabricTier& tier : q.cluster.tiers) {
      const int64_t inside = RanksInside(group, tier.nodes * q.cluster.gpus_per_node);
      if (inside < group.size) unit = inside;
    }
    most = std::max(most, unit);
  }
  return most;
}

constexpr FrameworkRule kRules[] = {
    {"words", [](const Question& q) { return !q.job.model.IsCnn() && q.job.model.vocab != kWords; },
     [](const Question& q) {
       return fmt::format("model {}: a vocabulary of {}, expected {}: words are bytes; put \"vocab_size\": {} into its config.json",
                          q.job.model.name, q.job.model.vocab, kWords, kWords);
     },
     "runtime/text_data.h", SearchStage::kJob},
    {"sizes",
     [](const Question& q) {
       constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
       const ModelSpec& m = q.job.model;
       return std::max({m.hidden, m.ffn_hidden, q.job.sequence, q.job.global_batch, m.expert_ffn_hidden}) > kMost ||
              m.experts > 65'536;
     },
     [](const Question& q) {
       return fmt::format("model {}: sizes of the model, sequence {} or batch {}, expected at most 2^31, and 65536 experts",
                          q.job.model.name, q.job.sequence, q.job.global_batch);
     },
     "planner/tasks/step_program_check.cc", SearchStage::kJob},
    {"ranks", [](const Question& q) { return GpuCount(q.strategy) > StepProgram::kMostRanks; },
     [](const Question& q) {
       return fmt::format("a program for {} ranks, expected at most {}", GpuCount(q.strategy), StepProgram::kMostRanks);
     },
     "planner/tasks/step_program.h"},
    {"instructions", [](const Question& q) { return MostInstructions(q.job, q.strategy, 1) > kMostInstructions; },
     [](const Question& q) {
       return fmt::format("{} micro-batches through {} layers: up to {:.0f} instructions, expected at most {:.0f}: a larger micro_batch",
                          MicroBatches(q.strategy, q.job.global_batch), q.job.model.layers, MostInstructions(q.job, q.strategy, 1),
                          kMostInstructions);
     },
     "planner/tasks/step_program.h"},
    // Whether levels are taken follows from the times of the links; where they are not, it is the ring under another name.
    {"narrow-levels",
     [](const Question& q) {
       return q.strategy.gradient_wire != GradientWire::kWhole && q.strategy.data_sync == DataSync::kHierarchical;
     },
     [](const Question& q) {
       return fmt::format("gradient_wire={}: not executed with data_sync=hierarchical, expected ring",
                          GradientWireName(q.strategy.gradient_wire));
     },
     "planner/parallelism/program/expand.cc", SearchStage::kExchange},
    // The order of ranks is not known when a search decides on the exchange: it has to be so in both.
    {"gossip-units", [](const Question& q) { return q.strategy.data_sync == DataSync::kGossip && MostInUnit(q) != 1; },
     [](const Question& q) {
       return fmt::format("data_sync=gossip: not executed with {} replicas in a unit, expected 1, in both orders of ranks",
                          MostInUnit(q));
     },
     "planner/parallelism/program/expand.cc", SearchStage::kExchange},
};

constexpr FrameworkRule kDataParallelRules[] = {
    {"data-parallel",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.tp != 1 || s.pp != 1 || s.cp != 1 || s.ep != 1 || s.etp != 1 || s.recompute != Recompute::kNone;
     },
     [](const Question& q) {
       return fmt::format("{}: expected data parallelism alone: every other degree 1, recompute=none", DescribeStrategy(q.strategy));
     },
     "runtime/README.md", SearchStage::kRecompute},
    {"zero-stage", [](const Question& q) { return q.strategy.zero_stage != 0; },
     [](const Question& q) { return fmt::format("zero_stage={}, expected 0", q.strategy.zero_stage); }, "runtime/README.md",
     SearchStage::kExchange},
    // A table of collectives may name servers among the ranks; host CPUs beside them it has none.
    {"gradient-exchange",
     [](const Question& q) {
       return q.strategy.data_sync == DataSync::kSwitch || q.strategy.data_sync == DataSync::kParameterServer;
     },
     [](const Question& q) {
       return fmt::format("data_sync={}, expected a sum that the ranks make: ring or hierarchical", DataSyncName(q.strategy.data_sync));
     },
     "runtime/README.md, netplugin/abi/collective_table.h", SearchStage::kExchange},
};

// Of --bucket, and of a program's units.
constexpr std::array kBuckets = {1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB};

}  // namespace

std::span<const FrameworkRule> WeftTrainRules() { return kRules; }
std::span<const FrameworkRule> DataParallelRules() { return kDataParallelRules; }
std::span<const Bytes> WeftTrainBuckets() { return kBuckets; }

}  // namespace weft::planner::frameworks
