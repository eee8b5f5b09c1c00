// Jobs on a namespace fabric under one decision after another: what was decided is put in force through the
// agent's policy writer and the plugin, and what comes of it is measured next to what the simulator says.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "testbed/fabric.h"
#include "tests/real/host.h"
#include "tests/real/job.h"
#include "tests/real/model.h"
#include "tests/real/trace.h"

namespace weft::real {

struct ExperimentOptions {
  /// Ports hold two super-packets of a class, 9 ms. The testbed's own 60 ms are as long as a burst here: whoever came first
  /// would be served first, and little be shared.
  testbed::FabricOptions fabric{.queue = Bytes(32 << 10)};
  std::vector<JobSpec> jobs;       ///< hosts distinct over all jobs
  Installation installation;
  Seconds phase{6};                ///< measured, of each decision, all draws together
  /// Of the phases that jobs without windows have to each other: few jobs of almost one period may keep theirs for long,
  /// so that one draw says little. The gates set them, and then let go.
  int draws = 1;
  bool placed = true;              ///< false: jobs keep the phases that they have, and there is one draw
  Seconds settle{2};               ///< before that
  int phases = 1;                  ///< how many are to come: the jobs run so long
  bool divided = false;            ///< decisions may divide flows between paths
  BitsPerSecond goodput{0};        ///< of a flow alone over a host's link; 0: measured at the start
};

struct JobOutcome {
  std::string name;
  std::vector<std::string> spines;  ///< of its flows
  int traffic_class = 0;
  Seconds alone{0};                 ///< as the model has it
  Seconds measured{0};              ///< mean over whole iterations, and over the draws of phases
  Seconds median{0};                ///< of these iterations, in the last draw
  Seconds simulated{0};             ///< mean over the same draws
  int64_t iterations = 0;
  int64_t holds = 0;                ///< by the gates of all its flows
  Seconds held{0};
  double marked = 0;                ///< share of its bytes that left its first host in the fabric's priority class

  double error() const { return simulated.count() > 0 ? measured / simulated - 1 : 0; }
};

struct Outcome {
  std::string policy;
  std::vector<JobOutcome> jobs;
  Seconds window_period{0};         ///< 0: no windows
  Trace trace;                      ///< per job what reached the host of its second rank
  double shared_bytes = 0;          ///< SharedBytes(trace), jobs on one spine against each other
};

struct Ending {
  std::vector<JobEnd> jobs;
  int64_t rejected = 0;             ///< policy entries that a plugin refused
  int64_t sent_bytes = 0;           ///< first host ports of all jobs, all phases, on the wire
  int64_t arrived_bytes = 0;        ///< ports to the hosts that they send to
};

class Experiment {
 public:
  /// Fabric, hosts; then one job alone, without computation, which gives the goodput.
  /// Errors: those of the parts, with what was being done in front.
  [[nodiscard]] static Result<std::unique_ptr<Experiment>> Start(const ExperimentOptions& options);

  const Model& model() const { return model_; }
  BitsPerSecond goodput() const { return goodput_; }

  /// Starts the jobs and waits until each has made a step: its flows are there then.
  [[nodiscard]] Status Launch();
  /// Puts `decision` in force and measures, with windows once, without them once per draw of the phases. Errors: kDeadlineExceeded where it does not come into force or a job stands
  /// still.
  [[nodiscard]] Result<Outcome> Run(const std::string& policy, const Decision& decision);
  /// Lets the jobs end by themselves.
  [[nodiscard]] Result<Ending> Finish();

 private:
  explicit Experiment(ExperimentOptions options) : options_(std::move(options)) {}

  Status Calibrate();
  Status AwaitFlows();
  Status Apply(const Decision& decision, bool in_place);
  Result<std::string> PeerOf(const SendFlow& flow) const;
  Result<v1::FlowPolicy> PolicyOf(const Decision& decision, size_t job, size_t rank, const SendFlow& flow, bool in_place);
  Status AddLanes(const Decision& decision, size_t job, size_t rank, const SendFlow& flow, v1::FlowPolicy* policy);
  Result<uint16_t> PortOver(const SendFlow& flow, const std::string& from, const std::string& to, const std::string& spine);
  Status AwaitInForce(int64_t epoch);
  double WindowBase(const Decision& decision);
  Status Wait(Seconds time);
  /// Holds and their time so far, by all gates of job `j`.
  std::pair<int64_t, Seconds> HeldSoFar(size_t j);
  Seconds Length() const;
  Result<Outcome> RunDraw(const std::string& policy, const Decision& decision, uint32_t draw);
  Result<Outcome> Measure(const std::string& policy, const Decision& decision, double from_s, double to_s);
  /// What the first hosts' ports have sent so far, by job.
  Result<std::vector<testbed::LinkCounters>> FirstPorts();
  Result<int64_t> PortBytes(bool sending);

  ExperimentOptions options_;
  std::unique_ptr<testbed::Fabric> fabric_;
  std::map<std::string, std::unique_ptr<Host>> hosts_;
  BitsPerSecond goodput_;
  Model model_;
  std::vector<FabricJob> jobs_;  // after the fabric and the hosts: they end before
  std::unique_ptr<TraceSampler> sampler_;
  std::map<std::pair<uint64_t, std::string>, uint16_t> ports_;  // by flow and spine
  uint16_t next_port_ = 20000;   // below the kernel's own range
  int64_t epoch_ = 0;
  double base_s_ = 0;            // when a cycle of the windows in force begins
  std::vector<std::pair<int64_t, Seconds>> held_before_;  // this phase, by job
  std::vector<testbed::LinkCounters> ports_before_;
  int64_t sent_before_ = 0, arrived_before_ = 0;
};

}  // namespace weft::real
