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
constexpr int kLooksLate = 3;          // a pause of the job is no more than a part of two of three in a row: the one between stands still
constexpr double kFollow = 0.2;        // of what is usual, by each look
constexpr double kLeastGrowth = 0.1;   // of the time, that the others wait longer; and that a late rank's waits have grown less
constexpr double kSpreads = 3;         // of what looks differ by anyway, that the others wait longer
constexpr double kNotGrown = 0.5;      // of what the median waits longer: who waits no more than that longer does not wait as the others do
// Of what usually goes over the wires. Iterations that a late rank makes ten times as long leave a tenth of it; less is a job that saves
// its state or evaluates.
constexpr double kLeastWork = 0.05;
// Of the time: how much more the waits of the ranks of one host, two at least, have shrunk than the median's. That all of them do stands in
// for the others' waits having grown by three spreads.
constexpr double kHostContrast = 0.15;
constexpr double kUsualWork = 0.5;     // less of it is not how the job usually is
constexpr Seconds kFirstPause{60}, kLongestPause{640};
constexpr Seconds kForgotten{60};
constexpr size_t kNamedAtOnce = 8;

constexpr int kLooksUntilUsual = 240;  // for which somebody was late: then that is how the job is
constexpr int kOddUntilUsual = 60;     // likewise, for which something else was not as usual

