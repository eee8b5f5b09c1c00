// What targets' inputs are made of.
#pragma once

#include <string>

#include "formats/read_file.h"
#include "planner/planner.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {

/// A file of the tree.
inline std::string OfTree(const std::string& path) {
  const Result<std::string> text = formats::ReadFile(std::string(WEFT_SOURCE) + "/" + path);
  Require(text.has_value(), "a file of the tree cannot be read: " + path);
  return text.value();
}

/// A GPT of two layers on two devices.
inline planner::JobSpec SmallJob() {
  return {.name = "j",
          .model = {.name = "gpt",
                    .layers = 2,
                    .hidden = 8,
                    .heads = 2,
                    .kv_heads = 2,
                    .head_dim = 4,
                    .ffn_hidden = 16,
                    .vocab = 256,
                    .max_positions = 8},
          .global_batch = 2,
          .sequence = 8,
          .precision = planner::Precision::kFp32,
          .gpus = 2};
}

}  // namespace weft::fuzz
