#include "controller/stragglers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::controller {
namespace {

constexpr size_t kMaxText = 256;
constexpr int kMostRank = 1 << 20;
constexpr size_t kJudgedKept = 1024;
constexpr size_t kNamedAtOnce = 8;
constexpr double kSameMoment = 5;  // seconds: a delay is passed on from communicator to communicator within it

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds >= 0 && seconds < 1e6; }

template <class Values>
double Middle(Values values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

void StragglerFinder::SetRanks(const std::string& host, const google::protobuf::RepeatedPtrField<v1::CommunicatorRank>& ranks) {
  ForgetHost(host);
  auto& mine = of_host_[host];
  for (const v1::CommunicatorRank& rank : ranks) {
    const bool sane = rank.rank() >= 0 && rank.rank() < kMostRank && IsTime(rank.usual_s()) && rank.job_id().size() <= kMaxText &&
                      rank.name().size() <= kMaxText && rank.operation().size() <= kMaxText;
    if (!sane || mine.size() >= kMostRanksPerHost) {
      ++ignored_;
      continue;
    }
    const Group group{rank.job_id(), rank.comm(), rank.operation()};
    const Member member{.host = host, .name = rank.name(), .job_rank = rank.job_rank(), .usual_s = rank.usual_s()};
    // Two hosts that claim one rank: the first keeps it.
    if (!groups_[group].try_emplace(rank.rank(), member).second) {
      ++ignored_;
      continue;
    }
    mine.emplace_back(group, rank.rank());
  }
}

void StragglerFinder::ForgetHost(const std::string& host) {
  const auto found = of_host_.find(host);
  if (found == of_host_.end()) return;
  for (const auto& [group, rank] : found->second) {
    const auto members = groups_.find(group);
    members->second.erase(rank);
    if (members->second.empty()) groups_.erase(members);
  }
  of_host_.erase(found);
}

const StragglerFinder::Member* StragglerFinder::Find(const Group& group, int rank) const {
  const auto members = groups_.find(group);
  if (members == groups_.end()) return nullptr;
  const auto member = members->second.find(rank);
  return member == members->second.end() ? nullptr : &member->second;
}

void StragglerFinder::Add(const std::string& host, const v1::SlowCollective& slow, double now_s) {
  const Group group{slow.job_id(), slow.comm(), slow.operation()};
  const Member* const member = Find(group, slow.rank());
  const Key key{group, slow.sequence()};
  const bool room = reports_ < kMostReports && (open_.contains(key) || open_.size() < kMostOpen);
  if (member == nullptr || member->host != host || !room || !IsTime(slow.took_s()) || !IsTime(slow.usual_s()) ||
      !IsTime(slow.receive_wait_s()) || slow.took_s() <= slow.usual_s()) {
    ++ignored_;
    return;
  }
  if (judged_.contains(key)) return;
  Slow& entry = open_.try_emplace(key, Slow{.first_s = now_s, .ranks = {}}).first->second;
  const Report report{.late_s = slow.took_s() - slow.usual_s(), .receive_wait_s = slow.receive_wait_s(), .usual_s = slow.usual_s()};
  if (entry.ranks.insert_or_assign(slow.rank(), report).second) ++reports_;
}

/// The ranks that did not wait, if they are few and others did.
std::vector<StragglerFinder::Late> StragglerFinder::FindLate(const Group& group, const Slow& slow) const {
  std::vector<Late> late;
  const auto members = groups_.find(group);
  if (members == groups_.end()) return late;
  std::vector<double> usual;
  double longest = 0, longest_wait = 0;
  bool waits_known = true;
  for (const auto& [rank, report] : slow.ranks) {
    usual.push_back(report.usual_s);
    longest = std::max(longest, report.late_s);
    longest_wait = std::max(longest_wait, report.receive_wait_s);
    waits_known &= report.receive_wait_s > 0;
  }
  size_t compared = 0;
  for (const auto& [rank, member] : members->second) {
    // A rank without network operations of its own is through at once, whoever is late.
    if (member.usual_s < Middle(usual) / 4) continue;
    ++compared;
    const auto report = slow.ranks.find(rank);
    const bool waited = report != slow.ranks.end() && (waits_known ? report->second.receive_wait_s >= longest_wait / 2
                                                                   : report->second.late_s >= longest / 2);
    if (!waited) late.push_back({.rank = rank, .member = member});
  }
  if (late.size() * 2 > compared) late.clear();
  return late;
}

/// Whether a rank was late because it waited in another communicator of the job at that time.
bool StragglerFinder::WaitedItself(const SlowOnes& among, const Late& late, const Group& group, const Slow& slow) const {
  if (late.member.job_rank < 0) return false;
  const auto& [job, comm, operation] = group;
  double longest = 0;
  for (const auto& [rank, report] : slow.ranks) longest = std::max(longest, report.late_s);
  for (auto it = among.lower_bound({{job, 0, ""}, 0}); it != among.end(); ++it) {
    const auto& [key, other] = *it;
    if (std::get<0>(key.first) != job) break;
    if (std::get<1>(key.first) == comm || std::abs(other.first_s - slow.first_s) > kSameMoment) continue;
    for (const auto& [rank, report] : other.ranks) {
      const Member* const member = Find(key.first, rank);
      const bool same = member != nullptr && member->host == late.member.host && member->job_rank == late.member.job_rank;
      if (same && report.late_s >= longest / 2) return true;
    }
  }
  return false;
}

/// One delay holds up every collective that was enqueued behind it: one line says so.
bool StragglerFinder::MayName(const std::string& job, const std::vector<Late>& late, double now_s, int64_t& left_out) {
  std::string key = job;
  for (const Late& each : late) key += fmt::format("/{}:{}", each.member.host, each.member.job_rank);
  const bool known = named_.contains(key);
  if (!known && named_.size() >= kMostNamed) {
    std::erase_if(named_, [&](const auto& named) { return named.second.until_s < now_s; });
  }
  if (!known && (named_.size() >= kMostNamed || !lines_.Take(job, static_cast<uint64_t>(now_s * 1e9)))) {
    ++ignored_;
    return false;
  }
  Named& named = named_[key];
  if (now_s < named.until_s) {
    ++named.left_out;
    return false;
  }
  // Once it has kept up for as long as the pause it starts anew.
  named.pause_s = now_s < named.until_s + named.pause_s && named.until_s > 0 ? std::min(2 * named.pause_s, kLongestPauseS) : kFirstPauseS;
  named.until_s = now_s + named.pause_s;
  left_out = std::exchange(named.left_out, 0);
  return true;
}

std::string StragglerFinder::Describe(const Key& key, const Slow& slow, const std::vector<Late>& late, int64_t left_out) const {
  std::vector<std::string> who;
  for (const Late& each : late) {
    if (who.size() == kNamedAtOnce) {
      who.push_back(fmt::format("{} more", late.size() - kNamedAtOnce));
      break;
    }
    const std::string of_job = each.member.job_rank >= 0 ? fmt::format("rank {} of the job, ", each.member.job_rank) : "";
    who.push_back(fmt::format("rank {} ({}{})", each.rank, of_job, each.member.host));
  }
  std::vector<double> delays;
  for (const auto& [rank, report] : slow.ranks) delays.push_back(report.late_s);
  const std::string& name = late.front().member.name;
  const auto& [job, comm, operation] = key.first;
  const std::string more = left_out > 0 ? fmt::format("; so it was in {} other collectives since it was last named", left_out) : "";
  return fmt::format("{} came {:.2f} s late to {} number {} of communicator {}{:#x}: {} of {} ranks waited{}", fmt::join(who, ", "),
                     Middle(delays), operation, key.second, name.empty() ? "" : name + " ", comm, slow.ranks.size(),
                     groups_.at(key.first).size(), more);
}

std::vector<Straggler> StragglerFinder::Take(double now_s) {
  std::vector<std::map<Key, Slow>::iterator> due;
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (now_s >= it->second.first_s + kSettleS) due.push_back(it);
  }
  std::stable_sort(due.begin(), due.end(), [](const auto& a, const auto& b) {
    return std::tuple(a->second.first_s, a->first.second) < std::tuple(b->second.first_s, b->first.second);
  });
  std::vector<Straggler> stragglers;
  for (const auto& it : due) {
    const auto& [key, slow] = *it;
    const std::string& job = std::get<0>(key.first);
    std::vector<Late> late = FindLate(key.first, slow);
    std::erase_if(late, [&](const Late& each) {
      return WaitedItself(open_, each, key.first, slow) || WaitedItself(judged_, each, key.first, slow);
    });
    int64_t left_out = 0;
    if (!late.empty() && MayName(job, late, now_s, left_out)) stragglers.push_back({job, Describe(key, slow, late, left_out)});
  }
  for (const auto& it : due) Judged(it);
  static_cast<void>(lines_.TakeLeftOut(static_cast<uint64_t>(now_s * 1e9)));  // counted in ignored_ already
  return stragglers;
}

void StragglerFinder::Judged(SlowOnes::iterator slow) {
  reports_ -= slow->second.ranks.size();
  judged_reports_ += slow->second.ranks.size();
  judged_order_.push_back(slow->first);
  judged_.insert(open_.extract(slow));
  while (judged_order_.size() > kJudgedKept || judged_reports_ > kMostReports) {
    const auto oldest = judged_.find(judged_order_.front());
    judged_reports_ -= oldest->second.ranks.size();
    judged_.erase(oldest);
    judged_order_.pop_front();
  }
}

}  // namespace weft::controller
