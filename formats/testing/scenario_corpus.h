// Small scenario files that between them use every key but those that name other files, for tests of the parser.
#pragma once

namespace weft::formats::testing {

inline constexpr const char* kScenarioLeafSpine = R"(version: 1
name: collision
duration: 20s
seed: 7
draws: 4
classes: 3
policies: [ecmp, weft]
cluster: {fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_rate: 100Gbit/s, fabric_rate: 50Gbit/s}
jobs:
  - {name: a, hosts: [h1, h3], compute: 100ms, release: 40ms, bytes: 1GiB}
  - {name: b, hosts: 2, placement: spread, compute: 80ms, bytes: 500MB, pattern: all-to-all, arrival: 5s, iterations: 40}
  - name: c
    compute: 50ms
    flows:
      - {from: h2, to: h4, bytes: 100MB}
      - {from: h4, to: h2, bytes: 1MiB}
faults:
  - {at: 10s, link: leaf1->spine1, rate: 10Gbit/s}
  - {at: 12s, cable: leaf1-spine1, rate: down}
  - {at: 15s, cable: leaf1-spine1, rate: up}
)";

inline constexpr const char* kScenarioServers = R"(version: 1
name: models
duration: 60s
cluster:
  fabric: rail
  server: dgx-a100
  hosts: 4
  spines: 2
  hosts_per_group: 2
  fabric_rate: 200Gbit/s
jobs:
  - {name: gpt, hosts: 2, model: gpt2, global_batch: 64, sequence: 1024, precision: bf16, fix: "zero_stage=1"}
  - {name: side, hosts: 2, placement: random, gpus_per_host: 4, compute: 20ms, bytes: 64MiB, pattern: tree, count: 2, interval: 1s}
  - {name: open, min_gpus: 8, max_gpus: 8, deadline: 30s, compute: 20ms, bytes: 64MiB, iterations: 100}
  - {name: any, hosts: 1, placement: any, compute: 20ms, bytes: 64MiB, iterations: 100}
)";

inline constexpr const char* kScenarioLinks = R"(version: 1
name: listed
duration: 5s
cluster:
  fabric: links
  hosts: [a, b]
  gpus_per_host: 2
  device: a100-80
  intra_node_rate: 300GB/s
  intra_latency: 4us
  nic_latency: 10us
  network_efficiency: 0.9
  links:
    - {from: a, to: s-1, rate: 10Gbit/s}
    - {from: s-1, to: b, rate: 10Gbit/s, directions: 1}
    - {from: b, to: s-2, rate: 10Gbit/s, directions: 1}
    - {from: s-2, to: a, rate: 10Gbit/s, directions: 1}
jobs:
  - {name: one, hosts: [a, b], compute: 10ms, bytes: 10MB}
  - {name: two, hosts: [a, b], compute: 20ms, bursts: [{release: 5ms, needed: 10ms, bytes: 1MB}, {release: 15ms, bytes: 2MB, pattern: tree}]}
faults:
  - {at: 1s, cable: a-s-1, rate: 5Gbit/s}
)";

inline constexpr const char* kScenarioThreeTier = R"(version: 1
name: deep
duration: 5s
cluster: {fabric: three-tier, pods: 2, leaves_per_pod: 2, aggregations_per_pod: 2, cores_per_aggregation: 2, hosts_per_leaf: 2,
          host_rate: 25Gbit/s, fabric_rate: 25Gbit/s, core_rate: 10Gbit/s}
jobs:
  - {name: one, hosts: 8, placement: packed, compute: 10ms, bytes: 10MB}
)";

inline constexpr const char* kScenarioTorus = R"(version: 1
name: round
duration: 5s
cluster: {fabric: torus, extent: [3, 2], rate: 10Gbit/s}
jobs: [{name: one, hosts: 6, compute: 10ms, bytes: 10MB}]
)";

inline constexpr const char* kScenarioDualPlane = R"(version: 1
name: planes
duration: 5s
cluster: {fabric: dual-plane, hosts: 8, hosts_per_leaf: 4, spines_per_plane: 2, port_rate: 200Gbit/s, fabric_rate: 400Gbit/s}
jobs: [{name: one, hosts: 8, gpus_per_host: 1, compute: 10ms, bytes: 10MB}]
)";

inline constexpr const char* kScenarios[] = {kScenarioLeafSpine, kScenarioServers, kScenarioLinks,
                                             kScenarioThreeTier, kScenarioTorus,   kScenarioDualPlane};

}  // namespace weft::formats::testing
