// Max-min fair rates that follow arrivals, departures and capacity changes: after each change only what it reaches is
// solved again. Weights, caps and strict priorities as in max_min.h; equal flows are one class with a count.
//
//   FairShares shares(capacity);
//   const auto a = shares.Add({.links = path});
//   shares.Update();
//   shares.rate(a);
//
// How: the solution is a choice, for every class, of the link (or cap) that holds it. Given that choice, a link's level
// (rate per weight of the classes that it holds) is (capacity - what the others take) / (weight that it holds). A change
// makes a few links dirty. Dirty links are taken in ascending order of level: each takes classes from links with a higher
// level where its own level fell, gives classes to links with a lower level where it rose, settles its level, and hands the
// difference to the other links of its classes. At rest every class is held by the lowest link of its path and every
// holding link is full, which is max-min's definition. Should that not come to rest soon, all is filled anew.
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
  /// together. The default is exact up to rounding. 1e-4 leaves links up to that share above or below their capacity and
  /// confines an arrival to its neighbourhood.
  double tolerance = 1e-12;
  bool merge = true;         ///< equal flows share one class
};

/// The flows of one network and their rates. Requires throughout: links within `capacity`, distinct within a flow.
class FairShares {
 public:
  using ClassId = int32_t;

  explicit FairShares(std::span<const BitsPerSecond> capacity, FairShareOptions options = {});

  /// Adds `count` equal flows and returns their class: a known one if merging. Requires: weight > 0, priority in range.
  ClassId Add(const MaxMinFlow& flow, int32_t count = 1);
  /// Takes `count` flows of the class away; the id is free again when none is left. Requires: count ≤ flows in the class.
  void Remove(ClassId id, int32_t count = 1);
  void SetCapacity(LinkId link, BitsPerSecond capacity);

  /// Brings the rates up to date with all changes since the last call. Complexity: O(Σ flows of the links reached), at most
  /// a few complete solutions.
  void Update();

  /// Of one flow of the class. Requires: Update() since the last change.
  BitsPerSecond rate(ClassId id) const { return BitsPerSecond(Rate(entries_[static_cast<size_t>(id)])); }
  /// Classes whose rate the last Update() changed, each once, in no particular order.
  std::span<const ClassId> changed() const { return changed_; }

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
    uint32_t stamp = 0;        // of the Update() that listed it as changed
    uint64_t hash = 0;
    double weight = 1;         // of one flow
    double level = 0;          // rate = level * weight
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
  /// One link for one priority. Members [0, own) are held here.
  struct Row {
    double capacity = 0;
    double foreign = 0;        // what everyone else takes: members held elsewhere, higher priorities
    double own_weight = 0;
    double own_peak = 0;       // own_weight when it was last summed
    uint32_t own = 0;
    uint32_t settled = 0;      // since the sums were taken anew
    bool fresh = false;        // holds a class that has not looked at its other links
    std::vector<Member> members;
  };
  struct Gain {
    double level;
    Member member;
  };

  static double Rate(const Entry& e) { return e.holder == kCap ? e.cap.value() : e.level * e.weight; }
  static double TotalWeight(const Entry& e) { return e.weight * e.count; }
  size_t RowOf(LinkId link, int32_t priority) const { return link.index() * priorities_ + static_cast<size_t>(priority); }

  void StartChanges();
  void ListChanged(int32_t id);
  ClassId NewEntry(const MaxMinFlow& flow);
  void FreeEntry(ClassId id);
  void Reweigh(ClassId id, int32_t count);
  void PickHolder(ClassId id);
  void SwapMembers(size_t row, uint32_t a, uint32_t b);
  void MakeOwn(size_t row, uint32_t slot);
  void MakeForeign(size_t row, uint32_t slot);
  void AddBelow(size_t row, double rate);
  void MarkDirty(size_t row);
  int32_t PopDirty();
  void Settle(size_t row);
  double GiveAway(size_t row, double level);
  double TakeOver(size_t row, double level);
  void Apply(size_t row, double level);
  void SetLevel(int32_t id, double level, int32_t except);
  double LevelFor(const Row& row) const;
  double LowestElsewhere(const Entry& entry, int32_t except, int32_t* where) const;
  void Resum(size_t row);
  void SolveAll();
  void SolvePriority(int32_t priority, std::vector<double>* left);
  void Reorder();

  size_t priorities_;
  FairShareOptions options_;
  double tie_;                              // levels that close are one level: no class changes hands
  std::vector<Row> rows_;
  std::vector<double> level_;               // per row; infinite: holds nobody
  std::vector<Entry> entries_;
  std::vector<int32_t> free_entries_;
  std::vector<Crossing> crossings_;
  std::vector<std::vector<uint32_t>> free_crossings_;  // by length
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
  // Dirty rows as bits in ascending order of the levels at the last Reorder().
  std::vector<uint64_t> dirty_;
  size_t lowest_dirty_ = 0;
  std::vector<int32_t> rank_;               // per row
  std::vector<int32_t> row_at_;             // per rank
  int64_t updates_since_order_ = 0;
  std::vector<ClassId> changed_;
  std::vector<Gain> gains_;
  uint32_t stamp_ = 1;
  bool reported_ = false;                   // changed_ belongs to the past
  int64_t pending_adds_ = 0;
  int64_t complete_solutions_ = 0;
  int64_t links_settled_ = 0;
};

}  // namespace weft::planner
