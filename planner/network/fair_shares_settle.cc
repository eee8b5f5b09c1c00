#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "planner/network/fair_shares.h"
#include "planner/network/filling.h"

// Updates: which rows are looked at in which order, and what happens to one of them: Settle() and what it needs.

namespace weft::planner {
namespace {

constexpr int64_t kOrderLasts = 64;  // updates after which dirty rows are ordered by new levels
constexpr uint32_t kSumsLast = 256;    // settlements after which a row's sums are taken anew
/// An update that has settled this share of all rows goes on over all of them in turn, which spares the marks.
constexpr size_t kSweepShare = 256;

size_t Index(int32_t id) { return static_cast<size_t>(id); }

}  // namespace

// ---- order

/// A row's sum has changed, and with it what the link has left for lower priorities.
void FairShares::Touch(size_t r) {
  if (sweeping_) return;
  MarkDirty(r);
  if (priorities_ == 1) return;
  const size_t end = (r / priorities_ + 1) * priorities_;
  for (size_t below = r + 1; below < end; ++below) MarkDirty(below);
}

void FairShares::MarkDirty(size_t r) {
  // A row that holds nobody and has room stays what it is.
  if (rows_[r].own == 0 && level_[r] == kNoLevel && Left(r) >= -kLevelTie * capacity_[r]) return;
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
  for (Row& row : rows_) {
    row.first = rank_.back();
    for (const int32_t other : row.others) row.first = std::min(row.first, rank_[Index(other)]);
  }
  lowest_dirty_ = dirty_.size();
  for (const int32_t r : dirty_rows) {
    dirty_[Index(rank_[Index(r)]) / 64] |= uint64_t{1} << (rank_[Index(r)] % 64);
    lowest_dirty_ = 0;
  }
  updates_since_order_ = 0;
}

void FairShares::Update() {
  StartChanges();
  const int64_t many = static_cast<int64_t>(entries_.size() - free_entries_.size()) / 4 + 16;
  if (pending_adds_ > many) {
    SolveAll();
  } else {
    if (++updates_since_order_ > kOrderLasts) Reorder();
    size_t local = rows_.size() / kSweepShare + 4;
    for (int32_t r = PopDirty(); r >= 0; r = PopDirty()) {
      Settle(Index(r));
      if (--local > 0) continue;
      if (!Sweep(20 * static_cast<int64_t>(rows_.size()) + 1000)) SolveAll();
      break;
    }
  }
  pending_adds_ = 0;
  reported_ = true;
}

/// Settles every row whose sum has changed, in order, over and over until none has. False: not within the budget.
bool FairShares::Sweep(int64_t budget) {
  sweeping_ = true;
  back_ = row_at_.size();
  size_t from = 64 * lowest_dirty_;
  for (bool calm = false; !calm && budget > 0; from = 0) {
    calm = true;
    for (size_t i = from; i < row_at_.size(); ++i) {
      // What reaches a row further back changes what has been settled since: there first, and on from there.
      if (back_ < i) i = back_;
      back_ = row_at_.size();
      const size_t r = Index(row_at_[i]);
      const double left = Left(r);
      if (left == seen_[r]) continue;
      if (rows_[r].own == 0 && level_[r] == kNoLevel && left >= -kLevelTie * capacity_[r]) continue;
      Settle(r);
      --budget;
      calm = false;
    }
  }
  sweeping_ = false;
  std::fill(dirty_.begin(), dirty_.end(), 0);
  lowest_dirty_ = dirty_.size();
  return budget > 0;
}

// ---- one row

/// What the link has left for the classes that it holds in this priority.
double FairShares::Left(size_t r) const {
  double left = capacity_[r] - foreign_[r];
  if (priorities_ == 1) return left;
  for (size_t above = r - r % priorities_; above < r; ++above) {
    left -= foreign_[above] + taken_[above] * rows_[above].own_weight;
  }
  return left;
}

double FairShares::LevelFor(size_t r) const {
  const double left = Left(r);
  return left > kDust * capacity_[r] ? left / rows_[r].own_weight : 0;
}

void FairShares::Settle(size_t r) {
  Row& row = rows_[r];
  ++links_settled_;
  if (++row.settled > kSumsLast) Resum(r);
  const bool overfull = Left(r) < -kLevelTie * capacity_[r];
  double level = row.own > 0 ? LevelFor(r) : kNoLevel;
  const bool meets = overfull || level > up_[r] || level < down_[r] * (1 - kLevelTie);
  if (row.own > 0 && !meets && std::abs(level - taken_[r]) <= options_.tolerance * taken_[r]) {
    seen_[r] = Left(r);
    return;
  }
  // Taking over comes first: it lifts the level, and what is given away is judged by the level in the end.
  if (overfull || level < down_[r] * (1 - kLevelTie)) level = TakeOver(r, row.own > 0 ? level : 0);
  if (row.own > 0 && level > up_[r]) level = GiveAway(r, level);
  if (row.own == 0) level_[r] = kNoLevel;
  else Apply(r, level);
  seen_[r] = Left(r);
}

double FairShares::LowestElsewhere(size_t r, uint32_t slot, int32_t* where) const {
  const Row& row = rows_[r];
  double lowest = row.capped > 0 ? entries_[Index(row.members[slot].entry)].cap_level : kNoLevel;
  *where = kCap;
  const int32_t* other = row.others.data() + slot * size_t{row.width};
  for (int32_t i = 0; i < static_cast<int32_t>(row.width); ++i) {
    const double level = level_[Index(other[i])];
    if (level >= lowest) continue;
    lowest = level;
    *where = i;
  }
  if (*where >= 0 && *where >= row.members[slot].position) ++*where;  // the row itself is not among the others
  return lowest;
}

/// Hands classes that another link or their cap holds below `level` to it. What they leave lifts the level, so that
/// more may follow. Returns the level; the row may hold nobody afterwards.
double FairShares::GiveAway(size_t r, double level) {
  const Row& row = rows_[r];
  double lowest = kNoLevel;
  for (bool again = true; again && row.own > 0;) {
    again = false;
    lowest = kNoLevel;
    for (uint32_t slot = row.own; slot-- > 0;) {
      int32_t where = kCap;
      const double other = LowestElsewhere(r, slot, &where);
      if (other >= level * (1 - tie_)) {
        lowest = std::min(lowest, other);
        continue;
      }
      // From now on it takes `other` here, as everywhere; the new holder finds the difference when it settles.
      const ClassId id = row.members[slot].entry;
      Detach(id);
      Attach(id, where);
      if (row.own > 0) level = LevelFor(r);
      again = true;
    }
  }
  if (row.own > 0) Certify(r, level, lowest);
  return level;
}

/// Sets the row's upper threshold half way to `lowest`, the lowest level of other links of its classes.
void FairShares::Certify(size_t r, double level, double lowest) {
  const double up = lowest < kNoLevel ? std::max(level, (level + lowest) / 2) : kNoLevel;
  up_[r] = up;
  int32_t first = rank_.back();
  for (const int32_t other : rows_[r].others) {
    down_[Index(other)] = std::max(down_[Index(other)], up);
    first = std::min(first, rank_[Index(other)]);
  }
  rows_[r].first = first;
}

/// Takes over classes that are held above `level`, highest first, until the level is no lower than what the others
/// have.
double FairShares::TakeOver(size_t r, double level) {
  Row& row = rows_[r];
  gains_.clear();
  double highest = 0;  // of those that stay
  for (size_t slot = row.own; slot < row.members.size(); ++slot) {
    const double other = LevelOf(entries_[Index(row.members[slot].entry)]);
    if (other * (1 - tie_) > level) gains_.push_back({other, row.members[slot]});
    else highest = std::max(highest, other);
  }
  std::sort(gains_.begin(), gains_.end(), [](const Gain& a, const Gain& b) {
    return a.level != b.level ? a.level > b.level : a.member.entry < b.member.entry;
  });
  for (const Gain& gain : gains_) {
    if (gain.level * (1 - tie_) <= level) {
      highest = std::max(highest, gain.level);
      break;
    }
    Detach(gain.member.entry);
    Attach(gain.member.entry, gain.member.position);
    level = LevelFor(r);
  }
  const double down = row.own > 0 && level > highest ? (level + highest) / 2 : highest;
  down_[r] = down;
  for (size_t slot = row.own; slot < row.members.size(); ++slot) {
    const Entry& entry = entries_[Index(row.members[slot].entry)];
    if (entry.holder < 0) continue;
    double& up = up_[Index(crossings_[entry.begin + Index(entry.holder)].row)];
    up = std::min(up, down);
  }
  return level;
}

/// Settles the level and hands the difference to the other links of the row's classes.
void FairShares::Apply(size_t r, double level) {
  const double change = level - taken_[r];
  level_[r] = level;
  if (change == 0) return;
  ListRow(r);
  taken_[r] = level;
  const Row& row = rows_[r];
  back_ = std::min(back_, Index(row.first));
  const int32_t* other = row.others.data();
  for (const double weight : row.weights) {
    const double more = change * weight;
    for (uint32_t i = 0; i < row.width; ++i) foreign_[Index(*other++)] += more;
  }
  if (sweeping_) return;
  Touch(r);
  for (const int32_t touched : row.others) {
    if (Index(touched) < rows_.size()) Touch(Index(touched));
  }
}

void FairShares::Resum(size_t r) {
  Row& row = rows_[r];
  row.settled = 0;
  SumOwnWeight(&row);
  foreign_[r] = 0;
  for (size_t slot = row.own; slot < row.members.size(); ++slot) {
    const Entry& entry = entries_[Index(row.members[slot].entry)];
    foreign_[r] += LevelOf(entry) * TotalWeight(entry);
  }
}

// ---- complete solutions

void FairShares::SolveAll() {
  ++complete_solutions_;
  std::fill(dirty_.begin(), dirty_.end(), 0);
  lowest_dirty_ = dirty_.size();
  std::vector<double> left;
  for (size_t l = 0; l < rows_.size() / priorities_; ++l) left.push_back(capacity_[l * priorities_]);
  for (int32_t p = 0; p < static_cast<int32_t>(priorities_); ++p) SolvePriority(p, &left);
  for (size_t r = 0; r < rows_.size(); ++r) Resum(r);
  for (size_t r = 0; r < rows_.size(); ++r) seen_[r] = Left(r);
  CertifyAll();
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
    taken_[r] = level_[r] < kNoLevel ? level_[r] : 0;
    Row& row = rows_[r];
    row.own = row.capped = 0;
    row.weights.clear();
    row.others.clear();
  }
  for (size_t e = 0; e < ids.size(); ++e) {
    Entry& entry = entries_[Index(ids[e])];
    ListEntry(ids[e]);
    entry.holder = kCap;
    for (int32_t i = 0; i < entry.length; ++i) {
      const int32_t link = crossings_[entry.begin + Index(i)].row / static_cast<int32_t>(priorities_);
      double& rest = (*left)[Index(link)];
      rest = std::max(0.0, rest - solution.level[e] * TotalWeight(entry));
      if (solution.held_by[e] == link) entry.holder = i;
    }
    if (entry.holder < 0) continue;
    const Crossing crossing = crossings_[entry.begin + Index(entry.holder)];
    PutOwn(Index(crossing.row), crossing.slot);
  }
}

/// Both thresholds of every row.
void FairShares::CertifyAll() {
  std::fill(down_.begin(), down_.end(), 0);
  for (const Entry& entry : entries_) {
    if (entry.count == 0 || entry.holder != kCap) continue;
    for (int32_t i = 0; i < entry.length; ++i) {
      double& down = down_[Index(crossings_[entry.begin + Index(i)].row)];
      down = std::max(down, entry.cap_level);
    }
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    double lowest = kNoLevel;
    int32_t where = kCap;
    for (uint32_t slot = 0; slot < rows_[r].own; ++slot) lowest = std::min(lowest, LowestElsewhere(r, slot, &where));
    if (rows_[r].own > 0) Certify(r, level_[r], lowest);
  }
}

}  // namespace weft::planner
