// Max-min fair rates that follow arrivals, departures and capacity changes: after each change only what it reaches is
// solved again. Weights, caps and strict priorities as in max_min.h; equal flows are one class with a count.
//
//   FairShares shares(capacity);
//   const auto a = shares.Add({.links = path});
//   shares.Update();
//   shares.rate(a);
//
// How: the solution is a choice, for every class, of the link (or cap) that holds it. Given that choice, a link's
// level (rate per weight of the classes that it holds) is (capacity - what the others take) / (weight that it
// holds). A change makes a few links dirty. Dirty links are taken in ascending order of level: each takes classes
// from links with a higher level where its own level fell, gives classes to links with a lower level where it rose,
// settles its level, and hands the difference to the other links of its classes. At rest every class is held by the
// lowest link of its path and every holding link is full, which is max-min's definition. Should that not come to
// rest soon, all is filled anew.
//
// Rates are kept per link, not per class: a class has the level of its holder. A link that settles adds one number
// to the sums of the links that its classes cross, from one array of its own; no class is looked at unless it may
// change hands. Whether that may be is known from two thresholds per link: `up`, below which a link's level meets
// no other link of the classes that it holds, and `down`, above which it meets none of those held elsewhere. A pair
// of links needs no look at each other while up(holder) ≤ down(other); whoever passes its own threshold looks at
// its classes and sets both anew.
//
// Source: the bottleneck characterisation is Bertsekas and Gallager, section 6.5.2; the update is derived above.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/units.h"
#include "planner/network/max_min.h"

namespace weft::planner {

struct FairShareOptions {
  int32_t priorities = 1;    ///< flows have priorities 0 … priorities - 1
  /// Relative change of a link's level below which the classes that it holds keep their rates until more has come
  /// together. The default is exact up to rounding. 1e-4 leaves links up to that share above or below their
  /// capacity and confines an arrival to its neighbourhood.
  double tolerance = 1e-12;
  bool merge = true;         ///< equal flows share one class
};

/// The flows of one network and their rates. Requires throughout: links within `capacity`, distinct within a flow.
class FairShares {
 public:
  using ClassId = int32_t;

  explicit FairShares(std::span<const BitsPerSecond> capacity, FairShareOptions options = {});

  /// Adds `count` equal flows and returns their class: a known one if merging. Requires: weight > 0, priority in
  /// range.
  ClassId Add(const MaxMinFlow& flow, int32_t count = 1);
  /// Takes `count` flows of the class away; the id is free again when none is left. Requires: count ≤ flows in the
  /// class.
  void Remove(ClassId id, int32_t count = 1);
  void SetCapacity(LinkId link, BitsPerSecond capacity);

  /// Brings the rates up to date with all changes since the last call. Complexity: O(Σ flows of the links reached),
  /// at most a few complete solutions.
  void Update();

  /// Of one flow of the class. Requires: Update() since the last change. Complexity: O(1).
  BitsPerSecond rate(ClassId id) const {
    const Entry& e = entries_[static_cast<size_t>(id)];
    return e.holder == kCap ? e.cap : BitsPerSecond(LevelOf(e) * e.weight);
  }
  /// Classes whose rate the last Update() changed, each once, in no particular order; some that only changed their
  /// bottleneck are among them. Listed at the first call after an Update(), in O(classes of the links that changed):
  /// who asks for single rates does not pay for it.
  std::span<const ClassId> changed();

  int32_t count(ClassId id) const { return entries_[static_cast<size_t>(id)].count; }
  int64_t complete_solutions() const { return complete_solutions_; }
  int64_t links_settled() const { return links_settled_; }

 private:
  static constexpr int32_t kCap = -1;   // holder: the class's own cap
  static constexpr int32_t kNobody = -2;

