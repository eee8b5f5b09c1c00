#include "netplugin/abi/collective_table.h"

#include <cstring>
#include <iterator>

namespace weft::abi {
namespace {

constexpr const char* kOps[] = {"allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall"};
constexpr const char* kAlgorithms[] = {"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat",
                                       "halving-doubling", "hierarchical", "torus", "direct", "pairwise", "ps",
                                       "pipelined", "forest"};
constexpr const char* kProtocols[] = {"-", "ll", "ll128", "simple"};
constexpr uint64_t kMostParameter = kMaxCollectiveRanks;

static_assert(std::size(kAlgorithms) == static_cast<size_t>(CollectiveAlgorithm::kForest) + 1);
static_assert(std::size(kOps) == static_cast<size_t>(CollectiveOp::kAllToAll) + 1);

/// A cursor over the text. Every taker either moves past what it took or leaves the cursor where the mistake is.
class Reader {
 public:
  Reader(const char* text, size_t length) : text_(text), end_(length) {}

  size_t at() const { return at_; }
  bool done() const { return at_ == end_; }

  bool Take(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  /// Decimal digits without leading zeros, at most `most`.
  bool TakeNumber(uint64_t most, uint64_t* value) {
    const size_t begin = at_;
    uint64_t sum = 0;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (sum > (most - digit) / 10 || digit > most || (at_ > begin && sum == 0)) return Back(begin);
      sum = sum * 10 + digit;
      ++at_;
    }
    *value = sum;
    return at_ > begin;
  }

  bool TakeHex16(uint64_t* value) {
    const size_t begin = at_;
    uint64_t sum = 0;
    for (int i = 0; i < 16; ++i, ++at_) {
      const char c = done() ? '\0' : text_[at_];
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && !(c >= 'a' && c <= 'f')) return Back(begin);
      sum = sum << 4 | static_cast<uint64_t>(decimal ? c - '0' : c - 'a' + 10);
    }
    *value = sum;
    return true;
  }

  /// A whole word, up to ':' or '.', that `names` has; its place there is the value.
  template <typename Value, size_t N>
  bool TakeName(const char* const (&names)[N], Value* value) {
    size_t length = 0;
    while (at_ + length < end_ && text_[at_ + length] != ':' && text_[at_ + length] != '.') ++length;
    for (size_t i = 0; i < N; ++i) {
      if (std::strlen(names[i]) != length || std::memcmp(names[i], text_ + at_, length) != 0) continue;
      *value = static_cast<Value>(i);
      at_ += length;
      return true;
    }
    return false;
  }

 private:
  bool Back(size_t begin) {
    at_ = begin;
    return false;
  }

