#include "netplugin/interfaces/tuner.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "netplugin/interfaces/environment_plugin.h"
#include "netplugin/log.h"
#include "netplugin/process.h"

namespace weft::net {
namespace {

constexpr char kFabricVariable[] = "WEFT_FABRIC";
constexpr double kLeastBandwidth = 0.01, kMostLatencyUs = 10'000;
constexpr uint64_t kFnvBasis = 0xCBF29CE484222325u, kFnvPrime = 0x100000001B3u;

uint64_t Fold(uint64_t digest, uint64_t value) {
  for (int i = 0; i < 8; ++i, value >>= 8) digest = (digest ^ (value & 0xFF)) * kFnvPrime;
  return digest;
}

std::optional<double> Number(std::string_view text, double least, double most) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || !(value >= least && value <= most)) return {};
  return value;
}

/// "bandwidth:SHARE,latency_us:MICROSECONDS", either part alone as well.
bool ParseFabric(std::string_view text, FabricFactors* fabric) {
  FabricFactors read;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return false;
    const std::string_view key = part.substr(0, colon), value = part.substr(colon + 1);
    const bool is_bandwidth = key == "bandwidth";
    if (!is_bandwidth && key != "latency_us") return false;
    const auto number = is_bandwidth ? Number(value, kLeastBandwidth, 1) : Number(value, 0, kMostLatencyUs);
    if (!number) return false;
    (is_bandwidth ? read.bandwidth : read.latency_us) = *number;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  *fabric = read;
  return true;
}

std::optional<abi::CollectiveOp> ToOp(int function) {
  switch (function) {
    case nccl::kBroadcast: return abi::CollectiveOp::kBroadcast;
    case nccl::kReduce: return abi::CollectiveOp::kReduce;
    case nccl::kAllGather: return abi::CollectiveOp::kAllGather;
    case nccl::kReduceScatter: return abi::CollectiveOp::kReduceScatter;
    case nccl::kAllReduce: return abi::CollectiveOp::kAllReduce;
    default: return {};
  }
}

/// Which protocol of `algorithm` to force: the wanted one, or for kAny the one that NCCL's model finds cheapest (ranks
/// agree on the model, or their NCCLs would disagree without us). -1: not offered.
int OfferedProtocol(const CostTable& table, int algorithm, abi::CollectiveProtocol wanted) {
  if (algorithm >= table.algorithms) return -1;
  const float* row = table.costs + static_cast<ptrdiff_t>(algorithm) * table.protocols;
  if (wanted != abi::CollectiveProtocol::kAny) {
    const int protocol = static_cast<int>(wanted) - 1;
    return protocol < table.protocols && row[protocol] >= 0 ? protocol : -1;
  }
  int best = -1;
  for (int p = 0; p < table.protocols; ++p) {
    if (row[p] >= 0 && (best < 0 || row[p] < row[best])) best = p;
  }
  return best;
}

/// Never destroyed: a program may end while a thread of NCCL still asks.
const TunerPlan& ProcessPlan() {
  static const TunerPlan& plan = *new TunerPlan(ReadTunerPlan());
  return plan;
}

void LogPlan(const TunerPlan& plan, size_t ranks, size_t nodes) {
  for (const std::string& problem : plan.problems) Log(nccl::kLogWarn, "tuner: %s", problem.c_str());
  if (plan.table.count > 0 && plan.overridden()) {
    Log(nccl::kLogInfo, "tuner: %s%s%s set: the table of %u entries decides nothing",
        plan.user_algorithm ? "NCCL_ALGO" : "", plan.user_algorithm && plan.user_protocol ? " and " : "",
        plan.user_protocol ? "NCCL_PROTO" : "", plan.table.count);
    return;
  }
  Log(nccl::kLogInfo, "tuner: %zu ranks on %zu nodes, table of %u entries, digest %016llx", ranks, nodes,
      plan.table.count, static_cast<unsigned long long>(plan.digest));
}

}  // namespace

