#include "netplugin/rdma/wire.h"

#include <atomic>
#include <cstring>

namespace weft::net::rdma {
namespace {

constexpr uint32_t kMost24Bits = 0xFFFFFF;

/// Differs from what zeroed or half-written memory holds. No secret: it finds accidents, not attackers, who could
/// write a valid line as well.
uint32_t CheckOf(const Credit& credit) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ credit.sequence;
  for (const uint64_t word : {credit.address, credit.size,
                              (uint64_t{credit.key} << 32) | static_cast<uint32_t>(credit.tag)}) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash) | 1;  // zeroed memory never passes
}

uint32_t CheckOf(const Arrivals& arrivals) {
  uint32_t words[(sizeof arrivals - sizeof arrivals.check) / sizeof(uint32_t)];
  std::memcpy(words, &arrivals, sizeof words);
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const uint32_t word : words) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash) | 1;  // zeroed memory never passes
}

const char* CheckQueuePairs(const ControlMessage& message) {
  for (uint32_t i = 0; i <= kMaxParts; ++i) {
    if (i >= message.lanes && i != kControlLane) continue;
    const QueuePairInfo& pair = message.queue_pairs[i];
    if (pair.number == 0 || pair.number > kMost24Bits) return "a queue pair number is not within 1 and 2^24 - 1";
    if (pair.packet_number > kMost24Bits) return "a packet number is above 2^24 - 1";
  }
  return nullptr;
}

const char* CheckPort(const PortInfo& port) {
  if (port.link != 1 && port.link != 2) return "the link is neither InfiniBand nor Ethernet";
  if (port.mtu < 1 || port.mtu > 5) return "the MTU is not within 1 and 5";
  if (port.service_level > 15) return "the service level is above 15";
  return nullptr;
}

}  // namespace

const char* CheckControlMessage(const ControlMessage& message) {
  if (message.magic != kControlMagic) return "wrong magic number";
  if (message.version != kRdmaWireVersion) return "another version of this plugin";
  if (message.type < ControlType::kHello || message.type > ControlType::kResetDone) return "unknown type";
  if (message.hint > Hint::kTakeAnotherPort) return "unknown hint";
  if (message.type == ControlType::kReady || message.type == ControlType::kPleaseReset) return nullptr;
  if (message.lanes < 1 || message.lanes > kMaxParts) return "the number of queue pairs is not within 1 and 8";
  if (const char* wrong = CheckPort(message.port)) return wrong;
  if (const char* wrong = CheckQueuePairs(message)) return wrong;
  if (message.memory_address == 0) return "no memory address";
  if (message.type == ControlType::kResetDone) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      const SlotReport& slot = message.slots[i];
      if (slot.used > 1 || slot.complete > 1) return "a slot's flag is neither 0 nor 1";
      if (slot.used == 1 && slot.sequence % kSlots != i) return "a slot holds a sequence of another slot";
    }
  }
  return nullptr;
}

const char* CheckRdmaHandle(const Handle& handle, uint64_t job_hash) {
  if (handle.magic == kHandleMagic) return "the peer listens for TCP, this device is RDMA (WEFT_TRANSPORT)";
  if (handle.magic != kRdmaHandleMagic) return "not a handle of this plugin";
  if (handle.version != kRdmaWireVersion) return "a handle of another version of this plugin";
  if (handle.family != 4 && handle.family != 6) return "a handle with an unknown address family";
  if (handle.port == 0) return "a handle without a port";
  if (job_hash != 0 && handle.job_hash != 0 && handle.job_hash != job_hash) {
    return "a handle of another job (WEFT_JOB_ID)";
  }
  return nullptr;
}

Credit MakeCredit(uint32_t sequence, uint64_t address, uint64_t size, uint32_t key, int32_t tag, const Arrivals& arrivals) {
  Credit credit{};
  credit.address = address;
  credit.size = size;
  credit.key = key;
  credit.tag = tag;
  credit.arrivals = arrivals;
  credit.sequence = sequence;
  credit.check = CheckOf(credit);
  return credit;
}

void Seal(Arrivals* arrivals) { arrivals->check = CheckOf(*arrivals); }

bool Tells(const Arrivals& arrivals) {
  return arrivals.check == CheckOf(arrivals) && arrivals.parts >= 1 && arrivals.parts <= kMaxParts;
}

bool ReadCredit(const Credit* from, uint32_t sequence, Credit* credit) {
  // The network writes behind the compiler's back. Acquire: the rest of the line is read after its sequence.
  if (__atomic_load_n(&from->sequence, __ATOMIC_ACQUIRE) != sequence) return false;
  std::memcpy(credit, from, sizeof *credit);
  return credit->sequence == sequence && credit->check == CheckOf(*credit) && credit->size <= nccl::kMaxMessageBytes;
}

uint32_t Encode(const Immediate& immediate) {
  return (uint32_t{immediate.sequence} << 16) | (uint32_t{immediate.parts - 1u} << 13) |
         (uint32_t{immediate.part} << 10) | (immediate.has_record ? 1u << 9 : 0);
}

bool Decode(uint32_t value, Immediate* immediate) {
  immediate->sequence = static_cast<uint16_t>(value >> 16);
  immediate->parts = static_cast<uint8_t>((value >> 13 & 7) + 1);
  immediate->part = static_cast<uint8_t>(value >> 10 & 7);
  immediate->has_record = (value >> 9 & 1) != 0;
  return (value & 0x1FF) == 0 && immediate->part < immediate->parts;
}

}  // namespace weft::net::rdma