double Sane(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

/// Of what `of` gives for each rank. Requires: there is one.
template <typename Ranks, typename Of>
double Median(const Ranks& ranks, Of of) {
  std::vector<double> values;
  values.reserve(ranks.size());
  for (const auto& [number, rank] : ranks) values.push_back(of(rank));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void LateRanks::Measure::Close(Seconds elapsed) { grown = std::min(1.0, std::exchange(seconds, 0) / elapsed.count()) - usual; }

/// By how much the rank waits longer. Where the network is what is short a rank always waits, but seldom while nothing is on its way.
double LateRanks::Rank::longer() const { return std::max(peer.grown, held.grown); }

std::optional<std::string> LateRanks::Look(const std::string& job_id, const JobWaits& waits, Seconds elapsed, Seconds period, Seconds now) {
  if (waits.size() < 2 || waits.size() > kMostRanks || elapsed <= Seconds(0)) return std::nullopt;
  Job& job = jobs_[job_id];
  job.seen = now;
  job.elapsed += elapsed;
  if (period > Seconds(0)) job.period = period;  // it is lost just when iterations become uneven
  for (const auto& [number, of] : waits) {
    Rank& rank = job.ranks[number];
    rank.host = of.host;
    rank.peer.seconds += Sane(of.peer_s);
    rank.held.seconds += Sane(of.held_s);
    rank.wire.seconds += Sane(of.wire_s);
  }
  std::erase_if(job.ranks, [&](const auto& rank) { return !waits.contains(rank.first); });
  if (job.elapsed < std::max(kLook, 2 * job.period)) return std::nullopt;
  for (auto& [number, rank] : job.ranks) {
    for (Measure* measure : {&rank.peer, &rank.held, &rank.wire}) measure->Close(job.elapsed);
  }
  job.elapsed = Seconds(0);
  return Judge(job, now);
}

/// What goes over the wires, in parts of the usual.
double LateRanks::Work(const Job& job) {
  double newest = 0, usual = 0;
  for (const auto& [number, rank] : job.ranks) {
    newest += rank.wire.newest();
    usual += rank.wire.usual;
  }
  if (newest <= 0) return 0;
  return usual > 0 ? newest / usual : 1;
}

/// What was in the newest look is what is usual from now on.
void LateRanks::Learn(Job& job, double longer) {
  const bool first = std::ranges::all_of(job.ranks, [](const auto& rank) { return rank.second.looks == 0; });
  if (!first) job.spread += kFollow * (std::abs(longer) - job.spread);
  for (auto& [number, rank] : job.ranks) {
    const double part = rank.looks == 0 ? 1 : kFollow;
    for (Measure* measure : {&rank.peer, &rank.held, &rank.wire}) measure->usual += part * measure->grown;
    rank.looks = std::min(rank.looks + 1, kLooksLearned);
  }
}

/// Ranks that do not wait longer than usual where the median does, by `longer`. Who is behind a slow path waits as long as the others do,
/// and who sends over one has bytes that wait for it.
std::vector<int32_t> LateRanks::FindLate(const Job& job, double longer) {
  const double most = kNotGrown * longer;
  const double peer = Median(job.ranks, [](const Rank& rank) { return rank.peer.grown; });
  std::vector<int32_t> late;
  for (const auto& [number, rank] : job.ranks) {
    if (rank.longer() <= most && rank.peer.grown <= peer - kLeastGrowth && rank.wire.grown <= most) late.push_back(number);
  }
  if (2 * late.size() > job.ranks.size()) late.clear();
  return late;
}

/// Hosts of two ranks and more, none of which waits longer than usual, and what they send does not wait for the wire, where the median
/// rank does wait longer.
std::set<std::string> LateRanks::FindSlowHosts(const Job& job) {
  struct Host {
    size_t ranks = 0;
    double peer = 0, wire = 0, most_peer = -1;  // sums, and the most of one
  };
  constexpr double kLittle = kNotGrown * kLeastGrowth;
  const double longer = Median(job.ranks, [](const Rank& rank) { return rank.longer(); });
  const double peer = Median(job.ranks, [](const Rank& rank) { return rank.peer.grown; });
  if (longer < kLittle || peer <= 0) return {};
  std::map<std::string, Host> hosts;
  for (const auto& [number, rank] : job.ranks) {
    Host& host = hosts[rank.host];
    ++host.ranks;
    host.peer += rank.peer.grown;
    host.wire += rank.wire.grown;
    host.most_peer = std::max(host.most_peer, rank.peer.grown);
  }
  std::set<std::string> slow;
  size_t slow_ranks = 0;
  for (const auto& [name, host] : hosts) {
    const auto ranks = static_cast<double>(host.ranks);
    if (host.ranks < 2 || host.most_peer > kLittle || host.peer / ranks > peer - kHostContrast || host.wire / ranks > kLeastGrowth) continue;
    slow.insert(name);
    slow_ranks += host.ranks;
  }
  if (2 * slow_ranks > job.ranks.size()) slow.clear();
  return slow;
}

/// `all_wait`: though the median waits longer than it used to, which teaches nothing for a while: the next look may tell who is late.
void LateRanks::NobodyLate(Job& job, bool all_wait) {
  if (all_wait && job.times > 0 && !job.missed) {
    job.missed = true;
    return;
  }
  job.times = 0;
  job.missed = false;
  job.late.clear();
}

/// Whether that is to be said now.
bool LateRanks::Count(Job& job, std::vector<int32_t> late, Seconds now) {
  // Samples of two hosts are not of the same moment: one rank more or less is in a look.
  std::vector<int32_t> both;
  std::ranges::set_intersection(late, job.late, std::back_inserter(both));
  job.times = both.empty() ? 1 : job.times + 1;
  job.late = both.empty() ? std::move(late) : std::move(both);
  job.missed = false;
  if (job.times < kLooksLate || now < job.said + job.pause) return false;
  const bool again = now < job.said + 2 * job.pause;
  job.pause = again ? std::min(2 * job.pause, kLongestPause) : kFirstPause;
  job.said = now;
  return true;
}

std::string LateRanks::Describe(const Job& job, const std::set<std::string>& slow_hosts, double longer) {
  std::map<std::string, std::vector<int32_t>> whole;  // of hosts all of whose ranks are late
  for (const auto& [number, rank] : job.ranks) {
    if (slow_hosts.contains(rank.host)) whole[rank.host].push_back(number);
  }
  std::vector<std::string> who;
  size_t left_out = 0;
  for (const int32_t number : job.late) {
    const std::string& host = job.ranks.at(number).host;
    const auto ranks = whole.find(host);
    if (ranks != whole.end() && ranks->second.empty()) continue;  // told with its host
    if (who.size() == kNamedAtOnce) {
      ++left_out;
      continue;
    }
    if (ranks == whole.end()) {
      who.push_back(fmt::format("rank {} ({})", number, host));
      continue;
    }
    const size_t told = std::min(ranks->second.size(), kNamedAtOnce);
    who.push_back(fmt::format("host {} (all {} of its ranks: {}{})", host, ranks->second.size(),
                              fmt::join(ranks->second.begin(), ranks->second.begin() + static_cast<std::ptrdiff_t>(told), ", "),
                              told < ranks->second.size() ? ", …" : ""));
    ranks->second.clear();
  }
  const bool one = who.size() == 1;
  const bool one_rank = one && job.late.size() == 1 && whole.empty();
  if (left_out > 0) who.push_back(fmt::format("{} more", left_out));
  return fmt::format("{} {} the others up: of {} ranks the median waits {:.0f} % of the time longer for what it is to receive than it used "
                     "to, {} not, and nothing that {} waits for the wire; paths are left alone",
                     fmt::join(who, ", "), one ? "holds" : "hold", job.ranks.size(), 100 * longer,
                     one_rank ? "that one does" : "those do", one_rank ? "it sends" : "they send");
}

std::optional<std::string> LateRanks::Judge(Job& job, Seconds now) {
  const double work = Work(job);
  if (work < kLeastWork) {
    NobodyLate(job, false);
    return std::nullopt;
  }
  const double longer = Median(job.ranks, [](const Rank& rank) { return rank.longer(); });
  const bool known = std::ranges::all_of(job.ranks, [](const auto& rank) { return rank.second.looks >= kLooksLearned; });
  const auto slow_hosts = known ? FindSlowHosts(job) : std::set<std::string>();
  const bool all_wait = known && (!slow_hosts.empty() || longer >= std::max(kLeastGrowth, kSpreads * job.spread));
  std::vector<int32_t> late = all_wait ? FindLate(job, longer) : std::vector<int32_t>();
  if (!slow_hosts.empty()) {
    std::erase_if(late, [&](int32_t number) { return slow_hosts.contains(job.ranks.at(number).host); });
    for (const auto& [number, rank] : job.ranks) {
      if (slow_hosts.contains(rank.host)) late.push_back(number);
    }
    std::ranges::sort(late);
    if (2 * late.size() > job.ranks.size()) late.clear();
  }
  const bool odd = all_wait || (known && work < kUsualWork);
  job.odd = odd ? job.odd + 1 : 0;
  if (!odd || job.odd > (late.empty() ? kOddUntilUsual : kLooksUntilUsual)) {
    Learn(job, longer);
    NobodyLate(job, false);
    return std::nullopt;
  }
  if (late.empty()) NobodyLate(job, all_wait);
  if (late.empty() || !Count(job, std::move(late), now)) return std::nullopt;
  return Describe(job, slow_hosts, longer);
}

void LateRanks::Expire(Seconds now) {
  std::erase_if(jobs_, [&](const auto& job) { return now > job.second.seen + kForgotten; });
}

}  // namespace weft::controller
