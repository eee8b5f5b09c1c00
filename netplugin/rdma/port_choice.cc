#include "netplugin/rdma/port_choice.h"

#include <algorithm>

namespace weft::net::rdma {
namespace {

/// Folders of `a` that `b` does not share, from the first difference on: 0 for ports of one card.
int Distance(const std::string& a, const std::string& b) {
  const auto differ = std::ranges::mismatch(a, b).in1;
  return differ == a.end() && a.size() == b.size() ? 0 : 1 + static_cast<int>(std::count(differ, a.end(), '/'));
}

bool CanReplace(const Port& home, const Port& other) {
  return home.info().link == other.info().link && (home.ptr_support() & ~other.ptr_support()) == 0;
}

}  // namespace

PortChoice::PortChoice(std::shared_ptr<Port> home, uint64_t flow)
    : rest_ns_(static_cast<uint64_t>(home->environment().failback_s) * 1'000'000'000u) {
  const auto standbys = home->standbys();
  ports_.push_back({std::move(home)});
  for (size_t begin = 0; begin < standbys.size();) {
    size_t end = begin;
    while (end < standbys.size() && standbys[end].distance == standbys[begin].distance) ++end;
    for (size_t i = 0; i < end - begin; ++i) {
      auto port = standbys[begin + (i + flow) % (end - begin)].port.lock();
      if (port) ports_.push_back({std::move(port)});
    }
    begin = end;
  }
}

size_t PortChoice::IndexOf(const Port* port) const {
  const auto found = std::ranges::find_if(ports_, [port](const Candidate& other) { return other.port.get() == port; });
  return static_cast<size_t>(found - ports_.begin());
}

uint32_t PortChoice::Others(const Port& current, uint64_t now) const {
  uint32_t others = 0;
  for (size_t i = 0; i < ports_.size(); ++i) others += ports_[i].port.get() != &current && Usable(i, now) ? 1 : 0;
  return others;
}

bool PortChoice::HomeRested(uint64_t now, uint64_t at) const {
  return Usable(0, now) && at >= home()->last_change_ns() + rest_ns_;
}

bool PortChoice::BetterThan(const Port& current, uint64_t now) const {
  const size_t mine = IndexOf(&current);
  if (!Usable(mine, now)) return Others(current, now) > 0;
  return mine != 0 && now >= home_not_before_ && HomeRested(now, now);
}

const std::shared_ptr<Port>& PortChoice::Choose(const Port& current, Reason reason, uint64_t now) const {
  const size_t mine = IndexOf(&current);
  const auto next = [&](bool home_too) -> size_t {
    for (size_t i = 1; i < ports_.size(); ++i) {
      const size_t other = (mine + i) % ports_.size();
      if (Usable(other, now) && (other != 0 || home_too || now >= home_not_before_)) return other;
    }
    return mine;
  };
  if (reason == Reason::kNothingGetsThrough) return ports_[next(true)].port;
  if (!Usable(mine, now)) {
    const size_t taken = next(false);
    return ports_[taken != mine ? taken : next(true)].port;
  }
  // Where rails do not reach each other both ends must go home together. They see a cable come back at almost the same
  // time, hence a little earlier than on one's own account; and who left home only because the peer had to has no reason
  // to stay away.
  const bool along = reason == Reason::kPeerGoesHome && now >= left_ + rest_ns_ / 2;
  const bool homewards = mine != 0 && (along || now >= home_not_before_) && HomeRested(now, now + rest_ns_ / 2);
  return ports_[homewards ? 0 : mine].port;
}

void PortChoice::Moved(const Port& from, const Port& to, Reason reason, uint64_t now) {
  if (&from == home().get()) Leave(reason == Reason::kNothingGetsThrough && Usable(0, now), now);
  if (&to == home().get()) returned_ = now;
}

void PortChoice::Refused(const Port& port, uint64_t now) {
  Candidate& refused = ports_[IndexOf(&port)];
  if (now > refused.not_before + kLongestNs) refused.refusals = 0;
  refused.not_before = now + std::min(kRefusedNs << std::min(refused.refusals++, 10u), kLongestNs);
}

void PortChoice::Leave(bool distrusted, uint64_t now) {
  const uint64_t least = distrusted ? std::max(rest_ns_, kDistrustNs) : rest_ns_;
  const bool again = returned_ != 0 && now < returned_ + kLongestNs;
  strikes_ = again ? std::min(strikes_ + 1, 10u) : 0;
  left_ = now;
  home_not_before_ = now + std::min(least << strikes_, std::max(least, kLongestNs));
}

void SetStandbys(const std::vector<std::shared_ptr<Port>>& ports, const std::vector<std::string>& pci_paths) {
  for (size_t home = 0; home < ports.size(); ++home) {
    if (!ports[home]->environment().failover) continue;
    std::vector<Port::Standby> standbys;
    for (size_t i = 1; i < ports.size(); ++i) {
      const size_t other = (home + i) % ports.size();
      if (!CanReplace(*ports[home], *ports[other])) continue;
      standbys.push_back({ports[other], Distance(pci_paths[home], pci_paths[other])});
    }
    std::ranges::stable_sort(standbys, {}, &Port::Standby::distance);
    ports[home]->set_standbys(std::move(standbys));
  }
}

}  // namespace weft::net::rdma
