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
  ports_.push_back(std::move(home));
  for (size_t begin = 0; begin < standbys.size();) {
    size_t end = begin;
    while (end < standbys.size() && standbys[end].distance == standbys[begin].distance) ++end;
    for (size_t i = 0; i < end - begin; ++i) {
      auto port = standbys[begin + (i + flow) % (end - begin)].port.lock();
      if (port) ports_.push_back(std::move(port));
    }
    begin = end;
  }
}

size_t PortChoice::IndexOf(const Port* port) const {
  return static_cast<size_t>(std::ranges::find(ports_, port, &std::shared_ptr<Port>::get) - ports_.begin());
}

uint32_t PortChoice::Others(const Port& current) const {
  return static_cast<uint32_t>(
      std::ranges::count_if(ports_, [&](const auto& port) { return port.get() != &current && !port->down(); }));
}

bool PortChoice::HomeReady(uint64_t now) const {
  return !home()->down() && now >= home_not_before_ && now >= home()->last_change_ns() + rest_ns_;
}

bool PortChoice::BetterThan(const Port& current, uint64_t now) const {
  if (current.down()) return Others(current) > 0;
  return &current != home().get() && HomeReady(now);
}

const std::shared_ptr<Port>& PortChoice::Choose(const Port& current, bool distrusted, uint64_t now) {
  const size_t mine = IndexOf(&current);
  if (current.down() || distrusted) {
    for (size_t i = 1; i < ports_.size(); ++i) {
      const auto& other = ports_[(mine + i) % ports_.size()];
      if (other->down()) continue;
      if (mine == 0) Leave(!current.down(), now);
      return other;
    }
    return ports_[mine];
  }
  // The two ends of a cable see it come back at almost the same time: who is set up anew because of the other goes home in
  // the same breath, lest the flow be moved twice, or meet a home that cannot be reached from here.
  if (mine != 0 && HomeReady(now + rest_ns_ / 2)) {
    returned_ = now;
    return home();
  }
  return ports_[mine];
}

void PortChoice::Leave(bool distrusted, uint64_t now) {
  const uint64_t least = distrusted ? std::max(rest_ns_, kDistrustNs) : rest_ns_;
  const bool again = returned_ != 0 && now < returned_ + kLongestNs;
  pause_ns_ = again ? std::min(2 * std::max(pause_ns_, least), std::max(least, kLongestNs)) : least;
  home_not_before_ = now + pause_ns_;
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
