#include "cli/demo/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "common/check.h"

namespace weft::cli {
namespace {

constexpr double kConfidence = 0.95;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Seconds MedianTime(const std::vector<Block>& blocks, const std::function<Seconds(const Block&)>& time) {
  std::vector<double> values;
  for (const Block& block : blocks) values.push_back(time(block).count());
  return Seconds(Median(std::move(values)));
}

/// How many of the smallest and of the largest of `n` values lie outside the interval; -1: no interval is sure enough.
/// The true median lies below the k-th smallest when at most k - 1 values lie below it, each with a chance of one half.
int LeftOut(size_t n) {
  double chance = std::pow(0.5, static_cast<double>(n)), sum = 0;  // of exactly k values below the median
  for (size_t k = 0; k < n; ++k) {
    sum += chance;
    if (1 - 2 * sum < kConfidence) return static_cast<int>(k) - 1;
    chance *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return -1;
}

/// The block that began nearest to `time`. Requires: at least one.
const Block& Nearest(const std::vector<Block>& blocks, Seconds time) {
  return *std::min_element(blocks.begin(), blocks.end(), [time](const Block& a, const Block& b) {
    return std::abs((a.middle - time).count()) < std::abs((b.middle - time).count());
  });
}

}  // namespace

Ratio MedianOf(std::vector<double> values) {
  Ratio ratio;
  ratio.blocks = static_cast<int>(values.size());
  if (values.empty()) return ratio;
  std::sort(values.begin(), values.end());
  ratio.value = Median(values);
  if (const int out = LeftOut(values.size()); out >= 0) {
    ratio.low = values[static_cast<size_t>(out)];
    ratio.high = values[values.size() - 1 - static_cast<size_t>(out)];
  }
  return ratio;
}

Verdict Judge(const Ratio& ratio, double most) {
  if (ratio.value <= 0) return Verdict::kNotMeasured;
  if (ratio.low <= 0) return Verdict::kCannotTell;
  if (ratio.high <= most) return Verdict::kWithin;
  return ratio.low > most ? Verdict::kFellShort : Verdict::kCannotTell;
}

std::string ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNotMeasured: return "not measured";
    case Verdict::kWithin: return "within";
    case Verdict::kFellShort: return "fell short";
    case Verdict::kCannotTell: return "cannot tell";
  }
  return "";
}

Seconds Block::compute() const {
  Seconds sum = forward + backward + update;
  for (const std::vector<Seconds>& rank : computations) sum = std::reduce(rank.begin(), rank.end(), sum);
  return sum;
}

namespace {

bool Inside(const TrainingStep& step, Seconds from, Seconds to) { return step.time - step.iteration >= from && step.time < to; }

/// Adds `steps`, each of which has computations of the same program, up to their mean.
Block MeanOf(std::span<const TrainingStep> steps) {
  const auto count = static_cast<double>(steps.size());
  Block block{.middle = steps[steps.size() / 2].time - steps[steps.size() / 2].iteration, .computations = steps[0].computations};
  for (const TrainingStep& step : steps) block.iteration += step.iteration / count;
  for (size_t rank = 0; rank < block.computations.size(); ++rank) {
    for (size_t k = 0; k < block.computations[rank].size(); ++k) {
      Seconds sum{0};
      for (const TrainingStep& step : steps) sum += step.computations[rank][k];
      block.computations[rank][k] = sum / count;
    }
  }
  return block;
}

std::vector<Block> CutProgramBlocks(const std::vector<TrainingStep>& steps, Seconds from, Seconds to) {
  const auto first = std::ranges::find_if(steps, [&](const TrainingStep& step) { return Inside(step, from, to); });
  const auto end = std::find_if(first, steps.end(), [&](const TrainingStep& step) { return !Inside(step, from, to); });
  std::vector<Block> blocks;
  for (auto at = first; end - at >= kBlockSteps; at += kBlockSteps) blocks.push_back(MeanOf({at, at + kBlockSteps}));
  return blocks;
}

}  // namespace

std::vector<Block> CutBlocks(const std::vector<TrainingStep>& steps, Seconds from, Seconds to) {
  if (!steps.empty() && !steps.front().computations.empty()) return CutProgramBlocks(steps, from, to);
  const auto inside = [&](const TrainingStep& step) { return Inside(step, from, to); };
  std::vector<Block> blocks;
  for (const TrainingStep& timed : steps) {
    if (!timed.apart || !inside(timed)) continue;
    // The ordinary steps to which no other timed step is nearer; of those in the middle the later one has them.
    Seconds sum{0};
    int before = 0, after = 0;
    for (const TrainingStep& step : steps) {
      if (step.apart || !inside(step)) continue;
      const int64_t distance = step.step - timed.step;
      const bool mine = distance < 0 ? -distance * 2 <= kBlockSteps : distance * 2 < kBlockSteps;
      if (!mine) continue;
      sum += step.iteration;
      ++(distance < 0 ? before : after);
    }
    if (before == 0 || after == 0) continue;
    blocks.push_back({.middle = timed.time - timed.iteration,
                      .iteration = sum / static_cast<double>(before + after),
                      .forward = timed.apart->forward,
                      .backward = timed.apart->backward,
                      .update = timed.update,
                      .ready = timed.apart->ready});
  }
  return blocks;
}

