#include "formats/program_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/cnn3d_config.h"
#include "formats/json_fields.h"
#include "formats/read_file.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::Instruction;
using planner::StepProgram;

constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostElements = int64_t{1} << 40;

/// A value of an enumeration by the name that `name_of` gives it.
template <typename E, typename NameOf>
std::optional<E> ByName(std::string_view text, int count, NameOf name_of) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<E>(i)) == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

json InstructionJson(const Instruction& i) {
  json out = {{"do", planner::ActionName(i.action)}};
  if (planner::OfPart(i.action)) out["part"] = planner::PartName(i.part);
  if (i.keeps) out["keeps"] = true;
  const auto number = [&](const char* key, int32_t value) {
    if (value >= 0) out[key] = value;
  };
  number("layer", i.layer), number("micro_batch", i.micro_batch), number("unit", i.unit), number("over", i.communicator),
      number("tag", i.tag);
  if (i.slices > 1) out["slice"] = i.slice, out["slices"] = i.slices;
  if (i.of_shard) out["of_shard"] = true;
  if (i.wire != planner::WireType::kWhole) out["wire"] = planner::WireTypeName(i.wire);
  if (i.every > 1) out["every"] = i.every;
  if (i.elements > 0) out["elements"] = i.elements;
  if (!i.inputs.empty()) out["reads"] = i.inputs;
  if (!i.outputs.empty()) out["writes"] = i.outputs;
  if (!i.needs.empty()) out["needs"] = i.needs;
  return out;
}

json ClassJson(const planner::RankClass& c) {
  json blocks = json::array(), units = json::array(), values = json::array(), instructions = json::array();
  for (const planner::ParameterBlock& b : c.blocks) {
    json block = {{"part", planner::PartName(b.part)}, {"elements", b.elements}};
    if (b.layer >= 0) block["layer"] = b.layer;
    if (b.slices > 1) block["slice"] = b.slice, block["slices"] = b.slices;
    if (b.whole) block["whole"] = true;
    if (b.copy) block["copy"] = true;
    blocks.push_back(std::move(block));
  }
  for (const planner::ParameterUnit& u : c.units) {
    json unit = {{"first_block", u.first_block}, {"blocks", u.blocks}, {"elements", u.elements}};
    if (u.shard >= 0) unit["shard"] = u.shard;
    if (u.parameters_sharded) unit["parameters_sharded"] = true;
    if (u.gradients_sharded) unit["gradients_sharded"] = true;
    if (u.optimizer_sharded) unit["optimizer_sharded"] = true;
    if (u.across >= 0) unit["across"] = u.across;
    if (!u.duplicates.empty()) unit["duplicates"] = u.duplicates;
    units.push_back(std::move(unit));
  }
  for (const planner::ValueShape& v : c.values) values.push_back(json::array({v.rows, v.columns}));
  for (const Instruction& i : c.instructions) instructions.push_back(InstructionJson(i));
  return {{"blocks", blocks}, {"units", units}, {"values", values}, {"instructions", instructions}};
}

/// Sizes by the keys that the file has for them.
template <typename Program, typename Visit>
void ForSizes(Program& p, Visit visit) {
  visit("layers", p.layers), visit("hidden", p.hidden), visit("heads", p.heads), visit("kv_heads", p.kv_heads),
      visit("head_dim", p.head_dim);
  visit("ffn_hidden", p.ffn_hidden), visit("vocab", p.vocab), visit("sequence", p.sequence), visit("global_batch", p.global_batch);
  visit("micro_batch", p.micro_batch), visit("replicas", p.replicas), visit("tensor", p.tensor), visit("context", p.context);
  visit("stages", p.stages), visit("chunks", p.chunks);
}

/// Those of an MoE model, with what they are of another.
template <typename Program, typename Visit>
void ForExpertSizes(Program& p, Visit visit) {
  visit("experts", p.experts, 0), visit("experts_per_token", p.experts_per_token, 0), visit("expert_hidden", p.expert_hidden, 0);
  visit("expert_ranks", p.expert_ranks, 1), visit("expert_tensor", p.expert_tensor, 1);
}

/// Those of a grid of tensor ranks, with what they are without.
template <typename Program, typename Visit>
void ForGridSizes(Program& p, Visit visit) {
  visit("grid_side", p.grid.side), visit("grid_depth", p.grid.depth);
}

