#include "controller/stragglers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace weft::controller {
namespace {

constexpr size_t kMostText = 64;
constexpr int kMostRank = 1 << 20;
constexpr size_t kJudgedKept = 256;
constexpr size_t kNamedAtOnce = 8;
constexpr double kForgetS = 3600;
constexpr double kLeastWait = 0.25;  // seconds; agents tell of no shorter ones (kLeastDelayS of agent/collective_reader.h)

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds >= 0 && seconds < 1e6; }

/// What an agent says, as it can stand on an operator's terminal.
std::string Printable(std::string text) {
  text.resize(std::min(text.size(), kMostText));
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

/// Requires: not empty.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void StragglerFinder::Add(const std::string& host, const v1::CollectiveDelay& delay, double now_s) {
  const bool sane = delay.rank() >= 0 && delay.rank() < kMostRank && delay.operation().size() <= kMostText &&
                    IsTime(delay.waited_s()) && IsTime(delay.late_s()) && IsTime(delay.receive_wait_s()) &&
                    delay.waited_s() + delay.late_s() > 0;
  Job& job = jobs_[delay.job_id()];
  job.used_s = now_s;
  const Key key{delay.comm(), delay.operation(), delay.sequence()};
  const bool room = reports_ < kMostReportsInAll && job.reports < kMostReports && (job.open.contains(key) || job.open.size() < kMostOpen);
  if (!sane || !room || std::find(job.judged.begin(), job.judged.end(), key) != job.judged.end()) {
    ++ignored_;
    return;
  }
  Collective& collective = job.open.try_emplace(key).first->second;
  if (collective.reports.empty()) {
    collective.first_s = now_s;
    collective.name = Printable(delay.name());
    collective.ranks = std::clamp(delay.ranks(), 0, kMostRank);
  }
  const Report report{.host = host, .job_rank = std::max(-1, delay.job_rank()), .waited_s = delay.waited_s(),
                      .late_s = delay.late_s(), .receive_wait_s = delay.receive_wait_s(), .late_known = delay.late_known()};
  // Two hosts that claim one rank: the first keeps it.
  if (collective.reports.try_emplace(delay.rank(), report).second) {
    ++job.reports;
    ++reports_;
  } else {
    ++ignored_;
  }
}

StragglerFinder::Verdict StragglerFinder::Judge(const Collective& collective) {
  Verdict verdict;
  std::vector<double> waits, late_waiters;
  double longest_receive = 0;
  double longest = 0;
  for (const auto& [rank, report] : collective.reports) longest = std::max(longest, report.waited_s);
  for (const auto& [rank, report] : collective.reports) {
    longest_receive = std::max(longest_receive, report.receive_wait_s);
    if (report.waited_s < longest / 2) continue;
    waits.push_back(report.waited_s);
    if (report.late_known) late_waiters.push_back(report.late_s);
  }
  if (longest < kLeastWait) return verdict;
  verdict.delay_s = Median(waits);
  // All may have begun it late, after a checkpoint, say: it is by how much more that counts, where somebody who waited knows.
  const bool all_known = !late_waiters.empty();
  const double all_late_s = all_known ? Median(std::move(late_waiters)) : 0;
  for (const auto& [rank, report] : collective.reports) {
    const bool late = all_known && report.late_known && report.waited_s < verdict.delay_s / 2 &&
                      report.late_s - all_late_s >= verdict.delay_s / 2;
    // Its own GPU was late to the kernel: it had what it was to receive, and the others had not.
    const bool gpu_late = report.waited_s >= verdict.delay_s / 2 && report.receive_wait_s > 0 &&
                          report.receive_wait_s < longest_receive / 2 && longest_receive >= verdict.delay_s / 2;
    if (late || gpu_late) {
      verdict.late.emplace_back(rank, &report);
    } else if (report.waited_s >= verdict.delay_s / 2) {
      ++verdict.waited;
    }
  }
  if (verdict.late.size() > verdict.waited) verdict.late.clear();
  return verdict;
}

