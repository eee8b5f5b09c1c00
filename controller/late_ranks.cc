#include "controller/late_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace weft::controller {
namespace {

constexpr Seconds kLook{1.9};          // two seconds as LookAround() comes by: what is judged at once, and two iterations at least
constexpr int kLooksLearned = 6;       // before anybody is judged
constexpr int kLooksInARow = 2;
constexpr double kFollow = 0.2;        // of what is usual, by each look
constexpr double kLeastGrowth = 0.1;   // of the time, that the others wait longer
constexpr double kNotGrown = 0.5;      // of what the median waits longer: who waits no more than that longer does not wait as the others do
constexpr double kLeastWork = 0.5;     // of what usually goes over the wires, in a look that counts
constexpr Seconds kFirstPause{60}, kLongestPause{640};
constexpr Seconds kForgotten{60};
constexpr size_t kNamedAtOnce = 8;

constexpr int kLooksUntilUsual = 240;  // for which somebody was late: then that is how the job is

double Sane(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

}  // namespace

std::optional<std::string> LateRanks::Look(const std::string& job_id, const JobWaits& waits, Seconds elapsed, Seconds period, Seconds now) {
  if (waits.size() < 2 || waits.size() > kMostRanks || elapsed <= Seconds(0) || period <= Seconds(0)) return std::nullopt;
  Job& job = jobs_[job_id];
  job.seen = now;
  job.elapsed += elapsed;
  for (const auto& [number, of] : waits) {
    Rank& rank = job.ranks[number];
    rank.host = of.host;
    rank.peer_s += Sane(of.peer_s);  // a wait is counted when it ends
    rank.wire_s += Sane(of.wire_s);
  }
  std::erase_if(job.ranks, [&](const auto& rank) { return !waits.contains(rank.first); });
  if (job.elapsed < std::max(kLook, 2 * period)) return std::nullopt;
  for (auto& [number, rank] : job.ranks) {
    rank.peer_s = std::min(rank.peer_s, job.elapsed.count());
    rank.wire_s = std::min(rank.wire_s, job.elapsed.count());
  }
  std::optional<std::string> line;
  if (Works(job)) line = Judge(job, now);
  else job.in_a_row = 0;
  for (auto& [number, rank] : job.ranks) rank.peer_s = rank.wire_s = 0;
  job.elapsed = Seconds(0);
  return line;
}

/// Whether about as much goes over the wires as usual: a job that saves its state or evaluates teaches nothing.
bool LateRanks::Works(const Job& job) {
  double wire_s = 0, usual_s = 0;
  for (const auto& [number, rank] : job.ranks) {
    wire_s += rank.wire_s;
    usual_s += rank.usual_wire * job.elapsed.count();
  }
  return wire_s > 0 && wire_s >= kLeastWork * usual_s;
}

/// What was in the look at hand is what is usual from now on.
void LateRanks::Learn(Job& job) {
  job.in_a_row = 0;
  for (auto& [number, rank] : job.ranks) {
    const double part = rank.looks == 0 ? 1 : kFollow;
    rank.usual_peer += part * (rank.peer_s / job.elapsed.count() - rank.usual_peer);
    rank.usual_wire += part * (rank.wire_s / job.elapsed.count() - rank.usual_wire);
    rank.looks = std::min(rank.looks + 1, kLooksLearned);
  }
}

/// Ranks that do not wait longer than usual where the median does, and by how much that does, in parts of the time. None: nobody is late,
/// or too little is known.
std::vector<int32_t> LateRanks::FindLate(const Job& job, double* longer) {
  const double elapsed_s = job.elapsed.count();
  const auto grown = [&](const Rank& rank) { return rank.peer_s / elapsed_s - rank.usual_peer; };
  std::vector<double> growths;
  for (const auto& [number, rank] : job.ranks) {
    if (rank.looks < kLooksLearned) return {};
    growths.push_back(grown(rank));
  }
  const auto middle = growths.begin() + static_cast<std::ptrdiff_t>(growths.size() / 2);
  std::nth_element(growths.begin(), middle, growths.end());
  *longer = *middle;
  if (*middle < kLeastGrowth) return {};
  const double most = kNotGrown * *middle;
  std::vector<int32_t> late;
  for (const auto& [number, rank] : job.ranks) {
    if (grown(rank) <= most && rank.wire_s / elapsed_s - rank.usual_wire <= most) late.push_back(number);
  }
  if (2 * late.size() > growths.size()) late.clear();
  return late;
}

std::optional<std::string> LateRanks::Judge(Job& job, Seconds now) {
  double longer = 0;
  std::vector<int32_t> late = FindLate(job, &longer);
  if (late.empty() || job.in_a_row >= kLooksUntilUsual) {
    Learn(job);
    return std::nullopt;
  }
  // Samples of two hosts are not of the same moment: one rank more or less is in a look.
  std::vector<int32_t> both;
  std::ranges::set_intersection(late, job.late, std::back_inserter(both));
  job.in_a_row = both.empty() ? 1 : job.in_a_row + 1;
  job.late = both.empty() ? std::move(late) : std::move(both);
  if (job.in_a_row < kLooksInARow || now < job.said + job.pause) return std::nullopt;
  const bool again = now < job.said + 2 * job.pause;
  job.pause = again ? std::min(2 * job.pause, kLongestPause) : kFirstPause;
  job.said = now;
  std::vector<std::string> who;
  for (const int32_t number : job.late) {
    if (who.size() == kNamedAtOnce) {
      who.push_back(fmt::format("{} more", job.late.size() - kNamedAtOnce));
      break;
    }
    who.push_back(fmt::format("rank {} ({})", number, job.ranks.at(number).host));
  }
  const bool one = job.late.size() == 1;
  return fmt::format("{} {} the others up: of {} ranks the median waits {:.0f} % of the time longer for what it is to receive than it used to, "
                     "{} not, and nothing waits on the wires there; paths are left alone",
                     fmt::join(who, ", "), one ? "holds" : "hold", job.ranks.size(), 100 * longer, one ? "that one does" : "those do");
}

void LateRanks::Expire(Seconds now) {
  std::erase_if(jobs_, [&](const auto& job) { return now > job.second.seen + kForgotten; });
}

}  // namespace weft::controller
