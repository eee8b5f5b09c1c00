#include "bench/horizontal_scenarios.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "planner/fabric/fabrics.h"

namespace weft::bench {
namespace {

using planner::NodeKind;
using planner::Scenario;
using planner::ScenarioJob;
using planner::Topology;

/// Numbers that are the same on every platform, which the standard's distributions are not.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  double Between(double low, double high) {
    return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
  }
  template <typename T>
  void Shuffle(std::vector<T>* values) {
    for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[Below(i)]);
  }

 private:
  std::mt19937_64 random_;
};

/// A model's gradients, and its compute per iteration on one GPU.
struct Model {
  const char* name;
  int64_t megabytes;
  double compute_s;
};

// Sizes: CASSINI's 13-model table (recalled there, used as shape). Compute: VGG16 as published, 141 ms. No other is
// published: the other vision models' is VGG16's by the ratio of forward multiply-adds (torchvision: VGG11 7.6, VGG16
// 15.5, VGG19 19.6, ResNet50 4.1, WideResNet101 22.8 G), the language models' is VGG16's by the ratio of gradient
// bytes.
constexpr Model kCassiniModels[] = {
    {"vgg16", 528, 0.141},         {"vgg11", 507, 0.069},  {"vgg19", 549, 0.178},   {"resnet50", 98, 0.037},
    {"wideresnet101", 243, 0.207}, {"bert", 450, 0.120},   {"roberta", 800, 0.214}, {"camembert", 266, 0.071},
    {"xlm", 1116, 0.298}};

// VGG16's published 114 ms of communication are what a ring of three takes: 4/3 of 528 MB at 50 Gbit/s.
constexpr size_t kRingHosts = 3;

// fp16 gradients of models that such a cluster trains: 340 M, 1.3 B, 2.7 B, 6.7 B parameters. Compute follows from
// the share of communication that a job has alone, which is drawn: 25 to 55 %.
constexpr Model kLanguageModels[] = {
    {"bert", 680, 0}, {"gpt-1.3b", 2600, 0}, {"gpt-2.7b", 5400, 0}, {"gpt-6.7b", 13400, 0}};

/// A ring all-reduce of `bytes` over the hosts, on `channels` connections per pair.
void AddRing(const std::vector<NodeId>& hosts, int64_t bytes, int channels, ScenarioJob* job) {
  if (hosts.size() < 2) return;
  const auto n = static_cast<int64_t>(hosts.size());
  const Bytes each(2 * (n - 1) * bytes / n / channels);
  for (size_t i = 0; i < hosts.size(); ++i) {
    for (int c = 0; c < channels; ++c) job->flows.push_back({hosts[i], hosts[(i + 1) % hosts.size()], each});
  }
}

Topology TwoTiers(int leaves, int spines, int hosts_per_leaf, BitsPerSecond host_rate, BitsPerSecond fabric_rate,
                  std::vector<NodeId>* hosts) {
  Topology topology;
  std::vector<NodeId> above;
  for (int s = 1; s <= spines; ++s) above.push_back(topology.AddNode(fmt::format("spine{}", s), NodeKind::kSwitch));
  for (int l = 1; l <= leaves; ++l) {
    const NodeId leaf = topology.AddNode(fmt::format("leaf{}", l), NodeKind::kSwitch);
    for (const NodeId spine : above) topology.AddCable(leaf, spine, fabric_rate);
    for (int h = 0; h < hosts_per_leaf; ++h) {
      hosts->push_back(topology.AddNode(fmt::format("h{}", hosts->size() + 1), NodeKind::kHost));
      topology.AddCable(hosts->back(), leaf, host_rate);
    }
  }
  return topology;
}

/// Takes `count` hosts: next to each other, or wherever some are free.
std::vector<NodeId> Take(size_t count, bool scattered, Draw* draw, std::vector<NodeId>* free) {
  std::vector<NodeId> taken;
  size_t at = draw->Below(free->size() - count + 1);
  for (size_t i = 0; i < count; ++i) {
    if (scattered) at = draw->Below(free->size());
    taken.push_back((*free)[at]);
    free->erase(free->begin() + static_cast<std::ptrdiff_t>(at));
  }
  std::sort(taken.begin(), taken.end());  // a launcher orders hosts by leaf
  return taken;
}

}  // namespace

