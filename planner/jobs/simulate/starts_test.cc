// Jobs that wait for hosts: who begins when, where and in which size, judged by what happens then. The judge is a search over all
// begins, sizes and places that knows nothing of how policies decide.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/jobs/simulate/job_traffic.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/jobs/starts/placements.h"

namespace weft::planner::inline jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Of small scenarios: enough for the network, which has few paths.
constexpr SimulationOptions kQuick{.evaluations = 60};

class Mix {
 public:
  /// Two or three leaves of two or three hosts, three or four jobs of one to three sizes, most with a deadline.
  explicit Mix(uint64_t seed, bool later = false) : random_(seed) {
    const int leaves = static_cast<int>(Pick(2, 3)), each = static_cast<int>(Pick(2, 3)), spines = 2;
    scenario_ = {.name = fmt::format("mix {}", seed), .topology = LeafSpine(leaves, spines, each, GigabytesPerSecond(1)), .jobs = {}};
    for (int h = 1; h <= leaves * each; ++h) {
      scenario_.places.push_back({fmt::format("h{}", h), {*scenario_.topology.FindNode(fmt::format("h{}", h))}});
    }
    const int64_t jobs = Pick(3, 4);
    double host_seconds = 0;
    for (int64_t j = 0; j < jobs; ++j) {
      scenario_.jobs.push_back(Job(j));
      const ScenarioSize& size = scenario_.jobs.back().sizes.front();
      host_seconds += size.ways[0].compute.count() * size.hosts * static_cast<double>(scenario_.jobs.back().iterations);
      if (later && j > 0) scenario_.jobs.back().arrival = Seconds(static_cast<double>(Pick(0, 60)));
    }
    // Deadlines about when everything could be done.
    const double through = host_seconds / static_cast<double>(scenario_.places.size());
    for (ScenarioJob& job : scenario_.jobs) {
      if (Pick(0, 4) > 0) job.deadline = Seconds(through * (0.6 + 0.15 * static_cast<double>(Pick(0, 10))));
    }
    scenario_.duration = Seconds(4 * host_seconds + 1000);
  }

  const Scenario& scenario() const { return scenario_; }

 private:
  int64_t Pick(int64_t least, int64_t most) { return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1)); }

  ScenarioJob Job(int64_t number) {
    ScenarioJob job{.name = fmt::format("j{}", number), .iterations = Pick(20, 60), .flows = {}};
    const auto places = static_cast<int64_t>(scenario_.places.size());
    const int64_t least = Pick(1, places - 1), most = std::min(places, least + Pick(0, 2));
    const double work = static_cast<double>(Pick(4, 20)) / 10, serial = static_cast<double>(Pick(0, 3)) / 10;
    const Bytes bytes(Pick(0, 6) * 100'000'000);
    for (int64_t hosts = least; hosts <= most; ++hosts) {
      ScenarioWay way{.name = "", .compute = Seconds(work / static_cast<double>(hosts) + serial), .release = {}, .flows = {}, .bursts = {}};
      way.release = way.compute * 0.5;
      std::vector<TrafficEnd> ends;
      for (int64_t h = 0; h < hosts; ++h) ends.push_back(scenario_.places[static_cast<size_t>(h)].senders);
      if (bytes.count() > 0) way.flows = FlowsBetween(ends, PatternTraffic(TrafficPattern::kRing, static_cast<int32_t>(hosts), bytes));
      job.gpus = static_cast<double>(hosts);
      job.sizes.push_back({.hosts = static_cast<int32_t>(hosts), .gpus = static_cast<double>(hosts), .ways = {std::move(way)}});
    }
    return job;
  }

  std::mt19937_64 random_;
  Scenario scenario_;
};

/// A job that began.
struct Begun {
  size_t job, size;
  std::vector<size_t> places;
  double begin;
};

