// 3D convolutional networks, for which no config.json exists elsewhere. Layers stand in order; channels and extents are
// passed on, so that only what changes is said:
//
//   {"model_type": "weft-cnn3d", "_name_or_path": "cosmoflow",
//    "input": {"channels": 4, "extent": [128, 128, 128]},
//    "layers": [
//      {"type": "convolution", "channels": 16, "kernel": 3, "stride": 1, "bias": true, "norm": true},
//      {"type": "pooling", "kernel": 2, "stride": 2},
//      {"type": "transposed_convolution", "channels": 8, "kernel": 2, "stride": 2, "skip_channels": 16},
//      {"type": "global_pooling"},
//      {"type": "dense", "channels": 128}]}
//
// Sizes are an integer for all three dimensions or [depth, height, width]. kernel and stride default to 1, bias to true,
// norm to false. skip_channels come in beside the previous layer's, as in a U-Net. "input" of a layer, as the file's, stands where
// it takes another layer's output (a branch), "output" is the extent where padding is not 'same', "groups" cuts a convolution's
// channels. A global pooling is the mean over the extent.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "common/result.h"
#include "planner/workload/model_spec.h"

namespace weft::formats {

inline constexpr std::string_view kCnn3dModelType = "weft-cnn3d";

/// Errors: kInvalidArgument naming source, layer, key, value and what was expected. Requires: `config` is an object.
[[nodiscard]] Result<planner::ModelSpec> ReadCnn3d(const nlohmann::json& config, std::string_view source);

/// The inverse. Requires: a 3D CNN with at least one layer.
nlohmann::json WriteCnn3d(const planner::ModelSpec& model);

}  // namespace weft::formats
