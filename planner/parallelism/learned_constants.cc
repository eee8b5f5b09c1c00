#include "planner/parallelism/learned_constants.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace weft::planner::inline parallelism {
namespace {

// A constant's place in its range is a logit: 0 in the middle, so that no step leaves the range. How far the places of a site's
// constants lie from those compiled in (standard deviations), and its runs from what they should be: chosen so that three runs of a
// published source say most about its others (docs/fidelity.md), of all its sources together.
constexpr double kTimeSpread = 0.25;         // of gpu.time: 15 % of the time
constexpr double kActivationsSpread = 0.8;   // of memory.activations: half of them
constexpr double kLinkSpread = 1;
constexpr double kSpread = 0.3;              // of all others
constexpr double kNoise = 0.1;               // of the logarithm of a run's time or memory
constexpr double kFreedom = 2;               // of Student's t: how little far runs count
constexpr double kStep = 0.08;               // of the finite differences
constexpr double kLeastShare = 0.001;        // of a range: logits have no end
constexpr double kMostStep = 0.8;            // for which slopes are believed
constexpr double kWorthMoving = 0.01;
constexpr double kMostOff = 3;               // of a logarithm: what is off by more than twenty times says no more than that
constexpr int kRounds = 5, kReweightings = 10;

double SpreadOf(std::string_view name) {
  if (name == "gpu.time") return kTimeSpread;
  if (name == "memory.activations") return kActivationsSpread;
  return name.starts_with("link.") ? kLinkSpread : kSpread;
}

double PlaceOf(const CalibrationConstant& c) {
  const double share = std::clamp((c.value - c.least) / (c.most - c.least), kLeastShare, 1 - kLeastShare);
  return std::log(share / (1 - share));
}

class Fit {
 public:
  Fit(const Calibration& base, std::span<const double> measured, const PredictRuns& predict)
      : base_(base), measured_(measured), predict_(predict) {
    for (const CalibrationConstant& c : base.constants()) {
      if (c.name.starts_with("operation.") || !(c.value > c.least && c.value < c.most)) continue;
      constants_.push_back(c);
    }
    start_.resize(Count());
    spread_.resize(Count());
    for (Eigen::Index i = 0; i < Count(); ++i) {
      start_[i] = PlaceOf(At(i));
      spread_[i] = SpreadOf(At(i).name);
    }
  }

  Result<LearnedConstants> Run() {
    Eigen::VectorXd place = start_;
    WEFT_ASSIGN_OR_RETURN(Eigen::VectorXd logs, Logs(place));
    double best = Score(place, logs);
    for (int round = 0; round < kRounds; ++round) {
      WEFT_ASSIGN_OR_RETURN(const Eigen::MatrixXd slopes, Slopes(place, logs));
      const Eigen::VectorXd aim = Solve(place, logs, slopes);
      const double before = best;
      for (const double share : {1.0, 0.5, 0.25}) {
        const Eigen::VectorXd there = place + share * (aim - place);
        WEFT_ASSIGN_OR_RETURN(const Eigen::VectorXd seen, Logs(there));
        const double score = Score(there, seen);
        if (!(score < best)) continue;
        best = score, place = there, logs = seen;
        break;
      }
      if (!(best < before * (1 - 1e-4))) break;
    }
    return Answer(place);
  }

 private:
  Eigen::Index Count() const { return static_cast<Eigen::Index>(constants_.size()); }
  Eigen::Index Runs() const { return static_cast<Eigen::Index>(measured_.size()); }
  const CalibrationConstant& At(Eigen::Index i) const { return constants_[static_cast<size_t>(i)]; }

  bool Moved(const Eigen::VectorXd& place, Eigen::Index i) const { return std::abs(place[i] - start_[i]) >= kWorthMoving; }
  double ValueAt(const Eigen::VectorXd& place, Eigen::Index i) const {
    return At(i).least + (At(i).most - At(i).least) / (1 + std::exp(-place[i]));
  }
  /// What has not moved keeps its value, which may be on a bound.
  Calibration ConstantsAt(const Eigen::VectorXd& place) const {
    std::vector<MeasuredConstant> moved;
    for (Eigen::Index i = 0; i < Count(); ++i) {
      if (Moved(place, i)) moved.push_back({.name = At(i).name, .value = ValueAt(place, i)});
    }
    return base_.With(moved);
  }

