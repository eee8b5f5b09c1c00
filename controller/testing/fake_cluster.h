// A leaf-spine cluster with agents and jobs as the core sees them, simulated in steps of 10 ms: rings whose flows are
// coupled (all go at the rate of the slowest), compute phases, shaped and slowed links, background traffic, counters that
// are read at 10 Hz. Bursts are held by the plugin's own gate, each flow's on the clock of its host. Only messages go in and
// out: the core under test knows nothing else.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "controller/core.h"
#include "netplugin/policy/gate.h"

namespace weft::controller::testing {

struct FakeJob {
  std::string id;
  std::vector<std::string> ring;   ///< hosts; rank r sends to rank r + 1
  double compute_s = 0.4;
  double bytes = 12e6;             ///< of every flow per iteration, on the wire
  double noise = 0;                ///< relative: each iteration's compute is drawn from compute · [1 - noise, 1 + noise]
  double efficiency = 1;           ///< of the rate that it is given, that its bursts reach
};

class FakeCluster {
 public:
  /// Hosts h1 .. under leaf1, the next under leaf2, and so on. Every link gives `rate_bps`.
  FakeCluster(Core& core, int leaves, int spines, int hosts_per_leaf, double rate_bps = 100e6);

  void Register(const std::string& host, std::vector<std::pair<std::string, int64_t>> held = {});
  void RegisterAll();
  /// Starts a job: its flows open with one lane each, from a port whose path goes over `spine` (0-based).
  void Start(const FakeJob& job, int spine);
  void Finish(const std::string& job_id);
  /// One more flow of a running job, from `from` to `to`, for as many bytes as each of the others.
  void AddFlow(const std::string& job_id, const std::string& from, const std::string& to);
  /// Likewise, of a communicator and between ranks that the plugin knows.
  void AddFlow(const std::string& job_id, const std::string& from, const std::string& to, uint64_t comm, int rank, int peer_rank);
  /// Connections that the job opens and never sends over, from a port whose path goes over `spine`.
  void AddIdleFlow(const std::string& job_id, const std::string& from, const std::string& to, int spine);
  /// Another life of the controller, which knows nothing; hosts are still to register.
  void Restart(Core& core);
  /// From now on every port's packets take the next spine; nobody knows until somebody probes.
  void Reroute() { ++route_shift_; }
  /// Reports the probes of every flow of the job: 8 ports, port p over spine p % spines.
  void Probe(const std::string& job_id);

  /// The link takes what is put on it and nothing comes out. Whoever sends over it waits, and nobody says so.
  void SetBlackHole(const std::string& from, const std::string& to, bool on);
  /// From now on so many of a hundred segments over this link are sent again, and who sends over it keeps to half of what is there.
  void SetLoss(const std::string& from, const std::string& to, double percent) { loss_[{from, to}] = percent; }
  void SetRate(const std::string& from, const std::string& to, double bps) { capacity_[{from, to}] = bps; }
  /// A background stream that competes like one flow on this link.
  void AddBackground(const std::string& from, const std::string& to) { background_[{from, to}] += 1; }
  /// Traffic that takes `bps` of the link whatever happens.
  void AddConstant(const std::string& from, const std::string& to, double bps) { constant_[{from, to}] += bps; }
  void RemoveBackground() { background_.clear(), constant_.clear(); }

  /// Lets `seconds` pass.
  void Run(double seconds);
  void Send(Event event);

  double now() const { return now_; }
  /// Mean duration of the job's iterations that ended in the last `seconds`.
  double Iteration(const std::string& job_id, double seconds) const;
  /// Bytes that the link carried for jobs.
  double Carried(const std::string& from, const std::string& to) const;
  /// Share of the flow from `host` of the job that goes over each spine.
  std::vector<double> Shares(const std::string& job_id, const std::string& host) const;

  /// TOS byte in force for the job's flow from `host`.
  int TosOf(const std::string& job_id, const std::string& host) const;
  /// Every iteration of the job so far: when it ended, and how long it took.
  const std::vector<std::pair<double, double>>& Iterations(const std::string& job_id) const;
  /// How much longer the job computes from its next iteration on.
  void SetCompute(const std::string& job_id, double compute_s) { jobs_.at(job_id).job.compute_s = compute_s; }
  /// From its next iteration on every `every`-th one computes for `seconds` longer.
  void SetStumble(const std::string& job_id, size_t every, double seconds) { jobs_.at(job_id).stumble = {every, seconds}; }
  /// From its next iteration on the job's rank on `host` computes for `seconds` longer, and the others wait for it.
  void SetLate(const std::string& job_id, const std::string& host, double seconds) { jobs_.at(job_id).late = {host, seconds}; }
  /// The host's clock gains so many seconds per second from now on.
  void SetClockDrift(const std::string& host, double drift);
  /// Whether the job's flow from `host` has a time window.
  bool HasWindow(const std::string& job_id, const std::string& host) const;

