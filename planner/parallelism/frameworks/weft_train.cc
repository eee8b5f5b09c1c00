// weft-train, of this release: data parallelism alone (runtime/).
#include "planner/parallelism/framework.h"

namespace weft::planner::frameworks {
namespace {

using Question = FrameworkQuestion;

constexpr FrameworkRule kRules[] = {
    {"data-parallel",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.tp != 1 || s.pp != 1 || s.cp != 1 || s.ep != 1 || s.recompute != Recompute::kNone;
     },
     [](const Question&) { return std::string("expected data parallelism alone: every other degree 1, recompute=none"); },
     "runtime/README.md", SearchStage::kRecompute},
    {"zero-stage", [](const Question& q) { return q.strategy.zero_stage != 0; },
     [](const Question&) { return std::string("zero_stage above 0, expected 0"); }, "runtime/README.md", SearchStage::kExchange},
    {"gradient-exchange", [](const Question& q) { return q.strategy.data_sync == DataSync::kSwitch; },
     [](const Question&) { return std::string("data_sync=switch, expected a sum that the ranks make"); }, "runtime/README.md",
     SearchStage::kExchange},
};

}  // namespace

std::span<const FrameworkRule> WeftTrainRules() { return kRules; }

}  // namespace weft::planner::frameworks
