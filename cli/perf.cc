#include "cli/perf.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/perf_local.h"
#include "cli/perf_plan.h"
#include "cli/perf_rank.h"
#include "cli/perf_report.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

/// Rows as they come for people, one object at the end for scripts.
RankOutcome MeasureAndPrint(const PerfPlan& plan, const PerfPlace& place) {
  PerfObserver observer;
  if (place.rank == 0 && !plan.json) {
    observer.begin = [&](const PerfReport& report) { std::fputs(PerfTableHead(plan, report).c_str(), stdout); };
    observer.row = [&](const PerfResult& result) {
      std::fputs(PerfTableRow(plan, result).c_str(), stdout);
      std::fflush(stdout);
    };
  }
  const auto report = MeasureRank(plan, place, observer);
  if (!report) return {report.error().exit_code, report.error().error.message()};
  if (place.rank == 0 && plan.json) std::fputs(PerfJson(plan, *report).c_str(), stdout);
  const bool wrong = std::any_of(report->results.begin(), report->results.end(),
                                 [](const PerfResult& result) { return result.wrong != 0; });
  if (wrong) return {kExitFailed, "elements are wrong: see the column"};
  return {};
}

}  // namespace

int RunPerf(const PerfOptions& options) {
  const auto plan = CheckPerfOptions(options);
  if (plan && !options.transport.empty()) setenv("WEFT_TRANSPORT", options.transport.c_str(), 1);
  RankOutcome outcome;
  if (!plan) {
    outcome = {ExitCodeOf(plan.error()), plan.error().message()};
  } else if (plan->rank >= 0) {
    TellPlugin(plan->rank, plan->ranks);
    outcome = MeasureAndPrint(*plan, {.rank = plan->rank, .rendezvous = plan->rendezvous});
  } else {
    outcome = RunLocally(*plan, [&](const PerfPlace& place) { return MeasureAndPrint(*plan, place); });
  }
  if (outcome.exit_code != kExitDone) std::fprintf(stderr, "weft perf: %s\n", outcome.message.c_str());
  return outcome.exit_code;
}

}  // namespace weft::cli