TunerPlan ReadTunerPlan() {
  TunerPlan plan;
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? value : nullptr;
  };
  const auto is_set = [](const char* name) {  // as NCCL asks, where our environment plugin answers
    const char* value = GetVariable(name);
    return value && *value;
  };
  plan.user_algorithm = is_set("NCCL_ALGO");
  plan.user_protocol = is_set("NCCL_PROTO");
  if (const char* text = set(abi::kCollectivesVariable)) {
    const size_t length = std::strlen(text);
    size_t at = 0;
    if (const char* wrong = abi::ParseCollectiveTable(text, length, &plan.table, &at)) {
      plan.problems.push_back(std::string(abi::kCollectivesVariable) + " at byte " + std::to_string(at) + ": " + wrong +
                              "; the whole table is refused and NCCL decides");
    } else {
      plan.digest = kFnvBasis;
      for (size_t i = 0; i < length; ++i) plan.digest = (plan.digest ^ static_cast<uint8_t>(text[i])) * kFnvPrime;
    }
  }
  if (const char* text = set(kFabricVariable)) {
    if (!ParseFabric(text, &plan.fabric)) {
      plan.problems.push_back(std::string(kFabricVariable) + "=\"" + text +
                              "\": expected bandwidth:SHARE,latency_us:TIME with 0.01 to 1 and 0 to 10000; NCCL's "
                              "constants stay");
    }
  }
  return plan;
}

Tuner::Tuner(const TunerPlan& plan, size_t ranks, size_t nodes, abi::CommunicatorSlot* slot)
    : plan_(plan), ranks_(static_cast<uint32_t>(ranks)), nodes_(static_cast<uint32_t>(nodes)), slot_(slot) {
  if (!slot_) return;
  slot_->table_digest.store(plan.digest, std::memory_order_relaxed);
  slot_->overridden.store((plan.user_algorithm ? 1u : 0u) | (plan.user_protocol ? 2u : 0u), std::memory_order_relaxed);
}

const abi::CollectiveEntry* Tuner::Entry(int function, size_t bytes) const {
  const auto op = ToOp(function);
  if (!op || plan_.overridden()) return nullptr;
  // No interface version tells a tuner which ranks the communicator has, only how many: entries by hash do not fit.
  return abi::FindCollective(plan_.table, {.collective = *op, .bytes = bytes, .ranks = ranks_, .nodes = nodes_});
}

void Tuner::Choose(int function, size_t bytes, const CostTable& table, int* channels) {
  int protocol = -1, algorithm = -1;
  const abi::CollectiveEntry* entry = table.costs ? Entry(function, bytes) : nullptr;
  if (entry) {
    algorithm = static_cast<int>(entry->algorithm);
    protocol = OfferedProtocol(table, algorithm, entry->protocol);
  }
  if (protocol < 0) {
    Record(false, function, bytes, -1, -1, 0);
    return;
  }
  table.costs[static_cast<ptrdiff_t>(algorithm) * table.protocols + protocol] = 0;
  // NCCL cuts the number to what the communicator has, but for algorithms in a switch.
  using enum abi::CollectiveAlgorithm;
  const bool in_switch = entry->algorithm == kCollNetDirect || entry->algorithm == kCollNetChain || entry->algorithm == kNvls;
  const uint32_t wanted = in_switch ? 0 : entry->channels;
  if (wanted > 0 && channels) *channels = static_cast<int>(wanted);
  Record(true, function, bytes, algorithm, protocol, wanted);
}

void Tuner::Record(bool decided, int function, size_t bytes, int algorithm, int protocol, uint32_t channels) {
  if (!slot_) return;
  Count(decided ? slot_->decided : slot_->left, uint64_t{1});
  for (const uint64_t value : {static_cast<uint64_t>(function), static_cast<uint64_t>(bytes),
                               static_cast<uint64_t>(algorithm), static_cast<uint64_t>(protocol),
                               static_cast<uint64_t>(channels)}) {
    digest_ = Fold(digest_ == 0 ? kFnvBasis : digest_, value);
  }
  slot_->decision_digest.store(digest_, std::memory_order_relaxed);
}

