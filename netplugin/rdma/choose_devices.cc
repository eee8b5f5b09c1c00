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

}  // namespace

RdmaDevices FindRdmaDevices(const RdmaEnvironment& environment, const std::vector<Device>& meeting) {
  Ports ports = FindPorts(environment);
  RdmaDevices found{.present = ports.present, .devices = {}, .why = ports.why};
  if (!ports.usable.empty() && meeting.empty()) {
    found.why = "no interface with an address where the ends could meet (NCCL_SOCKET_IFNAME)";
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
  if (environment.transport == TransportChoice::kTcp || (environment.rdma.disabled && !only_rdma)) return tcp;
  RdmaDevices rdma = FindRdmaDevices(environment.rdma, tcp);
  for (const Device& device : rdma.devices) {
    std::array<uint8_t, 16> gid;
    std::copy_n(device.rdma->info().gid, gid.size(), gid.begin());
    Log(nccl::kLogInfo, "%s: %s, GID %d (%s), %d Mbit/s, memory kinds %d", device.name.c_str(),
        device.rdma->ethernet() ? "RoCE v2" : "InfiniBand", device.rdma->gid_index(), GidText(gid).c_str(),
        device.speed_mbps, device.ptr_support);
  }
  if (rdma.devices.empty() && (rdma.present || only_rdma)) {
    Log(nccl::kLogWarn, "no RDMA device can be used (%s), so none is offered; WEFT_TRANSPORT=tcp asks for TCP",
        rdma.why.c_str());
  }
  if (rdma.present || only_rdma) return std::move(rdma.devices);
  return tcp;
}

}  // namespace weft::net::rdma