  const char* text_;
  size_t at_ = 0;
  size_t end_;
};

const char* ParseMembers(Reader* reader, CollectiveEntry* entry) {
  if (reader->Take('*')) return nullptr;
  if (reader->Take('#')) {
    entry->members = MembersKind::kHash;
    if (!reader->TakeHex16(&entry->members_hash)) return "expected 16 small hexadecimal digits after #";
    return entry->members_hash != 0 ? nullptr : "expected a members hash other than 0";
  }
  entry->members = MembersKind::kRanks;
  uint64_t ranks = 0;
  uint64_t nodes = 0;
  if (!reader->TakeNumber(kMaxCollectiveRanks, &ranks) || ranks == 0) {
    return "expected *, # and a hash, or a number of ranks from 1 to 1048576";
  }
  if (reader->Take('x') && (!reader->TakeNumber(ranks, &nodes) || nodes == 0)) {
    return "expected a number of nodes from 1 to the ranks";
  }
  entry->ranks = static_cast<uint32_t>(ranks);
  entry->nodes = static_cast<uint32_t>(nodes);
  return nullptr;
}

const char* ParseBytes(Reader* reader, CollectiveEntry* entry) {
  if (!reader->TakeNumber(kNoByteLimit - 1, &entry->least_bytes)) return "expected the least size in bytes";
  if (!reader->Take('-')) return "expected - after the least size";
  if (!reader->TakeNumber(kNoByteLimit - 1, &entry->most_bytes)) entry->most_bytes = kNoByteLimit;
  return entry->least_bytes <= entry->most_bytes ? nullptr : "expected a largest size that is not below the least";
}

const char* ParseEntry(Reader* reader, CollectiveEntry* entry) {
  if (const char* wrong = ParseMembers(reader, entry)) return wrong;
  if (!reader->Take(':')) return "expected : after the members";
  if (!reader->TakeName(kOps, &entry->collective)) {
    return "expected allreduce, allgather, reducescatter, broadcast, reduce or alltoall";
  }
  if (!reader->Take(':')) return "expected : after the collective";
  if (const char* wrong = ParseBytes(reader, entry)) return wrong;
  if (!reader->Take(':')) return "expected : after the sizes";
  if (!reader->TakeName(kAlgorithms, &entry->algorithm)) return "expected the name of an algorithm";
  uint64_t number = 0;
  if (reader->Take('.')) {
    if (!reader->TakeNumber(kMostParameter, &number) || number == 0) return "expected a parameter from 1 to 1048576";
    entry->parameter = static_cast<uint32_t>(number);
  }
  if (!reader->Take(':')) return "expected : after the algorithm";
  if (!reader->TakeName(kProtocols, &entry->protocol)) return "expected -, ll, ll128 or simple";
  if (!reader->Take(':')) return "expected : after the protocol";
  if (!reader->TakeNumber(kMaxCollectiveChannels, &number)) return "expected a number of channels from 0 to 64";
  entry->channels = static_cast<uint32_t>(number);
  return nullptr;
}

const char* ParseAll(Reader* reader, CollectiveTable* table) {
  uint64_t version = 0;
  if (!reader->TakeNumber(UINT32_MAX, &version) || version != kCollectiveTableVersion) return "expected version 1";
  while (!reader->done()) {
    if (!reader->Take(';')) return "expected ; and an entry";
    if (table->count == kMaxCollectiveEntries) return "expected at most 64 entries";
    if (const char* wrong = ParseEntry(reader, &table->entries[table->count])) return wrong;
    ++table->count;
  }
  return nullptr;
}

/// Appends to a buffer until it is full; then it stays failed.
class Writer {
 public:
  Writer(char* text, size_t capacity) : text_(text), capacity_(capacity) {}

  void Put(const char* word) {
    for (; *word != '\0'; ++word) Put(*word);
  }
  void Put(char c) {
    if (length_ + 1 >= capacity_) {
      full_ = true;
      return;
    }
    text_[length_++] = c;
  }
  void PutNumber(uint64_t value) {
    char digits[20];
    size_t count = 0;
    do digits[count++] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    while (count > 0) Put(digits[--count]);
  }
  void PutHex16(uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4) Put("0123456789abcdef"[value >> shift & 15]);
  }
  size_t Finish() {
    if (capacity_ > 0) text_[full_ ? 0 : length_] = '\0';
    return full_ ? 0 : length_;
  }

 private:
  char* text_;
  size_t capacity_;
  size_t length_ = 0;
  bool full_ = false;
};

bool Printable(const CollectiveEntry& entry) {
  if (CollectiveOpName(entry.collective) == nullptr || CollectiveAlgorithmName(entry.algorithm) == nullptr ||
      CollectiveProtocolName(entry.protocol) == nullptr) {
    return false;
  }
  if (entry.members == MembersKind::kRanks &&
      (entry.ranks == 0 || entry.ranks > kMaxCollectiveRanks || entry.nodes > entry.ranks)) {
    return false;
  }
  if (entry.members == MembersKind::kHash && entry.members_hash == 0) return false;
  return entry.members <= MembersKind::kHash && entry.least_bytes <= entry.most_bytes &&
         entry.least_bytes != kNoByteLimit && entry.parameter <= kMostParameter &&
         entry.channels <= kMaxCollectiveChannels;
}

