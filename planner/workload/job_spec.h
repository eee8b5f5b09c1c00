// What a user wants trained.
#pragma once

#include <optional>
#include <string>

#include "common/units.h"
#include "planner/workload/model_spec.h"
#include "planner/workload/precision.h"

namespace weft::planner {

struct JobSpec {
  std::string name;
  ModelSpec model;
  int64_t global_batch = 0;     ///< sequences (samples of a CNN) per optimizer step
  int64_t sequence = 0;         ///< tokens per sequence; 1 for a CNN
  Precision precision = Precision::kBf16;
  int64_t gpus = 0;             ///< 0: all of the cluster
  std::optional<Seconds> measured_compute;  ///< of one iteration with communication off, when a profile exists
};

}  // namespace weft::planner
