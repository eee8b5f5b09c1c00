// The trace and the plot are read back, and their integrals compared with the report they were written from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tinyxml2.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/simulate_plot.h"
#include "cli/simulate_trace.h"
#include "formats/scenario_yaml.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

planner::Scenario Shared() {
  return formats::ParseScenarioYaml(R"(version: 1
name: "a & b"
duration: 4s
cluster: {fabric: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2, host_rate: 10Gbit/s, fabric_rate: 10Gbit/s}
jobs:
  - {name: a, hosts: [h1, h3], compute: 100ms, release: 60ms, bytes: 100MB}
  - {name: b, hosts: [h2, h4], compute: 80ms, bytes: 80MB, arrival: 500ms, iterations: 10}
faults: [{at: 2s, link: leaf1->spine1, rate: 5Gbit/s}]
)", "s", "")->scenario;
}

planner::SimulationReport Traced(const planner::Scenario& scenario) {
  return planner::Simulate(scenario, planner::SimulationPolicy::kEcmp, {.trace = true}).value();
}

/// What a link carried, by the report: use of what it could have carried, faults included.
double Carried(const planner::Scenario& scenario, const planner::SimulatedLink& link) {
  double since = 0, capacity = scenario.topology.link(link.link).capacity.value(), bits = 0;
  for (const planner::ScenarioFault& fault : scenario.faults) {
    if (fault.link != link.link) continue;
    bits += capacity * (fault.at.count() - since);
    since = fault.at.count();
    capacity = fault.capacity.value();
  }
  return link.utilisation * (bits + capacity * (scenario.duration.count() - since));
}

TEST(ChromeTrace, CountersIntegrateToTheReport) {
  const planner::Scenario scenario = Shared();
  const planner::SimulationReport report = Traced(scenario);
  const json root = json::parse(ChromeTraceText(scenario, report));
  struct Counter {
    double since = 0, rate = 0, bits = 0;
  };
  std::map<std::string, Counter> counters;
  for (const json& event : root.at("traceEvents")) {
    if (event.at("ph") != "C") continue;
    Counter& counter = counters[event.at("name").get<std::string>()];
    const double at = event.at("ts").get<double>() * 1e-6;
    ASSERT_GE(at, counter.since) << event;
    counter.bits += counter.rate * (at - counter.since);
    counter.since = at;
    counter.rate = event.at("args").at("bit/s").get<double>();
  }
  ASSERT_EQ(counters.size(), report.links.size());
  for (const planner::SimulatedLink& link : report.links) {
    const std::string name = scenario.topology.LinkName(link.link);
    ASSERT_TRUE(counters.contains(name)) << name;
    EXPECT_EQ(counters[name].rate, 0) << "closed at the end";
    EXPECT_NEAR(counters[name].bits / Carried(scenario, link), 1, 1e-6) << name;
  }
}

TEST(ChromeTrace, JobsHaveTheirOwnTracksAndFaultsAreInstants) {
  const planner::Scenario scenario = Shared();
  const planner::SimulationReport report = Traced(scenario);
  const json root = json::parse(ChromeTraceText(scenario, report));
  std::map<int, std::string> threads;
  std::map<std::string, double> time;  // by "job phase"
  std::map<std::string, double> end;   // of the last slice by job
  std::vector<std::string> faults;
  for (const json& event : root.at("traceEvents")) {
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") == "i") faults.push_back(event.at("name"));
    if (event.at("ph") != "X") continue;
    const std::string job = threads.at(event.at("tid").get<int>());
    const double begin = event.at("ts").get<double>() * 1e-6, length = event.at("dur").get<double>() * 1e-6;
    EXPECT_GE(begin, end[job] - 1e-9) << "slices of a track must not overlap: " << event;
    end[job] = begin + length;
    time[job + " " + event.at("name").get<std::string>()] += length;
  }
  EXPECT_THAT(faults, UnorderedElementsAre("leaf1->spine1 5 Gbit/s"));
  ASSERT_EQ(threads.size(), 2u);
  // b leaves after ten iterations: 80 ms each before anything is sent, the rest until it leaves on the network.
  const double sent = time["b communicate"], computed = time["b compute"];
  EXPECT_NEAR(computed, 10 * 0.080, 1e-6);
  EXPECT_NEAR((sent + computed + time["b wait"]) / 10, report.jobs[1].iteration.count(), 1e-6);
  EXPECT_LE(end["a"], 4 + 1e-9);
}

/// Area under a step path of the plot, in units of its bounding box. `bottom` and the box come from the strip's axis.
double Area(const std::string& path, double columns, double height) {
  std::istringstream in(path);
  char command = 0;
  double x = 0, y = 0, left = 0, bottom = 0, area = 0, value = 0;
  while (in >> command) {
    if (command == 'Z') break;
    if (command == 'M') {
      in >> x >> y;
      left = x;
      bottom = y;
      continue;
    }
    in >> value;
    if (command == 'H') {
      area += (value - x) * (bottom - y);
      x = value;
    } else {
      y = value;
    }
  }
  EXPECT_EQ(x - left, columns);
  EXPECT_EQ(y, bottom) << "closed along the bottom";
  return area / (columns * height);
}

