// For tests: a path as people write it.
#pragma once

#include <string>
#include <vector>

#include "planner/fabric/topology.h"

namespace weft::planner::testing {

inline std::vector<std::string> Names(const Topology& topology, const std::vector<LinkId>& path) {
  std::vector<std::string> names;
  for (const LinkId link : path) names.push_back(topology.LinkName(link));
  return names;
}

}  // namespace weft::planner::testing
