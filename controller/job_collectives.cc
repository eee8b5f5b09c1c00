#include "controller/job_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/parse_units.h"
#include "controller/job_network.h"
#include "netplugin/abi/collective_table.h"
#include "planner/collectives/choice.h"
#include "planner/collectives/nccl_model.h"

namespace weft::controller {
namespace {

using planner::Collective;

constexpr int64_t kLeast = 1 << 10;
constexpr int64_t kMost = int64_t{1} << 30;
constexpr double kGain = 0.1;   // less is within what the models are wrong by
constexpr int32_t kMostNcclChannels = 64;

/// What one size wants; no algorithm: the library's own choice.
struct Wish {
  std::string algorithm, protocol, why;
  int64_t channels = 0;
};

/// Sizes by factors of two, neighbours that agree joined; the last entry has no end. Small sizes stand for all below them.
template <typename Ask>
Status AddRanges(const CollectiveJob& job, Collective collective, const Ask& ask,
                 std::vector<v1::CollectiveChoice>* choices) {
  v1::CollectiveChoice* open = nullptr;
  for (int64_t bytes = kLeast; bytes <= kMost; bytes *= 2) {
    WEFT_ASSIGN_OR_RETURN(const Wish wish, ask(Bytes(bytes)));
    const bool same = open != nullptr && open->algorithm() == wish.algorithm && open->protocol() == wish.protocol &&
                      open->channels() == wish.channels;
    if (same) continue;
    if (open != nullptr) open->set_most_bytes(bytes - 1);
    open = nullptr;
    if (wish.algorithm.empty()) continue;
    open = &choices->emplace_back();
    open->set_collective(std::string(planner::CollectiveName(collective)));
    open->set_ranks(job.ranks);
    open->set_nodes(job.own_runtime ? 0 : job.nodes);
    open->set_least_bytes(bytes == kLeast ? 0 : bytes);
    open->set_algorithm(wish.algorithm);
    open->set_protocol(wish.protocol);
    open->set_channels(wish.channels);
    open->set_why(wish.why);
  }
  return Ok();
}

/// `spec` in place of the ring, if that is faster by enough.
Wish WishFor(const planner::AlgorithmSpec& spec, Seconds time, Seconds ring, Bytes bytes, const std::string& where) {
  Wish wish{.algorithm = planner::ToString(spec)};
  wish.why = fmt::format("{} {:.4g} us, ring {:.4g} us at {} bytes{}", wish.algorithm, 1e6 * time.count(), 1e6 * ring.count(),
                         bytes.count(), where);
  std::replace(wish.algorithm.begin(), wish.algorithm.end(), ':', '.');
  return wish;
}

/// Of a sorted list the first that `fits` and the ring.
template <typename Cost, typename Fits>
std::pair<const Cost*, const Cost*> BestAndRing(const std::vector<Cost>& costs, const Fits& fits) {
  const Cost *best = nullptr, *ring = nullptr;
  for (const Cost& cost : costs) {
    if (cost.spec.algorithm == planner::Algorithm::kRing) ring = &cost;
    if (best == nullptr && fits(cost)) best = &cost;
  }
  return {best, ring};
}

/// What pays more: another schedule, on equal links, or levels, on the links that there are.
Result<Wish> OwnWish(const CollectiveJob& job, Collective collective, Bytes bytes) {
  const planner::GroupNetwork network = JobNetwork(job.cluster, job.ranks / job.nodes, job.node_rate, planner::CollectiveLibrary::kWeft);
  WEFT_ASSIGN_OR_RETURN(const std::vector<planner::AlgorithmCost> costs,
                        planner::Choose(collective, network, static_cast<int32_t>(job.ranks), bytes));
  const auto [schedule, ring] = BestAndRing(costs, [&](const planner::AlgorithmCost& cost) {
    const bool levels = cost.spec.algorithm == planner::Algorithm::kHierarchical || cost.spec.algorithm == planner::Algorithm::kTorus;
    return job.fabric == nullptr || !levels;
  });
  Wish wish;
  double gain = 1 + kGain;
  if (schedule != nullptr && ring != nullptr && ring->time.count() > gain * schedule->time.count()) {
    gain = ring->time / schedule->time;
    wish = WishFor(schedule->spec, schedule->time, ring->time, bytes, "");
  }
  if (job.fabric == nullptr) return wish;
  WEFT_ASSIGN_OR_RETURN(const std::vector<planner::GroupingCost> groupings,
                        planner::ChooseGrouping(job.fabric->topology, job.fabric->ranks, collective, bytes,
                                                {job.cluster.intra_latency, job.cluster.nic_latency}));
  const auto [levels, flat] = BestAndRing(groupings, [](const planner::GroupingCost& cost) {
    return cost.spec.algorithm == planner::Algorithm::kHierarchical;
  });
  if (levels != nullptr && flat != nullptr && flat->time.count() > gain * levels->time.count()) {
    wish = WishFor(levels->spec, levels->time, flat->time, bytes,
                   fmt::format(" on the links that probes have shown: a rank gets {} inside its group and {} between groups",
                               FormatRate(levels->inner), FormatRate(levels->outer)));
  }
  return wish;
}

/// Lower case, without what NCCL's own spelling has and the table's has not.
std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::optional<planner::NcclGraph> GraphOf(const CollectiveJob& job) {
  const std::string& device = job.cluster.device.name;
  planner::NcclGraph graph;
  if (device.starts_with("v100")) graph.generation = planner::GpuGeneration::kVolta;
  else if (device.starts_with("a100")) graph.generation = planner::GpuGeneration::kAmpere;
  else if (device.starts_with("h100")) graph.generation = planner::GpuGeneration::kHopper;
  else return std::nullopt;
  const auto per_node = static_cast<int32_t>(job.ranks / job.nodes);
  const BitsPerSecond nic(job.cluster.nic_rate.value() / static_cast<double>(job.cluster.gpus_per_node));
  const planner::ChannelSpeed speed = planner::ChannelsOf(graph.generation, per_node, per_node, nic);
  graph.ranks = static_cast<int32_t>(job.ranks);
  graph.nodes = static_cast<int32_t>(job.nodes);
  graph.channels = speed.channels;
  graph.inside_gbs = speed.inside_gbs;
  graph.across_gbs = speed.across_gbs;
  graph.nvswitch = graph.generation != planner::GpuGeneration::kVolta;
  graph.plain_tree = per_node == 1;
  if (graph.channels < 1 || !(graph.inside_gbs > 0) || !(graph.across_gbs > 0)) return std::nullopt;
  return graph;
}

Result<Wish> NcclWish(const planner::NcclGraph& graph, const planner::GroupNetwork& network, Collective collective, Bytes bytes) {
  const std::vector<planner::NcclEntry> own = planner::NcclTable(graph, collective, bytes);
  if (own.empty()) return Wish{};
  const std::vector<planner::NcclCost> real = planner::CellsOn(network, {graph.ranks, 1}, collective, bytes, own);
  const auto chosen = std::find_if(real.begin(), real.end(), [&](const planner::NcclCost& cell) {
    return cell.algorithm == own.front().algorithm && cell.protocol == own.front().protocol;
  });
  if (chosen == real.end() || real.front().time.count() * (1 + kGain) >= chosen->time.count()) return Wish{};
  const planner::NcclCost& best = real.front();
  Wish wish{.algorithm = Lower(planner::NcclAlgorithmName(best.algorithm)),
            .protocol = Lower(planner::NcclProtocolName(best.protocol))};
  const auto cell = std::find_if(own.begin(), own.end(), [&](const planner::NcclEntry& entry) {
    return entry.algorithm == best.algorithm && entry.protocol == best.protocol;
  });
  const bool counted = best.algorithm == planner::Algorithm::kRing || best.algorithm == planner::Algorithm::kTree;
  if (counted) wish.channels = std::clamp(planner::NcclChannels(graph, *cell, bytes), 0, kMostNcclChannels);
  const double node_rate = 8e-9 * network.nic_rate * static_cast<double>(network.gpus_per_node);
  wish.why = fmt::format("{} {} {:.4g} us, NCCL's own choice {} {} {:.4g} us at {} bytes and {:.4g} Gbit/s between nodes",
                         wish.algorithm, wish.protocol, 1e6 * best.time.count(),
                         planner::NcclAlgorithmName(chosen->algorithm), planner::NcclProtocolName(chosen->protocol),
                         1e6 * chosen->time.count(), bytes.count(), node_rate);
  return wish;
}

/// The value of `names` that is called `text`.
template <typename Value>
bool FindName(const char* (*name_of)(Value), const std::string& text, Value* value) {
  for (int i = 0; i < 32; ++i) {
    const char* name = name_of(static_cast<Value>(i));
    if (name == nullptr) return false;
    if (text != name) continue;
    *value = static_cast<Value>(i);
    return true;
  }
  return false;
}

}  // namespace

Result<std::vector<v1::CollectiveChoice>> ChooseCollectives(const CollectiveJob& job) {
  std::vector<v1::CollectiveChoice> choices;
  if (job.ranks < 2 || job.nodes < 1 || job.ranks % job.nodes != 0 || job.ranks > abi::kMaxCollectiveRanks) return choices;
  const std::optional<planner::NcclGraph> graph = job.own_runtime ? std::nullopt : GraphOf(job);
  if (!job.own_runtime && (!graph || job.nodes < 2)) return choices;
  const planner::GroupNetwork network = JobNetwork(job.cluster, job.ranks / job.nodes, job.node_rate, planner::CollectiveLibrary::kNccl);
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    if (job.own_runtime && collective != Collective::kAllReduce) continue;  // it runs no other
    const auto ask = [&](Bytes bytes) -> Result<Wish> {
      return job.own_runtime ? OwnWish(job, collective, bytes) : NcclWish(*graph, network, collective, bytes);
    };
    WEFT_RETURN_IF_ERROR(AddRanges(job, collective, ask, &choices));
  }
  return choices;
}

