#include "collectives/replay.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "collectives/burst_sender.h"
#include "collectives/communicator.h"
#include "common/parse_units.h"

namespace weft::collectives {
namespace {

constexpr int kMostIdle = 64;

/// CLOCK_MONOTONIC, which all processes of the host share: lines of several jobs can be laid side by side.
double MonotonicSeconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The stand-in for computation. A signal ends the process, and the sleep with it.
void SleepUntil(double monotonic_s) {
  double whole = 0;
  const double fraction = std::modf(monotonic_s, &whole);
  const timespec until{static_cast<time_t>(whole), static_cast<long>(fraction * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

/// Whole numbers below 2^16, so that sums of up to 256 ranks are exact.
float Value(int rank, int64_t position, int64_t step) {
  const uint32_t x = (static_cast<uint32_t>(position) + 1) * 0x9E3779B1u ^
                     (static_cast<uint32_t>(rank) * 0x85EBCA6Bu + static_cast<uint32_t>(step) * 0xC2B2AE35u);
  return static_cast<float>(static_cast<int32_t>((x ^ x >> 15) & 0xFFFF));
}

class Replay {
 public:
  Replay(const ReplayOptions& options, Communicator& communicator)
      : options_(options), communicator_(communicator) {
    for (const ReplayBurst& burst : options.bursts) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + Elements(burst.bytes));
    gradients_.resize(ends_.empty() ? Elements(options.bytes) : ends_.back());
    if (ends_.empty()) return;
    sender_ = std::make_unique<BurstSender>(ends_.size(), [this](size_t b) {
      const size_t begin = b == 0 ? 0 : ends_[b - 1];
      return Exchange(std::span(gradients_).subspan(begin, ends_[b] - begin));
    });
  }

  Status Run() {
    const double start_s = MonotonicSeconds();
    bool more = true;
    for (int64_t step = 0; more; ++step) {
      const double began_s = MonotonicSeconds();
      // Checking and filling belong to the computation: they hide in its sleep.
      if (step > 0) WEFT_RETURN_IF_ERROR(Check(step - 1));
      Fill(step);
      if (sender_ == nullptr) {
        SleepUntil(began_s + options_.compute.count());
        WEFT_RETURN_IF_ERROR(Exchange(gradients_));
      } else {
        WEFT_RETURN_IF_ERROR(ComputeAndSend(began_s));
      }
      WEFT_ASSIGN_OR_RETURN(more, GoesOn(step, start_s));
      Report(step, began_s);
      if (!more) WEFT_RETURN_IF_ERROR(Check(step));
    }
    Summarise();
    return Ok();
  }

 private:
  void Fill(int64_t step) {
    const int rank = options_.rank.value();
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = Value(rank, static_cast<int64_t>(i), step);
  }

  Status Check(int64_t step) const {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < options_.world; ++rank) sum += Value(rank, static_cast<int64_t>(i), step);
      if (gradients_[i] != sum) {
        return Fail(Code::kDataLoss, fmt::format("rank {}: step {}: element {} is {}, expected {}",
                                                 options_.rank.value(), step, i, gradients_[i], sum));
      }
    }
    return Ok();
  }

  static size_t Elements(Bytes bytes) { return static_cast<size_t>(bytes.count() / 4); }

  /// Both streams of an iteration. The computation comes to a place so much after `offset_s`, which waiting moves.
  Status ComputeAndSend(double began_s) {
    double offset_s = began_s;
    size_t awaited = 0;
    const auto reach = [&](Seconds place, size_t released) -> Status {
      for (; awaited < released && options_.bursts[awaited].needed <= place; ++awaited) {
        const double needed_s = options_.bursts[awaited].needed.count();
        SleepUntil(offset_s + needed_s);
        const double came_s = MonotonicSeconds();
        WEFT_RETURN_IF_ERROR(sender_->Await(awaited));
        offset_s += MonotonicSeconds() - came_s;  // what it waited, and not how late the sleep ended
      }
      SleepUntil(offset_s + place.count());
      return Ok();
    };
    sender_->Begin();
    for (size_t b = 0; b < ends_.size(); ++b) {
      WEFT_RETURN_IF_ERROR(reach(options_.bursts[b].release, b));
      sender_->Release(b);
    }
    return reach(options_.compute, ends_.size());
  }

  Status Exchange(std::span<float> all) {
    const size_t bucket = Elements(options_.bucket);
    for (size_t at = 0; at < all.size(); at += bucket) {
      WEFT_RETURN_IF_ERROR(communicator_.AllReduce(all.subspan(at, std::min(bucket, all.size() - at))));
    }
    return Ok();
  }

  /// With a duration rank 0 decides, and all ranks take its word.
  Result<bool> GoesOn(int64_t step, double start_s) {
    if (options_.steps) return step + 1 < *options_.steps;
    decision_ = MonotonicSeconds() - start_s < options_.duration->count() ? 1.0f : 0.0f;
    WEFT_RETURN_IF_ERROR(communicator_.Broadcast(std::span(&decision_, 1), RankId(0)));
    return decision_ != 0;
  }

  void Report(int64_t step, double began_s) {
    const double now_s = MonotonicSeconds();
    times_s_.push_back(now_s - began_s);
    if (options_.rank.value() != 0) return;
    fmt::print("{{\"step\":{},\"iteration_s\":{:.9f},\"time_s\":{:.9f}}}\n", step, times_s_.back(), now_s);
    std::fflush(stdout);
  }

  void Summarise() {
    if (options_.rank.value() != 0) return;
    std::nth_element(times_s_.begin(), times_s_.begin() + static_cast<ptrdiff_t>(times_s_.size() / 2), times_s_.end());
    fmt::print("{{\"summary\":{{\"steps\":{},\"ranks\":{},\"gradient_bytes\":{},\"bytes_sent\":{},"
               "\"iteration_s_median\":{:.9f}}}}}\n",
               times_s_.size(), options_.world, gradients_.size() * 4, communicator_.bytes_sent().count(),
               times_s_[times_s_.size() / 2]);
    std::fflush(stdout);
  }

  const ReplayOptions& options_;
  Communicator& communicator_;
  std::vector<size_t> ends_;  // of the bursts in `gradients_`
  std::vector<float> gradients_;
  std::vector<double> times_s_;
  float decision_ = 0;  // a member, since its memory stays registered
  std::unique_ptr<BurstSender> sender_;
};

Status CheckBursts(const ReplayOptions& options) {
  if (options.bursts.size() > kMostReplayBursts) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--burst: {} of them, expected at most {}", options.bursts.size(), kMostReplayBursts));
  }
  ReplayBurst before;
  for (size_t b = 0; b < options.bursts.size(); ++b) {
    const ReplayBurst& burst = options.bursts[b];
    const std::string name = fmt::format("--burst number {}", b + 1);
    if (burst.bytes < Bytes(4)) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: {} bytes, expected at least 4B", name, burst.bytes.count()));
    }
    if (burst.release < before.release) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: release {} s, expected at least the {} s of the one before", name,
                                                      burst.release.count(), before.release.count()));
    }
    const Seconds least = std::max(before.needed, burst.release);
    if (burst.needed < least || burst.needed > options.compute) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: needed {} s, expected {} s to the compute of {} s", name, burst.needed.count(),
                                                      least.count(), options.compute.count()));
    }
    before = burst;
  }
  return Ok();
}

