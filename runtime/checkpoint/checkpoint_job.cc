#include "runtime/checkpoint/checkpoint_job.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "formats/read_file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/state/agree.h"

namespace weft::runtime {
namespace {

constexpr const char* kLatest = "latest";

}  // namespace

Status CheckCheckpointOptions(const CheckpointOptions& o) {
  const auto wrong = [](std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); };
  if (o.folder.empty() != (o.every == 0)) return wrong("--checkpoint and --checkpoint-every: expected both or none");
  if (o.every < 0 || o.keep < 1)
    return wrong(fmt::format("--checkpoint-every {}, --keep {}: expected at least 1", o.every, o.keep));
  if (o.file.count() < 1) return wrong(fmt::format("--checkpoint-file {}B: expected at least 1B", o.file.count()));
  if (!o.resume.empty() && !o.load.empty()) return wrong("--resume and --load: expected one of them");
  if (o.resume == kLatest && o.folder.empty()) return wrong("--resume latest: expected --checkpoint, whose latest it is");
  return Ok();
}

std::string Describe(const CheckpointOptions& o) {
  return fmt::format("checkpoints in \"{}\" every {} of {} B, keep {}, resume \"{}\", load \"{}\"", o.folder, o.every,
                     o.file.count(), o.keep, o.resume, o.load);
}

/// On the first rank, which alone writes there.
Result<Beginning> Checkpoints::Look() {
  const bool latest = options_.resume == kLatest;
  if (!options_.folder.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(options_.folder));
    if (!steps.empty() && !latest && options_.resume != options_.folder) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("--checkpoint {}: has a checkpoint of step {} already, expected --resume latest or another folder",
                              options_.folder, steps.back()));
    }
    if (latest && steps.empty()) return Beginning{.loads = !options_.load.empty()};
  }
  if (options_.resume.empty()) return Beginning{.loads = !options_.load.empty()};
  WEFT_ASSIGN_OR_RETURN(resume_, FindCheckpoint(latest ? options_.folder : options_.resume));
  const std::string path = resume_ + "/" + kManifestFile;
  WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(path));
  WEFT_ASSIGN_OR_RETURN(const formats::CheckpointManifest manifest, formats::ParseManifest(text, path));
  return Beginning{.loads = true, .step = manifest.step};
}

Result<Beginning> Checkpoints::Find() {
  if (options_.folder.empty() && options_.resume.empty() && options_.load.empty()) return Beginning{};
  Result<Beginning> found = first_ ? Look() : Result<Beginning>(Beginning{});
  WEFT_RETURN_IF_ERROR(Agree(bootstrap_, found ? Ok() : Status(Fail(found.error()))));
  WEFT_ASSIGN_OR_RETURN(const std::string said,
                        OfFirst(bootstrap_, fmt::format("{} {}{}", found->step, found->loads ? 1 : 0, resume_)));
  // The step, a space, whether it loads, the folder.
  const size_t space = said.find(' ');
  int64_t step = 0;
  const bool read = space != std::string::npos && space + 1 < said.size() &&
                    std::from_chars(said.data(), said.data() + space, step).ec == std::errc();
  if (!read) return Fail(Code::kInternal, fmt::format("rank 0 says \"{}\" of the checkpoint", said));
  resume_ = said.substr(space + 2);
  return Beginning{.loads = said[space + 1] == '1', .step = step};
}

Status Checkpoints::SetProgram(const planner::StepProgram& program, int place) {
  if (options_.folder.empty() && resume_.empty() && options_.load.empty()) return Ok();
  place_ = place;
  WEFT_ASSIGN_OR_RETURN(state_, planner::StateOf(program, model_));
  WEFT_ASSIGN_OR_RETURN(shares_, planner::OwnersOf(state_));
  return Ok();
}

Status Checkpoints::CheckSame(const formats::TrainingState& saved) const {
  const auto differs = [&](const char* what, const auto& was, const auto& is) {
    return Fail(Code::kInvalidArgument, fmt::format("resume {}: saved with {} {}, this run has {}", resume_, what, was, is));
  };
  const formats::TrainingState& w = where_;
  if (saved.seed != w.seed) return differs("seed", saved.seed, w.seed);
  if (saved.text_digest != w.text_digest)
    return differs("text digest", fmt::format("{:016x}", saved.text_digest), fmt::format("{:016x}", w.text_digest));
  if (saved.sequence != w.sequence) return differs("sequence", saved.sequence, w.sequence);
  if (saved.global_batch != w.global_batch) return differs("global batch", saved.global_batch, w.global_batch);
  if (saved.peak != w.peak) return differs("learning rate", saved.peak, w.peak);
  if (saved.least != w.least) return differs("least learning rate", saved.least, w.least);
  if (saved.warm_up != w.warm_up) return differs("warm-up", saved.warm_up, w.warm_up);
  if (saved.decay != w.decay) return differs("decay", saved.decay, w.decay);
  return Ok();
}

Result<int64_t> Checkpoints::Load(const RankState& state) {
  const CheckpointJob job{
      .model = model_, .state = state_, .shares = shares_, .place = place_, .bootstrap = bootstrap_, .first = first_};
  if (!resume_.empty()) {
    WEFT_ASSIGN_OR_RETURN(const formats::TrainingState saved, LoadCheckpoint(job, resume_, state));
    WEFT_RETURN_IF_ERROR(CheckSame(saved));
    return saved.step;
  }
  if (!options_.load.empty()) WEFT_RETURN_IF_ERROR(LoadModel(job, options_.load, state));
  return 0;
}

Result<std::optional<Bytes>> Checkpoints::AfterStep(int64_t done, const RankState& state) {
  if (options_.every == 0 || done % options_.every != 0) return std::nullopt;
  formats::TrainingState where = where_;
  where.step = done;
  WEFT_ASSIGN_OR_RETURN(
      const Bytes bytes,
      SaveCheckpoint(
          {.model = model_, .state = state_, .shares = shares_, .place = place_, .bootstrap = bootstrap_, .first = first_},
          {.folder = options_.folder, .keep = options_.keep, .file = options_.file}, where, state));
  return std::optional(bytes);
}

}  // namespace weft::runtime
