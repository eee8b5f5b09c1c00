#include "agent/qos/drift.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace weft::agent {
namespace {

constexpr int kMostClasses = 8;
constexpr int kMostDscp = 63;

bool IsQueued(const v1::QosClass& entry) { return entry.priority() >= 0; }

bool AnyQueued(const v1::QosDeclaration& declared) { return std::ranges::any_of(declared.classes(), IsQueued); }

bool SharesDeclared(const v1::QosDeclaration& declared) {
  return std::ranges::any_of(declared.classes(), [](const v1::QosClass& entry) { return entry.share() > 0; });
}

std::set<int> Lossless(const v1::QosDeclaration& declared) {
  std::set<int> priorities;
  for (const v1::QosClass& entry : declared.classes()) {
    if (entry.lossless()) priorities.insert(entry.priority());
  }
  return priorities;
}

/// PFC as declared; priorities that no class has stay as they are.
uint8_t WantedPfc(const v1::QosDeclaration& declared, uint8_t now) {
  const std::set<int> lossless = Lossless(declared);
  for (const v1::QosClass& entry : declared.classes()) {
    if (!IsQueued(entry)) continue;
    const auto bit = static_cast<uint8_t>(1u << entry.priority());
    now = static_cast<uint8_t>(lossless.contains(entry.priority()) ? now | bit : now & ~bit);
  }
  return now;
}

/// Each declared priority in a traffic class of its own with its share; what is left goes with the default class.
ieee_ets WantedEts(const v1::QosDeclaration& declared, const ieee_ets& now) {
  std::map<int, int> shares;  // by priority
  int default_priority = 0;
  for (const v1::QosClass& entry : declared.classes()) {
    if (!IsQueued(entry)) continue;
    shares[entry.priority()] += entry.share();
    default_priority = entry.priority();
  }
  const int classes = now.ets_cap == 0 ? kPriorities : now.ets_cap;
  const bool by_number = shares.empty() || shares.rbegin()->first < classes;  // else in order of priorities
  ieee_ets wanted = now;
  std::fill(std::begin(wanted.tc_tx_bw), std::end(wanted.tc_tx_bw), uint8_t{0});
  std::fill(std::begin(wanted.tc_tsa), std::end(wanted.tc_tsa), uint8_t{IEEE_8021QAZ_TSA_STRICT});
  std::map<int, int> class_of;
  for (const auto& [priority, share] : shares) {
    const int index = by_number ? priority : static_cast<int>(class_of.size());
    class_of[priority] = index;
    wanted.tc_tx_bw[index] = static_cast<uint8_t>(share);
    wanted.tc_tsa[index] = IEEE_8021QAZ_TSA_ETS;
  }
  for (int priority = 0; priority < kPriorities; ++priority) {
    const auto own = class_of.find(priority);
    wanted.prio_tc[priority] = static_cast<uint8_t>(own != class_of.end() ? own->second : class_of[default_priority]);
  }
  return wanted;
}

/// Whether each declared priority has its share to itself, in whatever traffic class.
bool EtsIsGood(const v1::QosDeclaration& declared, const ieee_ets& now) {
  std::map<int, int> shares;
  for (const v1::QosClass& entry : declared.classes()) {
    if (IsQueued(entry)) shares[entry.priority()] += entry.share();
  }
  std::set<int> taken;
  return std::ranges::all_of(shares, [&](const auto& entry) {
    const uint8_t index = now.prio_tc[entry.first];
    return index < kPriorities && taken.insert(index).second && now.tc_tsa[index] == IEEE_8021QAZ_TSA_ETS &&
           now.tc_tx_bw[index] == entry.second;
  });
}

std::string PfcText(uint8_t enabled) {
  std::vector<int> on;
  for (int priority = 0; priority < kPriorities; ++priority) {
    if (enabled >> priority & 1) on.push_back(priority);
  }
  return on.empty() ? "off" : fmt::format("priorities {}", fmt::join(on, ","));
}

const char* Algorithm(uint8_t value) {
  return value == IEEE_8021QAZ_TSA_STRICT ? "strict" : value == IEEE_8021QAZ_TSA_CB_SHAPER ? "cb-shaper"
         : value == IEEE_8021QAZ_TSA_ETS  ? "ets"
                                          : "vendor";
}

/// Values of all indices, each as `format` writes it, parted by `between`.
template <typename Format>
std::string ForAll(const char* between, Format format) {
  std::string text;
  for (int i = 0; i < kPriorities; ++i) {
    if (i > 0) text += between;
    text += format(i);
  }
  return text;
}

std::string EtsText(const ieee_ets& ets) {
  return ForAll(" ", [&](int p) {
    const uint8_t index = std::min<uint8_t>(ets.prio_tc[p], kPriorities - 1);
    const std::string share = ets.tc_tsa[index] == IEEE_8021QAZ_TSA_ETS
        ? fmt::format("{}%", ets.tc_tx_bw[index]) : Algorithm(ets.tc_tsa[index]);
    return fmt::format("{}:{}", p, share);
  });
}

class Finder {
 public:
  Finder(const v1::QosDeclaration& declared, const PortSettings& port) : declared_(declared), port_(port) {}

