// The controller's metrics, named in docs/metrics.md. Counted things are counted as they happen, the rest is read
// from the core at a scrape. prometheus-cpp's registry and text format are used, its HTTP server is not.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/units.h"
#include "controller/core.h"

namespace weft::controller {

/// What a scrape shows of the core.
struct MetricsView {
  std::vector<v1::JobStatus> jobs;
  std::vector<v1::HostStatus> hosts;
  std::vector<v1::LinkStatus> links;
  CoreCounters counters;
  int64_t ignored = 0;
  int64_t flows = 0;
  double unattributed_bytes = 0;
  v1::Mode mode = v1::MODE_UNSPECIFIED;
  v1::ClusterOutlook outlook;
  int64_t sessions_closed = 0;      ///< by us: too slow, or replaced
  int64_t journal_errors = 0;
  std::map<std::string, int64_t> qos_drifts;  ///< by host
  struct {
    size_t runs = 0;
    double before = 0, after = 0;   ///< median errors (run_learning.h)
  } learned = {};
  Seconds uptime{0};
};

/// Threads: any.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  void ObservePlan(Seconds time);          ///< planning of a submitted job
  void ObserveReplan(Seconds time);        ///< a plan of all flows' paths
  void ObserveApplied(Seconds delay);      ///< from an agent's receipt of a policy to the plugin's use
  void AddRefusal(const std::string& why); ///< of a call
  void ObserveSample(Seconds time);        ///< the core's work on one sample

  /// Prometheus text format 0.0.4: every metric, also those that have no series yet.
  std::string Render(const MetricsView& view);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::controller
