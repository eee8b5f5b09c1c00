// The bound that the demo holds its measurements against: the simulated optimum on this fabric.
//
//   computations   of each job, measured in the phase that the bound judges (estimate.h). Of a program: of each instruction, what of
//                  the job's one core it took, which its ranks share. Of a job of buckets: on processors of its own
//   list           what follows what is the program's list of operations, as weft-train executes it (planner/tasks/program_tasks.h); of a
//                  job of buckets: they go one after another, each once it was ready, and the optimizer after the last
//   traffic        who sends how much to whom is the schedule's of each communication (planner/tasks/program_schedule.h); it takes as
//                  long as its slowest port: a host's link either way, or all spines together between two leaves. Flows may be split
//                  over all paths in any way; with two leaves that cut is all that holds them
//   core           it serves the ranks that compute alike, as the kernel's scheduler does
//   sharing        communications that meet at a port, of one job or of two, share it max-min fairly by flows, as a fabric does: an
//                  all-to-all of four hosts has three flows at each
//
// The jobs run against each other in one task graph (planner/tasks/port_sharing.h); the best is taken of all phases between them, be it
// that each begins an iteration as soon as it can or that both wait for a common pace. Nothing in it is fitted to the runs that it
// judges. It leaves out latency, and the processor time that moving bytes takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/planner.h"

namespace weft::cli {

/// The demo's fabric as the bound sees it: two leaves, rates are goodput. Cables are named leaf and spine, 1-based.
struct BoundFabric {
  int spines = 2;
  int hosts_per_leaf = 4;
  BitsPerSecond goodput;  ///< of one uncontended flow
};

/// What the demo did to the fabric.
struct CableFactor {
  int leaf = 1;
  int spine = 1;
  double factor = 1;  ///< of the rate that is left, both directions
};
struct BackgroundFlow {
  std::string from, to;  ///< host names
  int spine = 1;         ///< that its packets take
  BitsPerSecond rate;    ///< goodput it asks for
};

/// One gradient bucket: ready `ready` after the iteration starts, `bytes` of gradient.
struct Bucket {
  Bytes bytes;
  Seconds ready{0};
};

/// What one iteration of a job is made of that sums its buckets on a ring: rank r sends to the next.
struct BucketIteration {
  Seconds compute{0};           ///< forward + backward + optimizer
  Seconds after_backward{0};    ///< the part of `compute` that needs all gradients
  std::vector<Bucket> buckets;  ///< ascending `ready`
};

/// What each instruction of each rank took of the job's core; 0 where nothing is computed.
using Computations = std::vector<std::vector<Seconds>>;

/// A job, rank r on `hosts[r]`.
struct BoundJob {
  std::string name;
  std::vector<std::string> hosts;
  std::shared_ptr<const planner::StepProgram> program;  ///< null: a job of buckets
  Computations computations;                            ///< of a program
  BucketIteration iteration;                            ///< of a job of buckets
};

/// Of a grid of phases and paces; pace 0: as soon as they can.
struct BoundSchedule {
  int pace = 0, phase = 0;
};

struct Bound {
  std::vector<Seconds> alone;       ///< per job, without the others
  std::vector<Seconds> iterations;  ///< per job, mean in the steady state
  BoundSchedule schedule;           ///< at which the sum of the iterations is least
};

/// `near`: the bound of the same jobs with nearly the same computations, whose pace and those beside it are tried alone. Requires:
/// hosts exist in `fabric`; one or two jobs; of a program computations of all its instructions, gradients sent whole. Complexity: some
/// hundred simulations of a dozen iterations; with `near` a third.
Bound ComputeBound(const BoundFabric& fabric, const std::vector<BoundJob>& jobs, const std::vector<CableFactor>& cables,
                   const std::vector<BackgroundFlow>& background, const Bound* near = nullptr);

/// Of one iteration: how long the job's busiest link is busy, the others away. Requires: as ComputeBound().
Seconds CommunicationOf(const BoundFabric& fabric, const BoundJob& job);

/// The bound of one job with its numbers put in, for people.
std::string ExplainBound(const BoundJob& job, Seconds alone, Seconds iteration);

}  // namespace weft::cli
