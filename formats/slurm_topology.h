// Slurm's topology.conf: the tree of switches (topology/tree) or the blocks (topology/block) that the scheduler knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/fabric/topology.h"

namespace weft::formats {

/// One SwitchName or BlockName line, its host lists expanded.
struct SlurmSwitch {
  std::string name;
  std::vector<std::string> nodes;
  std::vector<std::string> switches;
  int line = 0;
};

/// Lines in the order of the file. A line is SwitchName=… with Nodes or Switches, and LinkSpeed, which Slurm itself passes
/// over; BlockName=… with Nodes; or BlockSizes=…. '#' starts a comment, '\' at the end continues a line; keys in any case.
/// Errors: kInvalidArgument "source: line 3: …" for unknown keys, names that are there twice, switches below two others or
/// below themselves or never defined, nodes on two switches, and host lists that are malformed or longer than 65,536.
[[nodiscard]] Result<std::vector<SlurmSwitch>> ParseSlurmTopology(std::string_view text, std::string_view source);

/// The names of a Slurm host list: "n[1-3,07-08],login" is n1 n2 n3 n07 n08 login. Errors: kInvalidArgument.
[[nodiscard]] Result<std::vector<std::string>> ExpandHostList(std::string_view list);

/// The switches as a graph with cables of `rate`; topology.conf says nothing of real rates. Requires: a parsed list.
planner::Topology SlurmTopologyGraph(const std::vector<SlurmSwitch>& switches, BitsPerSecond rate);

}  // namespace weft::formats
