// The NICs of this host as the plugin offers them: one device per interface that is up and has an address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "netplugin/abi/nccl_net.h"
#include "netplugin/environment.h"
#include "netplugin/tcp/socket.h"

namespace weft::net {

namespace rdma {
class Port;
}

struct Device {
  std::string name;      ///< of the interface
  std::string pci_path;  ///< resolved sysfs path; empty: not on a PCI bus, or another device has it already
  uint64_t guid = 0;     ///< unique on the host
  int speed_mbps = 10000;
  Address address;       ///< RDMA: where queue pairs are agreed on, the first interface's
  int port = 0;          ///< of the card, where several devices have one guid
  int ptr_support = nccl::kPtrHost;
  std::shared_ptr<rdma::Port> rdma;  ///< nullptr: TCP
};

/// One interface and address of the host, as getifaddrs gives them.
struct Interface {
  std::string name;
  bool loopback = false;
  Address address;      ///< family 0: this entry has none that others could reach
  bool up = true;
  bool carrier = true;
};

/// Whether `name` passes `filter`, in the syntax of NCCL_SOCKET_IFNAME and NCCL_IB_HCA; an empty filter passes everything.
/// `port`: of an RDMA device, from 1; 0: `name` has no ports, and what the filter says of them is ignored.
bool MatchesFilter(std::string_view filter, std::string_view name, int port = 0);

/// The interfaces to use, one address each, in the order given: those with an address and a carrier that pass
/// environment.interfaces. Without a filter, container bridges ("docker...") are used only if nothing else is there, and
/// loopback only if not even they.
std::vector<Interface> ChooseInterfaces(const std::vector<Interface>& all, const Environment& environment);

/// What is there and not among `chosen`, as "NAME (why not)", once each, in the order given.
std::vector<std::string> PassedOver(const std::vector<Interface>& all, const std::vector<Interface>& chosen,
                                    const Environment& environment);

/// What to log where no interface can be used: the settings that leave none, what is there, what to do. Lines of a warning.
struct NoInterface {
  std::string head;  ///< of the list of what is there
  std::string next;
};
NoInterface WhyNoInterface(const std::vector<Interface>& all, const Environment& environment);

/// Reads the host's interfaces and, below `sysfs`, their speed and PCI path. Waits up to 2 s for a carrier if none of the
/// interfaces to use that are up has one. Logs what it passes over, as a warning where nothing is left.
std::vector<Device> FindDevices(const Environment& environment, const std::string& sysfs = "/sys/class/net");

}  // namespace weft::net