  std::vector<v1::QosDrift> Find() {
    if (port_.dcb) FindInDcb(*port_.dcb);
    for (const RdmaPort& rdma : port_.rdma) FindInRdma(rdma);
    if (declared_.mtu() > 0 && port_.mtu > 0 && port_.mtu != declared_.mtu()) {
      v1::QosDrift& drift = Add("mtu", std::to_string(port_.mtu), std::to_string(declared_.mtu()), false);
      drift.add_commands(fmt::format("ip link set dev {} mtu {}", port_.interface, declared_.mtu()));
    }
    FindInPackets();
    return std::move(drifts_);
  }

 private:
  v1::QosDrift& Add(const std::string& setting, std::string is, std::string expected, bool mendable) {
    v1::QosDrift& drift = drifts_.emplace_back();
    drift.set_interface(port_.interface);
    drift.set_setting(setting);
    drift.set_is(std::move(is));
    drift.set_expected(std::move(expected));
    drift.set_mendable(mendable);
    return drift;
  }

  void FindInDcb(const DcbState& dcb) {
    if (!AnyQueued(declared_)) return;
    const std::string& name = port_.interface;
    if (!dcb.TrustsDscp()) {
      v1::QosDrift& drift = Add("trust", "pcp", "dscp", true);
      // Without a trust table a DSCP entry is what turns trust on.
      if (dcb.trust) drift.add_commands(fmt::format("dcb apptrust set dev {} order dscp pcp", name));
      drift.add_mlnx_commands(fmt::format("mlnx_qos -i {} --trust dscp", name));
    }
    for (const v1::QosClass& entry : declared_.classes()) FindMapping(dcb, entry);
    if (dcb.pfc) FindPfc(*dcb.pfc);
    if (dcb.ets && SharesDeclared(declared_) && !EtsIsGood(declared_, *dcb.ets)) FindEts(*dcb.ets);
    if (dcb.buffers) FindBuffers(*dcb.buffers);
  }

  void FindMapping(const DcbState& dcb, const v1::QosClass& entry) {
    if (!IsQueued(entry)) return;
    std::vector<int> now;
    for (const DcbApp& app : dcb.apps) {
      if (app.selector == IEEE_8021QAZ_APP_SEL_DSCP && app.protocol == entry.dscp()) now.push_back(app.priority);
    }
    if (now.size() == 1 && now[0] == entry.priority()) return;
    v1::QosDrift& drift = Add("dscp-priority", fmt::format("DSCP {} has {}", entry.dscp(),
        now.empty() ? "no priority" : fmt::format("priority {}", fmt::join(now, ","))),
                              fmt::format("priority {}", entry.priority()), true);
    drift.add_commands(fmt::format("dcb app replace dev {} dscp-prio {}:{}", port_.interface, entry.dscp(), entry.priority()));
    drift.add_mlnx_commands(fmt::format("mlnx_qos -i {} --dscp2prio set,{},{}", port_.interface, entry.dscp(), entry.priority()));
  }

  void FindPfc(const ieee_pfc& pfc) {
    const uint8_t wanted = WantedPfc(declared_, pfc.pfc_en);
    if (wanted == pfc.pfc_en) return;
    v1::QosDrift& drift = Add("pfc", PfcText(pfc.pfc_en), PfcText(wanted), true);
    drift.add_commands(fmt::format("dcb pfc set dev {} prio-pfc {}", port_.interface,
                                   ForAll(" ", [&](int p) { return fmt::format("{}:{}", p, wanted >> p & 1 ? "on" : "off"); })));
    drift.add_mlnx_commands(fmt::format("mlnx_qos -i {} --pfc {}", port_.interface,
                                        ForAll(",", [&](int p) { return std::string(wanted >> p & 1 ? "1" : "0"); })));
  }

