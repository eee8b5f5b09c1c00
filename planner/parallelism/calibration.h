// The constants that the cost model takes from measurements: one flat list of named numbers, each with the range that
// physics allows and the row or document it comes from. A constant belongs to a GPU family, a link type, a precision or a
// software stack, never to a model or to one measured row.
//
//   gpu.a100.gemm16        what large 16-bit matrix products reach of the peak
//   link.nic.efficiency    what a long transfer reaches of the line rate
//   stack.megatron-core.tp_overlap
//
// formats/calibration_yaml.h reads and writes the list; calibration_defaults.inc is what is compiled in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/fabric/cluster_spec.h"

namespace weft::planner::inline parallelism {

struct CalibrationConstant {
  std::string name;
  double value = 0;
  double least = 0, most = 0;  ///< physical range
  bool fitted = false;         ///< from calibration rows; otherwise from a document
  std::string source;          ///< the document, or what it was fitted on
};

class Calibration {
 public:
  /// The constants compiled in.
  Calibration();
  explicit Calibration(std::vector<CalibrationConstant> constants);

  /// The value named `prefix`.`name`, or of the longest parent of `prefix` that has it: "gpu.gb200" + "flash" falls back
  /// to "gpu.flash". Errors: none of them is there, which is a bug of the list: the value is then NaN.
  double Get(std::string_view prefix, std::string_view name) const;

  /// These constants, but for those that were measured: the last of a name counts.
  Calibration With(std::span<const MeasuredConstant> measured) const;

  /// nullopt if a prediction can take `measured`: its name is one of these, or has one of these behind the family of a device
  /// ("gpu.l40s.gemm16") or the kind of a link, or begins with "operation." (`weft-train --calibrate`); and its value lies in that
  /// one's range. Else what is wrong, with what was expected.
  std::optional<std::string> WhyNot(const MeasuredConstant& measured) const;

  /// The constant whose range `name` has, itself or behind a device's or link's family. Requires: a name that WhyNot() takes; an
  /// operation's has any range.
  CalibrationConstant RangeOf(std::string_view name) const;

  /// Ascending by name.
  std::span<const CalibrationConstant> constants() const { return constants_; }

 private:
  const CalibrationConstant* Find(std::string_view name) const;
  const CalibrationConstant* FindFor(std::string_view prefix, std::string_view name) const;
  const CalibrationConstant* FindRange(std::string_view name) const;
  std::vector<CalibrationConstant> constants_;
};

}  // namespace weft::planner::parallelism
