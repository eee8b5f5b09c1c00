#include "netplugin/abi/observations.h"

namespace weft::abi {
namespace {

struct Expected {
  uint32_t kind;
  uint64_t offset;  // in Observations
  uint32_t entry_bytes;
  uint32_t entry_count;
};
constexpr Expected kSections[] = {
    {kCommunicatorsSection, offsetof(Observations, communicators), sizeof(CommunicatorSlot), kMaxCommunicators},
    {kStallsSection, offsetof(Observations, stalls), sizeof(StallSlot), kMaxStalls},
};
constexpr Expected kBackground = {kBackgroundSection, 0, sizeof(BackgroundSlot), 1};

/// Where the section begins in a segment whose directory is not past its end; nullptr if it is not as expected.
const Section* FindSection(const SegmentHeader& header, const Expected& want) {
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const Section& section = header.sections[i];
    if (section.kind != want.kind) continue;
    const bool known =
        section.version == 1 && section.entry_bytes == want.entry_bytes && section.entry_count == want.entry_count;
    return known ? &section : nullptr;
  }
  return nullptr;
}

/// A `T` at `start`, if it is aligned, behind the header and wholly mapped.
template <typename T>
const T* At(const void* data, uint64_t start, uint64_t mapped_bytes) {
  if (start % alignof(T) != 0 || start < sizeof(SegmentHeader) || start > mapped_bytes ||
      mapped_bytes - start < sizeof(T)) {
    return nullptr;
  }
  return reinterpret_cast<const T*>(static_cast<const char*>(data) + start);
}

}  // namespace

void AddObservationSections(TelemetryFile* file) {
  SegmentHeader& header = file->telemetry.header;
  for (const Expected& section : kSections) {
    header.sections[header.section_count++] = {section.kind, 1, offsetof(TelemetryFile, observations) + section.offset,
                                               section.entry_bytes, section.entry_count};
  }
  header.sections[header.section_count++] = {kBackground.kind, 1, offsetof(TelemetryFile, background),
                                             kBackground.entry_bytes, kBackground.entry_count};
  header.total_bytes = sizeof(TelemetryFile);
}

const Observations* FindObservations(const void* data, uint64_t mapped_bytes) {
  const SegmentHeader header = *static_cast<const SegmentHeader*>(data);
  if (header.section_count > kMaxSections) return nullptr;
  uint64_t start = 0;
  for (const Expected& want : kSections) {
    const Section* found = FindSection(header, want);
    if (!found) return nullptr;
    if (want.offset == 0) start = found->offset;
    if (found->offset != start + want.offset) return nullptr;  // this version has them side by side
  }
  return At<Observations>(data, start, mapped_bytes);
}

const BackgroundSlot* FindBackground(const void* data, uint64_t mapped_bytes) {
  const SegmentHeader header = *static_cast<const SegmentHeader*>(data);
  if (header.section_count > kMaxSections) return nullptr;
  const Section* found = FindSection(header, kBackground);
  return found ? At<BackgroundSlot>(data, found->offset, mapped_bytes) : nullptr;
}

}  // namespace weft::abi
