// What a user wants trained.
#pragma once

#include <optional>
#include <string>

#include "common/units.h"
#include "planner/workload/model_spec.h"

namespace weft::planner {

enum class Precision { kFp32, kBf16 };

struct JobSpec {
  std::string name;
  ModelSpec model;
  int64_t global_batch = 0;     ///< sequences per optimizer step
  int64_t sequence = 0;         ///< tokens per sequence
  Precision precision = Precision::kBf16;
  int64_t gpus = 0;             ///< 0: all of the cluster
  std::optional<Seconds> measured_compute;  ///< of one iteration with communication off, when a profile exists
};

}  // namespace weft::planner
