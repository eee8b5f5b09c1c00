#include "runtime/checkpoint/stored_layout.h"

#include <fmt/format.h>

#include "runtime/state/unit_state.h"

namespace weft::runtime {
namespace {

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

/// Cut into files of at most `most`; a tensor's begin and end count from its file's first tensor.
std::vector<LaidFile> Cut(std::vector<LaidTensor> tensors, const std::string& base, int64_t most) {
  std::vector<LaidFile> files;
  int64_t at = 0;
  for (LaidTensor& tensor : tensors) {
    const int64_t bytes = ElementsOf(tensor.stored.shape) * formats::BytesOf(tensor.stored.type);
    if (files.empty() || at + bytes > most) {
      files.emplace_back();
      at = 0;
    }
    tensor.stored.begin = at;
    tensor.stored.end = at += bytes;
    files.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    LaidFile& file = files[i];
    file.name =
        files.size() == 1 ? base + ".safetensors" : fmt::format("{}-{:05}-of-{:05}.safetensors", base, i + 1, files.size());
    std::vector<formats::StoredTensor> stored;
    for (const LaidTensor& tensor : file.tensors) stored.push_back(tensor.stored);
    file.header = formats::WriteSafetensorsHeader(&stored);
    for (size_t k = 0; k < stored.size(); ++k) file.tensors[k].stored = stored[k];
    file.bytes = stored.back().end;
  }
  return files;
}

}  // namespace

std::vector<LaidFile> LayFiles(const planner::ModelSpec& model, const planner::ProgramState& state, planner::ElementType type,
                               Bytes most) {
  const auto stored_type = type == planner::ElementType::kFloat64 ? formats::StoredType::kFloat64 : formats::StoredType::kFloat32;
  std::vector<LaidTensor> parameters, moments;
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    for (const formats::HfTensor& hf : formats::HfTensorsOf(model, state.tensors[t])) {
      for (size_t part = 0; part < kStateParts; ++part) {
        LaidTensor made{.stored = {.name = hf.name + std::string(StatePartSuffix(part)), .type = stored_type, .shape = hf.shape},
                        .part = hf,
                        .tensor = static_cast<int32_t>(t),
                        .state_part = part};
        (part == 0 ? parameters : moments).push_back(std::move(made));
      }
    }
  }
  std::vector<LaidFile> files = Cut(std::move(parameters), "model", most.count());
  for (LaidFile& file : Cut(std::move(moments), "optimizer", most.count())) files.push_back(std::move(file));
  return files;
}

}  // namespace weft::runtime
