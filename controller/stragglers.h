// Which rank the others waited for, from the delays of collectives that agents report (agent/collective_reader.h), over all hosts
// and without their clocks: the rank that began a collective later than usual and did not wait in it, while others did. Where a
// rank came in time and its GPU did not, all are in the collective for long, and only the time for which nothing was received
// tells them apart; that is reported while the profiler looks at steps. Nobody is named for what is not reported.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/telemetry.pb.h"

namespace weft::controller {

/// A line about a job: who was late, by how much, to which collective.
struct Straggler {
  std::string job;
  std::string reason;
};

/// Deterministic: time is an argument. Not thread-safe.
class StragglerFinder {
 public:
  /// A set of ranks that goes on being late is named again after so long, then twice as long, and so on.
  static constexpr double kFirstPauseS = 10, kLongestPauseS = 640;
  /// Bounds of one job, and of all together; what is past them counts as ignored.
  static constexpr size_t kMostOpen = 4096, kMostReports = 65536, kMostNamed = 64;
  static constexpr size_t kMostReportsInAll = size_t{1} << 20;
  static constexpr int kMostLinesAMinute = 6;

  /// `settle_s`: how long reports of other ranks are waited for, several times the interval at which agents report.
  explicit StragglerFinder(double settle_s) : settle_s_(settle_s) {}

  /// Takes in what an agent has reported. Requires: the job is known. Complexity: O(log of what is open), and
  /// the few hundred that were judged last.
  void Add(const std::string& host, const v1::CollectiveDelay& delay, double now_s);
  /// Judges what has settled. Complexity: linear in what is open and in the reports judged.
  std::vector<Straggler> Take(double now_s);
  /// Reports that made no sense or found no room, and lines that were left out.
  int64_t ignored() const { return ignored_; }

 private:
  using Key = std::tuple<uint64_t, std::string, uint64_t>;  ///< communicator, operation, number
  struct Report {
    std::string host;
    int job_rank = -1;
    double waited_s = 0, late_s = 0, receive_wait_s = 0;
    bool late_known = false;
  };
  struct Collective {
    double first_s = 0;
    std::string name;  ///< of the communicator
    int ranks = 0;
    std::map<int, Report> reports;
  };
  struct Named {
    double until_s = 0, pause_s = 0;
    int64_t left_out = 0;
  };
  struct Job {
    std::map<Key, Collective> open;
    size_t reports = 0;
    std::deque<Key> judged;         ///< lately: what comes after the verdict is too late
    std::map<uint64_t, Named> named;  ///< by a hash of the ranks
    double used_s = 0, minute_s = -1e300;
    int lines = 0;
  };
  /// Of one collective.
  struct Verdict {
    std::vector<std::pair<int, const Report*>> late;
    size_t waited = 0;
    double delay_s = 0;  ///< median of those who waited
  };

  static Verdict Judge(const Collective& collective);
  bool MayName(Job& job, const Verdict& verdict, double now_s, int64_t& left_out);
  static std::string Describe(const Key& key, const Collective& collective, const Verdict& verdict, int64_t left_out);

  const double settle_s_;
  std::map<std::string, Job> jobs_;
  size_t reports_ = 0;  // of all jobs
  int64_t ignored_ = 0;
};

}  // namespace weft::controller