void PrintEntry(const CollectiveEntry& entry, Writer* writer) {
  switch (entry.members) {
    case MembersKind::kAny: writer->Put('*'); break;
    case MembersKind::kRanks:
      writer->PutNumber(entry.ranks);
      if (entry.nodes > 0) {
        writer->Put('x');
        writer->PutNumber(entry.nodes);
      }
      break;
    case MembersKind::kHash:
      writer->Put('#');
      writer->PutHex16(entry.members_hash);
      break;
  }
  writer->Put(':');
  writer->Put(CollectiveOpName(entry.collective));
  writer->Put(':');
  writer->PutNumber(entry.least_bytes);
  writer->Put('-');
  if (entry.most_bytes != kNoByteLimit) writer->PutNumber(entry.most_bytes);
  writer->Put(':');
  writer->Put(CollectiveAlgorithmName(entry.algorithm));
  if (entry.parameter > 0) {
    writer->Put('.');
    writer->PutNumber(entry.parameter);
  }
  writer->Put(':');
  writer->Put(CollectiveProtocolName(entry.protocol));
  writer->Put(':');
  writer->PutNumber(entry.channels);
}

bool Fits(const CollectiveEntry& entry, const CollectiveQuery& query) {
  if (entry.collective != query.collective || query.bytes < entry.least_bytes || query.bytes > entry.most_bytes) {
    return false;
  }
  if (query.nccl && static_cast<uint32_t>(entry.algorithm) >= kNcclAlgorithms) return false;
  switch (entry.members) {
    case MembersKind::kAny: return true;
    case MembersKind::kRanks: return entry.ranks == query.ranks && (entry.nodes == 0 || entry.nodes == query.nodes);
    case MembersKind::kHash: return query.members_hash != 0 && entry.members_hash == query.members_hash;
  }
  return false;
}

}  // namespace

const char* ParseCollectiveTable(const char* text, size_t length, CollectiveTable* table, size_t* at) {
  *table = CollectiveTable{};
  *at = kMaxCollectiveText;
  if (length > kMaxCollectiveText) return "expected at most 4096 bytes";
  Reader reader(text, length);
  const char* wrong = ParseAll(&reader, table);
  *at = reader.at();
  if (wrong != nullptr) *table = CollectiveTable{};
  return wrong;
}

size_t PrintCollectiveTable(const CollectiveTable& table, char* text, size_t capacity) {
  Writer writer(text, capacity < kMaxCollectiveText + 1 ? capacity : kMaxCollectiveText + 1);
  bool printable = table.count <= kMaxCollectiveEntries;
  for (uint32_t i = 0; printable && i < table.count; ++i) printable = Printable(table.entries[i]);
  if (!printable) return Writer(text, capacity).Finish();
  writer.PutNumber(kCollectiveTableVersion);
  for (uint32_t i = 0; i < table.count; ++i) {
    writer.Put(';');
    PrintEntry(table.entries[i], &writer);
  }
  return writer.Finish();
}

const CollectiveEntry* FindCollective(const CollectiveTable& table, const CollectiveQuery& query) {
  for (uint32_t i = 0; i < table.count && i < kMaxCollectiveEntries; ++i) {
    if (Fits(table.entries[i], query)) return &table.entries[i];
  }
  return nullptr;
}

uint64_t MembersHash(const int32_t* ranks, size_t count) {
  uint64_t hash = 0xCBF29CE484222325;
  for (size_t i = 0; i < count; ++i) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash ^= static_cast<uint32_t>(ranks[i]) >> shift & 0xFF;
      hash *= 0x100000001B3;
    }
  }
  return hash != 0 ? hash : 1;
}

const char* CollectiveOpName(CollectiveOp collective) {
  const auto index = static_cast<size_t>(collective);
  return index < std::size(kOps) ? kOps[index] : nullptr;
}
const char* CollectiveAlgorithmName(CollectiveAlgorithm algorithm) {
  const auto index = static_cast<size_t>(algorithm);
  return index < std::size(kAlgorithms) ? kAlgorithms[index] : nullptr;
}
const char* CollectiveProtocolName(CollectiveProtocol protocol) {
  const auto index = static_cast<size_t>(protocol);
  return index < std::size(kProtocols) ? kProtocols[index] : nullptr;
}

}  // namespace weft::abi
