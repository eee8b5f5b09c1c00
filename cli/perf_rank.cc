#include "cli/perf_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>

#include "cli/perf_data.h"
#include "collectives/communicator.h"
#include "common/exit_code.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

using collectives::Bootstrap;
using collectives::Communicator;
using collectives::NetPlugin;
using Steady = std::chrono::steady_clock;

double SecondsSince(Steady::time_point start) { return std::chrono::duration<double>(Steady::now() - start).count(); }

/// Page-aligned memory of one rank, allocated once at the largest size.
class Buffer {
 public:
  ~Buffer() { std::free(data_); }
  Status Allocate(int64_t elements) {
    const size_t bytes = (static_cast<size_t>(elements) * sizeof(float) + 4096) / 4096 * 4096;
    data_ = static_cast<float*>(std::aligned_alloc(4096, bytes));
    if (data_ == nullptr) {
      return Fail(Code::kResourceExhausted, fmt::format("no memory for a buffer of {} bytes", bytes));
    }
    std::memset(data_, 0, bytes);  // touched now, not in the first run
    return Ok();
  }
  std::span<float> first(int64_t elements) const { return {data_, static_cast<size_t>(elements)}; }

 private:
  float* data_ = nullptr;
};

/// What all ranks must have been told alike.
std::vector<uint8_t> Fingerprint(const PerfPlan& plan) {
  const std::string text =
      fmt::format("{} {} {} {} {} {} {}", planner::CollectiveName(plan.schedule.collective), plan.ranks,
                  plan.counts.front(), plan.counts.back(), plan.iterations, plan.warmup,
                  fmt::format("{} {} {}", plan.check, plan.slice.count(), plan.schedule.algorithm));
  return {text.begin(), text.end()};
}

class Measurement {
 public:
  Measurement(const PerfPlan& plan, Bootstrap& bootstrap, Communicator& communicator)
      : plan_(plan), bootstrap_(bootstrap), communicator_(communicator), rank_(communicator.rank().value()) {}

  Status Prepare() {
    WEFT_ASSIGN_OR_RETURN(const auto told, bootstrap_.AllGather(Fingerprint(plan_)));
    for (size_t rank = 1; rank < told.size(); ++rank) {
      if (told[rank] == told[0]) continue;
      return Fail(Code::kInvalidArgument, fmt::format("rank {} was started with other options than rank 0", rank));
    }
    const PerfRun largest = RunOf(plan_.counts.back(), 0);
    if (!InPlace()) WEFT_RETURN_IF_ERROR(input_.Allocate(InputElements(largest)));
    return output_.Allocate(OutputElements(largest));
  }

  Result<PerfResult> Measure(int64_t count) {
    PerfResult result{.bytes = count * static_cast<int64_t>(sizeof(float))};
    std::vector<double> times;
    if (!plan_.check) Fill(RunOf(count, 0));
    for (int i = 0; i < plan_.warmup + plan_.iterations; ++i) {
      WEFT_ASSIGN_OR_RETURN(const double time_s, RunOnce(RunOf(count, runs_++), &result.wrong));
      if (i >= plan_.warmup) times.push_back(time_s);
      Report(count, i + 1);
    }
    WEFT_RETURN_IF_ERROR(Combine(times, &result));
    return result;
  }

 private:
  PerfRun RunOf(int64_t count, uint32_t iteration) const {
    return {plan_.schedule.collective, plan_.ranks, rank_, count, iteration};
  }
  /// Where input and output both hold the whole buffer and the schedule allows it, as training does it.
  bool InPlace() const {
    return plan_.schedule.collective == planner::Collective::kAllReduce ||
           plan_.schedule.collective == planner::Collective::kBroadcast;
  }
  std::span<float> Input(const PerfRun& run) const { return (InPlace() ? output_ : input_).first(InputElements(run)); }
  std::span<float> Output(const PerfRun& run) const { return output_.first(OutputElements(run)); }

  void Fill(const PerfRun& run) {
    // What an earlier run left must not pass for a result.
    const std::span<float> output = Output(run);
    std::fill(output.begin(), output.end(), std::numeric_limits<float>::quiet_NaN());
    FillInput(run, Input(run));
  }

