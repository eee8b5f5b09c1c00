#include "runtime/model_scaling.h"

namespace weft::runtime {
namespace {

constexpr int64_t kByteVocabulary = 256;

void Set(const std::string& what, int64_t value, int64_t& field, std::vector<std::string>& changes,
         const std::string& why = "") {
  if (field == value) return;
  changes.push_back(what + " " + std::to_string(field) + " -> " + std::to_string(value) + why);
  field = value;
}

}  // namespace

Result<ScaledModel> ScaleModel(const planner::ModelSpec& model, const ModelScaling& scaling) {
  if (scaling.layers < 0 || scaling.width < 0 || scaling.heads < 0) {
    return Fail(Code::kInvalidArgument, "scale model \"" + model.name + "\": layers, width and heads must be positive");
  }
  if (model.IsCnn()) {
    if (scaling != ModelScaling())
      return Fail(Code::kInvalidArgument, "scale model \"" + model.name + "\": a 3D CNN, expected no layers, width or heads");
    return ScaledModel{.model = model, .changes = {}};
  }
  ScaledModel scaled{.model = model};
  planner::ModelSpec& to = scaled.model;
  if (scaling.layers > 0) Set("layers", scaling.layers, to.layers, scaled.changes);
  if (scaling.width > 0) {
    const int64_t mlp = to.hidden > 0 ? to.ffn_hidden * scaling.width / to.hidden : to.ffn_hidden;
    Set("width", scaling.width, to.hidden, scaled.changes);
    Set("MLP width", mlp, to.ffn_hidden, scaled.changes);
    if (to.IsMoe()) to.expert_ffn_hidden = to.expert_ffn_hidden * scaling.width / model.hidden;
  }
  if (scaling.heads > 0) Set("heads", scaling.heads, to.heads, scaled.changes);
  if (to.heads < 1 || to.hidden % to.heads != 0) {
    return Fail(Code::kInvalidArgument, "scale model \"" + model.name + "\": width " + std::to_string(to.hidden) +
                                            " cannot be cut into " + std::to_string(to.heads) + " equal heads");
  }
  // Grouped queries stay as many to a group where the heads allow it.
  const int64_t group = model.kv_heads > 0 ? model.heads / model.kv_heads : 1;
  const bool grouped = model.architecture != planner::Architecture::kGpt2 && group > 0 && to.heads % group == 0;
  to.kv_heads = grouped ? to.heads / group : to.heads;
  if (!grouped || scaling.width > 0 || scaling.heads > 0) to.head_dim = to.hidden / to.heads;
  Set("vocabulary", kByteVocabulary, to.vocab, scaled.changes, " (bytes)");
  return scaled;
}

}  // namespace weft::runtime