/// Reads one program; every list's entries through JsonFields, so that the first error is kept with its place.
class Reader {
 public:
  Reader(const json& root, std::string_view source) : root_(root), source_(source), fields_(root, source) {}

  Result<StepProgram> Read() {
    fields_.Integer("version", StepProgram::kVersion, StepProgram::kVersion);
    program_.model = fields_.Text("model", "");
    program_.strategy = fields_.Text("strategy", "");
    WEFT_RETURN_IF_ERROR(Volumes());
    const int64_t least = program_.IsCnn() ? 0 : 1;  // CheckProgram() knows which
    ForSizes(program_, [&](const char* key, int64_t& value) { value = fields_.Integer(key, least, kMost32); });
    ForExpertSizes(program_, [&](const char* key, int64_t& value, int64_t none) {
      value = fields_.Integer(key, none, kMost32, none);
    });
    ForGridSizes(program_, [&](const char* key, int64_t& value) { value = fields_.Integer(key, 1, kMost32, 1); });
    program_.grid.cube = fields_.Boolean("grid_cube", false);
    if (const auto schedule = planner::ParseSchedule(fields_.Text("schedule", "1f1b"))) {
      program_.schedule = *schedule;
    } else {
      fields_.Reject("schedule", schedule.error().message());
    }
    const std::string type = fields_.Text("type", "");
    if (type != "fp32" && type != "fp64") fields_.Reject("type", "expected fp32 or fp64");
    program_.replicas_differ = fields_.Boolean("replicas_differ", false);
    if (fields_.Has("shares")) program_.shares = fields_.Integers("shares", 1, kMost32);
    program_.type = type == "fp64" ? planner::ElementType::kFloat64 : planner::ElementType::kFloat32;
    WEFT_RETURN_IF_ERROR(fields_.Finish());
    for (const char* key : {"communicators", "classes", "ranks"}) fields_.Skip(key);
    if (const auto unread = fields_.Unread(); !unread.empty()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: key \"{}\": unknown", source_, unread.front()));
    }
    WEFT_RETURN_IF_ERROR(Each(root_, "", "communicators",
                              [&](JsonFields& f, const json& j, const std::string& place) { return Communicator(f, j, place); }));
    WEFT_RETURN_IF_ERROR(
        Each(root_, "", "classes", [&](JsonFields& f, const json& j, const std::string& place) { return Class(f, j, place); }));
    WEFT_RETURN_IF_ERROR(Each(root_, "", "ranks", [&](JsonFields& f, const json&, const std::string&) {
      const auto number = [&](const char* key) { return static_cast<int32_t>(f.Integer(key, 0, kMost32, 0)); };
      program_.ranks.push_back({number("class"), number("stage"), number("tensor"), number("context"), number("replica")});
      return Ok();
    }));
    if (Status status = planner::CheckProgram(program_); !status) return Fail(status.error().WithContext(source_));
    return std::move(program_);
  }

 private:
  /// The layers of a 3D CNN, as its config.json has them.
  Status Volumes() {
    if (!fields_.Has("cnn")) return Ok();
    const json* config = fields_.Object("cnn");
    WEFT_RETURN_IF_ERROR(fields_.Finish());
    WEFT_ASSIGN_OR_RETURN(planner::ModelSpec model, ReadCnn3d(*config, fmt::format("{}: cnn", source_)));
    program_.volumes = std::move(model.cnn_layers);
    return Ok();
  }

  /// Calls body(fields, object, place) for every object of the list at `key`; unknown keys are errors.
  template <typename Body>
  Status Each(const json& object, const std::string& place, const char* key, Body body) {
    JsonFields outer(object, source_, place);
    const json* list = outer.List(key);
    WEFT_RETURN_IF_ERROR(outer.Finish());
    if (list == nullptr)
      return Fail(Code::kInvalidArgument, fmt::format("{}: key \"{}{}\": missing, expected a list", source_, place, key));
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string inner = fmt::format("{}{}[{}].", place, key, i);
      if (!list->at(i).is_object())
        return Fail(Code::kInvalidArgument, fmt::format("{}: key \"{}\": expected an object", source_, inner));
      JsonFields fields(list->at(i), source_, inner);
      WEFT_RETURN_IF_ERROR(body(fields, list->at(i), inner));
      WEFT_RETURN_IF_ERROR(fields.Finish());
      if (const auto unread = fields.Unread(); !unread.empty()) {
        return Fail(Code::kInvalidArgument, fmt::format("{}: key \"{}\": unknown", source_, unread.front()));
      }
    }
    return Ok();
  }

  static std::vector<int32_t> Numbers(JsonFields& f, const char* key) {
    std::vector<int32_t> out;
    if (!f.Has(key)) return out;
    for (const int64_t value : f.Integers(key, 0, kMost32)) out.push_back(static_cast<int32_t>(value));
    return out;
  }

  static planner::ModelPart PartOf(JsonFields& f) {
    const auto part = ByName<planner::ModelPart>(f.Text("part", ""), planner::kModelParts, planner::PartName);
    if (!part) f.Reject("part", "unknown");
    return part.value_or(planner::ModelPart::kEmbedding);
  }

  static int32_t Small(JsonFields& f, const char* key) { return static_cast<int32_t>(f.Integer(key, 0, kMost32, -1)); }

  Status Communicator(JsonFields& f, const json& object, const std::string& place) {
    planner::ProgramCommunicator made;
    const auto kind = ByName<planner::CommunicatorKind>(f.Text("kind", ""), 9, planner::CommunicatorKindName);
    if (!kind) f.Reject("kind", "unknown");
    made.kind = kind.value_or(planner::CommunicatorKind::kWorld);
    if (const auto sums = planner::ParseAlgorithm(f.Text("sums", "ring"))) {
      made.sums = *sums;
    } else {
      f.Reject("sums", sums.error().message());
    }
    f.Skip("groups");
    const auto groups = object.find("groups");
    if (groups == object.end() || !groups->is_array()) f.Reject("groups", "expected a list of lists of ranks");
    for (size_t g = 0; !f.failed() && g < groups->size(); ++g) {
      const json wrapped = {{"group", groups->at(g)}};
      JsonFields inner(wrapped, source_, fmt::format("{}groups[{}].", place, g));
      made.groups.push_back(Numbers(inner, "group"));
      WEFT_RETURN_IF_ERROR(inner.Finish());
    }
    program_.communicators.push_back(std::move(made));
    return Ok();
  }

  Status Class(JsonFields& f, const json& object, const std::string& place) {
    planner::RankClass made;
    for (const char* key : {"blocks", "units", "values", "instructions"}) f.Skip(key);
    WEFT_RETURN_IF_ERROR(Each(object, place, "blocks", [&](JsonFields& b, const json&, const std::string&) {
      made.blocks.push_back({.part = PartOf(b),
                             .layer = Small(b, "layer"),
                             .slice = static_cast<int32_t>(b.Integer("slice", 0, kMost32, 0)),
                             .slices = static_cast<int32_t>(b.Integer("slices", 1, kMost32, 1)),
                             .elements = b.Integer("elements", 1, kMostElements),
                             .whole = b.Boolean("whole", false),
                             .copy = b.Boolean("copy", false)});
      return Ok();
    }));
    WEFT_RETURN_IF_ERROR(Each(object, place, "units", [&](JsonFields& u, const json&, const std::string&) {
      made.units.push_back({.first_block = static_cast<int32_t>(u.Integer("first_block", 0, kMost32)),
                            .blocks = static_cast<int32_t>(u.Integer("blocks", 1, kMost32)),
                            .elements = u.Integer("elements", 1, kMostElements),
                            .shard = Small(u, "shard"),
                            .parameters_sharded = u.Boolean("parameters_sharded", false),
                            .gradients_sharded = u.Boolean("gradients_sharded", false),
                            .optimizer_sharded = u.Boolean("optimizer_sharded", false),
                            .across = Small(u, "across"),
                            .duplicates = Numbers(u, "duplicates")});
      return Ok();
    }));
    WEFT_RETURN_IF_ERROR(Values(object, place, &made));
    WEFT_RETURN_IF_ERROR(Each(object, place, "instructions", [&](JsonFields& i, const json&, const std::string&) {
      made.instructions.push_back(OneInstruction(i));
      return Ok();
    }));
    program_.classes.push_back(std::move(made));
    return Ok();
  }

  Status Values(const json& object, const std::string& place, planner::RankClass* made) {
    const auto values = object.find("values");
    const auto size = [](const json& v) {
      return v.is_number_integer() && v.get<int64_t>() >= 1 && v.get<int64_t>() <= kMostElements;
    };
    if (values == object.end() || !values->is_array())
      return Fail(Code::kInvalidArgument, fmt::format("{}: key \"{}values\": expected a list", source_, place));
    for (const json& v : *values) {
      if (!v.is_array() || v.size() != 2 || !size(v[0]) || !size(v[1])) {
        return Fail(Code::kInvalidArgument,
                    fmt::format("{}: key \"{}values\": expected pairs of rows and columns", source_, place));
      }
      made->values.push_back({v[0].get<int64_t>(), v[1].get<int64_t>()});
    }
    return Ok();
  }

  static Instruction OneInstruction(JsonFields& f) {
    Instruction i;
    const auto action = ByName<planner::StepAction>(f.Text("do", ""), planner::kActions, planner::ActionName);
    if (!action) f.Reject("do", "unknown");
    i.action = action.value_or(planner::StepAction::kForward);
    if (planner::OfPart(i.action)) i.part = PartOf(f);
    i.keeps = f.Boolean("keeps", false);
    i.layer = Small(f, "layer"), i.micro_batch = Small(f, "micro_batch"), i.unit = Small(f, "unit");
    i.communicator = Small(f, "over"), i.tag = Small(f, "tag");
    i.slice = static_cast<int32_t>(f.Integer("slice", 0, kMost32, 0)),
    i.slices = static_cast<int32_t>(f.Integer("slices", 1, kMost32, 1));
    i.of_shard = f.Boolean("of_shard", false);
    i.every = static_cast<int32_t>(f.Integer("every", 1, kMost32, 1));
    const auto wire = ByName<planner::WireType>(f.Text("wire", "whole"), planner::kWireTypes, planner::WireTypeName);
    if (!wire) f.Reject("wire", "expected whole, bf16 or fp8");
    i.wire = wire.value_or(planner::WireType::kWhole);
    i.elements = f.Integer("elements", 0, kMostElements, 0);
    i.inputs = Numbers(f, "reads"), i.outputs = Numbers(f, "writes"), i.needs = Numbers(f, "needs");
    return i;
  }

  const json& root_;
  std::string_view source_;
  JsonFields fields_;
  StepProgram program_;
};

}  // namespace

