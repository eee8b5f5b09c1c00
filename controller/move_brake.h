// Keeps plans of all jobs together from moving flows to and fro. Which of two mirrored plans a simulation prefers depends on phases that
// nobody knows, and every few seconds another one may look a little better: what was moved lately is moved again for a larger gain only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>

namespace weft::controller {

/// Of one controller. The gain that a plan has to promise is doubled by each plan that moves flows, and halves with time; other jobs,
/// or links that give something else, are another question, which begins anew.
class MoveBrake {
 public:
  /// Whether a plan of these jobs that promises so much more GPU use, relative to what is in force, may move flows at `now_s`; if so
  /// it counts as carried out. `links` counts how often some link gave something else than before.
  bool Passes(double gain, const std::set<std::string>& jobs, int64_t links, double now_s) {
    if (jobs != jobs_ || links != links_) wanted_ = 0, jobs_ = jobs, links_ = links;
    const double wanted = wanted_ * std::exp2(-std::max(0.0, now_s - moved_s_) / kHalvesEvery);
    if (wanted >= kFirstGain / 8 && gain < wanted) return false;
    wanted_ = std::clamp(2 * wanted, kFirstGain, kMostGain);
    moved_s_ = now_s;
    return true;
  }

 private:
  static constexpr double kFirstGain = 0.05, kMostGain = 1;
  static constexpr double kHalvesEvery = 60;  // seconds

  std::set<std::string> jobs_;
  int64_t links_ = 0;
  double wanted_ = 0, moved_s_ = 0;
};

}  // namespace weft::controller