Result<std::string> CollectiveTableText(const std::vector<v1::CollectiveChoice>& choices) {
  abi::CollectiveTable table;
  if (choices.size() > abi::kMaxCollectiveEntries) {
    return Fail(Code::kResourceExhausted, fmt::format("collective table: {} entries, expected at most {}", choices.size(),
                                                      abi::kMaxCollectiveEntries));
  }
  for (const v1::CollectiveChoice& choice : choices) {
    abi::CollectiveEntry& entry = table.entries[table.count++];
    entry.members = abi::MembersKind::kRanks;
    entry.ranks = static_cast<uint32_t>(choice.ranks());
    entry.nodes = static_cast<uint32_t>(choice.nodes());
    entry.least_bytes = static_cast<uint64_t>(choice.least_bytes());
    entry.most_bytes = choice.most_bytes() > 0 ? static_cast<uint64_t>(choice.most_bytes()) : abi::kNoByteLimit;
    entry.channels = static_cast<uint32_t>(choice.channels());
    const std::string name = choice.algorithm().substr(0, choice.algorithm().find('.'));
    const char* const end = choice.algorithm().data() + choice.algorithm().size();
    if (name.size() < choice.algorithm().size()) std::from_chars(end - (choice.algorithm().size() - name.size() - 1), end, entry.parameter);
    const std::string protocol = choice.protocol().empty() ? "-" : choice.protocol();
    if (!FindName(abi::CollectiveOpName, choice.collective(), &entry.collective) ||
        !FindName(abi::CollectiveAlgorithmName, name, &entry.algorithm) ||
        !FindName(abi::CollectiveProtocolName, protocol, &entry.protocol)) {
      return Fail(Code::kInvalidArgument, fmt::format("collective table: {} {} {}: the table has no word for it",
                                                      choice.collective(), choice.algorithm(), protocol));
    }
  }
  std::string text(abi::kMaxCollectiveText + 1, '\0');
  text.resize(abi::PrintCollectiveTable(table, text.data(), text.size()));
  if (text.empty()) return Fail(Code::kResourceExhausted, "collective table: longer than its format allows, or an entry is out of range");
  return text;
}

}  // namespace weft::controller