  /// Logarithms of predicted over measured; 0 of what is not predicted.
  Result<Eigen::VectorXd> Logs(const Eigen::VectorXd& place) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> predicted, predict_(ConstantsAt(place)));
    Eigen::VectorXd logs(Runs());
    for (Eigen::Index run = 0; run < Runs(); ++run) {
      const double log = std::log(predicted[static_cast<size_t>(run)] / measured_[static_cast<size_t>(run)]);
      logs[run] = std::isnan(log) ? 0 : std::clamp(log, -kMostOff, kMostOff);
    }
    return logs;
  }

  /// Of the logarithms, by the constants' places.
  Result<Eigen::MatrixXd> Slopes(const Eigen::VectorXd& place, const Eigen::VectorXd& logs) const {
    Eigen::MatrixXd slopes(Runs(), Count());
    for (Eigen::Index i = 0; i < Count(); ++i) {
      Eigen::VectorXd moved = place;
      moved[i] += kStep;
      WEFT_ASSIGN_OR_RETURN(const Eigen::VectorXd seen, Logs(moved));
      slopes.col(i) = (seen - logs) / kStep;
    }
    return slopes;
  }

  Eigen::ArrayXd WeightsOf(const Eigen::VectorXd& residuals) const {
    return (kFreedom + 1) / (kFreedom + (residuals / kNoise).array().square());
  }

  /// The most likely place, were the logarithms linear.
  Eigen::VectorXd Solve(const Eigen::VectorXd& place, const Eigen::VectorXd& logs, const Eigen::MatrixXd& slopes) const {
    const Eigen::VectorXd prior = spread_.array().square().inverse().matrix();
    Eigen::VectorXd step = Eigen::VectorXd::Zero(Count());
    for (int round = 0; round < kReweightings; ++round) {
      const Eigen::VectorXd weight = (WeightsOf(logs + slopes * step) / (kNoise * kNoise)).matrix();
      Eigen::MatrixXd information = slopes.transpose() * weight.asDiagonal() * slopes;
      information.diagonal() += prior;
      const Eigen::VectorXd pull = prior.cwiseProduct(start_ - place) - slopes.transpose() * weight.cwiseProduct(logs);
      step = information.ldlt().solve(pull);
    }
    return place + step.cwiseMax(-kMostStep).cwiseMin(kMostStep);
  }

  /// What the place is less likely than the start without any run, as a logarithm.
  double Score(const Eigen::VectorXd& place, const Eigen::VectorXd& logs) const {
    const double runs = (1 + (logs / kNoise).array().square() / kFreedom).log().sum();
    return (kFreedom + 1) / 2 * runs + (place - start_).cwiseQuotient(spread_).squaredNorm() / 2;
  }

  Result<LearnedConstants> Answer(const Eigen::VectorXd& place) const {
    LearnedConstants learned;
    WEFT_ASSIGN_OR_RETURN(learned.before, predict_(base_));
    WEFT_ASSIGN_OR_RETURN(learned.after, predict_(ConstantsAt(place)));
    for (Eigen::Index i = 0; i < Count(); ++i) {
      if (!Moved(place, i)) continue;
      learned.moved.push_back(At(i));
      learned.moved.back().value = ValueAt(place, i);
      learned.moved.back().fitted = true;
    }
    return learned;
  }

  const Calibration& base_;
  std::span<const double> measured_;
  const PredictRuns& predict_;
  std::vector<CalibrationConstant> constants_;
  Eigen::VectorXd start_, spread_;
};

}  // namespace

double MedianError(std::span<const double> predicted, std::span<const double> measured) {
  std::vector<double> errors;
  for (size_t i = 0; i < measured.size(); ++i) {
    if (!std::isnan(predicted[i])) errors.push_back(std::abs(predicted[i] / measured[i] - 1));
  }
  if (errors.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = errors.begin() + static_cast<ptrdiff_t>((errors.size() - 1) / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  return *middle;
}

Result<LearnedConstants> LearnConstants(const Calibration& base, std::span<const double> measured, const PredictRuns& predict) {
  return Fit(base, measured, predict).Run();
}

}  // namespace weft::planner::parallelism