  /// A class. Its crossings are crossings_[begin .. begin + length).
  struct Entry {
    uint32_t begin = 0;
    int32_t length = 0;
    int32_t holder = kNobody;  // position in the path, kCap or kNobody
    int32_t count = 0;
    int32_t priority = 0;
    uint32_t stamp = 0;        // of the Update() that lists it as changed
    uint64_t hash = 0;
    double weight = 1;         // of one flow
    double cap_level = 0;
    BitsPerSecond cap;
  };
  struct Crossing {
    int32_t row;
    uint32_t slot;             // in the row's members
  };
  struct Member {
    int32_t entry;
    int32_t position;          // of the row in the entry's path
  };
  /// One link for one priority. Members [0, own) are held here; what settling needs of them lies in arrays of its
  /// own: weights[slot], and others[slot * width ..] the other rows of the path, filled up with the row that is
  /// none.
  struct Row {
    double own_weight = 0;
    double own_peak = 0;       // own_weight when it was last summed
    double before = 0;         // taken_ at the first change since the last report
    uint32_t own = 0;
    uint32_t width = 0;
    uint32_t capped = 0;       // own classes with a cap
    uint32_t settled = 0;      // since the sums were taken anew
    uint32_t stamp = 0;        // of the Update() that lists it as changed
    int32_t first = 0;         // lowest rank of the others at the last look; only spares time
    std::vector<Member> members;
    std::vector<double> weights;
    std::vector<int32_t> others;
  };
  struct Gain {
    double level;
    Member member;
  };

  static double TotalWeight(const Entry& e) { return e.weight * e.count; }
  size_t RowOf(LinkId link, int32_t priority) const {
    return link.index() * priorities_ + static_cast<size_t>(priority);
  }
  /// What everybody else believes the class to take, per weight.
  double LevelOf(const Entry& e) const {
    if (e.holder < 0) return e.holder == kCap ? e.cap_level : 0;
    return taken_[static_cast<size_t>(crossings_[e.begin + static_cast<size_t>(e.holder)].row)];
  }

  void StartChanges();
  void ListEntry(int32_t id);
  void ListRow(size_t r);
  ClassId NewEntry(const MaxMinFlow& flow);
  void FreeEntry(ClassId id);
  void Reweigh(ClassId id, int32_t count);
  void PickHolder(ClassId id);
  void Attach(ClassId id, int32_t holder);
  void Detach(ClassId id);
  void Take(const Entry& entry, double level, int32_t except);
  void SwapMembers(size_t row, uint32_t a, uint32_t b);
  void PutOwn(size_t row, uint32_t slot);
  void TakeOwn(size_t row, uint32_t slot);
  void WriteOthers(size_t row, uint32_t slot);
  void SumOwnWeight(Row* row) const;
  void Touch(size_t row);
  void MarkDirty(size_t row);
  int32_t PopDirty();
  bool Sweep(int64_t budget);
  void Settle(size_t row);
  double GiveAway(size_t row, double level);
  double TakeOver(size_t row, double level);
  void Apply(size_t row, double level);
  void Certify(size_t row, double level, double lowest);
  double Left(size_t row) const;
  double LevelFor(size_t row) const;
  double LowestElsewhere(size_t row, uint32_t slot, int32_t* where) const;
  void Resum(size_t row);
  void SolveAll();
  void SolvePriority(int32_t priority, std::vector<double>* left);
  void CertifyAll();
  void Reorder();

  size_t priorities_;
  FairShareOptions options_;
  double tie_;                              // levels that close are one level: no class changes hands
  std::vector<Row> rows_;
  // Per row, each in an array of its own, as settling one row reads or writes a few of them for many others. The
  // one past the last row is the row that is none.
  std::vector<double> capacity_;
  std::vector<double> foreign_;             // what members held elsewhere take
  std::vector<double> level_;               // infinite: holds nobody
  std::vector<double> taken_;               // level that own classes count with elsewhere; level_ once settled
  std::vector<double> up_, down_;
  std::vector<double> seen_;                // Left() when it last settled; NaN: must settle
  std::vector<Entry> entries_;
  std::vector<int32_t> free_entries_;
  std::vector<Crossing> crossings_;
  std::vector<std::vector<uint32_t>> free_crossings_;  // by length
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
  // Dirty rows as bits in ascending order of the levels at the last Reorder().
  std::vector<uint64_t> dirty_;
  size_t lowest_dirty_ = 0;
  bool sweeping_ = false;                   // all rows are looked at in turn: nobody marks
  size_t back_ = 0;                         // while sweeping: the lowest rank that was reached
  std::vector<int32_t> rank_;               // per row
  std::vector<int32_t> row_at_;             // per rank
  int64_t updates_since_order_ = 0;
  std::vector<int32_t> changed_rows_;
  std::vector<ClassId> moved_;              // to another holder
  std::vector<ClassId> changed_;
  bool listed_ = false;                     // changed_ is what it should be
  std::vector<Gain> gains_;
  uint32_t stamp_ = 1;
  bool reported_ = false;                   // what changed belongs to the past
  int64_t pending_adds_ = 0;
  int64_t complete_solutions_ = 0;
  int64_t links_settled_ = 0;
};

}  // namespace weft::planner
