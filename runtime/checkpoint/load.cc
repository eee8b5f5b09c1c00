#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "common/unique_fd.h"
#include "formats/read_file.h"
#include "formats/safetensors.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/state/agree.h"

namespace weft::runtime {
namespace {

/// Files that are open, and the tensors in them by (plain) name.
struct OpenFiles {
  struct Entry {
    size_t file = 0;
    formats::StoredTensor stored;
  };
  std::vector<UniqueFd> descriptors;
  std::vector<std::string> paths;
  std::map<std::string, Entry, std::less<>> tensors;
};

Result<std::string> ReadStart(int descriptor, const std::string& path, int64_t bytes, int64_t at) {
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::pread(descriptor, text.data() + done, text.size() - done, at + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(ErrnoError(fmt::format("read {}", path), errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

/// Opens a file and adds its tensors. `bytes`: what the manifest says that it has.
Status OpenFile(const std::string& path, std::optional<int64_t> bytes, OpenFiles* files) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Fail(ErrnoError(fmt::format("open {}", path), errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Fail(ErrnoError(fmt::format("read {}", path), errno));
  if (!S_ISREG(status.st_mode)) return Fail(Code::kInvalidArgument, fmt::format("{}: expected a file", path));
  if (bytes && status.st_size != *bytes) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {} bytes, expected the {} of {}", path, status.st_size, *bytes, kManifestFile));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string first, ReadStart(file.get(), path, 8, 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t header, formats::SafetensorsHeaderBytes(first, status.st_size, path));
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadStart(file.get(), path, header, 8));
  WEFT_ASSIGN_OR_RETURN(const std::vector<formats::StoredTensor> tensors,
                        formats::ParseSafetensorsHeader(text, status.st_size, path));
  for (const formats::StoredTensor& tensor : tensors) {
    const std::string name(formats::PlainHfName(tensor.name));
    if (!files->tensors.emplace(name, OpenFiles::Entry{files->descriptors.size(), tensor}).second)
      return Fail(Code::kInvalidArgument, fmt::format("{}: tensor {} is in two files, or twice", path, name));
  }
  files->descriptors.push_back(std::move(file));
  files->paths.push_back(path);
  return Ok();
}

/// A tensor of a file that this rank, with others, reads.
struct Wanted {
  TensorPlace place;
  int32_t tensor = 0;
  size_t state_part = 0;
  std::string name;
};

/// formats::RowsOfBytes(), by the vocabulary's size.
using RowsOfVocabularies = std::map<int64_t, std::vector<int64_t>>;

std::string ShapeText(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, " × ")); }

/// All tensors of the model in the files, for `parts` parts of the state; each is there, in a shape and type that can be read.
/// `rows` is memory that the places refer to.
Result<std::vector<Wanted>> Find(const CheckpointJob& job, const OpenFiles& files, size_t parts, RowsOfVocabularies* rows) {
  std::vector<Wanted> wanted;
  for (size_t t = 0; t < job.state.tensors.size(); ++t) {
    const planner::StateTensor& tensor = job.state.tensors[t];
    const bool table = tensor.part == planner::ModelPart::kEmbedding || tensor.part == planner::ModelPart::kHead;
    for (const formats::HfTensor& hf : formats::HfTensorsOf(job.model, tensor)) {
      for (size_t part = 0; part < parts; ++part) {
        const std::string name = hf.name + std::string(StatePartSuffix(part));
        const auto found = files.tensors.find(name);
        if (found == files.tensors.end())
          return Fail(Code::kInvalidArgument, fmt::format("{}: no tensor {}", files.paths.front(), name));
        const formats::StoredTensor& stored = found->second.stored;
        const std::string& path = files.paths[found->second.file];
        Wanted one{
            .place = {.descriptor = files.descriptors[found->second.file].get(), .path = &path, .stored = stored, .part = hf},
            .tensor = static_cast<int32_t>(t),
            .state_part = part,
            .name = name};
        const bool larger = table && stored.shape.size() == 2 && stored.shape[0] > hf.shape[0] && stored.shape[1] == hf.shape[1];
        if (larger && tensor.rows == 256)
          one.place.file_row = rows->try_emplace(stored.shape[0], formats::RowsOfBytes(job.model, stored.shape[0])).first->second;
        if (stored.shape != hf.shape && one.place.file_row.empty()) {
          return Fail(Code::kInvalidArgument, fmt::format("{}: tensor {} is {}, expected the model's {}", path, name,
                                                          ShapeText(stored.shape), ShapeText(hf.shape)));
        }
        if (formats::BytesOf(stored.type) == 0)
          return Fail(Code::kInvalidArgument,
                      fmt::format("{}: tensor {} is of another type than F64, F32, F16 or BF16", path, name));
        wanted.push_back(std::move(one));
      }
    }
  }
  return wanted;
}

/// A tensor that the model does not have would be lost without a word.
Status NothingElse(const CheckpointJob& job, const OpenFiles& files, const std::vector<Wanted>& wanted) {
  std::map<std::string_view, int> known;
  for (const Wanted& one : wanted) known[one.name] = 1;
  for (const auto& [name, entry] : files.tensors) {
    if (known.contains(name) || formats::IsHfBuffer(job.model, name)) continue;
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: tensor {} is none of the model's {} layers", files.paths[entry.file], name, job.model.layers));
  }
  return Ok();
}

/// Reads this rank's boxes. Sums, by tensor, of the elements that it owns.
Result<std::vector<uint64_t>> ReadShares(const CheckpointJob& job, const std::vector<Wanted>& wanted, const RankState& state) {
  std::vector<uint64_t> sums(wanted.size(), 0);
  if (job.place < 0) return sums;
  for (size_t k = 0; k < wanted.size(); ++k) {
    for (const planner::StateShare& share : job.shares[static_cast<size_t>(job.place)]) {
      if (share.held.box.tensor != wanted[k].tensor) continue;
      uint64_t others = 0;
      WEFT_RETURN_IF_ERROR(ReadBox(state, wanted[k].state_part, share.held, wanted[k].place, share.owned ? &sums[k] : &others));
    }
  }
  return sums;
}

/// All ranks' sums against the manifest's. Collective.
Status CheckSums(const CheckpointJob& job, const std::vector<Wanted>& wanted, const std::vector<uint64_t>& mine,
                 const formats::CheckpointManifest& manifest) {
  std::vector<uint64_t> sums = mine;
  if (job.bootstrap != nullptr) {
    const size_t bytes = mine.size() * sizeof(uint64_t);
    WEFT_ASSIGN_OR_RETURN(const auto all, job.bootstrap->AllGather({reinterpret_cast<const uint8_t*>(mine.data()), bytes}));
    sums.assign(mine.size(), 0);
    for (const std::vector<uint8_t>& blob : all) {
      std::vector<uint64_t> theirs(mine.size(), 0);
      std::memcpy(theirs.data(), blob.data(), std::min(bytes, blob.size()));
      for (size_t k = 0; k < sums.size(); ++k) sums[k] += theirs[k];
    }
  }
  for (size_t k = 0; k < sums.size(); ++k) {
    const auto expected = manifest.sums.find(wanted[k].name);
    if (expected == manifest.sums.end() || expected->second != sums[k]) {
      return Fail(Code::kDataLoss,
                  fmt::format("{}: tensor {} is not what was written: its sum is {:016x}, expected {}", *wanted[k].place.path,
                              wanted[k].name, sums[k],
                              expected == manifest.sums.end() ? "one" : fmt::format("{:016x}", expected->second)));
    }
  }
  return Ok();
}

/// A checkpoint whose small files were read.
struct Opened {
  formats::CheckpointManifest manifest;
  formats::TrainingState where;
  OpenFiles files;
};

Result<Opened> Open(const std::string& folder) {
  Opened opened;
  const std::string manifest_path = folder + "/" + kManifestFile, training_path = folder + "/" + kTrainingFile;
  WEFT_ASSIGN_OR_RETURN(const std::string manifest, formats::ReadFile(manifest_path));
  WEFT_ASSIGN_OR_RETURN(opened.manifest, formats::ParseManifest(manifest, manifest_path));
  WEFT_ASSIGN_OR_RETURN(const std::string training, formats::ReadFile(training_path));
  if (formats::TextDigest(training) != opened.manifest.training)
    return Fail(Code::kDataLoss, fmt::format("{}: not what was written, by the digest in {}", training_path, kManifestFile));
  WEFT_ASSIGN_OR_RETURN(opened.where, formats::ParseTrainingState(training, training_path));
  if (opened.where.step != opened.manifest.step) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: step {}, expected the {} of {}", training_path, opened.where.step,
                                                    opened.manifest.step, kManifestFile));
  }
  if (opened.manifest.files.empty())
    return Fail(Code::kInvalidArgument, fmt::format("{}: key \"files\": expected some", manifest_path));
  for (const formats::CheckpointFile& file : opened.manifest.files)
    WEFT_RETURN_IF_ERROR(OpenFile(folder + "/" + file.name, file.bytes, &opened.files));
  return opened;
}

Result<OpenFiles> OpenModel(const std::string& path) {
  OpenFiles files;
  const auto there = [](const std::string& file) { return ::access(file.c_str(), F_OK) == 0; };
  const std::string index = path + "/" + kIndexFile, one = path + "/model.safetensors";
  if (path.ends_with(".safetensors") || there(one)) {
    WEFT_RETURN_IF_ERROR(OpenFile(path.ends_with(".safetensors") ? path : one, std::nullopt, &files));
    return files;
  }
  if (!there(index)) return Fail(Code::kNotFound, fmt::format("{}: no model.safetensors, and no {}", path, kIndexFile));
  WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(index));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, formats::ParseHfIndex(text, index));
  for (const std::string& name : names) WEFT_RETURN_IF_ERROR(OpenFile(path + "/" + name, std::nullopt, &files));
  return files;
}

}  // namespace

