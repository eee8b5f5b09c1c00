// The kinds of fabric that a scenario's `cluster` may name: which keys each has, and how the graph is made of them.
// Internal to formats/ (scenario_cluster.h lists the keys).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "formats/yaml_fields.h"
#include "planner/fabric/fabrics.h"

namespace weft::formats {

struct BuiltFabric {
  planner::Cluster cluster;
  std::vector<std::string> names;     ///< of cluster.hosts
};

/// Makes the graph when all keys have been found right: a fabric must not be built of sizes that are wrong.
using FabricBuilder = std::function<Result<BuiltFabric>()>;

struct FabricInput {
  YamlFields& fields;
  const std::optional<planner::ServerSpec>& server;
  std::string source;                 ///< of messages
  std::string folder;                 ///< that file names are relative to
};

struct FabricKind {
  std::string_view name;
  bool takes_server = false;
  bool generated = true;              ///< every host reaches every other by construction
  FabricBuilder (*read)(FabricInput& input) = nullptr;
};

std::span<const FabricKind> FabricKinds();

/// "leaf-spine, three-tier, …", for messages.
std::string FabricKindNames();

/// Whether `name` can name a host, a switch or a job: 1 to 63 letters, digits and -_./: without "->".
bool IsScenarioName(std::string_view name);

}  // namespace weft::formats