  void FindEts(const ieee_ets& ets) {
    const ieee_ets wanted = WantedEts(declared_, ets);
    v1::QosDrift& drift = Add("ets", EtsText(ets), EtsText(wanted), true);
    const auto pairs = [&](auto value) { return ForAll(" ", [&](int i) { return fmt::format("{}:{}", i, value(i)); }); };
    drift.add_commands(fmt::format("dcb ets set dev {} tc-tsa {} tc-bw {} prio-tc {}", port_.interface,
                                   pairs([&](int i) { return Algorithm(wanted.tc_tsa[i]); }),
                                   pairs([&](int i) { return static_cast<int>(wanted.tc_tx_bw[i]); }),
                                   pairs([&](int i) { return static_cast<int>(wanted.prio_tc[i]); })));
    drift.add_mlnx_commands(fmt::format("mlnx_qos -i {} --prio_tc {} --tsa {} --tcbw {}", port_.interface,
                                        ForAll(",", [&](int i) { return std::to_string(wanted.prio_tc[i]); }),
                                        ForAll(",", [&](int i) { return std::string(Algorithm(wanted.tc_tsa[i])); }),
                                        ForAll(",", [&](int i) { return std::to_string(wanted.tc_tx_bw[i]); })));
  }

  /// A lossless priority that shares its receive buffer with a lossy one loses what that one overflows. How large buffers have to
  /// be
  /// depends on the cable: that is left to people.
  void FindBuffers(const dcbnl_buffer& buffers) {
    const std::set<int> lossless = Lossless(declared_);
    for (const int priority : lossless) {
      std::vector<int> others;
      for (int p = 0; p < kPriorities; ++p) {
        if (!lossless.contains(p) && buffers.prio2buffer[p] == buffers.prio2buffer[priority]) others.push_back(p);
      }
      if (others.empty()) continue;
      v1::QosDrift& drift = Add("buffer", fmt::format("priority {} shares buffer {} with {}", priority,
                                                      buffers.prio2buffer[priority], fmt::join(others, ",")),
                                "a buffer of its own", false);
      const int free = buffers.prio2buffer[priority] == 0 ? 1 : 0;
      drift.add_commands(fmt::format("dcb buffer set dev {} prio-buffer {}:{}", port_.interface, priority, free));
      drift.add_mlnx_commands(fmt::format("mlnx_qos -i {} --prio2buffer {}", port_.interface,
                                          ForAll(",",
                                              [&](int p) { return std::to_string(p == priority
                                                                                 ? free : buffers.prio2buffer[p]); })));
    }
  }

  void FindInRdma(const RdmaPort& rdma) {
    const auto compare = [&](const char* setting, const std::optional<int>& now, const std::string& command) {
      if (!now) return;
      const int wanted = WantedRoceTos(declared_, *now);
      if (wanted == *now) return;
      Add(setting, fmt::format("{} (DSCP {})", *now, *now >> 2), fmt::format("{} (DSCP {})", wanted, wanted >> 2), true)
          .add_commands(fmt::format(fmt::runtime(command), rdma.device, rdma.port, wanted));
    };
    compare("roce-tos", rdma.roce_tos, "cma_roce_tos -d {} -p {} -t {}");
    compare("forced-class", rdma.forced_class, "echo {2} > /sys/class/infiniband/{0}/tc/{1}/traffic_class");
    for (const std::string& address : port_.addresses) {
      if (address.find(':') != std::string::npos) continue;
      const bool there = std::ranges::any_of(rdma.gids, [&](const std::string& gid) { return gid.ends_with(":" + address); });
      if (!there) Add("gid", fmt::format("{} has no RoCE v2 GID of {}", rdma.device, address), "one", false);
    }
  }

  void FindInPackets() {
    int64_t all = 0;
    for (const auto& [dscp, packets] : port_.sent) all += packets;
    for (const auto& [dscp, packets] : port_.sent) {
      const bool known = std::ranges::any_of(declared_.classes(), [&](const v1::QosClass& entry) { return entry.dscp() == dscp; });
      if (known) continue;
      std::vector<int> declared;
      for (const v1::QosClass& entry : declared_.classes()) declared.push_back(entry.dscp());
      Add("packets", fmt::format("{} of {} sampled packets of flows carry DSCP {}", packets, all, dscp),
          fmt::format("DSCP {}", fmt::join(declared, ", ")), false);
    }
  }

