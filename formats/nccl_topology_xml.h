// The topology of one server as NCCL writes it (NCCL_TOPO_DUMP_FILE) and reads it (NCCL_TOPO_FILE), into the planner's graph.
//
// Read are system, cpu, pci, gpu, nvlink and net elements with the attributes that say what is joined to what and how fast;
// whatever else there is (newer versions add attributes) is passed over. XML is read by tinyxml2: it knows the line of every
// element and attribute, bounds the depth of nesting, and neither expands entities nor fetches anything.
#pragma once

#include <string_view>

#include "common/result.h"
#include "planner/fabric/servers.h"

namespace weft::formats {

/// A server in a graph of its own. Its NICs are named for their net devices: "n1/mlx5_0"; GPUs "n1/gpu0" by their dev.
struct NcclTopology {
  planner::Topology topology;
  planner::Server server;
};

/// `host` becomes the first part of every name; `source` names the text in messages.
/// Errors: kInvalidArgument "source: line 12: what is wrong" for malformed XML, missing or senseless attributes, devices that
/// occur twice, an NVLink to a GPU that does not exist, or a system without GPU and net.
[[nodiscard]] Result<NcclTopology> ParseNcclTopologyXml(std::string_view text, std::string_view source,
                                                        std::string_view host);

}  // namespace weft::formats
