#include "planner/parallelism/strategy.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr std::array<std::string_view, 4> kTensorModes = {"1d", "2d", "2.5d", "3d"};
constexpr std::array<std::string_view, 3> kContextModes = {"ring", "all-gather", "ulysses"};
constexpr std::array<std::string_view, 5> kDataSyncs = {"ring", "hierarchical", "parameter-server", "switch", "gossip"};
constexpr std::array<std::string_view, 3> kGradientWires = {"whole", "bf16", "fp8"};
constexpr std::array<std::string_view, 2> kRankOrders = {"tp-cp-ep-dp-pp", "tp-cp-pp-dp"};
constexpr std::array<std::string_view, 2> kShardings = {"uniform", "osdp"};

template <typename Enum, size_t N>
std::optional<Enum> Parse(const std::array<std::string_view, N>& names, std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view TensorModeName(TensorMode mode) { return kTensorModes[static_cast<size_t>(mode)]; }
std::string_view ContextModeName(ContextMode mode) { return kContextModes[static_cast<size_t>(mode)]; }
std::string_view DataSyncName(DataSync sync) { return kDataSyncs[static_cast<size_t>(sync)]; }
std::string_view RankOrderName(RankOrder order) { return kRankOrders[static_cast<size_t>(order)]; }
std::string_view GradientWireName(GradientWire wire) { return kGradientWires[static_cast<size_t>(wire)]; }
std::string_view ShardingName(Sharding sharding) { return kShardings[static_cast<size_t>(sharding)]; }

std::optional<TensorMode> ParseTensorMode(std::string_view text) { return Parse<TensorMode>(kTensorModes, text); }
std::optional<ContextMode> ParseContextMode(std::string_view text) { return Parse<ContextMode>(kContextModes, text); }
std::optional<DataSync> ParseDataSync(std::string_view text) { return Parse<DataSync>(kDataSyncs, text); }
std::optional<RankOrder> ParseRankOrder(std::string_view text) { return Parse<RankOrder>(kRankOrders, text); }
std::optional<GradientWire> ParseGradientWire(std::string_view text) { return Parse<GradientWire>(kGradientWires, text); }
std::optional<Sharding> ParseSharding(std::string_view text) { return Parse<Sharding>(kShardings, text); }

}  // namespace weft::planner::parallelism
