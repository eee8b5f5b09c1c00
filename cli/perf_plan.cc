#include "cli/perf_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/net_plugin.h"
#include "common/parse_units.h"
#include "planner/collectives/algorithm.h"

namespace weft::cli {
namespace {

constexpr int64_t kElementBytes = 4;

tl::unexpected<Error> Bad(const std::string& message) { return Fail(Code::kInvalidArgument, message); }

/// Blocks of equal length where the collective needs them, as nccl-tests rounds; never nothing out of something.
int64_t CountOf(Bytes size, const planner::Schedule& schedule) {
  const int64_t count = size.count() / kElementBytes;
  if (schedule.collective != planner::Collective::kAllToAll || count == 0) return count;
  return std::max<int64_t>(1, count / schedule.chunk_count) * schedule.chunk_count;
}

Result<planner::Schedule> ScheduleOf(const PerfOptions& options, int ranks) {
  auto collective = planner::ParseCollective(options.collective);
  if (!collective) return Fail(collective.error().WithContext("--collective"));
  if (*collective == planner::Collective::kSendRecv) {
    if (ranks % 2 != 0) return Bad(fmt::format("--ranks {}: sendrecv goes in pairs, expected an even number", ranks));
    ranks = 2;  // every pair does the same
  }
  auto algorithm = planner::ParseAlgorithm(options.algorithm);
  if (!algorithm) return Fail(algorithm.error().WithContext("--algorithm"));
  auto schedule = planner::MakeSchedule(*algorithm, *collective, ranks);
  const bool ring = algorithm->algorithm == planner::Algorithm::kRing;
  if (!schedule) return Fail(schedule.error().WithContext(ring ? "--ranks" : "--algorithm"));
  return schedule;
}

/// "1KiB" or "1KiB:64MiB".
Result<std::vector<Bytes>> ParseRange(const std::string& text) {
  const size_t colon = text.find(':');
  auto least = ParseBytes(text.substr(0, colon));
  if (!least) return Fail(least.error().WithContext("--bytes"));
  auto most = colon == std::string::npos ? least : ParseBytes(text.substr(colon + 1));
  if (!most) return Fail(most.error().WithContext("--bytes"));
  if (*least > *most) return Bad(fmt::format("--bytes \"{}\": expected the smaller size first", text));
  if (*least < Bytes(1) && *most > *least) {
    return Bad(fmt::format("--bytes \"{}\": a range by factors of two cannot begin at 0", text));
  }
  std::vector<Bytes> sizes;
  for (Bytes size = *least; size <= *most && size >= *least; size = size * 2) {
    sizes.push_back(size);
    if (size.count() == 0) break;
  }
  return sizes;
}

Status CheckPlace(const PerfOptions& options) {
  const bool alone = options.rank >= 0 || options.world > 0 || !options.rendezvous.empty();
  if (alone && (options.world < 1 || options.rank < 0 || options.rank >= options.world || options.rendezvous.empty())) {
    return Bad(fmt::format("--rank {} --world {} --rendezvous \"{}\": expected all three, and a rank below the world",
                           options.rank, options.world, options.rendezvous));
  }
  if (!alone && (options.ranks < 1 || options.ranks > 1024)) {
    return Bad(fmt::format("--ranks {}: expected 1 to 1024", options.ranks));
  }
  return Ok();
}

/// Pairs of ranks have more ways to talk than a collective.
Status CheckFlows(const PerfOptions& options) {
  if (options.connections < 1 || options.connections > 1024) {
    return Bad(fmt::format("--connections {}: expected 1 to 1024", options.connections));
  }
  if (options.messages < 1) return Bad(fmt::format("--messages {}: expected at least 1", options.messages));
  if (options.bidirectional && options.ping_pong) {
    return Bad("--bidirectional and --ping-pong: expected one of them");
  }
  const bool any = options.connections > 1 || options.messages > 1 || options.bidirectional || options.ping_pong;
  if (any && options.collective != planner::CollectiveName(planner::Collective::kSendRecv)) {
    return Bad(fmt::format("--collective {}: --connections, --messages, --bidirectional and --ping-pong are of sendrecv",
                           options.collective));
  }
  return Ok();
}

Status CheckNumbers(const PerfOptions& options) {
  if (options.iterations < 1) return Bad(fmt::format("--iterations {}: expected at least 1", options.iterations));
  if (options.warmup < 0) return Bad(fmt::format("--warmup {}: expected at least 0", options.warmup));
  if (options.net_version < 6 || options.net_version > 12) {
    return Bad(fmt::format("--net-version {}: expected 6 to 12", options.net_version));
  }
  if (!options.transport.empty() && options.transport != "tcp" && options.transport != "rdma" &&
      options.transport != "auto") {
    return Bad(fmt::format("--transport \"{}\": expected tcp, rdma or auto", options.transport));
  }
  if (options.output != "table" && options.output != "json") {
    return Bad(fmt::format("--output \"{}\": expected table or json", options.output));
  }
  return Ok();
}

}  // namespace

Result<std::vector<Bytes>> ParseSizes(const std::string& text) {
  std::vector<Bytes> sizes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    WEFT_ASSIGN_OR_RETURN(const std::vector<Bytes> part, ParseRange(text.substr(begin, end - begin)));
    if (!sizes.empty() && part.front() <= sizes.back()) {
      return Bad(fmt::format("--bytes \"{}\": expected sizes in ascending order", text));
    }
    sizes.insert(sizes.end(), part.begin(), part.end());
    begin = end + 1;
  }
  return sizes;
}

int64_t ConcurrentFlows(const PerfPlan& plan) {
  if (plan.schedule.collective != planner::Collective::kSendRecv) return 1;
  const int directions = plan.pattern == FlowPattern::kBothWays ? 2 : 1;
  return int64_t{plan.ranks} / 2 * plan.connections * directions;
}

Result<PerfPlan> CheckPerfOptions(const PerfOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckPlace(options));
  WEFT_RETURN_IF_ERROR(CheckNumbers(options));
  PerfPlan plan;
  plan.rank = options.rank;
  plan.ranks = options.rank >= 0 ? options.world : options.ranks;
  plan.rendezvous = options.rendezvous;
  WEFT_ASSIGN_OR_RETURN(plan.schedule, ScheduleOf(options, plan.ranks));
  WEFT_RETURN_IF_ERROR(CheckFlows(options));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Bytes> sizes, ParseSizes(options.bytes));
  for (const Bytes size : sizes) plan.counts.push_back(CountOf(size, plan.schedule));
  auto slice = ParseBytes(options.slice);
  if (!slice) return Fail(slice.error().WithContext("--slice"));
  if (*slice < Bytes(kElementBytes)) return Bad(fmt::format("--slice \"{}\": expected at least 4B", options.slice));
  auto timeout = ParseDuration(options.timeout);
  if (!timeout) return Fail(timeout.error().WithContext("--timeout"));
  if (*timeout <= Seconds(0)) return Bad(fmt::format("--timeout \"{}\": expected more than 0", options.timeout));
  plan.slice = *slice;
  plan.timeout = *timeout;
  plan.iterations = options.iterations;
  plan.warmup = options.warmup;
  plan.check = options.check;
  plan.pin = options.pin;
  if (options.bidirectional) plan.pattern = FlowPattern::kBothWays;
  if (options.ping_pong) plan.pattern = FlowPattern::kPingPong;
  plan.connections = options.connections;
  plan.messages = options.messages;
  plan.net_version = options.net_version;
  plan.json = options.output == "json";
  plan.plugin = options.plugin.empty() ? collectives::DefaultPluginPath() : options.plugin;
  return plan;
}

}  // namespace weft::cli
