#include "cli/link_times.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <new>

#include "cli/perf_local.h"
#include "cli/perf_report.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

/// What rank 0 leaves for the process that forked it.
struct Shared {
  double message_s = 0, bytes_per_s = 0;
};

RankOutcome Measure(const PerfPlan& plan, const PerfPlace& place, Shared* out) {
  const auto report = MeasureRank(plan, place, {});
  if (!report) return {report.error().exit_code, report.error().error.message()};
  if (place.rank != 0) return {};
  const PerfResult &least = report->results.front(), &most = report->results.back();
  out->message_s = Percentile(least.times_s, 0.5);
  out->bytes_per_s = static_cast<double>(most.bytes) / Percentile(most.times_s, 0.5);
  return {};
}

}  // namespace

Result<LinkTimes> MeasureLink(const LinkOptions& options) {
  PerfOptions perf{.collective = "sendrecv", .ranks = 2, .bytes = "8B,64MiB", .iterations = 21, .plugin = options.plugin};
  perf.ping_pong = true;
  if (!options.rendezvous.empty()) perf.rank = options.rank, perf.world = 2, perf.rendezvous = options.rendezvous;
  WEFT_ASSIGN_OR_RETURN(const PerfPlan plan, CheckPerfOptions(perf));
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Fail(Code::kUnavailable, ErrnoError("mmap", errno).message());
  auto* shared = new (memory) Shared;
  RankOutcome outcome;
  if (options.rendezvous.empty()) {
    outcome = RunLocally(plan, [&](const PerfPlace& place) { return Measure(plan, place, shared); });
  } else {
    TellPlugin(options.rank, 2);
    outcome = Measure(plan, {.rank = options.rank, .rendezvous = options.rendezvous}, shared);
  }
  const LinkTimes times{.message = Seconds(shared->message_s), .rate = BitsPerSecond(8 * shared->bytes_per_s)};
  munmap(memory, sizeof(Shared));
  if (outcome.exit_code != kExitDone) {
    return Fail(outcome.exit_code == kExitUsage ? Code::kInvalidArgument : Code::kUnavailable, outcome.message);
  }
  return times;
}

}  // namespace weft::cli
