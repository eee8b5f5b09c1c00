// Where a port is not as the site declares, and what would make it so. Pure: it reads nothing and sets nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/qos/dcb.h"
#include "agent/qos/rdma_port.h"
#include "proto/qos.pb.h"

namespace weft::agent {

/// Everything that was read of one interface.
struct PortSettings {
  std::string interface;
  std::vector<std::string> addresses;
  int64_t mtu = 0;                            ///< 0: not known
  std::optional<DcbState> dcb;
  std::string dcb_unreadable;                 ///< why it is not known
  std::vector<RdmaPort> rdma;                 ///< on this interface
  std::map<std::string, int64_t> counters;    ///< of the driver (ethtool) that have to do with priorities
  std::map<int32_t, int64_t> sent;            ///< sampled packets of flows by DSCP
};

/// What makes a port as declared, as far as Weft sets it: all of it or nothing.
struct PortChange {
  struct Number {
    std::string device;
    int port = 1;
    int value = 0;
  };
  DcbChange dcb;
  std::vector<Number> roce_tos, forced_class;

  bool empty() const { return dcb.empty() && roce_tos.empty() && forced_class.empty(); }
};

/// Errors: kInvalidArgument naming what a declaration of the controller must not say.
[[nodiscard]] Status CheckDeclaration(const v1::QosDeclaration& declared);

/// Settings that are not as declared, in a fixed order, with the commands that mend them. Requires: CheckDeclaration holds.
std::vector<v1::QosDrift> FindDrifts(const v1::QosDeclaration& declared, const PortSettings& port);

/// What sets all drifts right that are marked mendable. Requires: CheckDeclaration holds.
PortChange MendingChange(const v1::QosDeclaration& declared, const PortSettings& port);

/// The ToS byte that rdma_cm's queue pairs should have: `now` where that will do.
int WantedRoceTos(const v1::QosDeclaration& declared, int now);

}  // namespace weft::agent
