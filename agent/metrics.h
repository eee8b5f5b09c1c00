// The agent's own metrics, each named in docs/metrics.md. Series that depend on a job come with the job and go with it;
// one with an empty job is always there, for processes whose launcher gave no job id, so that every metric shows from
// the first scrape on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "agent/telemetry_reader.h"
#include "common/units.h"

namespace prometheus {
class Registry;
}
namespace weft::v1 {
class QosReport;
}

namespace weft::agent {

/// Threads: any, except that of one metric no two threads may call the Set and Add functions at once.
class Metrics {
 public:
  Metrics(const std::string& version, const std::string& host);
  ~Metrics();

  /// All metrics in the Prometheus text format.
  std::string Text() const;

  void SetController(bool connected, int64_t sessions, int64_t samples_sent, int64_t samples_merged);
  void SetProbes(uint64_t sent, uint64_t answered, uint64_t silent_destinations);
  void SetPathsKnown(int64_t ports);
  void SetProcesses(int64_t attached);
  void SetFlows(int64_t sends, int64_t receives);
  void SetNic(const std::string& interface, int64_t received, int64_t sent);
  void SetCollector(const std::string& collector, bool success, Seconds duration);

  /// What is not as the site declares.
  void SetQos(const v1::QosReport& report);

  void AddRejectedPeer(const char* label);
  /// A process asked for the bytes of a silent lane.
  void AddSilentLane(bool moved);
  void AddRefusedPolicy();
  /// Of HTTP, by why.
  void AddRefusedRequest(const char* why);
  /// What is not followed or probed: "flow" or "destination" of a user that has as many as he may, "number" for a flow whose number
  /// another user's has.
  void AddOverQuota(const char* what, int64_t count);
  void AddRefusedVariables(size_t count);
  void AddEnvironmentRequest(bool found);
  void AddPolicyApplied(Seconds delay);

  /// Job-labelled series.
  void AddTraffic(const std::string& job, const TrafficDelta& traffic);
  void SetJob(const std::string& job, int64_t policy_epoch, Seconds period);
  /// Connections that stand still now, ranks of this host that others wait for, and processes whose plugin is silent.
  void SetTrouble(const std::string& job, int64_t stalled, int64_t behind, int64_t silent);
  void RemoveJob(const std::string& job);

 private:
  struct Families;
  struct JobSeries;
  JobSeries& SeriesOf(const std::string& job);

  std::unique_ptr<Families> families_;
};

}  // namespace weft::agent