/// Fewest late jobs over all begins, sizes and sets of places, each judged by simulation of jobs with given hosts.
class Enumeration {
 public:
  Enumeration(const Scenario& scenario, int64_t enough) : scenario_(scenario), fewest_(enough + 1) {
    std::vector<std::vector<NodeId>> senders;
    for (const ScenarioPlace& place : scenario.places) senders.push_back(place.senders);
    map_.emplace(scenario.topology, senders);
  }

  /// True if some schedule makes at most `enough` late.
  bool Meets() {
    // What cannot be without a network need not be simulated.
    for (const bool ideal : {true, false}) {
      ideal_ = ideal;
      met_ = false;
      tried_ = 0;
      Try({}, 0);
      EXPECT_LT(tried_, ideal ? kMostIdeal : kMostSimulated) << "not all were tried";
      if (!met_) return false;
    }
    return true;
  }

 private:
  /// If nothing but its own hosts' links slowed a job down.
  double IdealEnd(const Begun& one) const {
    const ScenarioJob& job = scenario_.jobs[one.job];
    const ScenarioWay& way = job.sizes[one.size].ways[0];
    std::map<int32_t, double> sent;
    double most = 0;
    for (const ScenarioFlow& flow : way.flows) most = std::max(most, sent[flow.from.value()] += static_cast<double>(flow.bytes.count()));
    return one.begin + static_cast<double>(job.iterations) * std::max(way.compute.count(), way.release.count() + most / 1e9);
  }

  std::vector<double> Ends(const std::vector<Begun>& begun) {
    if (ideal_) {
      std::vector<double> ends;
      for (const Begun& one : begun) ends.push_back(IdealEnd(one));
      return ends;
    }
    Scenario fixed{.name = "", .topology = scenario_.topology, .jobs = {}, .classes = scenario_.classes, .duration = scenario_.duration};
    for (const Begun& one : begun) {
      const ScenarioJob& open = scenario_.jobs[one.job];
      const ScenarioWay& way = open.sizes[one.size].ways[0];
      ScenarioJob job{.name = open.name, .gpus = open.sizes[one.size].gpus, .compute = way.compute, .release = way.release,
                      .arrival = Seconds(one.begin), .iterations = open.iterations, .flows = way.flows};
      for (ScenarioFlow& flow : job.flows) flow.from = At(one, flow.from), flow.to = At(one, flow.to);
      fixed.jobs.push_back(std::move(job));
    }
    std::vector<double> ends;
    const auto report = Simulate(fixed, SimulationPolicy::kWeft, kQuick);
    EXPECT_TRUE(report) << report.error().message();
    for (const SimulatedJob& job : report->jobs) ends.push_back(job.end->count());
    return ends;
  }

  NodeId At(const Begun& one, NodeId node) const {
    for (size_t p = 0; p < one.places.size(); ++p) {
      if (scenario_.places[p].senders[0] == node) return scenario_.places[one.places[p]].senders[0];
    }
    return node;
  }

  void Try(const std::vector<Begun>& begun, double now) {
    if (met_ || ++tried_ > (ideal_ ? kMostIdeal : kMostSimulated)) return;
    const std::vector<double> ends = begun.empty() ? std::vector<double>{} : Ends(begun);
    int64_t late = 0;
    std::set<size_t> known;
    std::vector<bool> free(scenario_.places.size(), true);
    double next = 1e300;
    for (size_t i = 0; i < begun.size(); ++i) {
      const ScenarioJob& job = scenario_.jobs[begun[i].job];
      known.insert(begun[i].job);
      late += job.deadline.count() > 0 && ends[i] > (job.arrival + job.deadline).count() ? 1 : 0;
      if (ends[i] <= now) continue;
      next = std::min(next, ends[i]);
      for (const size_t p : begun[i].places) free[p] = false;
    }
    if (late >= fewest_) return;
    if (known.size() == scenario_.jobs.size()) {
      met_ = true;
      return;
    }
    for (size_t j = 0; j < scenario_.jobs.size(); ++j) {
      if (known.contains(j)) continue;
      for (size_t s = 0; s < scenario_.jobs[j].sizes.size(); ++s) {
        for (std::vector<size_t>& set : map_->Sets(free, scenario_.jobs[j].sizes[s].hosts, ideal_ ? 1 : kMostPlacements)) {
          std::vector<Begun> more = begun;
          more.push_back({j, s, std::move(set), now});
          Try(more, now);
        }
      }
    }
    if (next < 1e300) Try(begun, next);
  }

