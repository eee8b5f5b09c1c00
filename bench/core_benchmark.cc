// How long events hold the controller's state, with a thousand jobs on the fabric and one that comes and one that goes every second: the
// core itself, with simulated agents.
//
//   core_benchmark [JOBS] [SECONDS]
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <variant>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

constexpr int kPerLeaf = 32, kSpines = 8, kFlowsEachWay = 8;
constexpr std::array kEvents = {"a host registers", "a host is lost", "a sample", "paths", "a job is submitted", "a job is released", "a mode",
                                "an epoch", "jobs planned", "paths planned", "a job advised", "a strategy asked for", "a run learned from", "a tick"};
static_assert(kEvents.size() == std::variant_size_v<decltype(Event::body)>);

/// Two hosts under two leaves, a flow per GPU each way.
void Start(testing::FakeCluster& cluster, int number, int hosts) {
  const testing::FakeJob job{.id = fmt::format("j{}", number), .ring = {fmt::format("h{}", number % (hosts / 2) + 1),
                             fmt::format("h{}", number % (hosts / 2) + 1 + hosts / 2)}, .compute_s = 0.5, .bytes = 1e6};
  cluster.Start(job, number % kSpines);
  for (int i = 1; i < kFlowsEachWay; ++i) {
    cluster.AddFlow(job.id, job.ring[0], job.ring[1]);
    cluster.AddFlow(job.id, job.ring[1], job.ring[0]);
  }
  cluster.Probe(job.id);
}

int Main(int jobs, int seconds) {
  const int leaves = std::max(2, 2 * ((jobs + kPerLeaf) / kPerLeaf)), hosts = leaves * kPerLeaf;
  CoreOptions options;
  options.rates.line_rate = MegabitsPerSecond(1000);
  Core core(options);
  testing::FakeCluster cluster(core, leaves, kSpines, kPerLeaf, 1e9);
  cluster.measures_periods = true;
  cluster.RegisterAll();
  cluster.Run(0.2);
  for (int j = 0; j < jobs; ++j) Start(cluster, j, hosts);
  cluster.Run(2);
  fmt::print("{} jobs on {} hosts, {} flows\n", jobs, hosts, core.flow_count());
  cluster.longest_s.clear();
  for (int s = 0; s < seconds; ++s) {
    cluster.Finish(fmt::format("j{}", s));
    Start(cluster, jobs + s, hosts);
    cluster.Run(1);
    fmt::print(stderr, "{} s\n", s + 1);
  }
  for (const auto& [event, longest] : cluster.longest_s) fmt::print("{:20} {:8.2f} ms at most\n", kEvents[event], 1e3 * longest);
  fmt::print("{} plans of paths, {} of all jobs\n", core.counters().plans, core.counters().multi_job_plans);
  return 0;
}

}  // namespace
}  // namespace weft::controller

int main(int argc, char** argv) {
  return weft::controller::Main(argc > 1 ? std::atoi(argv[1]) : 1000, argc > 2 ? std::atoi(argv[2]) : 10);
}