TEST(LinkUsePlot, StripsHaveTheAreaOfTheReport) {
  const planner::Scenario scenario = Shared();
  const planner::SimulationReport report = Traced(scenario);
  const std::string text =
      LinkUsePlot(scenario, report, {.title = "a & b <test>", .begin = Seconds(0), .end = scenario.duration});
  tinyxml2::XMLDocument document;
  ASSERT_EQ(document.Parse(text.c_str()), tinyxml2::XML_SUCCESS) << document.ErrorStr();
  std::map<std::string, double> means;
  for (const auto* g = document.RootElement()->FirstChildElement("g"); g != nullptr; g = g->NextSiblingElement("g")) {
    if (g->Attribute("data-link") == nullptr) continue;
    const double rate = g->DoubleAttribute("data-rate"), mean = g->DoubleAttribute("data-mean");
    means[g->Attribute("data-link")] = mean;
    for (const auto* path = g->FirstChildElement("path"); path != nullptr; path = path->NextSiblingElement("path")) {
      const std::string kind = path->Attribute("class");
      if (kind == "axis") continue;
      const double share = Area(path->Attribute("d"), 720, 34);
      if (kind == "mean") {
        EXPECT_NEAR(share, mean / rate, 1e-5);
      } else {
        EXPECT_GE(share, mean / rate - 1e-5);
      }
    }
  }
  ASSERT_EQ(means.size(), std::min<size_t>(12, report.links.size()));
  for (const planner::SimulatedLink& link : report.links) {
    const auto found = means.find(scenario.topology.LinkName(link.link));
    if (found == means.end()) continue;
    EXPECT_NEAR(found->second / (Carried(scenario, link) / scenario.duration.count()), 1, 1e-6) << found->first;
  }
  EXPECT_STREQ(document.RootElement()->FirstChildElement("text")->GetText(), "a & b <test>");
  EXPECT_THAT(text, HasSubstr("simulated time in s"));
  EXPECT_THAT(text, HasSubstr("class=\"fault\""));
}

// The share of the window in which a job communicates is what its phases add up to, drawn as the area of its strip.
TEST(LinkUsePlot, JobsHaveStripsOfWhenTheyCommunicate) {
  const planner::Scenario scenario = Shared();
  const planner::SimulationReport report = Traced(scenario);
  std::map<std::string, double> sending;
  for (const planner::JobPhase& phase : report.phases) {
    if (phase.kind == planner::PhaseKind::kSending) {
      sending[scenario.jobs[phase.job].name] += (phase.end - phase.begin).count();
    }
  }
  tinyxml2::XMLDocument document;
  const std::string text = LinkUsePlot(scenario, report, {.title = "t", .begin = Seconds(0), .end = scenario.duration});
  ASSERT_EQ(document.Parse(text.c_str()), tinyxml2::XML_SUCCESS);
  int strips = 0;
  for (const auto* g = document.RootElement()->FirstChildElement("g"); g != nullptr; g = g->NextSiblingElement("g")) {
    if (g->Attribute("data-job") == nullptr) continue;
    ++strips;
    const double share = g->DoubleAttribute("data-share");
    EXPECT_NEAR(share, sending.at(g->Attribute("data-job")) / 4, 1e-6);
    EXPECT_NEAR(Area(g->FirstChildElement("path")->Attribute("d"), 720, 10), share, 1e-5);
  }
  EXPECT_EQ(strips, 2);
}

TEST(LinkUsePlot, ShowsTheWindowThatWasAskedFor) {
  const planner::Scenario scenario = Shared();
  const planner::SimulationReport report = Traced(scenario);
  // Before 60 ms nobody sends; a window there is empty, and one after is not.
  const auto mean = [&](double begin, double end) {
    tinyxml2::XMLDocument document;
    document.Parse(
        LinkUsePlot(scenario, report, {.title = "t", .begin = Seconds(begin), .end = Seconds(end), .most_links = 1})
            .c_str());
    return document.RootElement()->FirstChildElement("g")->DoubleAttribute("data-mean");
  };
  EXPECT_EQ(mean(0, 0.06), 0);
  EXPECT_NEAR(mean(0.06, 0.10), 10e9, 1e3) << "a alone at full rate";
  const std::string text = LinkUsePlot(scenario, report, {.title = "t", .begin = Seconds(0), .end = Seconds(0.06)});
  EXPECT_THAT(text, HasSubstr("simulated time in ms"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("class=\"fault\"")));
}

// 999.9999999999999 s is 5·10^16 steps of the axis, where a double plus 1 is the same double.
TEST(LinkUsePlot, ANarrowWindowFarFromZeroHasFewTicks) {
  planner::Scenario scenario = Shared();
  const planner::SimulationReport report = Traced(scenario);
  scenario.duration = Seconds(1000);
  const std::string text =
      LinkUsePlot(scenario, report, {.title = "t", .begin = Seconds(999.9999999999999), .end = Seconds(1000)});
  size_t ticks = 0;
  for (size_t at = text.find("v5\"/>"); at != text.npos; at = text.find("v5\"/>", at + 1)) ++ticks;
  EXPECT_GE(ticks, 1u);
  EXPECT_LE(ticks, 20u);
}

}  // namespace
}  // namespace weft::cli
