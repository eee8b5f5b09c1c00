// Whatever takes bytes, words or messages from outside, as a function of one input.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::fuzz {

struct Target {
  std::string name;
  /// Inputs that are taken; what is run is made of them. Requires: at least one.
  std::vector<std::string> corpus;
  /// Takes one input, and says why not: empty where it was taken. What must not be ends the process (Require()).
  std::function<std::string(const std::string&)> run;
  /// How far it got, where "taken" does not say; or empty.
  std::function<std::string()> summary = {};
};

/// Ends the process, as a crash does, unless `holds`.
void Require(bool holds, std::string_view what);

/// What a refusal says: one line of printable characters.
template <typename T>
std::string Said(const Result<T>& result) {
  if (result) return "";
  const std::string& message = result.error().message();
  Require(!message.empty(), "an error without a message");
  for (const char c : message) Require(static_cast<unsigned char>(c) >= ' ' && c != 0x7f, "a message with control characters");
  return message;
}

/// What users write: models, clusters, jobs, plans, scenarios, tables, checkpoints.
std::vector<Target> FileTargets();
/// What daemons are configured with, and short texts of command lines and environments.
std::vector<Target> SettingTargets();
/// What comes over the network: packets, frames, certificates' names, messages of gRPC.
std::vector<Target> NetworkTargets();
/// What a tenant's process writes into the memory that the agent reads.
std::vector<Target> SegmentTargets();
/// What the controller's core is told.
std::vector<Target> CoreTargets();

}  // namespace weft::fuzz
