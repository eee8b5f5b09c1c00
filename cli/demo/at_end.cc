#include "cli/demo/at_end.h"

#include <fmt/format.h>

#include "testbed/process.h"

namespace weft::cli {

using testbed::Output;

Status RunAtEnd(const DemoCluster& cluster, const std::string& command, const std::stop_token& stop) {
  std::string agents;
  for (const auto& http : cluster.agents_http()) agents += fmt::format("{}http://{}", agents.empty() ? "" : " ", http);
  std::vector<std::pair<std::string, std::string>> environment{{"WEFT_CONTROLLER", cluster.controller_address()},
                                                               {"WEFT_HTTP", "http://" + cluster.http()},
                                                               {"WEFT_AGENTS", agents}};
  if (!cluster.prometheus().empty()) environment.emplace_back("WEFT_PROMETHEUS", "http://" + cluster.prometheus());
  WEFT_ASSIGN_OR_RETURN(auto process, testbed::Spawn({.argv = {"/bin/sh", "-c", command},
                                                      .environment = std::move(environment),
                                                      .out = Output::Descriptor(2)}));
  WEFT_ASSIGN_OR_RETURN(const auto status, process.Wait(Seconds(120), stop));
  if (!status.ok()) return Fail(Code::kFailedPrecondition, "--at-end command: " + status.ToString());
  return Ok();
}

}  // namespace weft::cli