Status CheckOptions(const ReplayOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckBursts(options));
  if (options.bytes < Bytes(4)) {
    return Fail(Code::kInvalidArgument, fmt::format("--bytes {}: expected at least 4B", options.bytes.count()));
  }
  if (options.bucket < Bytes(4)) {
    return Fail(Code::kInvalidArgument, fmt::format("--bucket {}: expected at least 4B", options.bucket.count()));
  }
  if (options.steps.has_value() == options.duration.has_value()) {
    return Fail(Code::kInvalidArgument, "expected one of --steps and --duration");
  }
  if (options.steps && *options.steps < 1) {
    return Fail(Code::kInvalidArgument, fmt::format("--steps {}: expected at least 1", *options.steps));
  }
  if (options.idle_communicators < 0 || options.idle_communicators > kMostIdle) {
    return Fail(Code::kInvalidArgument, fmt::format("--idle-communicators {}: expected 0 to {}",
                                                    options.idle_communicators, kMostIdle));
  }
  return Ok();
}

}  // namespace

Result<ReplayBurst> ParseReplayBurst(std::string_view text, Seconds compute) {
  const auto wrong = [&] {
    return Fail(Code::kInvalidArgument,
                fmt::format("--burst \"{}\": expected RELEASE:BYTES or RELEASE:BYTES:NEEDED, such as 40ms:1MiB:60ms", text));
  };
  const size_t first = text.find(':'), second = first == text.npos ? text.npos : text.find(':', first + 1);
  if (first == text.npos) return wrong();
  const auto release = ParseDuration(text.substr(0, first));
  const auto bytes = ParseBytes(text.substr(first + 1, second == text.npos ? text.npos : second - first - 1));
  const Result<Seconds> needed = second == text.npos ? Result<Seconds>(compute) : ParseDuration(text.substr(second + 1));
  if (!release || !bytes || !needed) return wrong();
  return ReplayBurst{*release, *needed, *bytes};
}

Status RunReplay(const ReplayOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  WEFT_ASSIGN_OR_RETURN(const auto plugin,
                        NetPlugin::Load(options.plugin.empty() ? DefaultPluginPath() : options.plugin));
  WEFT_ASSIGN_OR_RETURN(const auto bootstrap,
                        Bootstrap::Join({.rank = options.rank, .world = options.world, .address = options.rendezvous,
                                         .timeout = options.timeout, .listener = options.listener}));
  const CommunicatorOptions each{.stall_timeout = options.timeout, .table = options.table};
  std::vector<std::unique_ptr<Communicator>> idle;
  for (int i = 0; i < options.idle_communicators; ++i) {
    WEFT_ASSIGN_OR_RETURN(idle.emplace_back(), Communicator::Create(*plugin, *bootstrap, each));
    WEFT_RETURN_IF_ERROR(idle.back()->Barrier());  // connects it
  }
  WEFT_ASSIGN_OR_RETURN(const auto communicator, Communicator::Create(*plugin, *bootstrap, each));
  return Replay(options, *communicator).Run();
}

}  // namespace weft::collectives
