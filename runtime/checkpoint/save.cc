#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "common/unique_fd.h"
#include "formats/hf_config.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/stored_layout.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/state/agree.h"

namespace weft::runtime {
namespace {

/// By tensor of all files.
using Sums = std::vector<uint64_t>;

Status MakeFiles(const std::string& folder, const std::vector<LaidFile>& files) {
  for (const LaidFile& file : files) WEFT_RETURN_IF_ERROR(MakeFile(folder + "/" + file.name, file.header, file.bytes));
  return Ok();
}

/// What this rank owns of a file, on the disk.
Status WriteShares(const CheckpointJob& job, const std::string& path, const LaidFile& file, const RankState& state,
                   uint64_t* sums) {
  UniqueFd descriptor;
  for (size_t k = 0; k < file.tensors.size(); ++k) {
    const LaidTensor& laid = file.tensors[k];
    for (const planner::StateShare& share : job.shares[static_cast<size_t>(job.place)]) {
      if (!share.owned || share.held.box.tensor != laid.tensor) continue;
      if (!descriptor) descriptor.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
      if (!descriptor) return Fail(ErrnoError(fmt::format("open {}", path), errno));
      const TensorPlace place{.descriptor = descriptor.get(), .path = &path, .stored = laid.stored, .part = laid.part};
      WEFT_RETURN_IF_ERROR(WriteBox(state, laid.state_part, share.held, place, &sums[k]));
    }
  }
  if (descriptor && ::fsync(descriptor.get()) != 0) return Fail(ErrnoError(fmt::format("sync {}", path), errno));
  return Ok();
}

Result<Sums> WriteOwn(const CheckpointJob& job, const std::string& folder, const std::vector<LaidFile>& files,
                      const RankState& state) {
  Sums sums;
  for (const LaidFile& file : files) {
    const size_t first = sums.size();
    sums.resize(first + file.tensors.size(), 0);
    if (job.place >= 0) WEFT_RETURN_IF_ERROR(WriteShares(job, folder + "/" + file.name, file, state, sums.data() + first));
  }
  return sums;
}

Result<Sums> SumOfAll(collectives::Bootstrap* bootstrap, Sums mine) {
  if (bootstrap == nullptr) return mine;
  const size_t bytes = mine.size() * sizeof(uint64_t);
  WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap->AllGather({reinterpret_cast<const uint8_t*>(mine.data()), bytes}));
  Sums sums(mine.size(), 0);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != bytes)
      return Fail(Code::kInternal, fmt::format("rank {} has {} bytes of sums, expected {}", rank, all[rank].size(), bytes));
    std::vector<uint64_t> theirs(mine.size());
    std::memcpy(theirs.data(), all[rank].data(), bytes);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += theirs[i];
  }
  return sums;
}

/// The small files; the manifest last.
Status Describe(const CheckpointJob& job, const std::string& folder, const std::vector<LaidFile>& files,
                const formats::TrainingState& where, const Sums& sums) {
  formats::CheckpointManifest manifest{.step = where.step};
  std::map<std::string, std::string> file_of;
  int64_t bytes = 0, parameter_files = 0;
  size_t at = 0;
  for (const LaidFile& file : files) {
    manifest.files.push_back({file.name, file.bytes});
    for (const LaidTensor& laid : file.tensors) {
      manifest.sums[laid.stored.name] = sums[at++];
      if (laid.state_part > 0) continue;
      file_of[laid.stored.name] = file.name;
      bytes += laid.stored.end - laid.stored.begin;
    }
    parameter_files += file.tensors.front().state_part == 0 ? 1 : 0;
  }
  const std::string training = formats::WriteTrainingState(where);
  manifest.training = formats::TextDigest(training);
  WEFT_RETURN_IF_ERROR(WriteDurably(folder + "/" + kTrainingFile, training));
  WEFT_RETURN_IF_ERROR(WriteDurably(folder + "/" + kConfigFile, formats::WriteHfConfig(job.model)));
  if (parameter_files > 1) WEFT_RETURN_IF_ERROR(WriteDurably(folder + "/" + kIndexFile, formats::WriteHfIndex(file_of, bytes)));
  return WriteDurably(folder + "/" + kManifestFile, formats::WriteManifest(manifest));
}

Status Write(const CheckpointJob& job, const SaveOptions& options, const formats::TrainingState& where, const RankState& state,
             const std::vector<LaidFile>& files) {
  std::string folder;
  const auto begin = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(folder, BeginStepFolder(options.folder, where.step));
    return MakeFiles(folder, files);
  };
  WEFT_RETURN_IF_ERROR(Agree(job.bootstrap, job.first ? begin() : Ok()));
  folder = StepFolderInWriting(options.folder, where.step);
  Result<Sums> mine = WriteOwn(job, folder, files, state);
  WEFT_RETURN_IF_ERROR(Agree(job.bootstrap, mine ? Ok() : Status(Fail(mine.error()))));
  WEFT_ASSIGN_OR_RETURN(const Sums sums, SumOfAll(job.bootstrap, std::move(*mine)));
  const auto end = [&]() -> Status {
    WEFT_RETURN_IF_ERROR(Describe(job, folder, files, where, sums));
    return CommitStepFolder(options.folder, where.step, options.keep);
  };
  return Agree(job.bootstrap, job.first ? end() : Ok());
}

}  // namespace

Result<Bytes> SaveCheckpoint(const CheckpointJob& job, const SaveOptions& options, const formats::TrainingState& where,
                             const RankState& state) {
  const std::vector<LaidFile> files = LayFiles(job.model, job.state, state.type, options.file);
  const Status written = Write(job, options, where, state, files);
  if (!written && job.first) DropStepFolder(options.folder, where.step);
  if (!written) return Fail(written.error().WithContext(fmt::format("checkpoint of step {}", where.step)));
  Bytes bytes(0);
  for (const LaidFile& file : files) bytes += Bytes(file.bytes);
  return bytes;
}

}  // namespace weft::runtime
