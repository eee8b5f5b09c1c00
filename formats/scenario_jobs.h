// The `jobs` of a scenario file. Internal to formats/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/scenario_cluster.h"
#include "formats/scenario_yaml.h"

namespace weft::formats {

/// Reads all jobs into `file->scenario.jobs` and `file->models`. Errors: as ReadScenarioYaml.
[[nodiscard]] Status ReadScenarioJobs(const std::vector<YamlValue>& items, std::string_view source,
                                      const std::string& folder, const ScenarioCluster& cluster, ScenarioFile* file);

}  // namespace weft::formats