bool StragglerFinder::MayName(Job& job, const Verdict& verdict, double now_s, int64_t& left_out) {
  uint64_t hash = 0;
  for (const auto& [rank, report] : verdict.late) {
    hash = hash * 0x100000001B3u ^ std::hash<std::string>()(fmt::format("{}/{}/{}", report->host, report->job_rank, report->job_rank < 0 ? rank : -1));
  }
  const auto known = job.named.find(hash);
  if (known != job.named.end() && now_s < known->second.until_s) {
    ++known->second.left_out;
    return false;
  }
  if (now_s >= job.minute_s + 60) {
    job.minute_s = now_s;
    job.lines = 0;
  }
  if (++job.lines > kMostLinesAMinute) {
    ++ignored_;
    return false;
  }
  if (known == job.named.end() && job.named.size() >= kMostNamed) {
    job.named.erase(std::min_element(job.named.begin(), job.named.end(),
                                     [](const auto& a, const auto& b) { return a.second.until_s < b.second.until_s; }));
  }
  Named& named = job.named[hash];
  // Who has kept up for as long as the pause begins anew.
  const bool again = named.pause_s > 0 && now_s < named.until_s + named.pause_s;
  named.pause_s = again ? std::min(2 * named.pause_s, kLongestPauseS) : kFirstPauseS;
  named.until_s = now_s + named.pause_s;
  left_out = std::exchange(named.left_out, 0);
  return true;
}

std::string StragglerFinder::Describe(const Key& key, const Collective& collective, const Verdict& verdict, int64_t left_out) {
  std::vector<std::string> who;
  for (const auto& [rank, report] : verdict.late) {
    if (who.size() == kNamedAtOnce) {
      who.push_back(fmt::format("{} more", verdict.late.size() - kNamedAtOnce));
      break;
    }
    const std::string of_job = report->job_rank >= 0 ? fmt::format("rank {} of the job, ", report->job_rank) : "";
    who.push_back(fmt::format("rank {} ({}{})", rank, of_job, report->host));
  }
  const auto& [comm, operation, number] = key;
  const std::string of = collective.ranks > 0 ? fmt::format("{} of {} ranks", verdict.waited, collective.ranks)
                                              : fmt::format("{} ranks", verdict.waited);
  const std::string more = left_out > 0 ? fmt::format("; so it was {} more times since that was last said", left_out) : "";
  return fmt::format("{} came {:.2f} s late to {} number {} of communicator {}{:#x}: {} waited{}", fmt::join(who, ", "),
                     verdict.delay_s, Printable(operation), number, collective.name.empty() ? "" : collective.name + " ", comm, of,
                     more);
}

std::vector<Straggler> StragglerFinder::Take(double now_s) {
  std::vector<Straggler> stragglers;
  for (auto& [id, job] : jobs_) {
    std::vector<std::map<Key, Collective>::iterator> due;
    for (auto it = job.open.begin(); it != job.open.end(); ++it) {
      if (now_s >= it->second.first_s + settle_s_) due.push_back(it);
    }
    std::stable_sort(due.begin(), due.end(), [](const auto& a, const auto& b) { return a->second.first_s < b->second.first_s; });
    for (const auto& it : due) {
      const Verdict verdict = Judge(it->second);
      int64_t left_out = 0;
      if (!verdict.late.empty() && MayName(job, verdict, now_s, left_out)) {
        stragglers.push_back({id, Describe(it->first, it->second, verdict, left_out)});
      }
      job.reports -= it->second.reports.size();
      reports_ -= it->second.reports.size();
      job.judged.push_back(it->first);
      if (job.judged.size() > kJudgedKept) job.judged.pop_front();
      job.open.erase(it);
    }
  }
  std::erase_if(jobs_, [&](const auto& job) { return job.second.open.empty() && now_s > job.second.used_s + kForgetS; });
  return stragglers;
}

}  // namespace weft::controller