  const v1::QosDeclaration& declared_;
  const PortSettings& port_;
  std::vector<v1::QosDrift> drifts_;
};

}  // namespace

Status CheckDeclaration(const v1::QosDeclaration& declared) {
  const auto refuse = [](const std::string& text) { return Fail(Code::kInvalidArgument, "classes of the site: " + text); };
  if (declared.classes_size() < 1 || declared.classes_size() > kMostClasses) {
    return refuse(fmt::format("{} of them, expected 1 to {}", declared.classes_size(), kMostClasses));
  }
  std::set<int> seen;
  int shares = 0;
  for (const v1::QosClass& entry : declared.classes()) {
    if (entry.dscp() < 0 || entry.dscp() > kMostDscp || !seen.insert(entry.dscp()).second) {
      return refuse(fmt::format("DSCP {}, expected 0 to {}, each once", entry.dscp(), kMostDscp));
    }
    if (entry.priority() < -1 || entry.priority() >= kPriorities ||
        (entry.priority() < 0 && (entry.lossless() || entry.share() != 0))) {
      return refuse(fmt::format("DSCP {}: priority {}, expected 0 to 7", entry.dscp(), entry.priority()));
    }
    if (entry.share() < 0 || entry.share() > 100) return refuse(fmt::format("DSCP {}: share {} %, expected 0 to 100", entry.dscp(),
                                                                            entry.share()));
    shares += entry.share();
  }
  const bool all = std::ranges::all_of(declared.classes(), [](const v1::QosClass& entry) { return entry.share() > 0; });
  if (shares != 0 &&
      (shares != 100 || !all)) return refuse(fmt::format("shares come to {} %, expected 100 and a share of each, or none", shares));
  if (declared.roce_tos() < -1 || declared.roce_tos() > 255) return refuse(fmt::format("roce_tos {}, expected 0 to 255",
                                                                                       declared.roce_tos()));
  return Ok();
}

int WantedRoceTos(const v1::QosDeclaration& declared, int now) {
  if (declared.roce_tos() >= 0) return declared.roce_tos();
  const bool known = std::ranges::any_of(declared.classes(), [&](const v1::QosClass& entry) { return entry.dscp() == now >> 2; });
  return known ? now : declared.classes(declared.classes_size() - 1).dscp() << 2;
}

std::vector<v1::QosDrift> FindDrifts(const v1::QosDeclaration& declared, const PortSettings& port) {
  return Finder(declared, port).Find();
}

PortChange MendingChange(const v1::QosDeclaration& declared, const PortSettings& port) {
  PortChange change;
  if (port.dcb && AnyQueued(declared)) {
    const DcbState& now = *port.dcb;
    DcbState wanted = now;
    for (const v1::QosClass& entry : declared.classes()) {
      if (!IsQueued(entry)) continue;
      const auto dscp = static_cast<uint16_t>(entry.dscp());
      std::erase_if(wanted.apps, [&](const DcbApp& app) { return app.selector == IEEE_8021QAZ_APP_SEL_DSCP &&
                                                         app.protocol == dscp; });
      wanted.apps.insert({IEEE_8021QAZ_APP_SEL_DSCP, static_cast<uint8_t>(entry.priority()), dscp});
    }
    if (wanted.pfc) wanted.pfc->pfc_en = WantedPfc(declared, wanted.pfc->pfc_en);
    if (wanted.ets && SharesDeclared(declared) && !EtsIsGood(declared, *wanted.ets)) wanted.ets = WantedEts(declared, *wanted.ets);
    if (wanted.trust && !wanted.TrustsDscp()) {
      std::erase(*wanted.trust, uint8_t{IEEE_8021QAZ_APP_SEL_DSCP});
      wanted.trust->insert(wanted.trust->begin(), IEEE_8021QAZ_APP_SEL_DSCP);
    }
    change.dcb = ChangeTo(wanted, now);
  }
  for (const RdmaPort& rdma : port.rdma) {
    const auto set = [&](const std::optional<int>& now, std::vector<PortChange::Number>* to) {
      if (now && WantedRoceTos(declared, *now) != *now) to->push_back({rdma.device, rdma.port, WantedRoceTos(declared, *now)});
    };
    set(rdma.roce_tos, &change.roce_tos);
    set(rdma.forced_class, &change.forced_class);
  }
  return change;
}

}  // namespace weft::agent
