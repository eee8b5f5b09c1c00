#include "netplugin/abi/segment.h"

namespace weft::abi {
namespace {

/// Where a version puts a section it knows.
struct Expected {
  SectionKind kind;
  uint64_t offset;
  uint32_t entry_bytes;
  uint32_t entry_count;
};

constexpr Expected kTelemetrySections[] = {
    {SectionKind::kProcess, offsetof(TelemetrySegment, process), sizeof(ProcessInfo), 1},
    {SectionKind::kFlows, offsetof(TelemetrySegment, flows), sizeof(FlowSlot), kMaxFlows},
};
constexpr Expected kTelemetrySectionsV2[] = {
    {SectionKind::kProcess, offsetof(TelemetrySegmentV2, process), kProcessBytesV2, 1},
    {SectionKind::kFlows, offsetof(TelemetrySegmentV2, flows), sizeof(FlowSlot), kMaxFlowsV2},
};
constexpr Expected kPolicySections[] = {
    {SectionKind::kPolicy, offsetof(PolicySegment, table), sizeof(PolicyTable), 1},
};
constexpr Expected kPolicySectionsV2[] = {
    {SectionKind::kPolicy, offsetof(PolicySegmentV2, table), sizeof(PolicyTableV2), 1},
};
constexpr Expected kPolicySectionsV1[] = {
    {SectionKind::kPolicy, offsetof(PolicySegmentV1, table), sizeof(PolicyTableV1), 1},
};

template <size_t N>
void WriteHeader(SegmentHeader* header, uint32_t magic, uint32_t version, uint64_t total_bytes,
                 const Expected (&sections)[N]) {
  static_assert(N <= kMaxSections);
  *header = {.magic = magic, .version = version, .total_bytes = total_bytes, .section_count = N};
  for (size_t i = 0; i < N; ++i) {
    header->sections[i] = {static_cast<uint32_t>(sections[i].kind), 1, sections[i].offset, sections[i].entry_bytes,
                           sections[i].entry_count};
  }
}

template <size_t N>
const char* CheckKnownSections(const SegmentHeader& header, const Expected (&expected)[N]) {
  for (const Expected& want : expected) {
    const Section* found = nullptr;
    for (uint32_t i = 0; i < header.section_count && !found; ++i) {
      if (header.sections[i].kind == static_cast<uint32_t>(want.kind)) found = &header.sections[i];
    }
    if (!found) return "a section that this version needs is missing";
    if (found->entry_bytes != want.entry_bytes) return "a section's entry size is not this version's";
    if (found->entry_count != want.entry_count) return "a section's entry count is not this version's";
    if (found->offset != want.offset) return "a section is not where this version puts it";
  }
  return nullptr;
}

}  // namespace

void InitTelemetryHeader(TelemetrySegment* segment) {
  WriteHeader(&segment->header, kTelemetryMagic, kSegmentVersion, sizeof(TelemetrySegment), kTelemetrySections);
}

void InitPolicyHeader(PolicySegment* segment) {
  WriteHeader(&segment->header, kPolicyMagic, kSegmentVersion, sizeof(PolicySegment), kPolicySections);
}

void InitTelemetryHeader(TelemetrySegmentV2* segment) {
  WriteHeader(&segment->header, kTelemetryMagic, kPreviousSegmentVersion, sizeof(TelemetrySegmentV2), kTelemetrySectionsV2);
}

void InitPolicyHeader(PolicySegmentV2* segment) {
  WriteHeader(&segment->header, kPolicyMagic, kPreviousSegmentVersion, sizeof(PolicySegmentV2), kPolicySectionsV2);
}

void InitPolicyHeader(PolicySegmentV1* segment) {
  WriteHeader(&segment->header, kPolicyMagic, kOldestSegmentVersion, sizeof(PolicySegmentV1), kPolicySectionsV1);
}

const char* ValidateSegment(const void* data, uint64_t mapped_bytes, uint32_t magic, SegmentShape* found) {
  if (mapped_bytes < sizeof(SegmentHeader)) return "the segment is smaller than its header";
  // A copy: the other side may change its memory between two looks at it.
  const SegmentHeader header = *static_cast<const SegmentHeader*>(data);
  if (header.magic != magic) return "the magic number is wrong";
  const bool old = header.version == kPreviousSegmentVersion || header.version == kOldestSegmentVersion;
  const bool readable = header.version == kSegmentVersion || (magic == kTelemetryMagic && old);
  if (!readable) return "the segment version is not supported";
  if (header.total_bytes > mapped_bytes) return "the header claims more bytes than the segment has";
  if (header.total_bytes < sizeof(SegmentHeader)) return "the header claims fewer bytes than the header has";
  if (header.section_count > kMaxSections) return "the directory has too many sections";
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const Section& section = header.sections[i];
    const uint64_t bytes = uint64_t{section.entry_bytes} * section.entry_count;  // fits: 32 x 32 bits
    if (section.offset < sizeof(SegmentHeader) || section.offset > header.total_bytes ||
        bytes > header.total_bytes - section.offset) {
      return "a section lies outside the segment";
    }
    if (section.offset % 8 != 0) return "a section is not aligned";
  }
  if (found) *found = {.version = header.version, .flows = old ? kMaxFlowsV2 : kMaxFlows};
  if (magic == kTelemetryMagic && old) return CheckKnownSections(header, kTelemetrySectionsV2);
  if (magic == kTelemetryMagic) return CheckKnownSections(header, kTelemetrySections);
  if (magic == kPolicyMagic) return CheckKnownSections(header, kPolicySections);
  return "the magic number is unknown";
}

}  // namespace weft::abi
