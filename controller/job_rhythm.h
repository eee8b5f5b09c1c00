// The iteration period of each job, as its flows show it, and whether it holds still.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "controller/flow_table.h"

namespace weft::controller {

/// How a job's period behaves.
struct JobRhythm {
  double period_s = 0;          ///< median of the newest measurements, each a median over its flows; 0: none
  double steady_since_s = 0;    ///< since when no measurement was further from that than the drift
  std::deque<double> newest;    ///< measurements
  bool steady = false;          ///< whether it was when last looked at: ticks may come late, and becoming steady is an event
};

/// Whether an iteration may take so long.
bool Plausible(double iteration_s);

/// Median of the measured periods of each job's flows, where any has one. Complexity: linear.
std::map<std::string, double> MeasuredPeriods(const FlowTable& table);

/// Takes in a measurement; 0: there is no period any more. Called about once a second.
void Follow(JobRhythm& rhythm, double measured_s, double drift, double now_s);

/// Whether a period has held still for long enough to shift bursts by it.
bool IsSteady(const JobRhythm& rhythm, double now_s);

}  // namespace weft::controller
