#include "runtime/machine/fit.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <utility>

#include "planner/parallelism/attention_time.h"
#include "planner/parallelism/calibrated_hardware.h"
#include "planner/planner.h"
#include "runtime/quantile.h"

namespace weft::runtime {
namespace {

using planner::CalibratedHardware;
using planner::MeasuredConstant;

/// One core of this machine, as predictions of weft-train in fp32 see it with these constants.
CalibratedHardware Hardware(const std::vector<MeasuredConstant>& constants) {
  planner::NodeGroup node{.name = "this machine", .nodes = 1, .gpus_per_node = 1, .device = *planner::FindDevice("cpu")};
  node.intra_node_rate = node.nic_rate = BitsPerSecond(8e9);
  planner::ClusterSpec cluster = planner::MakeCluster("this machine", {node}, 1);
  cluster.measured = constants;
  return planner::MakeCalibratedHardware(cluster, planner::Precision::kFp32, planner::StackOf(planner::Framework::kWeftTrain),
                                         planner::Calibration())
      .value();
}

/// |log(predicted / measured)| of all of `times`.
template <typename Times, typename Predict>
std::vector<double> Errors(const Times& times, const Predict& predict) {
  std::vector<double> errors;
  for (const auto& measured : times) errors.push_back(std::abs(std::log(predict(measured) / measured.time)));
  return errors;
}

/// Sets the last two of `constants` to those values, of a share and of a ramp, with the least mean error.
void Search(std::vector<MeasuredConstant>* constants, const std::vector<double>& ramps,
            const std::function<std::vector<double>(const CalibratedHardware&)>& errors) {
  std::vector<MeasuredConstant> best = *constants;
  double least = 1e300;
  for (const double ramp : ramps) {
    for (double share = 0.012; share < 7.9; share *= 1.04) {
      (*constants)[constants->size() - 2].value = share;
      constants->back().value = ramp;
      double sum = 0;
      for (const double error : errors(Hardware(*constants))) sum += error;
      if (sum < least) least = sum, best = *constants;
    }
  }
  *constants = best;
}

std::string Near(const char* what, const std::vector<double>& errors) {
  return fmt::format("{}: {} times, the model is off by {:.0f} % in the median, {:.0f} % in nine of ten", what, errors.size(),
                     100 * std::expm1(Quantile(errors, 0.5)), 100 * std::expm1(Quantile(errors, 0.9)));
}

Seconds ProductPrediction(const CalibratedHardware& h, const ProductTime& p) {
  return planner::GemmTime(h, h.gemm_rate, {.m = p.m, .n = p.n, .k = p.k, .count = p.count}, h.element, h.element);
}

Seconds AttentionPrediction(const CalibratedHardware& h, const AttentionTime& a) {
  return planner::FusedForwardTime(h, {.batch = a.batch,
                                       .heads = a.heads,
                                       .tokens = a.sequence,
                                       .keys = a.sequence,
                                       .query_width = a.width,
                                       .value_width = a.width,
                                       .key_values = 2 * a.heads * a.width,
                                       .share = 0.5});
}

}  // namespace

FittedConstants FitConstants(const MachineTimes& times) {
  FittedConstants fitted;
  std::vector<double> rates;
  for (const StreamTime& stream : times.streams) rates.push_back(stream.bytes / stream.time.count());
  const double rate = planner::FindDevice("cpu")->memory_rate.bytes_per_second();
  std::vector<MeasuredConstant> constants = {{"host.kernel", times.least.count()}, {"gpu.cpu.launch", times.least.count()},
                                             {"gpu.cpu.memory", Quantile(rates, 0.5) / rate},
                                             {"gpu.cpu.gemm16", 1}, {"gpu.cpu.ramp_depth", 0}};
  const auto products = [&](const CalibratedHardware& h) {
    return Errors(times.products, [&](const ProductTime& p) { return ProductPrediction(h, p); });
  };
  Search(&constants, {0, 8, 16, 32, 64, 128, 256, 512, 1024}, products);
  constants.insert(constants.end(), {{"gpu.cpu.flash", 1}, {"gpu.cpu.flash_ramp", 0}});
  const auto attention = [&](const CalibratedHardware& h) {
    return Errors(times.attention, [&](const AttentionTime& a) { return AttentionPrediction(h, a); });
  };
  Search(&constants, {0, 16, 32, 64, 128, 256, 512, 1024, 2048}, attention);
  const CalibratedHardware hardware = Hardware(constants);
  fitted.lines = {Near("matrix products", products(hardware)), Near("attention", attention(hardware)),
                  fmt::format("streams: {} times, {:.3g} to {:.3g} GB/s in nine of ten", rates.size(), Quantile(rates, 0.05) / 1e9,
                              Quantile(rates, 0.95) / 1e9)};
  const std::string sources[] = {
      "least time of an operator", "least time of an operator", "median of element-wise operators and copies",
      "matrix products",           "matrix products",           "causal attention, forward",
      "causal attention, forward"};
  for (size_t i = 0; i < constants.size(); ++i) {
    fitted.constants.push_back({.name = constants[i].name, .value = constants[i].value, .fitted = true, .source = sources[i]});
  }
  return fitted;
}

}  // namespace weft::runtime
