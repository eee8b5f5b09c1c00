// What a scenario file must not say, and what the reader answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string_view>

#include "formats/scenario_yaml.h"
#include "formats/testing/scenario_corpus.h"
#include "formats/testing/with.h"

namespace weft::formats {
namespace {

using testing::kScenarioLeafSpine;
using testing::kScenarioLinks;
using testing::kScenarioServers;
using testing::kScenarioTorus;
using testing::With;
using ::testing::HasSubstr;

std::string Message(const std::string& text) {
  const Result<ScenarioFile> read = ParseScenarioYaml(text, "s.yaml", "");
  if (read) return "accepted";
  EXPECT_EQ(read.error().code(), Code::kInvalidArgument) << read.error().message();
  return read.error().message();
}

/// Cases as pairs of lines: what is replaced in the scenario by what, then, indented, a piece of the message. The first
/// line is empty.
struct Refusals {
  const char* scenario;
  std::string_view cases;
};

constexpr Refusals kRefusals[] = {
    {kScenarioLeafSpine, R"(
leaf-spine => tree
  s.yaml:8: key "cluster.fabric": value "tree", expected one of leaf-spine,
leaves: 2 => leaves: 0
  key "cluster.leaves": value 0, expected an integer from 1 to
leaves: 2 => leaves: -2
  key "cluster.leaves": value -2, expected an integer from 1 to
leaves: 2 => leafs: 2
  key "cluster.leaves": missing, expected an integer
spines: 2, => spines: 2, cores: 1,
  key "cluster.cores": unknown, expected one of
host_rate: 100Gbit/s => host_rate: 0Gbit/s
  key "cluster.host_rate": rate "0Gbit/s": expected a positive
host_rate: 100Gbit/s => host_rate: 100
  key "cluster.host_rate": rate "100": expected a positive
leaves: 2, spines: 2 => leaves: 9999, spines: 9999
  expected at most 65536 and 250000
[h1, h3] => [h1, h9]
  s.yaml:10: key "jobs[0].hosts": unknown host "h9", expected one of 4 hosts from "h1" to "h4"
[h1, h3] => [h1, h1]
  key "jobs[0].hosts": host "h1" stands twice
name: b => name: a
  s.yaml:11: key "jobs[1].name": job "a" stands twice
name: a => name: a b
  key "jobs[0].name": value "a b", expected 1 to 63 letters
bytes: 1GiB => bytes: -1GiB
  key "jobs[0].bytes": size "-1GiB": expected a non-negative
bytes: 1GiB => bytes: 4000000TB
  key "jobs[0].bytes": 8e+18 bytes per iteration between all hosts, expected at most 4.612e+18
bytes: 1GiB => byte: 1GiB
  key "jobs[0].bytes": missing, expected a size such as 1GiB
compute: 100ms => compute: -1s
  key "jobs[0].compute": duration "-1s": expected a non-negative
compute: 100ms, => (nothing)
  key "jobs[0].compute": missing, expected a duration such as 100ms
release: 40ms => release: 140ms
  key "jobs[0].release": 0.14 s, expected at most compute, 0.1 s
100ms, release: 40ms, bytes: 1GiB => 0s, bytes: 0B
  key "jobs[0].compute": 0 s and nothing to send
all-to-all => gossip
  key "jobs[1].pattern": value "gossip", expected ring, tree or all-to-all
spread => near
  key "jobs[1].placement": value "near", expected packed, spread, random or any
hosts: 2, placement: spread => hosts: 5, placement: any
  key "jobs[1].hosts": value 5, expected an integer from 1 to 4
hosts: 2, placement: spread => hosts: [h1], placement: any
  key "jobs[1].placement": value "any", expected hosts as a number, or min_gpus and max_gpus
hosts: 2, placement: spread => min_gpus: 3, max_gpus: 2
  key "jobs[1].max_gpus": no number of whole hosts has 3 to 2 GPUs
hosts: 2, placement: spread => min_gpus: 1, max_gpus: 2
  key "jobs[1].model": missing, expected one for a job of several sizes
hosts: 2, placement: spread => hosts: 2, min_gpus: 1
  key "jobs[1].hosts": expected either hosts, or min_gpus and max_gpus
placement: spread => placement: any, gpus_per_host: 1
  key "jobs[1].gpus_per_host": expected only for a job of given hosts
release: 40ms => release: 40ms, deadline: 1s
  key "jobs[0].deadline": expected only with iterations
hosts: 2 => hosts: 5
  key "jobs[1].hosts": value 5, expected an integer from 1 to 4
arrival: 5s => arrival: 20s
  key "jobs[1].arrival": 20 s, expected less than the duration, 20 s
to: h4, bytes => to: h2, bytes
  s.yaml:15: key "jobs[2].flows[0].to": expected another host than from
to: h4, bytes => to: x, bytes
  key "jobs[2].flows": unknown host "x"
bytes: 1GiB => bytes: 1GiB, flows: [{from: h1, to: h3, bytes: 1GB}]
  key "jobs[0].bytes": expected only without flows
hosts: [h1, h3] => priority: 1, hosts: [h1, h3]
  key "jobs[0].priority": unknown, expected one of
hosts: [h1, h3], compute: 100ms, release: 40ms, bytes: 1GiB => hosts: [h1, h3], model: gpt2, global_batch: 8, sequence: 128
  key "jobs[0].model": value "gpt2", expected cluster.device
duration: 20s => duration: 0s
  s.yaml:3: key "duration": 0 s, expected more than 0
duration: 20s => (nothing)
  key "duration": missing, expected a duration such as 60s
[ecmp, weft] => [ecmp, fast]
  s.yaml:7: key "policies": value "fast", expected some of ecmp, weft
[ecmp, weft] => [ecmp, ecmp]
  key "policies": "ecmp" stands twice
classes: 3 => classes: 0
  key "classes": value 0, expected an integer from 1 to 64
version: 1 => version: 2
  key "version": value 2, expected an integer from 1 to 1
at: 10s => at: 30s
  s.yaml:18: key "faults[0].at": 30 s, expected less than the duration, 20 s
leaf1->spine1 => leaf1->leaf2
  key "faults[0].link": unknown link "leaf1->leaf2", expected two nodes
cable: leaf1-spine1, rate: down => switch: h1, rate: down
  key "faults[1].switch": "h1", expected the name of a switch, as in spine1
cable: leaf1-spine1, rate: down => cable: leaf1-spine1, switch: leaf1, rate: down
  key "faults[1].link": expected one of a link
cable: leaf1-spine1, rate: down => cable: leaf1-x, rate: down
  key "faults[1].cable": unknown cable "leaf1-x"
rate: 10Gbit/s => rate: 0Gbit/s
  key "faults[0].rate": rate "0Gbit/s": expected a positive number
rate: 10Gbit/s => rate: 60Gbit/s
  key "faults[0].rate": 60 Gbit/s, expected at most the link's 50 Gbit/s
link: leaf1->spine1, rate => rate
  key "faults[0].link": expected one of a link
rate: down => rates: down
  key "faults[1].rate": missing
)"},
    {kScenarioServers, R"(
dgx-a100 => dgx-z9
  s.yaml:6: key "cluster.server": value "dgx-z9", expected one of dgx-v100, dgx-a100
hosts_per_group: 2 => rails: 4
  key "cluster.rails": value 4, expected 8, as many as the server has
gpus_per_host: 4 => gpus_per_host: 9
  key "jobs[1].gpus_per_host": value 9, expected an integer from 1 to 8
precision: bf16 => precision: int1
  key "jobs[0].precision": precision "int1", expected one of
zero_stage=1 => zero=1
  key "jobs[0].fix":
precision: bf16 => precision: bf16, allow: [gosip]
  key "jobs[0].allow": value "gosip", expected some of low_precision, local_steps, gossip
precision: bf16 => precision: bf16, framework: megatron, allow: [gossip]
  key "jobs[0].allow": with framework megatron: expected only without framework, with any or weft-train
interval: 1s => interval: 60s
  key "jobs[1].interval": copy 2 arrives at 60 s, expected less than
)"},
    {kScenarioLinks, R"(
to: s-1, rate: 10Gbit/s => to: s-1, rate: 0bit/s
  key "cluster.links[0].rate": rate "0bit/s"
from: s-1, to: b => from: s-1, to: s-1
  s.yaml:15: key "cluster.links[1].to": value s-1, expected another
from: s-1, to: b => from: s-1, to: a
  key "cluster.links[1].to": the link s-1->a stands twice
[a, b] => [a, b, c]
  s.yaml:6: key "cluster.hosts": host "c" has no link
[a, b] => [a, a]
  key "cluster.hosts": host "a" stands twice
device: a100-80 => device: a1
  key "cluster.device": value "a1", expected one of
intra_node_rate: 300GB/s => (nothing)
  key "cluster.intra_node_rate": missing
needed: 10ms => needed: 4ms
  key "jobs[1].bursts[0].needed": 0.004 s, expected 0.005 s to the compute of 0.02 s
release: 15ms => release: 1ms
  key "jobs[1].bursts[1].release": 0.001 s, expected 0.005 s to the compute of 0.02 s
release: 5ms, => (nothing)
  key "jobs[1].bursts[0].release": missing, expected a duration such as 100ms
bytes: 2MB => byte: 2MB
  key "jobs[1].bursts[1].bytes": missing, expected a size such as 1GiB
pattern: tree => pattern: bush
  key "jobs[1].bursts[1].pattern": value "bush", expected ring, tree or all-to-all
compute: 20ms, => compute: 20ms, release: 1ms,
  key "jobs[1].release": expected only without bursts
bursts: [{release: 5ms, needed: 10ms, bytes: 1MB}, {release: 15ms, bytes: 2MB, pattern: tree}] => bursts: []
  key "jobs[1].bursts": 0 bursts, expected a list of 1 to 64
from: b, to: s-2, rate: 10Gbit/s => from: b, to: s-3, rate: 10Gbit/s
  s.yaml:5: key "cluster": no path from b to a, expected one as job "one" sends there
)"},
    {kScenarioTorus, R"(
[3, 2] => [3, 0]
  key "cluster.extent": value 0, expected a list of integers from 1 to
[3, 2] => []
  key "cluster.extent": expected a list of 1 to 8 sizes
)"},
};

TEST(ScenarioYaml, ErrorsNameLineKeyValueAndWhatWasExpected) {
  for (const Refusals& refusals : kRefusals) {
    std::istringstream lines{std::string(refusals.cases.substr(1))};
    for (std::string change, message; std::getline(lines, change) && std::getline(lines, message);) {
      const size_t arrow = change.find(" => ");
      ASSERT_NE(arrow, std::string::npos) << change;
      const std::string instead = change.substr(arrow + 4);
      const std::string text = With(refusals.scenario, change.substr(0, arrow), instead == "(nothing)" ? "" : instead);
      EXPECT_THAT(Message(text), HasSubstr(message.substr(2))) << change;
    }
  }
  EXPECT_THAT(Message(With(kScenarioTorus, "[3, 2]", "[3, \"x\xc3\xa9\\e[0m\"]")),
              HasSubstr("key \"cluster.extent\": value x???[0m, expected a list of integers from 1 to"));
  EXPECT_THAT(Message("version: 1\nname: x\nduration: 1s\n"), HasSubstr("key \"cluster\": missing"));
  EXPECT_THAT(Message("jobs: [a"), HasSubstr("s.yaml:"));
}

}  // namespace
}  // namespace weft::formats
