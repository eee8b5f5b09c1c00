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
  auto algorithm = planner::ParseAlgorithm(options.algorithm);
  if (!algorithm) return Fail(algorithm.error().WithContext("--algorithm"));
  auto schedule = planner::MakeSchedule(*algorithm, *collective, ranks);
  const bool ring = algorithm->algorithm == planner::Algorithm::kRing;
  if (!schedule) return Fail(schedule.error().WithContext(ring ? "--ranks" : "--algorithm"));
  return schedule;
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

Result<PerfPlan> CheckPerfOptions(const PerfOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckPlace(options));
  WEFT_RETURN_IF_ERROR(CheckNumbers(options));
  PerfPlan plan;
  plan.rank = options.rank;
  plan.ranks = options.rank >= 0 ? options.world : options.ranks;
  plan.rendezvous = options.rendezvous;
  WEFT_ASSIGN_OR_RETURN(plan.schedule, ScheduleOf(options, plan.ranks));
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
  plan.net_version = options.net_version;
  plan.json = options.output == "json";
  plan.plugin = options.plugin.empty() ? collectives::DefaultPluginPath() : options.plugin;
  return plan;
}

}  // namespace weft::cli
