// Which rank of a job the others wait for, where no profiler says so (stragglers.h), judged by how long connections stand with a receive
// posted and nothing coming. All ranks but a few wait longer than they used to, and what these few send is not held up on the wire: they
// compute longer, or their hosts are slow. What changes is seen, not who was slow from the start; paths are not the cause and are left alone.
//
// A host with several ranks is judged as one as well: where the network is short all ranks wait anyway and can't wait much longer, but
// those of a slow host wait less than they used to, all of them, as they are busy themselves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/units.h"

namespace weft::controller {

/// What a rank's connections did since they were last asked about.
struct RankWaits {
  std::string host;
  double peer_s = 0;  ///< seconds in which a receive was posted and nothing came, mean over those that it receives on
  double wire_s = 0;  ///< seconds in which bytes waited for the wire, the most of those that it sends on
  int flows = 0;      ///< that it receives on
  double held_s = 0;  ///< of peer_s, in which nothing was on its way to it either: where the network is what is short, peer_s is long anyway
};
using JobWaits = std::map<int32_t, RankWaits>;  ///< by rank

/// Deterministic: time is an argument. Not thread-safe.
class LateRanks {
 public:
  /// Ranks of one job; of more the job is not looked at.
  static constexpr size_t kMostRanks = size_t{1} << 18;

  /// Takes in what has been since the last call, `elapsed` ago. Returns a line about who holds the others up, if somebody does now and
  /// that has not just been said: again after a minute, then two, and so on. `period`: of an iteration; 0, not known: as it was last
  /// known, or short. Complexity: O(ranks).
  std::optional<std::string> Look(const std::string& job_id, const JobWaits& waits, Seconds elapsed, Seconds period, Seconds now);
  /// Forgets jobs that were not looked at for a while. Complexity: linear in jobs.
  void Expire(Seconds now);

 private:
  /// In shares of the time.
  struct Measure {
    double seconds = 0;  // in the look that goes on
    double usual = 0;    // where nobody is late
    double grown = 0;    // in the newest look, over that

    void Close(Seconds elapsed);
    double newest() const { return usual + grown; }
  };
  struct Rank {
    std::string host;
    Measure peer, held, wire;
    int looks = 0;                              // that the usual is of

    double longer() const;
  };
  struct Job {
    std::map<int32_t, Rank> ranks;
    Seconds elapsed{0}, period{0}, seen{0}, said{-1e9}, pause{0};
    double spread = 0;                          // how far off the usual a usual look is
    int odd = 0;                                // looks in a row that were not like the usual
    int times = 0;                              // looks in which these ranks were late, one at most in between in which nobody was
    bool missed = false;                        // in the look before
    std::vector<int32_t> late;
  };

  static double Work(const Job& job);
  static std::vector<int32_t> FindLate(const Job& job, double longer);
  static std::set<std::string> FindSlowHosts(const Job& job);
  static std::optional<std::string> Judge(Job& job, Seconds now);
  static void NobodyLate(Job& job, bool all_wait);
  static bool Count(Job& job, std::vector<int32_t> late, Seconds now);
  static void Learn(Job& job, double longer);
  static std::string Describe(const Job& job, const std::set<std::string>& slow_hosts, double longer);

  std::map<std::string, Job> jobs_;
};

}  // namespace weft::controller
