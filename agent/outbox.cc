#include "agent/outbox.h"

#include <algorithm>

namespace weft::agent {
namespace {

constexpr size_t kElementBytes = 8;  // that an element adds to its message's own bytes, at most

/// `sample` as messages of at most kMostBytes of flows each, in order; all but the last have `more` set. The last has all that is not
/// a flow's identity or counters.
std::deque<v1::HostSample> PartsOf(v1::HostSample sample) {
  std::deque<v1::HostSample> parts;
  if (sample.ByteSizeLong() <= Outbox::kMostBytes) {
    parts.push_back(std::move(sample));
    return parts;
  }
  v1::HostSample flows, part;
  flows.mutable_opened()->Swap(sample.mutable_opened());
  flows.mutable_counters()->Swap(sample.mutable_counters());
  size_t bytes = 0;
  const auto make_room = [&](size_t element) {
    if (bytes + element + kElementBytes > Outbox::kMostBytes) {
      part.set_time_s(sample.time_s());
      part.set_nic_tx_bytes(sample.nic_tx_bytes());
      part.set_nic_rx_bytes(sample.nic_rx_bytes());
      part.set_nic_counts_all(sample.nic_counts_all());
      part.set_more(true);
      parts.push_back(std::move(part));
      part = {};
      bytes = 0;
    }
    bytes += element + kElementBytes;
  };
  for (v1::FlowIdentity& identity : *flows.mutable_opened()) {
    make_room(identity.ByteSizeLong());
    *part.add_opened() = std::move(identity);
  }
  for (v1::FlowCounters& counters : *flows.mutable_counters()) {
    make_room(counters.ByteSizeLong());
    *part.add_counters() = std::move(counters);
  }
  sample.mutable_opened()->Swap(part.mutable_opened());
  sample.mutable_counters()->Swap(part.mutable_counters());
  parts.push_back(std::move(sample));
  return parts;
}

}  // namespace

bool Outbox::Add(v1::HostSample sample) {
  const bool merged = sample_.has_value();
  if (!merged) {
    sample_.emplace();
    counter_of_.clear();
  }
  for (v1::FlowIdentity& identity : *sample.mutable_opened()) *sample_->add_opened() = std::move(identity);
  for (v1::FlowCounters& counters : *sample.mutable_counters()) {
    const auto [it, is_new] =
        counter_of_.try_emplace({counters.flow(), counters.send()}, sample_->counters_size());
    if (is_new) sample_->add_counters();
    *sample_->mutable_counters(it->second) = std::move(counters);
  }
  for (const uint64_t flow : sample.closed()) sample_->add_closed(flow);
  for (v1::PolicyApplied& applied : *sample.mutable_applied()) *sample_->add_applied() = std::move(applied);
  for (v1::CollectiveDelay& delay : *sample.mutable_delays()) {
    if (sample_->delays_size() < kMostDelays) *sample_->add_delays() = std::move(delay);
  }
  for (v1::Stall& stall : *sample.mutable_stalls()) {
    if (sample_->stalls_size() < kMostStalls) *sample_->add_stalls() = std::move(stall);
  }
  for (v1::Shortage& shortage : *sample.mutable_shortages()) {
    const auto same = std::find_if(sample_->mutable_shortages()->begin(), sample_->mutable_shortages()->end(),
                                   [&](const v1::Shortage& known) { return known.job_id() == shortage.job_id(); });
    if (same != sample_->mutable_shortages()->end()) *same = std::move(shortage);  // cumulative
    else *sample_->add_shortages() = std::move(shortage);
  }
  for (v1::StrategyNews& news : *sample.mutable_strategies()) {
    const auto same = std::find_if(sample_->mutable_strategies()->begin(), sample_->mutable_strategies()->end(),
                                   [&](const v1::StrategyNews& known) { return known.job_id() == news.job_id(); });
    if (same != sample_->mutable_strategies()->end()) *same = std::move(news);  // the newest counts
    else *sample_->add_strategies() = std::move(news);
  }
  sample_->set_time_s(sample.time_s());
  sample_->set_nic_tx_bytes(sample.nic_tx_bytes());
  sample_->set_nic_rx_bytes(sample.nic_rx_bytes());
  sample_->set_nic_counts_all(sample.nic_counts_all());
  return merged;
}

void Outbox::Add(v1::PathReport report) {
  const uint64_t flow = report.flow();
  reports_[flow] = std::move(report);
}

void Outbox::Add(v1::Register registration) { registration_ = std::move(registration); }

void Outbox::Add(v1::QosReport qos) { qos_ = std::move(qos); }

void Outbox::Clear() {
  registration_.reset();
  qos_.reset();
  parts_.clear();
  sample_.reset();
  counter_of_.clear();
  reports_.clear();
}

v1::AgentMessage Outbox::Take() {
  v1::AgentMessage message;
  if (registration_) {
    *message.mutable_register_host() = std::move(*registration_);
    registration_.reset();
  } else if (qos_) {
    *message.mutable_qos() = std::move(*qos_);
    qos_.reset();
  } else if (sample_ || !parts_.empty()) {
    if (parts_.empty()) {
      parts_ = PartsOf(std::move(*sample_));
      sample_.reset();
      counter_of_.clear();
    }
    *message.mutable_sample() = std::move(parts_.front());
    parts_.pop_front();
  } else {
    *message.mutable_paths() = std::move(reports_.begin()->second);
    reports_.erase(reports_.begin());
  }
  return message;
}

size_t Outbox::events() const {
  return sample_ ? static_cast<size_t>(sample_->opened_size()) + static_cast<size_t>(sample_->closed_size()) : 0;
}

}  // namespace weft::agent
