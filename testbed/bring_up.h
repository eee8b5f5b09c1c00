// Making a plan real, step by step. What fails half way is left for TearDown, which works from the same plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "testbed/fabric_plan.h"
#include "testbed/fabric_scripts.h"
#include "testbed/process.h"

namespace weft::testbed {

/// One `ip -batch` or `tc -batch` run.
struct Batch {
  std::string program;  ///< "ip" or "tc"
  std::string netns;    ///< empty: the root namespace
  std::string script;
};

/// Runs all batches at once. Errors: kFailedPrecondition with the first failing line's message.
[[nodiscard]] Status RunBatches(std::span<const Batch> batches);

/// Makes namespaces, devices, addresses, routes and shaping, and returns when every port carries packets.
[[nodiscard]] Status BringUp(const FabricPlan& plan);

/// Makes the kernel act on the carrier of `devices` now. It would otherwise get round to it within a second, and until
/// then a port drops what it is given. Errors: kUnavailable for a device without carrier.
[[nodiscard]] Status SettleCarrier(const std::string& netns, std::span<const std::string> devices);

/// The smallest slot whose management subnet overlaps no address of this machine and that is not in `taken`.
/// Errors: kResourceExhausted.
[[nodiscard]] Result<int> PickSlot(std::span<const int> taken);

}  // namespace weft::testbed
