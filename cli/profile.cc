#include "cli/profile.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <utility>

#include "cli/sibling.h"
#include "common/exit_code.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "formats/profiled_model.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

constexpr int64_t kMostBatch = 4096, kMostSequence = int64_t{1} << 20;

/// TorchScript is a zip archive.
bool IsArchive(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char head[4] = {};
  in.read(head, sizeof head);
  return in && std::string_view(head, 4) == "PK\x03\x04";
}

Status ProfileArchive(const ProfileCommandOptions& o) {
  std::vector<std::string> arguments = {"profile", o.model, "--batch", std::to_string(o.batch)};
  if (o.sequence > 0) arguments.insert(arguments.end(), {"--seq", std::to_string(o.sequence)});
  if (!o.input.empty()) arguments.insert(arguments.end(), {"--input", o.input});
  if (!o.out.empty()) arguments.insert(arguments.end(), {"--out", o.out});
  return BecomeSibling("weft-torch", arguments);
}

Status ProfileConfig(const ProfileCommandOptions& o) {
  if (!o.input.empty()) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--input {}: of a TorchScript file only, expected --batch and --seq for {}", o.input, o.model));
  }
  WEFT_ASSIGN_OR_RETURN(formats::HfModel read, formats::ResolveHfModel(o.model));
  planner::JobSpec job{.name = read.model.name, .model = std::move(read.model), .global_batch = o.batch};
  WEFT_ASSIGN_OR_RETURN(job.precision, formats::ParsePrecision(o.precision));
  const int64_t own = job.model.IsCnn() ? 1 : job.model.image_tokens;
  job.sequence = o.sequence > 0 ? o.sequence : own > 0 ? own : 128;
  if (own > 0 && job.sequence != own) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--seq {}: a sample of {} is a sequence of {}", job.sequence, job.model.name, own));
  }
  for (const std::string& warning : read.warnings) fmt::print(stderr, "warning: {}\n", warning);
  planner::OperatorProfile profile = planner::OperatorsOf(job);
  profile.assumptions.emplace_back(
      "activations: what the model's family keeps for the backward pass on one GPU, nothing recomputed");
  profile.assumptions.emplace_back(
      "FLOPs: of products, attention whole, also where it is causal; biases count as one of their rows");
  for (const std::string& line : formats::ProfileLines(job.model, profile)) fmt::print(stderr, "weft profile: {}\n", line);
  return formats::WriteModelFile(o.out, formats::WriteProfiledModel(job.model, profile));
}

Status Run(const ProfileCommandOptions& o) {
  if (o.batch < 1 || o.batch > kMostBatch) {
    return Fail(Code::kInvalidArgument, fmt::format("--batch {}: expected 1 to {}", o.batch, kMostBatch));
  }
  if (o.sequence < 0 || o.sequence > kMostSequence) {
    return Fail(Code::kInvalidArgument, fmt::format("--seq {}: expected 1 to {}", o.sequence, kMostSequence));
  }
  return IsArchive(o.model) ? ProfileArchive(o) : ProfileConfig(o);
}

}  // namespace

int RunProfile(const ProfileCommandOptions& options) {
  const Status status = Run(options);
  if (status) return kExitDone;
  fmt::print(stderr, "weft profile: {}\n", status.error().message());
  return ExitCodeOf(status.error());
}

}  // namespace weft::cli
