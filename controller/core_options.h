// How the core is set; the configuration file's keys (config.h) have their defaults here.
#pragma once

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "controller/fabric_view.h"
#include "controller/flow_planner.h"
#include "controller/link_monitor.h"
#include "controller/topology_files.h"
#include "planner/planner.h"
#include "proto/controller.pb.h"

namespace weft::controller {

/// How all jobs are planned together.
struct MultiJobSettings {
  /// DSCP of each traffic class, the one that switches serve first first; the last is the default class, in which the
  /// traffic of jobs that are not raised goes on. One class: packets are not marked.
  std::vector<int32_t> dscp{0};
  std::vector<int32_t> shares;   ///< of a full port, of each class, percent; empty: not declared
  Seconds lease{10};             ///< of raised classes and windows: what they hold after the last sign of the controller
  Seconds interval{5};           ///< least time between two plans
  Seconds settle{1};             ///< from the first change to the plan
  double drift = 0.05;           ///< relative change of a job's measured period that calls for another plan
  bool shifts = false;           ///< time windows may be given: off until they have proved themselves on the site
  planner::MultiJobOptions planning;  ///< `classes` follows from dscp
};

struct CoreOptions {
  v1::Mode mode = v1::MODE_ENFORCE;
  LinkRates rates;
  LinkMonitorOptions monitor;
  FlowPlannerOptions planning;
  MultiJobSettings joint;
  ImportedTopology imported;     ///< what files say of the fabric
  Seconds sample_interval{0.2};  ///< at which agents report: how late a measurement can be
  Seconds replan_interval{1};    ///< least time between two re-plans
  Seconds settle{0.2};           ///< from the first change to the plan, so that changes that come together are one
  Seconds stale_after{30};       ///< how long flows of a lost host count
  Seconds quiet_after{60};       ///< how long an unsubmitted job without flows is kept
  Seconds submitted_quiet_after{600};  ///< how long a submitted job is kept without flows, once it had some
  Seconds reshard_hold{10};      ///< how long the same change of strategy has to be advised before it is made
  Seconds reshard_retry{60};     ///< from a change to the next; from a word that was not followed to the next, twice as long after each
  bool rollback = true;          ///< moves of flows after which iterations are longer are taken back
  Seconds epoch_kept{3600};      ///< how long the epoch of a job that nobody knows and no host holds is kept
};

}  // namespace weft::controller
