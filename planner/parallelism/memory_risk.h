// How far predictions of memory were off on published runs that no constant was fitted on, and what that means for a plan:
// the probability that it runs out of memory. For now the plain quantiles of one list for all programs and devices.
#pragma once

#include <optional>
#include <span>

#include "common/units.h"
#include "planner/fabric/device_spec.h"

namespace weft::planner::inline parallelism {

/// The probability of running out of memory that a plan may have where nobody says otherwise.
inline constexpr double kDefaultRisk = 0.05;
/// A plan whose predicted memory is a larger share of the device is marked.
inline constexpr double kMarkedShare = 0.90;

/// Measured over predicted bytes of the runs, ascending. Written by tools/fidelity_report.py from tests/validation/.
std::span<const double> MemoryErrors();

/// The least factor on a prediction that a share of at most `risk` of the runs exceeded: the (1 - risk) quantile by nearest
/// rank. Requires: 0 < risk ≤ 1.
double MemoryFactor(double risk);

/// Bytes that a prediction may say for `device` at this risk; nullopt: all of the device. A device that reserves nothing is a
/// host's processor, whose memory is not so tight: all of it.
double MemoryAllowance(const DeviceSpec& device, std::optional<double> risk);

/// Share of the runs that would have fitted `device` had their prediction been `predicted`.
double FitProbability(const DeviceSpec& device, Bytes predicted);

}  // namespace weft::planner::parallelism