void AdaptConstants(const FabricFactors& fabric, nccl::TunerConstants* constants) {
  for (auto& row : constants->hardware_latencies[nccl::kNetLink]) {
    for (double& latency : row) {
      if (latency > 0) latency += fabric.latency_us;  // 0: the algorithm does not use that link
    }
  }
  for (auto* bandwidths :
       {&constants->ll_max_bandwidths, &constants->channel_ring_ll128_bandwidths,
        &constants->channel_tree_ll128_bandwidths, &constants->channel_tree_bandwidths,
        &constants->channel_nvls_tree_bandwidths}) {
    for (auto& row : *bandwidths) {
      for (int scale = 1; scale < nccl::kNodeScales; ++scale) row[scale] *= fabric.bandwidth;
    }
  }
}

int OpenTuner(void** context, uint64_t comm_id, size_t ranks, size_t nodes, nccl::Logger logger,
              nccl::NvlDomainInfo*, nccl::TunerConstants* constants) {
  if (!context) return nccl::kInvalidArgument;
  Process& process = Process::Acquire(0, logger, false);
  const TunerPlan& plan = ProcessPlan();
  LogPlan(plan, ranks, nodes);
  if (constants) AdaptConstants(plan.fabric, constants);
  abi::CommunicatorSlot* slot = process.observer().Open(
      {.comm = comm_id, .ranks = static_cast<int>(ranks), .nodes = static_cast<int>(nodes)});
  *context = std::make_unique<Tuner>(plan, ranks, nodes, slot).release();
  return nccl::kSuccess;
}

int TuneCollective(void* context, int function, size_t bytes, int, float** costs, int algorithms, int protocols, int,
                   int* channels) {
  if (!context) return nccl::kSuccess;  // an error would fail the collective; NCCL's own choice is the better answer
  static_cast<Tuner*>(context)->Choose(function, bytes, {reinterpret_cast<float*>(costs), algorithms, protocols},
                                       channels);
  return nccl::kSuccess;
}

int TuneWithoutCosts(void* context, int function, size_t bytes, const OfferedV2& offered, int* algorithm, int* protocol,
                     int* channels) {
  if (!context || !algorithm || !protocol) return nccl::kSuccess;
  // As the cost table of a later release would come: tree and ring with LL and Simple, the others with Simple only.
  constexpr int kLl = 0, kSimple = 2, kAlgorithmsV2 = 6;
  constexpr int kTree = 0, kRing = 1, kCollnetDirect = 2, kCollnetChain = 3, kNvls = 4, kNvlsTree = 5;
  float costs[kAlgorithmsV2][nccl::kProtocols];
  for (auto& row : costs) {
    for (float& cost : row) cost = nccl::kCostIgnore;
  }
  const bool reduces_all = function == nccl::kAllReduce;
  costs[kRing][kLl] = costs[kRing][kSimple] = 1;
  if (reduces_all) costs[kTree][kLl] = costs[kTree][kSimple] = 1;
  if (reduces_all && offered.collnet) costs[kCollnetDirect][kSimple] = costs[kCollnetChain][kSimple] = 1;
  if (reduces_all && offered.nvls) costs[kNvls][kSimple] = costs[kNvlsTree][kSimple] = 1;
  static_cast<Tuner*>(context)->Choose(function, bytes, {&costs[0][0], kAlgorithmsV2, nccl::kProtocols}, channels);
  for (int a = 0; a < kAlgorithmsV2; ++a) {
    for (int p = 0; p < nccl::kProtocols; ++p) {
      if (costs[a][p] == 0) *algorithm = a, *protocol = p;
    }
  }
  return nccl::kSuccess;
}

int CloseTuner(void* context) {
  if (!context) return nccl::kSuccess;
  const std::unique_ptr<Tuner> tuner(static_cast<Tuner*>(context));
  if (Process* process = Process::Get()) process->observer().Close(tuner->slot());
  Process::Release();
  return nccl::kSuccess;
}

}  // namespace weft::net