Block MedianBlock(const std::vector<Block>& blocks) {
  Block median{.middle = MedianTime(blocks, [](const Block& block) { return block.middle; }),
               .iteration = MedianTime(blocks, [](const Block& block) { return block.iteration; }),
               .forward = MedianTime(blocks, [](const Block& block) { return block.forward; }),
               .backward = MedianTime(blocks, [](const Block& block) { return block.backward; }),
               .update = MedianTime(blocks, [](const Block& block) { return block.update; }),
               .ready = {},
               .computations = blocks.front().computations};
  for (size_t i = 0; i < blocks.front().ready.size(); ++i) {
    median.ready.push_back(MedianTime(blocks, [i](const Block& block) { return block.ready[i]; }));
  }
  for (size_t rank = 0; rank < median.computations.size(); ++rank) {
    for (size_t k = 0; k < median.computations[rank].size(); ++k) {
      median.computations[rank][k] = MedianTime(blocks, [&](const Block& block) { return block.computations[rank][k]; });
    }
  }
  return median;
}

BoundJob WithCompute(const BoundJob& job, const Block& block) {
  BoundJob made = job;
  if (job.program != nullptr) {
    made.computations = block.computations;
    return made;
  }
  WEFT_CHECK(block.ready.size() == made.iteration.buckets.size(), "one ready time for each bucket");
  made.iteration.compute = block.compute();
  made.iteration.after_backward = block.update;
  for (size_t i = 0; i < block.ready.size(); ++i) made.iteration.buckets[i].ready = block.ready[i];
  return made;
}

namespace {

/// Whether a block is one of the job's.
bool Fits(const BoundJob& job, const Block& block) {
  if (job.program == nullptr) return block.computations.empty() && block.ready.size() == job.iteration.buckets.size();
  if (block.computations.size() != job.program->ranks.size()) return false;
  for (size_t rank = 0; rank < block.computations.size(); ++rank) {
    const auto list = static_cast<size_t>(job.program->ranks[rank].rank_class);
    if (block.computations[rank].size() != job.program->classes[list].instructions.size()) return false;
  }
  return true;
}

}  // namespace

std::vector<PhaseEstimate> EstimatePhase(const BoundFabric& fabric, const std::vector<PhaseJob>& jobs, Seconds from,
                                         Seconds to, const std::vector<CableFactor>& cables,
                                         const std::vector<BackgroundFlow>& background) {
  std::vector<std::vector<Block>> blocks;
  std::vector<PhaseEstimate> estimates(jobs.size());
  bool all = true;
  for (size_t j = 0; j < jobs.size(); ++j) {
    blocks.push_back(CutBlocks(jobs[j].steps, from, to));
    std::erase_if(blocks.back(), [&](const Block& block) { return !Fits(jobs[j].job, block); });
    estimates[j].iteration = MedianIteration(jobs[j].steps, from, to).value_or(Seconds(0));
    all &= !blocks[j].empty();
  }
  if (!all) return estimates;
  // All jobs with what `pick` says of each.
  const auto bound_of = [&](const auto& pick, const Bound* near) {
    std::vector<BoundJob> timed;
    for (size_t j = 0; j < jobs.size(); ++j) timed.push_back(WithCompute(jobs[j].job, pick(j)));
    return std::pair(ComputeBound(fabric, timed, cables, background, near), timed);
  };
  const auto [medians, timed] = bound_of([&](size_t j) { return MedianBlock(blocks[j]); }, nullptr);
  for (size_t j = 0; j < jobs.size(); ++j) {
    std::vector<double> bounds, ratios;
    for (const Block& block : blocks[j]) {
      const Bound bound = bound_of([&](size_t other) { return Nearest(blocks[other], block.middle); }, &medians).first;
      bounds.push_back(bound.iterations[j].count());
      ratios.push_back(block.iteration.count() / bounds.back());
    }
    estimates[j].compute = MedianBlock(blocks[j]).compute();
    estimates[j].bound = Seconds(Median(bounds));
    estimates[j].ratio = MedianOf(std::move(ratios));
    estimates[j].formula = fmt::format("{}; median of {} blocks of this phase", ExplainBound(timed[j], medians.alone[j], medians.iterations[j]), bounds.size());
  }
  return estimates;
}

}  // namespace weft::cli
