// weft-train, of this release: data parallelism alone (runtime/).
#include <fmt/format.h>

#include <array>

#include "planner/parallelism/framework.h"
#include "planner/parallelism/variables.h"

namespace weft::planner::frameworks {
namespace {

using namespace literals;
using Question = FrameworkQuestion;

constexpr FrameworkRule kRules[] = {
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

// Of --bucket.
constexpr std::array kBuckets = {1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB};

}  // namespace

std::span<const FrameworkRule> WeftTrainRules() { return kRules; }
std::span<const Bytes> WeftTrainBuckets() { return kBuckets; }

}  // namespace weft::planner::frameworks
