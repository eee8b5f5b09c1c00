// Which rank the others waited for: from the collectives that agents report as slow (agent/collective_reader.h), over all
// hosts, without their clocks. Those who came in time were in the collective for long; it was short for the one who came
// late. Where a rank came in time and its GPU did not, all are in it for long, and only the time for which nothing was
// received tells them apart; that is reported while the profiler looks at steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/log_budget.h"
#include "proto/telemetry.pb.h"

namespace weft::controller {

struct Straggler {
  std::string job;
  std::string reason;  ///< who was late, by how much, to which collective
};

class StragglerFinder {
 public:
  /// How long reports of the other ranks are waited for; agents report several times within it.
  static constexpr double kSettleS = 2;
  /// A rank that goes on being late is named again after so long, then twice as long, and so on.
  static constexpr double kFirstPauseS = 10, kLongestPauseS = 640;
  /// Of all ranks of one job.
  static constexpr int kMostNamedAMinute = 6;
  /// Bounds; what is past them counts as ignored.
  static constexpr size_t kMostOpen = 4096, kMostRanksPerHost = 8192, kMostReports = 65536, kMostNamed = 10'000;

  /// All ranks of the host's communicators, in place of what was known of it.
  void SetRanks(const std::string& host, const google::protobuf::RepeatedPtrField<v1::CommunicatorRank>& ranks);
  void ForgetHost(const std::string& host);
  void Add(const std::string& host, const v1::SlowCollective& slow, double now_s);

  /// What can be judged by now, oldest first. Complexity: linear in ranks of the collectives judged.
  std::vector<Straggler> Take(double now_s);
  int64_t ignored() const { return ignored_; }

 private:
  using Group = std::tuple<std::string, uint64_t, std::string>;  ///< job, communicator, operation
  struct Member {
    std::string host, name;
    int job_rank = -1;
    double usual_s = 0;
  };
  struct Report {
    double late_s = 0, receive_wait_s = 0, usual_s = 0;
  };
  struct Slow {
    double first_s = 0;
    std::map<int, Report> ranks;
  };
  using Key = std::pair<Group, uint64_t>;  ///< and its number
  using SlowOnes = std::map<Key, Slow>;
  struct Late {
    int rank = -1;
    Member member;
  };
  struct Named {
    double until_s = 0, pause_s = kFirstPauseS;
    int64_t left_out = 0;
  };

  const Member* Find(const Group& group, int rank) const;
  std::vector<Late> FindLate(const Group& group, const Slow& slow) const;
  bool WaitedItself(const SlowOnes& among, const Late& late, const Group& group, const Slow& slow) const;
  std::string Describe(const Key& key, const Slow& slow, const std::vector<Late>& late, int64_t left_out) const;
  bool MayName(const std::string& job, const std::vector<Late>& late, double now_s, int64_t& left_out);
  void Judged(SlowOnes::iterator slow);

  std::map<Group, std::map<int, Member>> groups_;
  std::map<std::string, std::vector<std::pair<Group, int>>> of_host_;
  SlowOnes open_;
  SlowOnes judged_;                          ///< lately: reports that come after them are not taken for others
  std::deque<Key> judged_order_;
  std::map<std::string, Named> named_;       ///< by job and ranks
  LogBudget lines_{kMostNamedAMinute};       ///< by job
  size_t reports_ = 0, judged_reports_ = 0;  ///< in open_, in judged_
  int64_t ignored_ = 0;
};

}  // namespace weft::controller
