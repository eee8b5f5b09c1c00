// Valid configurations of each kind that formats/ reads, for tests of parsers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/testing/config_sample.h"
#include "formats/testing/published_dense.h"
#include "formats/testing/published_encoders.h"
#include "formats/testing/published_gemma.h"
#include "formats/testing/published_mixture.h"

namespace weft::formats::testing {

inline constexpr ConfigSample kOwnConfigs[] = {
    {"weft-cnn3d", R"({"model_type": "weft-cnn3d", "_name_or_path": "unet", "input": {"channels": 2, "extent": [16, 32, 32]},
      "layers": [{"type": "convolution", "channels": 8, "kernel": 3, "norm": true},
                 {"type": "pooling", "kernel": 2, "stride": 2},
                 {"type": "transposed_convolution", "channels": 8, "kernel": [2, 2, 2], "stride": 2, "bias": false},
                 {"type": "convolution", "channels": 4, "kernel": 3, "skip_channels": 8},
                 {"type": "dense", "channels": 10}]})",
     // 2·8·27 + 8 + 16; 8·8·8; 16·4·27 + 4; 4·16·32·32·10 + 10
     456 + 512 + 1732 + 655370},
};

/// A CNN that weft-train runs: 1·4·27 + 4·256 + 256 parameters.
inline constexpr const char* kCnnClassifier = R"({"model_type": "weft-cnn3d", "input": {"channels": 1, "extent": 8},
    "layers": [{"type": "convolution", "channels": 4, "kernel": 3, "bias": false},
               {"type": "pooling", "kernel": 2, "stride": 2},
               {"type": "global_pooling"},
               {"type": "dense", "channels": 256}]})";

/// All models' configurations.
inline std::vector<ConfigSample> ModelConfigs() {
  std::vector<ConfigSample> all;
  const auto add = [&all](const auto& samples) { all.insert(all.end(), std::begin(samples), std::end(samples)); };
  add(kPublishedDense);
  add(kPublishedGemma);
  add(kPublishedMixtures);
  add(kPublishedEncoders);
  add(kOwnConfigs);
  return all;
}

/// The text of one of them; a failure of the test if there is none of that name.
inline std::string ConfigText(std::string_view name) {
  for (const ConfigSample& sample : ModelConfigs()) {
    if (sample.name == name) return sample.text;
  }
  ADD_FAILURE() << name;
  return "";
}

/// `text` with the first `from` replaced; a failure of the test if it is not there.
inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

inline constexpr const char* kClusterFile = R"(version: 1
name: lab
nodes: 4
gpus_per_node: 8
device: a100-80
device_memory: 80GiB
device_efficiency: 0.47
intra_node_rate: 300GB/s
nic_rate: 1.6Tbit/s
intra_latency: 4us
nic_latency: 12us
network_efficiency: 0.92
)";

inline constexpr const char* kGroupsFile = R"(version: 1
name: mixed
groups:
  - {nodes: 2, gpus_per_node: 8, device: h100-80, intra_node_rate: 450GB/s, nic_rate: 3.2Tbit/s}
  - {name: old, nodes: 4, gpus_per_node: 8, device: v100-32, intra_node_rate: 150GB/s, nic_rate: 400Gbit/s}
between_groups_rate: 10Gbit/s
between_groups_latency: 5ms
)";

inline constexpr const char* kJobFile = R"(version: 1
name: pretrain
model: llama3-8b
global_batch: 64
sequence: 1024
precision: bf16
hosts: [h1, h2]
ranks_per_host: 1
gpus: 2
framework: weft-train
measured_compute: 250ms
iterations: 1000
strategy: {dp: 2, micro_batch: 4, recompute: full, bucket_bytes: 25MiB}
)";

inline constexpr const char* kPlanFile = R"({"plans": [{"strategy": {"bucket_bytes": 26214400, "cp": 1, "dp": 2, "ep": 1,
  "micro_batch": 1, "pp": 4, "recompute": "selective", "schedule": "1f1b", "sequence_parallel": true, "tp": 8,
  "zero_stage": 1}, "predicted": {"iteration_s": 12.5}, "why": ["tp=8: inside a node"]}], "infeasible": []})";

/// A small network in place of std's generators, whose distributions differ between libraries: the same mutations everywhere.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  /// Uniform enough in [0, below). Requires: below ≥ 1. Source: SplitMix64, Steele, Lea and Flood 2014, figure 17.
  uint64_t Below(uint64_t below) {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
  }

 private:
  uint64_t state_;
};

/// `text` with one to three faults: bytes changed, cut out, doubled or put in, numbers and words replaced by awkward ones.
inline std::string Mutated(std::string text, Noise& noise) {
  static const std::vector<std::string> kWords = {
      "0", "-1", "null", "[]", "{}", "true", "\"\"", "1e400", "-0.0", "9223372036854775807", "9223372036854775808",
      "18446744073709551616", "1e-9", "nan", "[[[[", "}", "\"", "\\u0000", "\n", "\xff\xfe", ":", ",", "1048576", "7",
      "&a", "*a", "<<: *a", "- ", "| ", "!!binary ", "0x10", "1GiB", "3.5", "-3us"};
  for (uint64_t faults = 1 + noise.Below(3); faults > 0 && !text.empty(); --faults) {
    const size_t at = noise.Below(text.size());
    switch (noise.Below(6)) {
      case 0: text[at] = static_cast<char>(noise.Below(256)); break;
      case 1: text.erase(at, 1 + noise.Below(12)); break;
      case 2: text.insert(at, text.substr(noise.Below(text.size()), 1 + noise.Below(40))); break;
      case 3: text.resize(at); break;
      case 4: text.insert(at, kWords[noise.Below(kWords.size())]); break;
      default: {  // a whole number becomes a word
        const size_t first = text.find_first_of("0123456789", at);
        if (first == std::string::npos) break;
        const size_t end = text.find_first_not_of("0123456789", first);
        text.replace(first, (end == std::string::npos ? text.size() : end) - first, kWords[noise.Below(kWords.size())]);
      }
    }
  }
  return text;
}

}  // namespace weft::formats::testing
