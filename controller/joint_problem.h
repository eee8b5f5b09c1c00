// From what is measured and planned to the problem of all jobs together (planner/joint_plan.h): compute and bytes per
// iteration of each job, its flows with the ways that they have and take.
//
// A job whose period and bytes its agents have measured is modelled by these; a submitted one that is not yet measured by
// its plan; any other is not modelled and keeps the default class. Measured: a flow's bytes over at least eight periods, and
// how long its bursts lasted of that time; the rest of the period is what the job computes before it sends, whatever
// congestion it sends in.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/fabric_view.h"
#include "controller/flow_table.h"
#include "controller/job_table.h"
#include "controller/link_monitor.h"
#include "planner/planner.h"

namespace weft::controller {

/// What is in force for a job, and how its period has behaved.
struct JobRhythm {
  double period_s = 0;          ///< measured, median over its flows, mean over some eight periods; 0: none
  double steady_since_s = 0;    ///< since when no measurement was further from that than the drift
};

/// Where a job's model comes from.
struct JobModel {
  std::string source;           ///< "measured", "plan"; "none" if it is not in the problem
  std::string missing;          ///< for "none": what is not known
  double period_s = 0;          ///< measured when the model was made
  size_t place = 0;             ///< in the problem
};

struct JointInForce {
  int32_t traffic_class = -1;
  bool shifted = false;
  double shift_s = 0;
  double compute_s = 0;         ///< where shifted: the model that it was decided with, since windows hold iterations up
  double release_s = 0;
};

struct JointInput {
  planner::JointProblem problem;
  std::map<std::string, JobModel> models;   ///< by job id
};

/// `steady[job]`: its measured period holds still. `in_force`: present classes and shifts.
struct JointView {
  const FlowTable* table = nullptr;
  const FabricView* fabric = nullptr;
  const LinkMonitor* monitor = nullptr;
  const std::map<std::string, Job>* jobs = nullptr;
  const std::map<std::string, JointInForce>* in_force = nullptr;
  const std::map<std::string, JobRhythm>* rhythms = nullptr;
  double now_s = 0;
};

/// Median of the measured periods of each job's flows, where any has one. Complexity: linear.
std::map<std::string, double> MeasuredPeriods(const FlowTable& table);

/// Takes in a measurement; 0: there is no period any more. Called about once a second.
void Follow(JobRhythm& rhythm, double measured_s, double drift, double now_s);

/// Whether a period has held still for long enough to shift bursts by it.
bool IsSteady(const JobRhythm& rhythm, double now_s);

/// The jobs that are not released. Complexity: linear in flows and their probed ports.
JointInput BuildJointProblem(const JointView& view, const planner::JointOptions& options);

}  // namespace weft::controller
