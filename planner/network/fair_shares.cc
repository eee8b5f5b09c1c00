#include "planner/network/fair_shares.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "planner/network/filling.h"
#include "planner/network/flow_classes.h"

// Classes, their membership in rows, and who holds them. What updates do is in fair_shares_settle.cc.

namespace weft::planner {
namespace {

constexpr double kUnsettled = std::numeric_limits<double>::quiet_NaN();

size_t Index(int32_t id) { return static_cast<size_t>(id); }

}  // namespace

FairShares::FairShares(std::span<const BitsPerSecond> capacity, FairShareOptions options)
    : priorities_(static_cast<size_t>(options.priorities)),
      options_(options),
      tie_(std::max(kLevelTie, options.tolerance)),
      rows_(capacity.size() * priorities_),
      foreign_(rows_.size() + 1, 0),
      level_(rows_.size() + 1, kNoLevel),
      taken_(rows_.size() + 1, 0),
      up_(rows_.size() + 1, kNoLevel),
      down_(rows_.size() + 1, 0),
      seen_(rows_.size() + 1, kUnsettled),
      dirty_((rows_.size() + 63) / 64, 0),
      lowest_dirty_(dirty_.size()),
      rank_(rows_.size() + 1, static_cast<int32_t>(rows_.size())),
      row_at_(rows_.size()) {
  WEFT_CHECK(options.priorities > 0, "no priorities");
  for (size_t r = 0; r < rows_.size(); ++r) capacity_.push_back(capacity[r / priorities_].value());
  Reorder();
}

// ---- classes

FairShares::ClassId FairShares::Add(const MaxMinFlow& flow, int32_t count) {
  WEFT_CHECK(flow.weight > 0 && count > 0, "a flow's weight or count is not positive");
  WEFT_CHECK(flow.priority >= 0 && Index(flow.priority) < priorities_, "a flow's priority is out of range");
  StartChanges();
  ++pending_adds_;
  if (!options_.merge) {
    const ClassId id = NewEntry(flow);
    Reweigh(id, count);
    return id;
  }
  const uint64_t hash = ClassHash(flow);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Entry& entry = entries_[Index(it->second)];
    const auto same_link = [&](size_t i) {
      return crossings_[entry.begin + i].row == static_cast<int32_t>(RowOf(flow.links[i], flow.priority));
    };
    bool same = entry.weight == flow.weight && entry.cap == flow.cap && entry.priority == flow.priority &&
                Index(entry.length) == flow.links.size();
    for (size_t i = 0; same && i < flow.links.size(); ++i) same = same_link(i);
    if (!same) continue;
    Reweigh(it->second, entry.count + count);
    return it->second;
  }
  const ClassId id = NewEntry(flow);
  by_hash_.emplace(hash, id);
  entries_[Index(id)].hash = hash;
  Reweigh(id, count);
  return id;
}

void FairShares::Remove(ClassId id, int32_t count) {
  WEFT_CHECK(count <= entries_[Index(id)].count, "more flows taken away than there are");
  StartChanges();
  Reweigh(id, entries_[Index(id)].count - count);
  if (entries_[Index(id)].count == 0) FreeEntry(id);
}

