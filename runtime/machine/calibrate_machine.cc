#include "runtime/machine/calibrate_machine.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "formats/calibration_yaml.h"
#include "formats/profiled_model.h"
#include "runtime/machine/fit.h"
#include "runtime/machine/measure.h"

namespace weft::runtime {
namespace {

Result<planner::CalibrationConstant> ReadLink(const std::string& text) {
  const size_t equals = text.find('=');
  double value = 0;
  if (equals != text.npos) {
    const auto [end, status] = std::from_chars(text.data() + equals + 1, text.data() + text.size(), value);
    if (status == std::errc() && end == text.data() + text.size()) {
      return planner::CalibrationConstant{
          .name = text.substr(0, equals), .value = value, .fitted = true, .source = "two ranks through the net plugin"};
    }
  }
  return Fail(Code::kInvalidArgument, fmt::format("--link \"{}\": expected NAME=VALUE", text));
}

}  // namespace

Status CalibrateMachine(const MachineOptions& o) {
  WEFT_ASSIGN_OR_RETURN(const MachineTimes times, MeasureMachine(o.threads, Seconds(o.seconds)));
  FittedConstants fitted = FitConstants(times);
  for (const std::string& line : fitted.lines) fmt::print(stderr, "weft calibrate: {}\n", line);
  for (const std::string& text : o.links) {
    WEFT_ASSIGN_OR_RETURN(planner::CalibrationConstant link, ReadLink(text));
    fitted.constants.push_back(std::move(link));
  }
  const planner::Calibration compiled;
  std::vector<planner::CalibrationConstant> taken;
  for (planner::CalibrationConstant& c : fitted.constants) {
    if (const auto why = compiled.WhyNot({.name = c.name, .value = c.value})) {
      fmt::print(stderr, "weft calibrate: {} left out: {}\n", c.name, *why);
      continue;
    }
    const planner::CalibrationConstant range = compiled.RangeOf(c.name);
    c.least = range.least;
    c.most = range.most;
    c.source += fmt::format(", {} thread{}", o.threads, o.threads == 1 ? "" : "s");
    taken.push_back(std::move(c));
  }
  fmt::print(stderr, "weft calibrate: {} constants; assumed: a core for each thread, fp32, weft-train's kernels\n", taken.size());
  return formats::WriteModelFile(o.out, formats::WriteCalibrationYaml(taken));
}

}  // namespace weft::runtime