  Result<double> RunOnce(const PerfRun& run, int64_t* wrong) {
    if (plan_.check) Fill(run);
    WEFT_RETURN_IF_ERROR(communicator_.Barrier());
    const auto start = Steady::now();
    WEFT_RETURN_IF_ERROR(communicator_.Run(plan_.schedule, collectives::DataType::kFloat32, run.count,
                                           Input(run).data(), Output(run).data()));
    const double time_s = SecondsSince(start);
    if (plan_.check) *wrong += CountWrong(run, Output(run));
    return time_s;
  }

  /// The time of a run is that of its slowest rank; wrong elements add up.
  Status Combine(const std::vector<double>& times, PerfResult* result) {
    std::vector<uint8_t> mine(sizeof(int64_t) + times.size() * sizeof(double));
    std::memcpy(mine.data(), &result->wrong, sizeof(int64_t));
    std::memcpy(mine.data() + sizeof(int64_t), times.data(), times.size() * sizeof(double));
    WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap_.AllGather(mine));
    result->wrong = 0;
    result->times_s.assign(times.size(), 0);
    for (const auto& blob : all) {
      if (blob.size() != mine.size()) return Fail(Code::kInternal, "a rank timed another number of runs");
      int64_t wrong = 0;
      std::memcpy(&wrong, blob.data(), sizeof wrong);
      result->wrong += wrong;
      for (size_t i = 0; i < times.size(); ++i) {
        double time_s = 0;
        std::memcpy(&time_s, blob.data() + sizeof(int64_t) + i * sizeof(double), sizeof time_s);
        result->times_s[i] = std::max(result->times_s[i], time_s);
      }
    }
    std::sort(result->times_s.begin(), result->times_s.end());
    return Ok();
  }

  void Report(int64_t count, int done) {
    if (rank_ != 0 || SecondsSince(last_report_) < 1) return;
    last_report_ = Steady::now();
    std::fprintf(stderr, "perf: %s: run %d of %d\n", FormatBytes(Bytes(count * 4)).c_str(), done,
                 plan_.warmup + plan_.iterations);
  }

  const PerfPlan& plan_;
  Bootstrap& bootstrap_;
  Communicator& communicator_;
  const int rank_;
  Buffer input_;
  Buffer output_;
  uint32_t runs_ = 0;
  Steady::time_point last_report_ = Steady::now();
};

Result<PerfReport> MeasureAll(const PerfPlan& plan, const NetPlugin& plugin, Measurement* measurement,
                              const PerfObserver& observer) {
  WEFT_RETURN_IF_ERROR(measurement->Prepare());
  PerfReport report{.plugin_name = plugin.name(), .plugin_path = plugin.path(), .net_version = plugin.version()};
  observer.begin(report);
  for (const int64_t count : plan.counts) {
    WEFT_ASSIGN_OR_RETURN(PerfResult result, measurement->Measure(count));
    observer.row(result);
    report.results.push_back(std::move(result));
  }
  return report;
}

}  // namespace

tl::expected<PerfReport, PerfFailure> MeasureRank(const PerfPlan& plan, const PerfPlace& place,
                                                  const PerfObserver& observer) {
  const auto setup_failed = [](const Error& error) {
    return tl::unexpected<PerfFailure>(PerfFailure{error, ExitCodeOf(error)});
  };
  auto plugin = NetPlugin::Load(plan.plugin, plan.net_version);
  if (!plugin) return setup_failed(plugin.error());
  auto bootstrap = Bootstrap::Join({.rank = RankId(place.rank), .world = plan.ranks, .address = place.rendezvous,
                                    .timeout = plan.timeout, .listener = place.listener});
  if (!bootstrap) return setup_failed(bootstrap.error());
  auto communicator =
      Communicator::Create(**plugin, **bootstrap, {.slice = plan.slice, .stall_timeout = plan.timeout});
  if (!communicator) return setup_failed(communicator.error());
  Measurement measurement(plan, **bootstrap, **communicator);
  auto report = MeasureAll(plan, **plugin, &measurement, observer);
  if (!report) return tl::unexpected<PerfFailure>(PerfFailure{report.error(), kExitFailed});
  return std::move(*report);
}

}  // namespace weft::cli
