#include "cli/perf_rank.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <system_error>

#include "cli/perf_data.h"
#include "cli/perf_flows.h"
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

/// User and system time of all threads of this process.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Binds the calling thread to the core that is the rank's turn, and lets the threads that it has made meanwhile, which
/// are the plugin's and inherit the binding, run on all cores that the process had.
class Pin {
 public:
  Pin() { sched_getaffinity(0, sizeof all_, &all_); }

  void Apply(int rank) const {
    cpu_set_t own;
    CPU_ZERO(&own);
    int turn = rank % std::max(1, CPU_COUNT(&all_));
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &all_) && turn-- == 0) CPU_SET(core, &own);
    }
    std::error_code gone;  // a thread may end meanwhile
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
      const pid_t id = std::atoi(thread.path().filename().c_str());
      sched_setaffinity(id, sizeof all_, id == getpid() ? &own : &all_);
    }
  }

 private:
  cpu_set_t all_;
};

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
                  fmt::format("{} {} {} {} {} {}", plan.check, plan.slice.count(), plan.schedule.algorithm,
                              static_cast<int>(plan.pattern), plan.connections, plan.messages));
  return {text.begin(), text.end()};
}

/// What one rank says of one size.
struct Share {
  int64_t wrong = 0;
  int64_t sent = 0;
  double cpu_s = 0;
};

class Measurement {
 public:
  /// `flows` is there for a sendrecv, which it carries; the communicator then only keeps the ranks together.
  Measurement(const PerfPlan& plan, Bootstrap& bootstrap, Communicator& communicator, FlowExchange* flows)
      : plan_(plan), bootstrap_(bootstrap), communicator_(communicator), flows_(flows),
        rank_(communicator.rank().value()) {}

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
    Share share;
    std::vector<double> times;
    if (!plan_.check) Fill(RunOf(count, 0));
    WEFT_RETURN_IF_ERROR(communicator_.Barrier());
    for (int i = 0; i < plan_.warmup + plan_.iterations; ++i) {
      if (plan_.pin && (i == 0 || i == plan_.warmup)) pin_.Apply(rank_);
      const Share before = share;
      WEFT_ASSIGN_OR_RETURN(const double time_s, RunOnce(RunOf(count, runs_++), &share));
      if (i >= plan_.warmup) {
        times.push_back(time_s);
      } else {
        share = {.wrong = share.wrong, .sent = before.sent, .cpu_s = before.cpu_s};
      }
      Report(count, i + 1);
    }
    return Combine(count, times, share);
  }

 private:
  /// The connections of a sendrecv each have their own part of one buffer.
  PerfRun RunOf(int64_t count, uint32_t iteration) const {
    if (flows_ == nullptr) return {plan_.schedule.collective, plan_.ranks, rank_, count, iteration};
    const int from = FlowReceives(plan_.pattern, rank_) ? FlowPeer(rank_) : rank_;
    return {plan_.schedule.collective, plan_.ranks, rank_, count * plan_.connections, iteration, from};
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

  Status Carry(const PerfRun& run) {
    float* input = Input(run).data();
    float* output = Output(run).data();
    if (flows_ == nullptr) {
      return communicator_.Run(plan_.schedule, collectives::DataType::kFloat32, run.count, input, output);
    }
    const int64_t bytes = run.count / plan_.connections * static_cast<int64_t>(sizeof(float));
    return flows_->Run(reinterpret_cast<std::byte*>(input), reinterpret_cast<std::byte*>(output), bytes,
                       plan_.messages);
  }

  int64_t Sent() const { return flows_ == nullptr ? communicator_.bytes_sent().count() : flows_->bytes_sent(); }

  /// The time of one message as this rank sees it.
  Result<double> RunOnce(const PerfRun& run, Share* share) {
    const bool ping_pong = plan_.pattern == FlowPattern::kPingPong;
    if (plan_.check) Fill(run);
    // A ping that waits for its answer keeps the ranks together as it is; a barrier before it would only leave the
    // other rank still on its way when the ping comes.
    if (plan_.check || !ping_pong) WEFT_RETURN_IF_ERROR(communicator_.Barrier());
    const int64_t sent = Sent();
    const double cpu_s = CpuSeconds();
    const auto start = Steady::now();
    WEFT_RETURN_IF_ERROR(Carry(run));
    const double time_s = SecondsSince(start);
    share->cpu_s += CpuSeconds() - cpu_s;
    share->sent += Sent() - sent;
    if (plan_.check) share->wrong += CountWrong(run, Output(run));
    // Who answers does not know when the ping was sent.
    if (ping_pong) return rank_ % 2 == 0 ? time_s / 2 / plan_.messages : 0;
    return time_s / plan_.messages;
  }

  /// The time of a run is that of its slowest rank; all else adds up.
  Result<PerfResult> Combine(int64_t count, const std::vector<double>& times, const Share& share) {
    std::vector<uint8_t> mine(sizeof share + times.size() * sizeof(double));
    std::memcpy(mine.data(), &share, sizeof share);
    std::memcpy(mine.data() + sizeof share, times.data(), times.size() * sizeof(double));
    WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap_.AllGather(mine));
    PerfResult result{.bytes = count * static_cast<int64_t>(sizeof(float)),
                      .times_s = std::vector<double>(times.size(), 0)};
    for (const auto& blob : all) {
      if (blob.size() != mine.size()) return Fail(Code::kInternal, "a rank timed another number of runs");
      Share theirs;
      std::memcpy(&theirs, blob.data(), sizeof theirs);
      result.wrong += theirs.wrong;
      result.sent += theirs.sent;
      result.cpu_s += theirs.cpu_s;
      for (size_t i = 0; i < times.size(); ++i) {
        double time_s = 0;
        std::memcpy(&time_s, blob.data() + sizeof theirs + i * sizeof(double), sizeof time_s);
        result.times_s[i] = std::max(result.times_s[i], time_s);
      }
    }
    std::sort(result.times_s.begin(), result.times_s.end());
    return result;
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
  FlowExchange* const flows_;
  const int rank_;
  const Pin pin_;
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
  std::optional<FlowExchange> flows;
  if (plan.schedule.collective == planner::Collective::kSendRecv) {
    flows.emplace(**plugin, **bootstrap, FlowOptions{.pattern = plan.pattern, .connections = plan.connections,
                                                     .slice = plan.slice, .stall_timeout = plan.timeout});
    if (auto opened = flows->Open(); !opened) return tl::unexpected<PerfFailure>(PerfFailure{opened.error(), kExitFailed});
  }
  Measurement measurement(plan, **bootstrap, **communicator, flows ? &*flows : nullptr);
  auto report = MeasureAll(plan, **plugin, &measurement, observer);
  if (!report) return tl::unexpected<PerfFailure>(PerfFailure{report.error(), kExitFailed});
  return std::move(*report);
}

}  // namespace weft::cli
