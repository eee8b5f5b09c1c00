#include <cstdlib>
#include <climits>

#include "netplugin/log.h"
#include "netplugin/rdma/gid.h"
#include "netplugin/rdma/port_choice.h"
#include "netplugin/rdma/transport.h"

namespace weft::net::rdma {
namespace {

std::string PciPath(const std::string& device) {
  char path[PATH_MAX];
  return realpath(("/sys/class/infiniband/" + device + "/device").c_str(), path) ? path : "";
}

/// `tcp`, and says so. Where it is empty that was said when it was found.
std::vector<Device> OverTcp(std::vector<Device> tcp, const Environment& environment, const std::string& why) {
  std::vector<std::string> texts;
  for (const Device& device : tcp) {
    std::string address = device.address.Text();
    address.resize(address.rfind(':'));  // its port is none yet
    texts.push_back(device.name + " " + address + " (" + std::to_string(device.speed_mbps) + " Mbit/s)");
  }
  const std::string filter = environment.interfaces.empty() ? "NCCL_SOCKET_IFNAME unset"
                                                            : Setting("NCCL_SOCKET_IFNAME", environment.interfaces);
  if (!tcp.empty()) LogList(nccl::kLogInfo, "devices, over TCP (" + why + "), " + filter + ":", texts);
  return tcp;
}

}  // namespace

RdmaDevices FindRdmaDevices(const RdmaEnvironment& environment, const std::vector<Device>& meeting) {
  Ports ports = FindPorts(environment);
  RdmaDevices found{.present = ports.present,
                    .devices = {},
                    .why = ports.why,
                    .excluded = ports.excluded,
                    .passed_over = std::move(ports.passed_over)};
  if (!ports.usable.empty() && meeting.empty()) {
    found.why = "no interface with an address where the ends could meet (see NCCL_SOCKET_IFNAME above)";
    return found;
  }
  std::vector<std::string> paths;
  for (const auto& port : ports.usable) paths.push_back(PciPath(port->name().substr(0, port->name().find(':'))));
  SetStandbys(ports.usable, paths);
  for (size_t i = 0; i < ports.usable.size(); ++i) {
    const std::shared_ptr<Port>& port = ports.usable[i];
    Device device;
    device.name = port->name();
    device.pci_path = paths[i];
    for (const Device& other : found.devices) {
      if (other.pci_path == device.pci_path) device.pci_path.clear();  // NCCL wants each path once
    }
    device.guid = port->guid();
    device.port = port->number();
    device.speed_mbps = port->speed_mbps();
    device.ptr_support = port->ptr_support();
    device.address = meeting.front().address;
    device.rdma = port;
    found.devices.push_back(std::move(device));
  }
  return found;
}

std::vector<Device> ChooseDevices(const Environment& environment) {
  std::vector<Device> tcp = FindDevices(environment);
  const bool only_rdma = environment.transport == TransportChoice::kRdma;
  if (environment.transport == TransportChoice::kTcp) return OverTcp(std::move(tcp), environment, "WEFT_TRANSPORT=tcp");
  if (environment.rdma.disabled && !only_rdma) return OverTcp(std::move(tcp), environment, "NCCL_IB_DISABLE=1");
  RdmaDevices rdma = FindRdmaDevices(environment.rdma, tcp);
  for (const Device& device : rdma.devices) {
    std::array<uint8_t, 16> gid;
    std::copy_n(device.rdma->info().gid, gid.size(), gid.begin());
    Log(nccl::kLogInfo, "%s: %s, GID %d (%s), %d Mbit/s, memory kinds %d", device.name.c_str(),
        device.rdma->ethernet() ? "RoCE v2" : "InfiniBand", device.rdma->gid_index(), GidText(gid).c_str(),
        device.speed_mbps, device.ptr_support);
  }
  const bool none = rdma.devices.empty() && (rdma.present || only_rdma);
  if (none) {
    Log(nccl::kLogWarn, "devices: none. No RDMA device can be used (%s), so none is offered; WEFT_TRANSPORT=tcp asks for TCP",
        rdma.why.c_str());
  }
  // Who names devices and gets none of them has mistaken their names, and would wonder at the speed.
  const bool mistaken = !rdma.present && rdma.excluded;
  if (mistaken) {
    Log(nccl::kLogWarn, "%s lets no active RDMA port through; name one of them, or unset it",
        Setting("NCCL_IB_HCA", environment.rdma.devices).c_str());
  }
  if (!rdma.passed_over.empty()) {
    LogList(none || mistaken ? nccl::kLogWarn : nccl::kLogInfo, "RDMA ports not used:", rdma.passed_over);
  }
  if (rdma.present || only_rdma) return std::move(rdma.devices);
  return OverTcp(std::move(tcp), environment, rdma.why);
}

}  // namespace weft::net::rdma
