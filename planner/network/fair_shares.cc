#include "planner/network/fair_shares.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "common/check.h"
#include "planner/network/filling.h"
#include "planner/network/flow_classes.h"

namespace weft::planner {
namespace {

constexpr int64_t kOrderLasts = 256;      // updates after which dirty rows are ordered by new levels

size_t Index(int32_t id) { return static_cast<size_t>(id); }

}  // namespace

FairShares::FairShares(std::span<const BitsPerSecond> capacity, FairShareOptions options)
    : priorities_(static_cast<size_t>(options.priorities)),
      options_(options),
      tie_(std::max(kLevelTie, options.tolerance)),
      rows_(capacity.size() * priorities_),
      level_(rows_.size(), kNoLevel),
      dirty_((rows_.size() + 63) / 64, 0),
      lowest_dirty_(dirty_.size()),
      rank_(rows_.size()),
      row_at_(rows_.size()) {
  WEFT_CHECK(options.priorities > 0, "no priorities");
  for (size_t r = 0; r < rows_.size(); ++r) rows_[r].capacity = capacity[r / priorities_].value();
  Reorder();
}

// ---- classes and their membership in rows

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
  entry = {.length = static_cast<int32_t>(flow.links.size()), .priority = flow.priority, .weight = flow.weight,
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
    WEFT_CHECK(flow.links[i].valid() && flow.links[i].index() < rows_.size() / priorities_, "a flow over an unknown link");
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
  Entry& entry = entries_[Index(id)];
  if (entry.holder != kNobody) SetLevel(id, 0, entry.holder);
  if (entry.holder >= 0) {
    const Crossing crossing = crossings_[entry.begin + Index(entry.holder)];
    MakeForeign(Index(crossing.row), crossing.slot);
    MarkDirty(Index(crossing.row));
  }
  entry.holder = kNobody;
  entry.level = 0;
  entry.count = count;
  if (count > 0) PickHolder(id);
}

void FairShares::PickHolder(ClassId id) {
  Entry& entry = entries_[Index(id)];
  double lowest = entry.cap_level;
  entry.holder = kCap;
  for (int32_t i = 0; i < entry.length; ++i) {
    const Row& row = rows_[Index(crossings_[entry.begin + Index(i)].row)];
    const double level = std::max(0.0, row.capacity - row.foreign) / (row.own_weight + TotalWeight(entry));
    if (level >= lowest) continue;
    lowest = level;
    entry.holder = i;
  }
  ListChanged(id);
  if (entry.holder == kCap) {
    SetLevel(id, entry.cap_level, kCap);
    return;
  }
  const Crossing crossing = crossings_[entry.begin + Index(entry.holder)];
  MakeOwn(Index(crossing.row), crossing.slot);
  rows_[Index(crossing.row)].fresh = true;
  MarkDirty(Index(crossing.row));
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

void FairShares::MakeOwn(size_t r, uint32_t slot) {
  Row& row = rows_[r];
  row.own_weight += TotalWeight(entries_[Index(row.members[slot].entry)]);
  row.own_peak = std::max(row.own_peak, row.own_weight);
  SwapMembers(r, slot, row.own++);
}

void FairShares::MakeForeign(size_t r, uint32_t slot) {
  Row& row = rows_[r];
  row.own_weight -= TotalWeight(entries_[Index(row.members[slot].entry)]);
  SwapMembers(r, slot, --row.own);
  if (row.own == 0) {
    row.own_weight = row.own_peak = 0;
  } else if (row.own_weight < 1e-6 * row.own_peak) {
    // What is left of a difference of nearly equal sums is rounding: add up again.
    row.own_weight = 0;
    for (uint32_t i = 0; i < row.own; ++i) row.own_weight += TotalWeight(entries_[Index(row.members[i].entry)]);
    row.own_peak = row.own_weight;
  }
}

void FairShares::SetCapacity(LinkId link, BitsPerSecond capacity) {
  WEFT_CHECK(link.valid() && link.index() < rows_.size() / priorities_, "the capacity of an unknown link");
  StartChanges();
  for (size_t p = 0; p < priorities_; ++p) {
    const size_t r = link.index() * priorities_ + p;
    rows_[r].capacity = capacity.value();
    MarkDirty(r);
  }
}

// ---- dirty rows

void FairShares::MarkDirty(size_t r) {
  const Row& row = rows_[r];
  // A row that holds nobody and has room stays what it is.
  if (row.own == 0 && level_[r] == kNoLevel && row.foreign <= row.capacity * (1 + kLevelTie)) return;
  const size_t word = Index(rank_[r]) / 64;
  dirty_[word] |= uint64_t{1} << (rank_[r] % 64);
  lowest_dirty_ = std::min(lowest_dirty_, word);
}

int32_t FairShares::PopDirty() {
  while (lowest_dirty_ < dirty_.size() && dirty_[lowest_dirty_] == 0) ++lowest_dirty_;
  if (lowest_dirty_ == dirty_.size()) return -1;
  uint64_t& word = dirty_[lowest_dirty_];
  const int bit = std::countr_zero(word);
  word &= word - 1;
  return row_at_[lowest_dirty_ * 64 + static_cast<size_t>(bit)];
}

void FairShares::Reorder() {
  std::vector<int32_t> dirty_rows;
  for (int32_t r = PopDirty(); r >= 0; r = PopDirty()) dirty_rows.push_back(r);
  std::iota(row_at_.begin(), row_at_.end(), 0);
  std::sort(row_at_.begin(), row_at_.end(), [&](int32_t a, int32_t b) {
    const size_t pa = Index(a) % priorities_, pb = Index(b) % priorities_;
    if (pa != pb) return pa < pb;
    return level_[Index(a)] != level_[Index(b)] ? level_[Index(a)] < level_[Index(b)] : a < b;
  });
  for (size_t i = 0; i < row_at_.size(); ++i) rank_[Index(row_at_[i])] = static_cast<int32_t>(i);
  lowest_dirty_ = dirty_.size();
  for (const int32_t r : dirty_rows) {
    dirty_[Index(rank_[Index(r)]) / 64] |= uint64_t{1} << (rank_[Index(r)] % 64);
    lowest_dirty_ = 0;
  }
  updates_since_order_ = 0;
}

// ---- the update

void FairShares::StartChanges() {
  if (!reported_) return;
  reported_ = false;
  changed_.clear();
  ++stamp_;
}

void FairShares::Update() {
  StartChanges();
  const int64_t many = static_cast<int64_t>(entries_.size() - free_entries_.size()) / 4 + 16;
  if (pending_adds_ > many) {
    SolveAll();
  } else {
    if (++updates_since_order_ > kOrderLasts) Reorder();
    int64_t budget = 20 * static_cast<int64_t>(rows_.size()) + 1000;
    for (int32_t r = PopDirty(); r >= 0; r = PopDirty()) {
      Settle(Index(r));
      ++links_settled_;
      if (--budget == 0) {
        SolveAll();
        break;
      }
    }
  }
  pending_adds_ = 0;
  std::erase_if(changed_, [&](ClassId id) { return entries_[Index(id)].count == 0; });
  reported_ = true;
}

void FairShares::ListChanged(int32_t id) {
  Entry& entry = entries_[Index(id)];
  if (entry.stamp == stamp_) return;
  entry.stamp = stamp_;
  changed_.push_back(id);
}

// ---- complete solutions

void FairShares::SolveAll() {
  ++complete_solutions_;
  std::fill(dirty_.begin(), dirty_.end(), 0);
  std::vector<double> left(rows_.size() / priorities_);
  for (size_t l = 0; l < left.size(); ++l) left[l] = rows_[l * priorities_].capacity;
  for (int32_t p = 0; p < static_cast<int32_t>(priorities_); ++p) SolvePriority(p, &left);
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows_[r].fresh = false;
    Resum(r);
  }
  lowest_dirty_ = dirty_.size();
  Reorder();
}

void FairShares::SolvePriority(int32_t priority, std::vector<double>* left) {
  FillingProblem problem{.capacity = *left};
  std::vector<int32_t> ids;
  for (size_t id = 0; id < entries_.size(); ++id) {
    const Entry& entry = entries_[id];
    if (entry.count == 0 || entry.priority != priority) continue;
    for (int32_t i = 0; i < entry.length; ++i) {
      problem.rows.push_back(crossings_[entry.begin + Index(i)].row / static_cast<int32_t>(priorities_));
    }
    problem.begin.push_back(static_cast<uint32_t>(problem.rows.size()));
    problem.weight.push_back(TotalWeight(entry));
    problem.cap.push_back(entry.cap_level);
    ids.push_back(static_cast<int32_t>(id));
  }
  const FillingSolution solution = Fill(problem);
  for (size_t l = 0; l < left->size(); ++l) {
    const size_t r = l * priorities_ + Index(priority);
    level_[r] = solution.row_level[l];
    rows_[r].own = 0;
  }
  for (size_t e = 0; e < ids.size(); ++e) {
    Entry& entry = entries_[Index(ids[e])];
    if (entry.level != solution.level[e]) ListChanged(ids[e]);
    entry.level = solution.level[e];
    entry.holder = kCap;
    for (int32_t i = 0; i < entry.length; ++i) {
      const Crossing crossing = crossings_[entry.begin + Index(i)];
      const int32_t link = crossing.row / static_cast<int32_t>(priorities_);
      double& rest = (*left)[Index(link)];
      rest = std::max(0.0, rest - entry.level * TotalWeight(entry));
      if (solution.held_by[e] == link) entry.holder = i;
    }
    if (entry.holder >= 0) {
      const Crossing crossing = crossings_[entry.begin + Index(entry.holder)];
      SwapMembers(Index(crossing.row), crossing.slot, rows_[Index(crossing.row)].own++);
    }
  }
}

}  // namespace weft::planner
