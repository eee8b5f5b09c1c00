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

}  // namespace

void AddObservationSections(TelemetryFile* file) {
  SegmentHeader& header = file->telemetry.header;
  for (const Expected& section : kSections) {
    header.sections[header.section_count++] = {section.kind, 1, offsetof(TelemetryFile, observations) + section.offset,
                                               section.entry_bytes, section.entry_count};
  }
  header.total_bytes = sizeof(TelemetryFile);
}

const Observations* FindObservations(const void* data, uint64_t mapped_bytes) {
  const SegmentHeader header = *static_cast<const SegmentHeader*>(data);
  if (header.section_count > kMaxSections) return nullptr;
  uint64_t start = 0;
  for (const Expected& want : kSections) {
    const Section* found = nullptr;
    for (uint32_t i = 0; i < header.section_count && !found; ++i) {
      if (header.sections[i].kind == want.kind) found = &header.sections[i];
    }
    if (!found || found->version != 1 || found->entry_bytes != want.entry_bytes ||
        found->entry_count != want.entry_count) {
      return nullptr;
    }
    if (want.offset == 0) start = found->offset;
    if (found->offset != start + want.offset) return nullptr;  // this version has them side by side
  }
  if (start % alignof(Observations) != 0 || start < sizeof(SegmentHeader) || start > mapped_bytes ||
      mapped_bytes - start < sizeof(Observations)) {
    return nullptr;
  }
  return reinterpret_cast<const Observations*>(static_cast<const char*>(data) + start);
}

}  // namespace weft::abi
