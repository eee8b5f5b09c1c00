#include "agent/probe/dscp_trace.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

namespace weft::agent {
namespace {

constexpr size_t kMostWays = 64;
constexpr Seconds kBetween{0.25};      // two probes, whatever tokens there are
constexpr Seconds kAgain{30};          // a question that was answered or given up
constexpr Seconds kWaysInterval{2};
constexpr int kAttempts = 3;
constexpr Seconds kNever{1e18};

}  // namespace

void DscpTrace::SetClasses(std::vector<uint8_t> dscp) {
  if (dscp == dscp_) return;
  dscp_ = std::move(dscp);
  questions_.clear();
  ways_due_ = next_ = Seconds(0);
}

void DscpTrace::SetWays(std::vector<DscpWay> ways) {
  if (ways.size() > kMostWays) ways.resize(kMostWays);
  std::map<Question, Answer> questions;
  for (const DscpWay& way : ways) {
    for (const uint8_t dscp : dscp_) {
      for (int ttl = 1; ttl <= way.hops; ++ttl) {
        const Question question{way, dscp, ttl};
        const auto known = questions_.find(question);
        questions[question] = known == questions_.end() ? Answer{} : known->second;
      }
    }
  }
  questions_ = std::move(questions);
}

std::optional<Probe> DscpTrace::Next(Seconds now, ProbeBudget& budget) {
  ways_due_ = std::max(ways_due_, now + (now >= ways_due_ ? kWaysInterval : Seconds(0)));
  if (now < next_) return std::nullopt;
  // Those that were never asked first: a change is to be found soon, and all is asked again for ever.
  std::vector<std::pair<const Question*, Answer*>> due;
  for (auto& [question, answer] : questions_) {
    if (now >= answer.next) due.emplace_back(&question, &answer);
  }
  std::ranges::sort(due, [](const auto& a, const auto& b) {
    return std::tuple(a.second->next, *a.first) < std::tuple(b.second->next, *b.first);
  });
  for (auto& [question, answer] : due) {
    const DscpWay& way = question->way;
    if (!budget.Take({way.source, 0, question->ttl}, now)) continue;
    next_ = now + kBetween;
    const bool last = ++answer->attempts >= kAttempts;
    answer->next = now + (last ? kAgain : options_.answer_timeout);
    if (last) answer->attempts = 0;
    return Probe{.source = way.source, .destination = way.destination, .source_port = way.source_port,
                 .destination_port = way.destination_port,
                 .ttl = static_cast<uint8_t>(question->ttl), .tos = static_cast<uint8_t>(question->dscp << 2)};
  }
  next_ = now + kBetween;
  return std::nullopt;
}

Seconds DscpTrace::Wake() const {
  if (dscp_.empty()) return kNever;
  Seconds due = kNever;
  for (const auto& [question, answer] : questions_) due = std::min(due, answer.next);
  return std::min(ways_due_, std::max(next_, due));
}

bool DscpTrace::OnTimeExceeded(const Probe& sent, Ipv4 from, uint8_t tos, Seconds now) {
  bool found = false;
  for (auto& [question, answer] : questions_) {
    const DscpWay& way = question.way;
    if (question.ttl != sent.ttl || question.dscp != sent.tos >> 2 || way.source != sent.source ||
        way.destination != sent.destination ||
        way.source_port != sent.source_port || way.destination_port != sent.destination_port) {
      continue;
    }
    found = true;
    answer = {.attempts = 0, .next = now + kAgain, .from = from, .seen = static_cast<uint8_t>(tos >> 2)};
  }
  return found;
}

std::vector<DscpRewrite> DscpTrace::rewrites() const {
  std::vector<DscpRewrite> found;
  std::set<std::tuple<uint8_t, uint8_t, Ipv4, Ipv4>> told;
  std::set<std::pair<DscpWay, uint8_t>> changed;
  for (const auto& [question, answer] : questions_) {  // in order of TTL within a way and DSCP
    if (answer.from == 0 || answer.seen == question.dscp || !changed.insert({question.way, question.dscp}).second) continue;
    Question before = question;
    --before.ttl;
    const auto known = questions_.find(before);
    const Ipv4 after = known == questions_.end() ? 0 : known->second.from;
    if (told.insert({question.dscp, answer.seen, answer.from, after}).second) {
      found.push_back({question.way, question.dscp, answer.seen, answer.from, after});
    }
  }
  return found;
}

}  // namespace weft::agent
