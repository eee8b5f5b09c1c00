#include "agent/telemetry_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace weft::agent {
namespace {

constexpr uint64_t kMostMapped = 16 << 20;
constexpr char kUnnamed[] = "unnamed:";
constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW;

/// Of this machine since it was started: inodes are its own only. Empty where the kernel does not say.
std::string BootName() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name.substr(0, 8);
}

/// A segment that could shrink would kill the agent (SIGBUS) at its next look.
Status CheckSeals(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Fail(Code::kFailedPrecondition, "telemetry segment is not a memfd with seals");
  if ((seals & kNeededSeals) != kNeededSeals) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("telemetry segment has seals 0x{:x}, expected at least shrink and grow (0x{:x})", seals,
                            kNeededSeals));
  }
  return Ok();
}

/// A memfd belongs to the user that its maker was: that much the kernel vouches for. What the segment says of its process
/// is no proof, and no process in a PID namespace of its own knows the number that the agent sees.
Status CheckOwner(const struct stat& status, const PeerProcess& peer) {
  if (status.st_uid == peer.uid) return Ok();
  return Fail(Code::kUnauthenticated, fmt::format("telemetry segment of uid {} was sent by uid {} (process {}), expected "
                                                  "a segment that the sender has made", status.st_uid, peer.uid, peer.pid));
}

bool IsServed(uint32_t version) { return version >= abi::kOldestSegmentVersion && version <= abi::kSegmentVersion; }

Result<uint64_t> CheckSize(int fd, const struct stat& status) {
  const auto bytes = static_cast<uint64_t>(status.st_size);
  // The header decides first: another version may have another size.
  abi::SegmentHeader header{};
  const bool readable = ::pread(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
  const bool known = readable && header.magic == abi::kTelemetryMagic;
  const size_t least = known && header.version == abi::kSegmentVersion ? sizeof(abi::TelemetrySegment) : sizeof(abi::TelemetrySegmentV2);
  if (bytes < least && (!known || IsServed(header.version))) {
    return Fail(Code::kInvalidArgument, fmt::format("telemetry segment has {} bytes, expected at least {}", bytes, least));
  }
  return bytes;
}

/// What the segment is, if it can be read: by one look at the header, which may say something else at the next.
Result<abi::SegmentShape> CheckHeader(const void* data, uint64_t bytes) {
  abi::SegmentHeader header;
  std::memcpy(&header, data, sizeof header);
  if (header.magic == abi::kTelemetryMagic && !IsServed(header.version)) {
    return Fail(Code::kUnimplemented, fmt::format("telemetry segment version {}, this agent speaks {} to {}", header.version,
                                                  abi::kOldestSegmentVersion, abi::kSegmentVersion));
  }
  abi::SegmentShape shape;
  if (const char* wrong = abi::ValidateSegment(data, bytes, abi::kTelemetryMagic, &shape)) {
    return Fail(Code::kInvalidArgument, fmt::format("telemetry segment: {}", wrong));
  }
  return shape;
}

}  // namespace

std::optional<std::string> CheckedJobId(const char* field, size_t bytes) {
  const size_t length = ::strnlen(field, bytes);
  if (length == bytes) return std::nullopt;
  std::string job(field, length);
  constexpr std::string_view kAlsoAllowed = "._:@/+-";
  for (const char c : job) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && kAlsoAllowed.find(c) == std::string_view::npos) {
      return std::nullopt;
    }
  }
  return job;
}

const char* RejectionLabel(Code code) {
  switch (code) {
    case Code::kUnimplemented: return "version";
    case Code::kFailedPrecondition: return "seals";
    case Code::kInvalidArgument: return "layout";
    case Code::kUnauthenticated: return "identity";
    case Code::kResourceExhausted: return "quota";
    default: return "system";
  }
}

Result<std::unique_ptr<TelemetryMap>> TelemetryMap::Attach(UniqueFd fd, const PeerProcess& peer) {
  WEFT_RETURN_IF_ERROR(CheckSeals(fd.get()));
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return Fail(ErrnoError("look at telemetry segment", errno));
  WEFT_RETURN_IF_ERROR(CheckOwner(status, peer));
  WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, CheckSize(fd.get(), status));
  // Sections that this version does not know may lie behind those it knows; beyond all reason nothing is mapped.
  const size_t mapped = std::min(bytes, kMostMapped);
  void* const data = ::mmap(nullptr, mapped, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return Fail(Code::kUnavailable, ErrnoError("map telemetry segment", errno).message());  // the host's want, not the user's
  }
  std::unique_ptr<TelemetryMap> map(new TelemetryMap(data, mapped));
  WEFT_ASSIGN_OR_RETURN(map->shape_, CheckHeader(data, mapped));
  // ValidateSegment holds the sections to their version's layout, which begins as this one's does, so the struct's own offsets are the
  // directory's; of the slots only those in shape_ are there.
  const auto* segment = static_cast<const abi::TelemetrySegment*>(data);
  map->process_ = &segment->process;
  map->slots_ = segment->flows;
  map->observations_ = abi::FindObservations(data, mapped);
  map->background_ = abi::FindBackground(data, mapped);
  map->pid_ = peer.pid;
  map->stated_pid_ = segment->process.pid;
  map->memory_ = {status.st_dev, status.st_ino};
  char job[sizeof segment->process.job];
  std::memcpy(job, segment->process.job, sizeof job);
  std::optional<std::string> checked = CheckedJobId(job, sizeof job);
  if (!checked) {
    return Fail(Code::kInvalidArgument, "telemetry segment: the job id is not 63 letters, digits and ._:@/+- at most");
  }
  if (checked->starts_with(kUnnamed)) {
    return Fail(Code::kInvalidArgument,
                fmt::format("telemetry segment: the job id \"{}\" begins as those do which agents give", *checked));
  }
  // Processes without an id have nothing in common; the memory is the same however often the process connects.
  map->stated_job_ = *checked;
  map->job_ = checked->empty() ? fmt::format("{}{}:{}:{}", kUnnamed, BootName(), peer.uid, status.st_ino) : std::move(*checked);
  return map;
}

uint32_t TelemetryMap::slots_used() const {
  if (shape_.version < abi::kSegmentVersion) return shape_.flows;
  // Acquire: slots below it are in the state that they had when it was stored, or a later one.
  return std::min(process_->slots_used.load(std::memory_order_acquire), shape_.flows);
}

TelemetryMap::~TelemetryMap() { ::munmap(const_cast<void*>(data_), bytes_); }

}  // namespace weft::agent
