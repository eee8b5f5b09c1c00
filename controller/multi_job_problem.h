// From what is measured and planned to the problem of all jobs together (planner/jobs/multi_job_plan.h): compute and bytes per
// iteration of each job, its flows with the ways that they have and take.
//
// A job whose period and bytes its agents have measured is modelled by these; a submitted one that is not yet measured by
// its plan; any other is not modelled and keeps the default class: its flows count as background, by what they carry in the mean.
// Measured: a flow's bytes in the mean over at least eight
// whole iterations, how long its bursts lasted (where links are so slow that a burst is seen in pieces, how long TCP had
// bytes on their way; at least what its bytes take at what the links give) and how long its time window held them back in
// the same ones; the rest of an iteration is what the job computes before it sends, whatever congestion it sends in and
// whatever windows it has.
//
// A model stays as it is while what is measured is nearly the same (KeptModel): otherwise each plan would change what the
// next one is made from, and windows would never come to rest.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/fabric_view.h"
#include "controller/flow_planner.h"
#include "controller/flow_table.h"
#include "controller/job_rhythm.h"
#include "controller/job_table.h"
#include "controller/link_monitor.h"
#include "planner/planner.h"

namespace weft::controller {

/// What a job was last modelled with.
struct KeptModel {
  double compute_s = 0, release_s = 0;
  double period_s = 0;                  ///< measured
  std::map<uint64_t, int64_t> bytes;    ///< by flow
  double least_burst_s = 0;             ///< the shortest mean burst that it had with these bytes; 0: unknown
  double efficiency = 1;                ///< of the links' rates, that its bursts reach when nothing is in their way
};

/// Where a job's model comes from.
struct JobModel {
  std::string source;           ///< "measured", "plan"; "none" if it is not in the problem
  std::string missing;          ///< for "none": what is not known
  double period_s = 0;          ///< measured when the model was made
  size_t place = 0;             ///< in the problem
};

struct MultiJobInForce {
  int32_t traffic_class = -1;
  bool shifted = false;
  double shift_s = 0;
  double before_s = 0;          ///< period of its iterations before it had windows; 0: it has none, or not known
  double not_before_s = 0;      ///< until then it gets no windows: the last ones did it no good
};

struct MultiJobInput {
  planner::MultiJobProblem problem;
  std::map<std::string, JobModel> models;   ///< by job id
  std::map<std::string, KeptModel> kept;    ///< of jobs with a measured model: the next view's
  std::map<std::string, std::vector<AskedFlow>> asked;   ///< of modelled jobs: flow i of the problem's job, with its paths in order
};

/// `in_force`: present classes and shifts.
struct MultiJobView {
  const FlowTable* table = nullptr;
  const FabricView* fabric = nullptr;
  const LinkMonitor* monitor = nullptr;
  const std::map<std::string, Job>* jobs = nullptr;
  const std::map<std::string, MultiJobInForce>* in_force = nullptr;
  const std::map<std::string, JobRhythm>* rhythms = nullptr;
  const std::map<std::string, KeptModel>* kept = nullptr;
  double drift = 0.05;          ///< relative change of what is measured from which on it is not the same any more
  double now_s = 0;
};

/// The jobs that are not released. Complexity: linear in flows and their probed ports.
MultiJobInput BuildMultiJobProblem(const MultiJobView& view, const planner::MultiJobOptions& options);

}  // namespace weft::controller