  static constexpr int64_t kMostIdeal = 2'000'000, kMostSimulated = 20'000;
  const Scenario& scenario_;
  std::optional<PlaceMap> map_;
  int64_t fewest_;
  int64_t tried_ = 0;
  bool met_ = false, ideal_ = false;
};

/// No place has two jobs at once, and none fewer than its size.
void ExpectPlaced(const Scenario& scenario, const SimulationReport& report) {
  std::map<std::string, std::vector<std::pair<double, double>>> taken;
  for (size_t j = 0; j < scenario.jobs.size(); ++j) {
    const SimulatedJob& job = report.jobs[j];
    if (!job.begin) continue;
    EXPECT_GE(*job.begin, scenario.jobs[j].arrival);
    const bool one = std::ranges::any_of(scenario.jobs[j].sizes, [&](const ScenarioSize& size) { return static_cast<size_t>(size.hosts) == job.hosts.size(); });
    EXPECT_TRUE(one) << job.hosts.size() << " hosts";
    for (const std::string& host : job.hosts) taken[host].emplace_back(job.begin->count(), job.end.value_or(scenario.duration).count());
  }
  for (auto& [host, times] : taken) {
    std::sort(times.begin(), times.end());
    for (size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i].first, times[i - 1].second - 1e-9) << host;
  }
}

TEST(StartsTest, NoDeadlineIsMissedThatEnumerationMeetsIn200Mixes) {
  int64_t late = 0, bound = 0, unmet = 0, first_come = 0, best_alone = 0, deadlines = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Mix mix(seed);
    const auto report = Simulate(mix.scenario(), SimulationPolicy::kWeft, kQuick);
    ASSERT_TRUE(report) << report.error().message();
    ExpectPlaced(mix.scenario(), *report);
    for (const ScenarioJob& job : mix.scenario().jobs) deadlines += job.deadline.count() > 0 ? 1 : 0;
    EXPECT_GE(report->late, report->bound_late) << mix.scenario().name;
    late += report->late;
    bound += report->bound_late;
    first_come += Simulate(mix.scenario(), SimulationPolicy::kLayersApart, kQuick)->late;
    best_alone += Simulate(mix.scenario(), SimulationPolicy::kVertical, kQuick)->late;
    if (report->late <= report->bound_late) continue;
    if (Enumeration(mix.scenario(), report->late - 1).Meets()) {
      ++unmet;
      ADD_FAILURE() << mix.scenario().name << ": " << report->late << " late, enumeration finds fewer";
    }
  }
  EXPECT_LT(late, first_come);
  EXPECT_LT(late, best_alone);
  fmt::print("{} deadlines: {} missed, by the bound at least {}; {} mixes in which enumeration misses fewer; first-come misses {}, best-alone {}\n",
             deadlines, late, bound, unmet, first_come, best_alone);
}

TEST(StartsTest, JobsThatArriveLaterMissFewerDeadlinesThanFirstCome) {
  int64_t late = 0, bound = 0, first_come = 0, best_alone = 0;
  for (uint64_t seed = 1001; seed <= 1100; ++seed) {
    const Mix mix(seed, true);
    const auto report = Simulate(mix.scenario(), SimulationPolicy::kWeft, kQuick);
    ASSERT_TRUE(report) << report.error().message();
    ExpectPlaced(mix.scenario(), *report);
    EXPECT_GE(report->late, report->bound_late) << mix.scenario().name;
    late += report->late;
    bound += report->bound_late;
    first_come += Simulate(mix.scenario(), SimulationPolicy::kLayersApart, kQuick)->late;
    best_alone += Simulate(mix.scenario(), SimulationPolicy::kVertical, kQuick)->late;
  }
  EXPECT_LT(late, first_come);
  EXPECT_LT(late, best_alone);
  fmt::print("with arrivals: {} missed, by the bound at least {}; first-come misses {}, best-alone {}\n", late, bound, first_come, best_alone);
}

