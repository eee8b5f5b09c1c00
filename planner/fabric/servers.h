// The inside of a GPU server as part of the one graph: GPUs, NVLink (switched or direct), PCIe switches, sockets
// and NICs.
//
//   Topology topology;
//   const Server server = AddServer(&topology, "n1", DgxH100());
//   topology.AddCable(server.nics[0], leaf, GigabitsPerSecond(400));
//
// Rates are raw rates of one direction. Node names: "n1/gpu0", "n1/nic0", "n1/pcie0", "n1/cpu0", "n1/nvswitch".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/fabric/topology.h"

namespace weft::planner::inline fabric {

/// So many NVLink lanes directly between two GPUs.
struct NvlinkPair {
  int a = 0, b = 0;
  int lanes = 1;
};

struct ServerSpec {
  std::string name;
  int gpus = 8;
  int nics = 8;
  int pcie_switches = 4;                 ///< GPUs and NICs are spread over them in order, and they over the sockets
  int cpus = 2;                          ///< sockets
  BitsPerSecond nvlink;                  ///< with `mesh`: of one lane; else of one GPU to the NVSwitch; 0: no NVLink
  std::vector<NvlinkPair> mesh;
  BitsPerSecond pcie;                    ///< of every PCIe link
  BitsPerSecond cpu_fabric;              ///< between two sockets
  BitsPerSecond nic;                     ///< line rate of each NIC towards the fabric; its PCIe link may give less
};

struct Server {
  std::vector<NodeId> gpus, nics;
};

/// Adds a server. Requires: no server of that name yet, gpus, pcie_switches, cpus ≥ 1, positive PCIe rate.
Server AddServer(Topology* topology, std::string_view name, const ServerSpec& spec);

/// DGX-1 with V100: hybrid cube mesh of 25 GB/s lanes, PCIe 3.0 x16, 4 × 100 Gbit/s.
/// Source: NVIDIA DGX-1 with Tesla V100 System Architecture, 2017, figures 4 and 5.
ServerSpec DgxV100();
/// DGX A100: 12 NVLink 3 lanes per GPU through NVSwitch (300 GB/s), PCIe 4.0 x16, 8 × 200 Gbit/s.
/// Source: NVIDIA DGX A100 System Architecture, 2020.
ServerSpec DgxA100();
/// DGX H100: 18 NVLink 4 lanes per GPU through NVSwitch (450 GB/s), PCIe 5.0 x16, 8 × 400 Gbit/s.
/// Source: NVIDIA DGX H100 data sheet, 2022.
ServerSpec DgxH100();

}  // namespace weft::planner::fabric