  bool measures_periods = false;                     ///< agents report periods and bursts
  int64_t tick_steps = 10;          ///< steps from one tick of the core to the next
  double most_delay_s = 0;                           ///< of samples on their way, drawn anew for each
  double burst_share = 1;                            ///< of a burst, that its sender has something to hand to the wire
  bool loss_slows = true;                            ///< false: what is lost is sent again at line rate
  bool applies = true;                               ///< false: plugins read no policy
  bool says_silence = true;                          ///< agents' plugins say which lanes go unanswered
  bool answers = true;                               ///< to the core's questions of all jobs, at once
  bool answers_paths = true;                         ///< to those of paths
  /// How they are answered.
  std::function<planner::FlowPlan(const planner::FlowProblem&)> plan_paths = [](const auto& problem) { return planner::ChoosePaths(problem); };
  bool answers_whole_paths = true;    ///< also where the question is not a quick one
  std::vector<int> priorities;                       ///< TOS bytes that links serve strictly first, in this order
  std::vector<Action> actions;                       ///< everything the core answered
  std::map<std::string, int64_t> epochs;             ///< newest per "job host"
  std::map<size_t, double> longest_s;                ///< that an event took the core, by its place in Event::body
  std::function<void(v1::HostSample&)> retouch;      ///< what a sample says, before it is sent
  std::function<void(const Event&)> on_event;        ///< sees every event before the core

 private:
  using LinkKey = std::pair<std::string, std::string>;
  struct Flow {
    uint64_t id = 0;
    std::string job, from, to;
    uint64_t comm = 0;
    int rank = 0, peer_rank = 0;
    bool announced = false;
    std::map<int, double> wire;                      ///< by port
    std::map<int, double> wire_read;                 ///< as read at the last 100 ms
    std::map<int, double> backlog_s, backlog_bytes;  ///< by port
    std::map<int, double> backlog_s_read, backlog_bytes_read;
    std::map<int, int> weights;
    std::map<int, double> silent_s;                  ///< by port: its bytes go unanswered for so long
    std::map<int, double> again;                     ///< by port: segments sent again
    double wait_wire = 0, wait_peer = 0;
    int tos = 0;
    net::Gate gate;
    bool open = true;                                ///< its gate has let the burst at hand through
    bool idle = false;                               ///< never sends
    uint64_t progress_ns = 0;                        ///< when it last moved bytes, on the host's clock
    double burst_start = 0, busy = 0, held = 0;
    std::deque<double> starts;                       ///< of bursts that are over
    double rate = 0, room = 0;
    std::set<int> queued;                            ///< ports whose way has a full link
  };
  struct JobRun {
    FakeJob job;
    std::vector<uint64_t> flows;
    double compute_left = 0, bytes_left = 0, started = 0;
    std::pair<size_t, double> stumble{0, 0};         ///< every so many iterations, by so many seconds
    std::pair<std::string, double> late;             ///< a host whose rank is late, by so many seconds
    bool held = false;                               ///< some of its flows wait for their windows
    std::vector<std::pair<double, double>> iterations;  ///< end, duration
  };

  int LeafOf(const std::string& host) const;
  std::vector<LinkKey> PathOf(const Flow& flow, int port) const;
  std::vector<std::string> HopsOf(const Flow& flow, int port) const;
  double CapacityOf(const LinkKey& link) const;
  bool LosesSegments(const JobRun& run) const;
  double LossOf(const std::vector<LinkKey>& path) const;
  Flow& Open(JobRun& run, const std::string& from, const std::string& to, int spine);
  void Step(double dt);
  bool FallsSilent(JobRun& run, double dt);
  bool OpenGates(JobRun& run);
  void EndIteration(JobRun& run);
  double Uniform();
  double ClockOf(const std::string& host) const;
  uint64_t ClockNs(const std::string& host) const { return static_cast<uint64_t>(ClockOf(host) * 1e9); }
  size_t RankOf(const JobRun& run) const;
  void FillBurst(const Flow& flow, v1::FlowCounters& counters) const;
  void FillArrivals(uint64_t id, const Flow& flow, v1::FlowCounters& counters) const;
  void FillRates(std::vector<JobRun*> open, bool last, std::map<JobRun*, std::map<LinkKey, double>>& coefficient,
                 std::map<LinkKey, double>& used, std::map<JobRun*, double>& rates);
  void SolveRates(const std::vector<JobRun*>& sending);
  std::map<LinkKey, double> LoadPerRate(const Flow& flow) const;
  void Sample(const std::string& host);
  void Apply(const Action& action);

  Core* core_;
  int spines_;
  int route_shift_ = 0;
  int hosts_per_leaf_;
  double rate_;
  std::vector<std::string> hosts_;
  std::map<std::string, bool> registered_;
  std::map<LinkKey, double> capacity_, constant_, carried_;
  std::map<LinkKey, int> background_;
  std::set<LinkKey> black_holes_;
  std::map<LinkKey, double> loss_;
  std::map<uint64_t, Flow> flows_;
  std::map<std::string, JobRun> jobs_;
  std::map<std::string, std::vector<uint64_t>> closed_;
  std::map<std::string, std::map<std::string, int64_t>> applied_;  ///< by host and job, to be said
  std::map<std::string, std::pair<double, double>> clocks_;  ///< of those that drift: offset at time 0, gain per second
  std::mt19937 random_{1};
  double now_ = 0;
  int64_t steps_ = 0;
  uint64_t next_flow_ = 1;
};

}  // namespace weft::controller::testing