FairShares::ClassId FairShares::NewEntry(const MaxMinFlow& flow) {
  if (free_entries_.empty()) {
    free_entries_.push_back(static_cast<int32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const ClassId id = free_entries_.back();
  free_entries_.pop_back();
  Entry& entry = entries_[Index(id)];
  entry = {.length = static_cast<int32_t>(flow.links.size()), .priority = flow.priority, .stamp = entry.stamp,
           .weight = flow.weight,
           .cap_level = flow.cap.value() < kNoCap ? flow.cap.value() / flow.weight : kNoLevel, .cap = flow.cap};
  if (free_crossings_.size() <= flow.links.size()) free_crossings_.resize(flow.links.size() + 1);
  std::vector<uint32_t>& free = free_crossings_[flow.links.size()];
  if (free.empty()) {
    free.push_back(static_cast<uint32_t>(crossings_.size()));
    crossings_.resize(crossings_.size() + flow.links.size());
  }
  entry.begin = free.back();
  free.pop_back();
  for (size_t i = 0; i < flow.links.size(); ++i) {
    WEFT_CHECK(flow.links[i].valid() && flow.links[i].index() < rows_.size() / priorities_,
               "a flow over an unknown link");
    const size_t r = RowOf(flow.links[i], flow.priority);
    crossings_[entry.begin + i] = {static_cast<int32_t>(r), static_cast<uint32_t>(rows_[r].members.size())};
    rows_[r].members.push_back({id, static_cast<int32_t>(i)});
  }
  return id;
}

void FairShares::FreeEntry(ClassId id) {
  Entry& entry = entries_[Index(id)];
  for (int32_t i = 0; i < entry.length; ++i) {
    const Crossing crossing = crossings_[entry.begin + Index(i)];
    Row& row = rows_[Index(crossing.row)];
    SwapMembers(Index(crossing.row), crossing.slot, static_cast<uint32_t>(row.members.size()) - 1);
    row.members.pop_back();
  }
  if (options_.merge) {
    const auto [first, last] = by_hash_.equal_range(entry.hash);
    by_hash_.erase(std::find_if(first, last, [&](const auto& item) { return item.second == id; }));
  }
  free_crossings_[Index(entry.length)].push_back(entry.begin);
  entry.length = 0;
  free_entries_.push_back(id);
}

/// Takes the class out of all sums, and puts it back with its new count, held by what now looks lowest.
void FairShares::Reweigh(ClassId id, int32_t count) {
  Detach(id);
  entries_[Index(id)].count = count;
  if (count > 0) PickHolder(id);
}

void FairShares::PickHolder(ClassId id) {
  const Entry& entry = entries_[Index(id)];
  double lowest = entry.cap_level;
  int32_t holder = kCap;
  for (int32_t i = 0; i < entry.length; ++i) {
    const size_t r = Index(crossings_[entry.begin + Index(i)].row);
    const double level = std::max(0.0, Left(r)) / (rows_[r].own_weight + TotalWeight(entry));
    if (level >= lowest) continue;
    lowest = level;
    holder = i;
  }
  Attach(id, holder);
}

// ---- holders

/// Gives the class, which nobody holds, to the row at `holder` of its path or to its cap.
void FairShares::Attach(ClassId id, int32_t holder) {
  Entry& entry = entries_[Index(id)];
  ListEntry(id);
  entry.holder = holder;
  if (holder >= 0) {
    const Crossing crossing = crossings_[entry.begin + Index(holder)];
    const size_t r = Index(crossing.row);
    if (rows_[r].own == 0) {
      ListRow(r);
      taken_[r] = 0;  // the first class starts from nothing, whatever the last one had
    }
    PutOwn(r, crossing.slot);
    up_[r] = -kNoLevel;
    seen_[r] = kUnsettled;
    back_ = std::min(back_, Index(rank_[r]));
  }
  Take(entry, LevelOf(entry), holder);
  if (holder != kCap) return;
  for (int32_t i = 0; i < entry.length; ++i) {
    double& down = down_[Index(crossings_[entry.begin + Index(i)].row)];
    down = std::max(down, entry.cap_level);
  }
}

void FairShares::Detach(ClassId id) {
  Entry& entry = entries_[Index(id)];
  if (entry.holder == kNobody) return;
  Take(entry, -LevelOf(entry), entry.holder);
  if (entry.holder >= 0) {
    const Crossing crossing = crossings_[entry.begin + Index(entry.holder)];
    TakeOwn(Index(crossing.row), crossing.slot);
    seen_[Index(crossing.row)] = kUnsettled;
  }
  entry.holder = kNobody;
}

/// Adds level · weight to what the class takes on all rows of its path but `except`, its holder.
void FairShares::Take(const Entry& entry, double level, int32_t except) {
  if (entry.length == 0) return;
  const double change = level * TotalWeight(entry);
  const Crossing* crossing = &crossings_[entry.begin];
  for (int32_t i = 0; i < entry.length; ++i, ++crossing) {
    if (i != except) foreign_[Index(crossing->row)] += change;
    Touch(Index(crossing->row));
  }
}

void FairShares::SwapMembers(size_t row, uint32_t a, uint32_t b) {
  if (a == b) return;
  std::vector<Member>& members = rows_[row].members;
  std::swap(members[a], members[b]);
  for (const uint32_t slot : {a, b}) {
    const Member& member = members[slot];
    crossings_[entries_[Index(member.entry)].begin + Index(member.position)].slot = slot;
  }
}

/// Makes a member one of the row's own.
void FairShares::PutOwn(size_t r, uint32_t slot) {
  Row& row = rows_[r];
  const Entry& entry = entries_[Index(row.members[slot].entry)];
  SwapMembers(r, slot, row.own);
  row.weights.push_back(TotalWeight(entry));
  row.own_weight += row.weights.back();
  row.own_peak = std::max(row.own_peak, row.own_weight);
  row.capped += entry.cap_level < kNoLevel;
  const auto others = static_cast<uint32_t>(entry.length - 1);
  if (others > row.width) {
    row.width = others;
    row.others.resize((row.own + 1) * size_t{row.width});
    for (uint32_t s = 0; s < row.own; ++s) WriteOthers(r, s);
  }
  row.others.resize((row.own + 1) * size_t{row.width});
  WriteOthers(r, row.own++);
}

/// Makes one of the row's own members an ordinary one.
void FairShares::TakeOwn(size_t r, uint32_t slot) {
  Row& row = rows_[r];
  const uint32_t last = --row.own;
  row.capped -= entries_[Index(row.members[slot].entry)].cap_level < kNoLevel;
  row.own_weight -= row.weights[slot];
  row.weights[slot] = row.weights[last];
  std::copy_n(row.others.begin() + last * int64_t{row.width}, row.width,
              row.others.begin() + slot * int64_t{row.width});
  row.weights.pop_back();
  row.others.resize(last * size_t{row.width});
  SwapMembers(r, slot, last);
  // What is left of a difference of nearly equal sums is rounding: add up again.
  if (row.own == 0 || row.own_weight < 1e-6 * row.own_peak) SumOwnWeight(&row);
}

void FairShares::WriteOthers(size_t r, uint32_t slot) {
  Row& row = rows_[r];
  const Member member = row.members[slot];
  const Entry& entry = entries_[Index(member.entry)];
  int32_t* other = row.others.data() + slot * size_t{row.width};
  int32_t* const end = other + row.width;
  for (int32_t i = 0; i < entry.length; ++i) {
    if (i != member.position) *other++ = crossings_[entry.begin + Index(i)].row;
  }
  std::fill(other, end, static_cast<int32_t>(rows_.size()));
}

void FairShares::SumOwnWeight(Row* row) const {
  row->own_weight = 0;
  for (const double weight : row->weights) row->own_weight += weight;
  row->own_peak = row->own_weight;
}

void FairShares::SetCapacity(LinkId link, BitsPerSecond capacity) {
  WEFT_CHECK(link.valid() && link.index() < rows_.size() / priorities_, "the capacity of an unknown link");
  StartChanges();
  for (size_t p = 0; p < priorities_; ++p) {
    const size_t r = link.index() * priorities_ + p;
    capacity_[r] = capacity.value();
    seen_[r] = kUnsettled;
    MarkDirty(r);
  }
}

// ---- what changed

void FairShares::StartChanges() {
  if (!reported_) return;
  reported_ = listed_ = false;
  moved_.clear();
  changed_rows_.clear();
  ++stamp_;
}

void FairShares::ListEntry(int32_t id) {
  Entry& entry = entries_[Index(id)];
  if (entry.stamp == stamp_) return;
  entry.stamp = stamp_;
  moved_.push_back(id);
}

void FairShares::ListRow(size_t r) {
  Row& row = rows_[r];
  if (row.stamp == stamp_) return;
  row.stamp = stamp_;
  row.before = taken_[r];
  changed_rows_.push_back(static_cast<int32_t>(r));
}

std::span<const FairShares::ClassId> FairShares::changed() {
  if (listed_) return changed_;
  listed_ = true;
  changed_.clear();
  for (const ClassId id : moved_) {
    if (entries_[Index(id)].count > 0) changed_.push_back(id);
  }
  for (const int32_t r : changed_rows_) {
    const Row& row = rows_[Index(r)];
    if (row.before == taken_[Index(r)]) continue;
    for (uint32_t slot = 0; slot < row.own; ++slot) {
      const ClassId id = row.members[slot].entry;
      if (entries_[Index(id)].stamp != stamp_) changed_.push_back(id);
    }
  }
  return changed_;
}

}  // namespace weft::planner
