#include "formats/cnn3d_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "formats/json_fields.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::Cnn3dKind;
using planner::Cnn3dLayer;
using planner::ModelSpec;

// Small enough that a layer's parameters and voxels stay far inside 63 bits.
constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostChannels = 1 << 17;
constexpr int64_t kMostExtent = 1 << 14;
constexpr int64_t kMostKernel = 127;

constexpr std::pair<std::string_view, Cnn3dKind> kKinds[] = {
    {"convolution", Cnn3dKind::kConvolution},
    {"transposed_convolution", Cnn3dKind::kTransposedConvolution},
    {"pooling", Cnn3dKind::kPooling},
    {"dense", Cnn3dKind::kDense},
    {"global_pooling", Cnn3dKind::kGlobalPooling},
};

void ReadKind(JsonFields& fields, Cnn3dLayer* layer) {
  const std::string type = fields.Text("type", "");
  std::string known;
  for (const auto& [name, kind] : kKinds) {
    if (type == name) {
      layer->kind = kind;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fields.Reject("type", fmt::format("value \"{}\", expected one of {}", OneLine(type, 60), known));
}

Status ReadInput(const json& object, std::string_view source, const std::string& place, int64_t* channels,
                 std::array<int64_t, 3>* extent) {
  JsonFields fields(object, source, place);
  *channels = fields.Integer("channels", 1, kMostChannels);
  *extent = fields.Triple("extent", 1, kMostExtent);
  return fields.Finish();
}

/// Whether a kernel goes over the input, stride by stride.
bool HasWindow(Cnn3dKind kind) { return kind != Cnn3dKind::kDense && kind != Cnn3dKind::kGlobalPooling; }
bool Pools(Cnn3dKind kind) { return kind == Cnn3dKind::kPooling || kind == Cnn3dKind::kGlobalPooling; }

/// What only some convolutions and poolings have.
void ReadGroups(JsonFields& fields, Cnn3dLayer* layer) {
  const bool convolves = layer->kind == Cnn3dKind::kConvolution || layer->kind == Cnn3dKind::kTransposedConvolution;
  if (convolves) layer->groups = fields.Integer("groups", 1, kMostChannels, 1);
  if (layer->in_channels % layer->groups != 0 || layer->out_channels % layer->groups != 0) {
    fields.Reject("groups", fmt::format("value {}, expected a divisor of {} and {} channels", layer->groups, layer->in_channels,
                                        layer->out_channels));
  }
  if (HasWindow(layer->kind) && fields.Has("output")) layer->output = fields.Triple("output", 1, kMostExtent);
}

/// Reads one layer behind `previous`, whose output it takes.
Result<Cnn3dLayer> ReadLayer(const json& object, std::string_view source, size_t index, int64_t channels,
                             std::array<int64_t, 3> extent) {
  if (!object.is_object()) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: layers[{}]: a JSON {}, expected an object", source, index,
                                                    object.type_name()));
  }
  JsonFields fields(object, source, fmt::format("layers[{}].", index));
  Cnn3dLayer layer;
  ReadKind(fields, &layer);
  if (fields.Has("input")) {
    const json* input = fields.Object("input");
    WEFT_RETURN_IF_ERROR(fields.Finish());
    WEFT_RETURN_IF_ERROR(ReadInput(*input, source, fmt::format("layers[{}].input.", index), &channels, &extent));
  }
  layer.in_channels = channels + fields.Integer("skip_channels", 0, kMostChannels, 0);
  layer.extent = extent;
  const bool pooling = Pools(layer.kind);
  layer.out_channels = pooling ? layer.in_channels : fields.Integer("channels", 1, kMostChannels);
  if (HasWindow(layer.kind)) {
    layer.kernel = fields.Triple("kernel", 1, kMostKernel, 1);
    layer.stride = fields.Triple("stride", 1, kMostKernel, 1);
  }
  ReadGroups(fields, &layer);
  layer.bias = !pooling && fields.Boolean("bias", true);
  layer.normalised = !pooling && fields.Boolean("norm", false);
  for (const int64_t size : layer.OutputExtent()) {
    if (size > kMostExtent) fields.Reject("stride", fmt::format("an output of {}, expected at most {}", size, kMostExtent));
  }
  if (layer.in_channels > kMostChannels) {
    fields.Reject("skip_channels", fmt::format("{} channels in all, expected at most {}", layer.in_channels, kMostChannels));
  }
  WEFT_RETURN_IF_ERROR(fields.Finish());
  return layer;
}

}  // namespace

Result<ModelSpec> ReadCnn3d(const json& config, std::string_view source) {
  JsonFields fields(config, source);
  ModelSpec model;
  model.architecture = planner::Architecture::kCnn3d;
  model.max_positions = 1;  // a sample is a sequence of one
  model.name = fields.Text("_name_or_path", std::string(kCnn3dModelType));
  const json* input = fields.Object("input");
  const json* layers = fields.List("layers");
  WEFT_RETURN_IF_ERROR(fields.Finish());
  if (layers->empty() || layers->size() > kMostLayers) {
    fields.Reject("layers", fmt::format("{} layers, expected 1 to {}", layers->size(), kMostLayers));
    WEFT_RETURN_IF_ERROR(fields.Finish());
  }
  int64_t channels = 0;
  std::array<int64_t, 3> extent{};
  WEFT_RETURN_IF_ERROR(ReadInput(*input, source, "input.", &channels, &extent));
  for (const json& object : *layers) {
    WEFT_ASSIGN_OR_RETURN(Cnn3dLayer layer, ReadLayer(object, source, model.cnn_layers.size(), channels, extent));
    channels = layer.out_channels;
    extent = layer.OutputExtent();
    model.cnn_layers.push_back(layer);
  }
  model.layers = static_cast<int64_t>(model.cnn_layers.size());
  return model;
}

json WriteCnn3d(const ModelSpec& model) {
  json layers = json::array();
  int64_t channels = model.cnn_layers.front().in_channels;
  std::array<int64_t, 3> extent = model.cnn_layers.front().extent;
  const json input = {{"channels", channels}, {"extent", extent}};
  for (const Cnn3dLayer& layer : model.cnn_layers) {
    json object;
    for (const auto& [name, kind] : kKinds) {
      if (kind == layer.kind) object["type"] = name;
    }
    if (!Pools(layer.kind)) {
      object.update({{"channels", layer.out_channels}, {"bias", layer.bias}, {"norm", layer.normalised}});
    }
    if (HasWindow(layer.kind)) object.update({{"kernel", layer.kernel}, {"stride", layer.stride}});
    if (layer.groups != 1) object["groups"] = layer.groups;
    if (layer.output[0] > 0) object["output"] = layer.output;
    if (layer.extent != extent || layer.in_channels < channels)
      object["input"] = {{"channels", layer.in_channels}, {"extent", layer.extent}};
    else if (layer.in_channels != channels) object["skip_channels"] = layer.in_channels - channels;
    channels = layer.out_channels;
    extent = layer.OutputExtent();
    layers.push_back(std::move(object));
  }
  return {{"model_type", kCnn3dModelType}, {"_name_or_path", model.name}, {"input", input}, {"layers", layers}};
}

}  // namespace weft::formats