Scenario CassiniLike(uint64_t seed) {
  Draw draw(seed);
  std::vector<NodeId> free;
  Scenario scenario{.name = fmt::format("cassini-like, seed {}", seed), .classes = 8, .seed = seed, .draws = 8,
                    .duration = Seconds(300)};
  scenario.topology = TwoTiers(12, 1, 2, GigabitsPerSecond(50), GigabitsPerSecond(50), &free);
  const size_t models[] = {draw.Below(std::size(kCassiniModels)), draw.Below(std::size(kCassiniModels))};
  while (free.size() >= kRingHosts) {
    const Model& model = kCassiniModels[models[draw.Below(2)]];
    const std::string name = fmt::format("{}-{}", model.name, scenario.jobs.size() + 1);
    ScenarioJob job{.name = name, .gpus = kRingHosts, .compute = Seconds(model.compute_s),
                    .release = Seconds(model.compute_s)};
    if (scenario.jobs.size() % 3 == 2) job.arrival = Seconds(draw.Between(10, 100));
    AddRing(Take(kRingHosts, true, &draw, &free), model.megabytes * 1'000'000, 1, &job);
    scenario.jobs.push_back(std::move(job));
  }
  return scenario;
}

Scenario CruxLike(uint64_t seed, int tiers, int oversubscription) {
  Draw draw(seed);
  std::vector<NodeId> free;
  Scenario scenario{.name = fmt::format("crux-like, {} tiers, {}:1, seed {}", tiers, oversubscription, seed),
                    .classes = 8,
                    .seed = seed, .draws = 4, .duration = Seconds(60)};
  if (tiers == 2) {
    scenario.topology = TwoTiers(16, 36 / oversubscription, 18, GigabitsPerSecond(800), GigabitsPerSecond(400), &free);
  } else {
    const planner::Cluster cluster = planner::ThreeTierClos(
        {.pods = 4, .leaves_per_pod = 4, .aggregations_per_pod = 18 / oversubscription, .cores_per_aggregation = 2,
         .hosts_per_leaf = 18, .host_rate = GigabitsPerSecond(800), .fabric_rate = GigabitsPerSecond(800),
         .core_rate = GigabitsPerSecond(800)});
    scenario.topology = cluster.topology;
    for (const planner::ClusterHost& host : cluster.hosts) free.push_back(host.gpus[0]);
  }
  // Hosts per job: 512 and 256 GPUs once, 128 twice, then 64 … 8.
  std::vector<size_t> sizes{64, 32, 16, 16};
  for (const auto& [hosts, jobs] : {std::pair{8, 8}, {4, 10}, {2, 10}, {1, 8}}) {
    sizes.insert(sizes.end(), static_cast<size_t>(jobs), static_cast<size_t>(hosts));
  }
  draw.Shuffle(&sizes);
  for (size_t j = 0; j < sizes.size(); ++j) {
    const size_t largest = sizes[j] >= 16 ? std::size(kLanguageModels) : std::size(kLanguageModels) - 1;
    const Model& model = kLanguageModels[draw.Below(largest)];
    ScenarioJob job{.name = fmt::format("{}-{}", model.name, j + 1),
                    .gpus = 8 * static_cast<double>(sizes[j])};
    const Bytes exchanged(2 * model.megabytes * 1'000'000);
    const double sending = (exchanged / GigabitsPerSecond(800)).count(), share = draw.Between(0.25, 0.55);
    job.compute = Seconds(sending * (1 - share) / share);
    job.release = job.compute * (draw.Below(2) == 0 ? 1.0 : 0.7);  // half of the jobs overlap the end of backward
    if (j >= 34) job.arrival = Seconds(draw.Between(5, 45));
    if (j < 4) job.iterations = 15 + static_cast<int64_t>(draw.Below(60));
    AddRing(Take(sizes[j], draw.Below(2) == 0, &draw, &free), model.megabytes * 1'000'000, 4, &job);
    scenario.jobs.push_back(std::move(job));
  }
  return scenario;
}

}  // namespace weft::bench