std::string WriteProgramJson(const StepProgram& p) {
  json out = {{"version", StepProgram::kVersion},
              {"model", p.model},
              {"strategy", p.strategy},
              {"type", planner::ElementTypeName(p.type)},
              {"schedule", planner::ScheduleName(p.schedule)}};
  if (p.replicas_differ) out["replicas_differ"] = true;
  if (!p.shares.empty()) out["shares"] = p.shares;
  ForSizes(p, [&](const char* key, int64_t value) { out[key] = value; });
  if (p.experts > 0) ForExpertSizes(p, [&](const char* key, int64_t value, int64_t) { out[key] = value; });
  if (p.grid.exists()) ForGridSizes(p, [&](const char* key, int64_t value) { out[key] = value; });
  if (p.grid.cube) out["grid_cube"] = true;
  if (p.IsCnn()) out["cnn"] = WriteCnn3d({.name = p.model, .cnn_layers = p.volumes});
  json communicators = json::array(), classes = json::array(), ranks = json::array();
  for (const planner::ProgramCommunicator& c : p.communicators) {
    communicators.push_back({{"kind", planner::CommunicatorKindName(c.kind)}, {"groups", c.groups}});
    if (c.sums != planner::AlgorithmSpec()) communicators.back()["sums"] = planner::ToString(c.sums);
  }
  for (const planner::RankClass& c : p.classes) classes.push_back(ClassJson(c));
  for (const planner::RankPlace& r : p.ranks) {
    ranks.push_back(
        {{"class", r.rank_class}, {"stage", r.stage}, {"tensor", r.tensor}, {"context", r.context}, {"replica", r.replica}});
  }
  out["communicators"] = std::move(communicators);
  out["classes"] = std::move(classes);
  out["ranks"] = std::move(ranks);
  return out.dump() + "\n";
}

Result<StepProgram> ParseProgramJson(std::string_view text, std::string_view source) {
  if (text.size() > kMostProgramBytes) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: {} bytes, expected at most {}", source, text.size(), kMostProgramBytes));
  }
  WEFT_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, source));
  return Reader(root, source).Read();
}

Result<StepProgram> ReadProgramJson(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseProgramJson(text, path);
}

}  // namespace weft::formats