/// Three jobs of two hosts each, of two strategies, that begin at once below two leaves of three hosts.
Scenario PlacementCase(std::mt19937_64* random) {
  const auto draw = [&](int least, int most) { return least + static_cast<int>((*random)() % static_cast<uint64_t>(most - least + 1)); };
  Scenario scenario{.name = "places", .topology = LeafSpine(2, 2, 3, GigabytesPerSecond(1)), .jobs = {}, .classes = 2, .duration = Seconds(120)};
  for (int h = 1; h <= 6; ++h) scenario.places.push_back({fmt::format("h{}", h), {*scenario.topology.FindNode(fmt::format("h{}", h))}});
  // Between leaves there is less than hosts can send.
  for (const Link& link : scenario.topology.links()) {
    if (scenario.topology.node(link.from).kind != NodeKind::kSwitch || scenario.topology.node(link.to).kind != NodeKind::kSwitch) continue;
    scenario.topology.SetCapacity(*scenario.topology.FindLink(link.from, link.to), GigabytesPerSecond(1) * (0.25 * draw(1, 3)));
  }
  for (int j = 0; j < 3; ++j) {
    ScenarioJob job{.name = fmt::format("j{}", j), .gpus = 16, .flows = {}, .work = 1.6, .sizes = {{.hosts = 2, .gpus = 16, .ways = {}}}};
    for (int w = 0; w < 2; ++w) {
      ScenarioWay way{.name = fmt::format("way{}", w), .compute = Seconds(0.05 * draw(4, 16)), .release = {}, .flows = {}, .bursts = {}};
      way.release = way.compute * (0.25 * draw(0, 4));
      const Bytes bytes(50'000'000LL * draw(1, 12));
      const NodeId a = scenario.places[0].senders[0], b = scenario.places[1].senders[0];
      way.flows = {{a, b, bytes}, {b, a, bytes}};
      job.sizes[0].ways.push_back(std::move(way));
    }
    scenario.jobs.push_back(std::move(job));
  }
  return scenario;
}

/// The same with hosts and strategies given.
Scenario Given(const Scenario& open, const std::vector<std::vector<size_t>>& hosts, const std::vector<size_t>& ways) {
  Scenario fixed = open;
  fixed.places.clear();
  for (size_t j = 0; j < fixed.jobs.size(); ++j) {
    ScenarioJob& job = fixed.jobs[j];
    const ScenarioWay& way = open.jobs[j].sizes[0].ways[ways[j]];
    job.sizes.clear();
    job.compute = way.compute, job.release = way.release, job.flows = way.flows;
    job.flows[0].from = job.flows[1].to = open.places[hosts[j][0]].senders[0];
    job.flows[1].from = job.flows[0].to = open.places[hosts[j][1]].senders[0];
  }
  return fixed;
}

