#include "runtime/text_data.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "common/check.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

/// One round of SplitMix64: a bijection whose outputs pass as random.
/// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", figure 16.
uint64_t Mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Status AppendFile(const fs::path& path, std::vector<uint8_t>& bytes) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return Fail(ErrnoError("read text \"" + path.string() + "\"", error.value()));
  if (bytes.size() + size > kMaxTextBytes) {
    return Fail(Code::kInvalidArgument, "read text \"" + path.string() + "\": the text would have " +
                                            std::to_string(bytes.size() + size) + " bytes, must be at most 1 GiB");
  }
  std::ifstream file(path, std::ios::binary);
  const size_t before = bytes.size();
  bytes.resize(before + size);
  file.read(reinterpret_cast<char*>(bytes.data() + before), static_cast<std::streamsize>(size));
  if (!file) {
    return Fail(Code::kFailedPrecondition, "read text \"" + path.string() + "\": got " +
                                               std::to_string(file.is_open() ? file.gcount() : 0) + " of " +
                                               std::to_string(size) + " bytes");
  }
  return Ok();
}

Result<std::vector<fs::path>> FilesOf(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return Fail(Code::kNotFound, "read text \"" + path + "\": no such file or directory");
  }
  if (status.type() == fs::file_type::regular) return std::vector<fs::path>{path};
  std::vector<fs::path> files;
  fs::directory_iterator entries(path, error);
  if (error) return Fail(ErrnoError("read text \"" + path + "\"", error.value()));
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;  // an entry that cannot be examined is not a regular file
    if (entries->symlink_status(ignored).type() == fs::file_type::regular) files.push_back(entries->path());
    if (error) break;
  }
  if (error) return Fail(ErrnoError("read text \"" + path + "\"", error.value()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<TextData> TextData::Load(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesOf(path));
  std::vector<uint8_t> bytes;
  for (const fs::path& file : files) WEFT_RETURN_IF_ERROR(AppendFile(file, bytes));
  if (bytes.empty()) {
    return Fail(Code::kInvalidArgument, "read text \"" + path + "\": no bytes in " + std::to_string(files.size()) +
                                            " files, expected text");
  }
  return TextData(std::move(bytes));
}

uint64_t TextData::Digest() const {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes_) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

int64_t SampleBytes(const planner::ModelSpec& model, int64_t sequence) {
  return model.IsCnn() ? model.cnn_layers.front().InputElements() : sequence;
}

std::vector<uint8_t> TextData::Samples(const SampleRange& range) const {
  const auto length = static_cast<size_t>(range.sequence) + 1;
  WEFT_CHECK(bytes_.size() >= length, "text shorter than one sample");
  const uint64_t starts = bytes_.size() - length + 1;
  const uint64_t of_step = Mix(Mix(range.seed) ^ static_cast<uint64_t>(range.step));
  std::vector<uint8_t> samples(static_cast<size_t>(range.count) * length);
  for (int64_t i = 0; i < range.count; ++i) {
    const uint64_t start = Mix(of_step ^ static_cast<uint64_t>(range.first + i)) % starts;
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(start), length,
                samples.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(i) * length));
  }
  return samples;
}

}  // namespace weft::runtime
