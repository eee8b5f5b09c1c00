#include <algorithm>
#include <cmath>

#include "planner/network/fair_shares.h"
#include "planner/network/filling.h"

// What happens to one dirty row: Settle() and what it needs.

namespace weft::planner {
namespace {

constexpr uint32_t kSumsLast = 64;  // settlements after which a row's sums are taken anew

size_t Index(int32_t id) { return static_cast<size_t>(id); }

}  // namespace

double FairShares::LevelFor(const Row& row) const {
  const double left = row.capacity - row.foreign;
  return left > kDust * row.capacity ? left / row.own_weight : 0;
}

void FairShares::Settle(size_t r) {
  Row& row = rows_[r];
  if (++row.settled > kSumsLast) Resum(r);
  const double old = level_[r];
  double level = row.own > 0 ? LevelFor(row) : kNoLevel;
  const bool fresh = row.fresh;
  row.fresh = false;
  // Taking over comes first: it lifts the level, and what is given away is judged by the level in the end.
  const uint32_t held = row.own;
  const bool overfull = row.foreign > row.capacity * (1 + kLevelTie);
  if (row.own > 0 && !fresh && !overfull && std::abs(level - old) <= options_.tolerance * old) return;
  if (overfull || (row.own > 0 && level < old)) level = TakeOver(r, row.own > 0 ? level : 0);
  const bool joined = fresh || row.own > held;
  if (row.own > 0 && (fresh || level > old)) level = GiveAway(r, level);
  if (row.own == 0) {
    level_[r] = kNoLevel;
  } else if (joined || std::abs(level - old) > options_.tolerance * old) {
    Apply(r, level);
  }
}

double FairShares::LowestElsewhere(const Entry& entry, int32_t except, int32_t* where) const {
  double lowest = entry.cap_level;
  *where = kCap;
  for (int32_t i = 0; i < entry.length; ++i) {
    if (i == except) continue;
    const double level = level_[Index(crossings_[entry.begin + Index(i)].row)];
    if (level >= lowest) continue;
    lowest = level;
    *where = i;
  }
  return lowest;
}

/// Hands classes that another link or their cap holds below `level` to it. What they leave lifts the level, so that more may
/// follow. Returns the level; the row may hold nobody afterwards.
double FairShares::GiveAway(size_t r, double level) {
  Row& row = rows_[r];
  for (bool again = true; again && row.own > 0;) {
    again = false;
    for (uint32_t slot = row.own; slot-- > 0;) {
      const Member member = row.members[slot];
      Entry& entry = entries_[Index(member.entry)];
      int32_t where = kCap;
      const double lowest = LowestElsewhere(entry, member.position, &where);
      if (lowest >= level * (1 - tie_)) continue;
      // From now on it takes `lowest` here, as everywhere; the new holder finds the difference when it settles.
      MakeForeign(r, slot);
      row.foreign += entry.level * TotalWeight(entry);
      entry.holder = where;
      if (where >= 0) {
        const Crossing crossing = crossings_[entry.begin + Index(where)];
        rows_[Index(crossing.row)].foreign -= entry.level * TotalWeight(entry);
        MakeOwn(Index(crossing.row), crossing.slot);
        MarkDirty(Index(crossing.row));
      }
      SetLevel(member.entry, lowest, where);
      if (row.own > 0) level = LevelFor(row);
      again = true;
    }
  }
  return level;
}

/// Takes over classes that are held above `level`, highest first, until the level is no lower than what the others have.
double FairShares::TakeOver(size_t r, double level) {
  Row& row = rows_[r];
  gains_.clear();
  for (size_t slot = row.own; slot < row.members.size(); ++slot) {
    const Entry& entry = entries_[Index(row.members[slot].entry)];
    if (entry.level * (1 - tie_) > level) gains_.push_back({entry.level, row.members[slot]});
  }
  std::sort(gains_.begin(), gains_.end(), [](const Gain& a, const Gain& b) {
    return a.level != b.level ? a.level > b.level : a.member.entry < b.member.entry;
  });
  for (const Gain& gain : gains_) {
    if (gain.level * (1 - tie_) <= level) break;
    Entry& entry = entries_[Index(gain.member.entry)];
    const double rate = entry.level * TotalWeight(entry);
    if (entry.holder >= 0) {
      const Crossing from = crossings_[entry.begin + Index(entry.holder)];
      MakeForeign(Index(from.row), from.slot);
      rows_[Index(from.row)].foreign += rate;
      MarkDirty(Index(from.row));
    }
    row.foreign -= rate;
    MakeOwn(r, crossings_[entry.begin + Index(gain.member.position)].slot);
    entry.holder = gain.member.position;
    level = LevelFor(row);
  }
  return level;
}

void FairShares::Apply(size_t r, double level) {
  level_[r] = level;
  Row& row = rows_[r];
  for (uint32_t slot = 0; slot < row.own; ++slot) {
    const Member member = row.members[slot];
    SetLevel(member.entry, level, member.position);
  }
}

/// Sets what the class takes on all of its links; on `except`, its holder, it is no part of the sum.
void FairShares::SetLevel(int32_t id, double level, int32_t except) {
  Entry& entry = entries_[Index(id)];
  const double change = (level - entry.level) * TotalWeight(entry);
  entry.level = level;
  if (change == 0) return;
  ListChanged(id);
  const Crossing* crossing = &crossings_[entry.begin];
  for (int32_t i = 0; i < entry.length; ++i, ++crossing) {
    const size_t r = Index(crossing->row);
    if (i != except) {
      rows_[r].foreign += change;
      MarkDirty(r);
    }
    if (priorities_ > 1) AddBelow(r, change);
  }
}

/// What a class takes, all lower priorities of the link lack.
void FairShares::AddBelow(size_t r, double rate) {
  const size_t end = (r / priorities_ + 1) * priorities_;
  for (size_t below = r + 1; below < end; ++below) {
    rows_[below].foreign += rate;
    MarkDirty(below);
  }
}

void FairShares::Resum(size_t r) {
  Row& row = rows_[r];
  row.settled = 0;
  row.foreign = 0;
  for (size_t above = r - r % priorities_; above < r; ++above) {
    for (const Member& member : rows_[above].members) {
      const Entry& entry = entries_[Index(member.entry)];
      row.foreign += entry.level * TotalWeight(entry);
    }
  }
  row.own_weight = 0;
  for (size_t slot = 0; slot < row.members.size(); ++slot) {
    const Entry& entry = entries_[Index(row.members[slot].entry)];
    if (slot < row.own) {
      row.own_weight += TotalWeight(entry);
    } else {
      row.foreign += entry.level * TotalWeight(entry);
    }
  }
  row.own_peak = row.own_weight;
}

}  // namespace weft::planner
