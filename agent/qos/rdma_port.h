// What the RDMA ports of this host are set to: sysfs, and rdma_cm's part of configfs. Reading configfs needs root, as it shows a
// device only once somebody has made its folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace weft::agent {

/// Where to look; tests put in their own.
struct QosRoots {
  std::string sysfs = "/sys";
  std::string rdma_cm = "/sys/kernel/config/rdma_cm";
};

struct RdmaPort {
  std::string device;                   ///< "mlx5_0"
  int port = 1;
  std::string interface;                ///< the Ethernet device below it
  std::optional<int> roce_tos;          ///< of queue pairs that rdma_cm connects (cma_roce_tos)
  std::string roce_tos_unreadable;      ///< why it is not known
  std::optional<int> forced_class;      ///< vendor driver: traffic class that all connected queue pairs are forced to
  std::vector<std::string> gids;        ///< RoCE v2, "3: ::ffff:10.0.0.1"
  std::map<std::string, int64_t> counters;  ///< hw_counters

  friend bool operator==(const RdmaPort&, const RdmaPort&) = default;
};

/// All Ethernet ports of RDMA devices; none where the kernel has no RDMA.
std::vector<RdmaPort> ReadRdmaPorts(const QosRoots& roots = {});

/// Errors: kNotFound where configfs is not mounted or rdma_cm not loaded; kFailedPrecondition without the right to.
[[nodiscard]] Status SetRoceTos(const QosRoots& roots, const std::string& device, int port, int tos);
/// Errors: kNotFound where the driver has no such setting.
[[nodiscard]] Status SetForcedClass(const QosRoots& roots, const std::string& device, int port, int traffic_class);

/// A text of a GID as people write IPv6 addresses: "::ffff:10.0.0.1". Empty for the GID of zeros and for what is none.
std::string GidText(const std::string& sysfs_text);

}  // namespace weft::agent