// All strategies × places × paths × classes; hosts below one leaf are alike, so that only how a job is split between the leaves counts.
TEST(StartsTest, PlacesAndStrategiesAreAsGoodAsEnumeration) {
  const std::vector<std::vector<std::vector<size_t>>> all = {
      {{0, 1}, {3, 4}, {2, 5}}, {{0, 1}, {2, 5}, {3, 4}}, {{2, 5}, {0, 1}, {3, 4}}, {{0, 3}, {1, 4}, {2, 5}}};
  std::mt19937_64 random(20261124);
  double sum = 0, worst = 1;
  constexpr int kCases = 300;
  for (int c = 0; c < kCases; ++c) {
    const Scenario scenario = PlacementCase(&random);
    const auto weft = Simulate(scenario, SimulationPolicy::kWeft, {.evaluations = 600, .objective = SimulationObjective::kGpuUse});
    ASSERT_TRUE(weft) << weft.error().message();
    EXPECT_LE(weft->goodput, weft->bound_goodput * (1 + 1e-9));
    double best = 0;
    for (const auto& hosts : all) {
      for (size_t mask = 0; mask < 8; ++mask) {
        const Scenario given = Given(scenario, hosts, {mask & 1, mask >> 1 & 1, mask >> 2});
        best = std::max(best, Simulate(given, SimulationPolicy::kOptimal, {})->goodput);
      }
    }
    const double share = std::min(1.0, weft->goodput / best);
    sum += share;
    worst = std::min(worst, share);
    EXPECT_GE(share, 0.9) << "case " << c;
  }
  fmt::print("strategies, places, paths and classes: mean {:.4f} of the optimum, worst {:.4f}\n", sum / kCases, worst);
  EXPECT_GE(sum / kCases, 0.99);
}

TEST(StartsTest, AJobOfGivenHostsKeepsThemForItselfUntilItLeaves) {
  Scenario scenario{.name = "given", .topology = LeafSpine(2, 2, 2, GigabytesPerSecond(1)), .jobs = {}, .duration = Seconds(1000)};
  for (int h = 1; h <= 4; ++h) scenario.places.push_back({fmt::format("h{}", h), {*scenario.topology.FindNode(fmt::format("h{}", h))}});
  scenario.jobs.push_back({.name = "given", .compute = Seconds(1), .release = Seconds(1), .arrival = Seconds(50), .iterations = 100, .flows = {}, .places = {0}});
  const ScenarioWay way{.name = "", .compute = Seconds(1), .release = Seconds(1), .flows = {}, .bursts = {}};
  scenario.jobs.push_back({.name = "all", .gpus = 4, .iterations = 10, .flows = {}, .sizes = {{.hosts = 4, .gpus = 4, .ways = {way}}}});
  scenario.jobs.push_back({.name = "some", .gpus = 3, .iterations = 10, .flows = {}, .sizes = {{.hosts = 3, .gpus = 3, .ways = {way}}}});
  const auto report = Simulate(scenario, SimulationPolicy::kWeft);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->jobs[1].begin, Seconds(150));      // when the job of given hosts has left
  EXPECT_EQ(report->jobs[2].begin, Seconds(0));
  EXPECT_THAT(report->jobs[2].hosts, ElementsAre("h2", "h3", "h4"));
  EXPECT_EQ(report->never_began, 0);
}

TEST(StartsTest, SizesAndDeadlinesThatCannotBeAreRefused) {
  Scenario good = Mix(1).scenario();
  const auto message = [&](const auto& spoil) {
    Scenario scenario = good;
    spoil(&scenario.jobs[0]);
    const auto report = Simulate(scenario, SimulationPolicy::kWeft, kQuick);
    return report ? "accepted" : report.error().message();
  };
  EXPECT_THAT(message([](ScenarioJob* job) { job->sizes[0].hosts = 100; }), HasSubstr("a size of 100 hosts"));
  EXPECT_THAT(message([](ScenarioJob* job) { job->sizes[0].ways.clear(); }), HasSubstr("0 ways on"));
  EXPECT_THAT(message([](ScenarioJob* job) { job->flows = job->sizes[0].ways[0].flows, job->flows.push_back({}); }), HasSubstr("beside sizes"));
  EXPECT_THAT(message([](ScenarioJob* job) { job->deadline = Seconds(5), job->iterations = 0; }), HasSubstr("a deadline without"));
  EXPECT_THAT(message([](ScenarioJob* job) { job->places = {77}; }), HasSubstr("place 77"));
}

}  // namespace
}  // namespace weft::planner::jobs