Result<formats::TrainingState> LoadCheckpoint(const CheckpointJob& job, const std::string& path, const RankState& state) {
  const Result<std::string> found = job.first ? FindCheckpoint(path) : Result<std::string>("");
  WEFT_RETURN_IF_ERROR(Agree(job.bootstrap, found ? Ok() : Status(Fail(found.error()))));
  WEFT_ASSIGN_OR_RETURN(const std::string folder, OfFirst(job.bootstrap, *found));
  Opened opened;
  std::vector<Wanted> wanted;
  std::vector<uint64_t> sums;
  RowsOfVocabularies rows;
  const auto read = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(opened, Open(folder));
    WEFT_ASSIGN_OR_RETURN(wanted, Find(job, opened.files, kStateParts, &rows));
    WEFT_RETURN_IF_ERROR(NothingElse(job, opened.files, wanted));
    WEFT_ASSIGN_OR_RETURN(sums, ReadShares(job, wanted, state));
    return Ok();
  };
  WEFT_RETURN_IF_ERROR(Agree(job.bootstrap, read()));
  WEFT_RETURN_IF_ERROR(Agree(job.bootstrap, CheckSums(job, wanted, sums, opened.manifest)));
  return opened.where;
}

Status LoadModel(const CheckpointJob& job, const std::string& path, const RankState& state) {
  const auto read = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(const OpenFiles files, OpenModel(path));
    RowsOfVocabularies rows;
    WEFT_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, Find(job, files, 1, &rows));
    WEFT_RETURN_IF_ERROR(NothingElse(job, files, wanted));
    const Result<std::vector<uint64_t>> read_in = ReadShares(job, wanted, state);
    return read_in ? Ok() : Status(Fail(read_in.error()));
  };
  return Agree(job.bootstrap, read());
}

}  // namespace weft::runtime
