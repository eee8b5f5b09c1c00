// Fabrics of a scenario that no generator makes: a list of links, Slurm's topology.conf, NCCL's topology XML. Internal
// to formats/.
#pragma once

#include "formats/scenario_fabric.h"

namespace weft::formats {

/// `hosts` and `links` with `from`, `to`, `rate` and optionally `directions: 1`. Whatever is no host is a switch.
FabricBuilder ReadLinkList(FabricInput& input);

/// `file`, `rate` of every cable, and `core_rate` of cables to a switch "core" above all switches without one above.
FabricBuilder ReadSlurmFabric(FabricInput& input);

/// `file`: one server; `hosts` of them ("h1" …), the NICs of all on one switch "leaf1" at `nic_rate` or their own rate.
FabricBuilder ReadNcclFabric(FabricInput& input);

}  // namespace weft::formats
