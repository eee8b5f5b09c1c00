#include <algorithm>
#include <random>

#include "agent/collective_reader.h"
#include "agent/observation_reader.h"
#include "agent/outbox.h"
#include "agent/telemetry_map.h"
#include "agent/telemetry_reader.h"
#include "agent/testing/plugin.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

/// A process of a job whose memory an agent has mapped. The process writes into it what it likes, at any time.
class HostileProcess {
 public:
  HostileProcess() {
    for (uint32_t slot = 0; slot < 4; ++slot) segment_.Open(slot, 10 + slot);
    map_ = agent::TelemetryMap::Attach(segment_.Share(), {.pid = ::getpid(), .uid = ::getuid()}).value();
    telemetry_.emplace(*map_, &quotas_, ::getuid());
    observations_.emplace(map_->observations(), map_->background());
    collectives_.emplace(map_->observations(), map_->job(), 3);
  }

  /// Some words of the segment change; then the agent looks.
  std::string Run(const std::string& input) {
    std::seed_seq seed(input.begin(), input.end());
    std::mt19937_64 random(seed);
    auto* const words = reinterpret_cast<uint64_t*>(segment_.segment);
    constexpr size_t kWords = sizeof(abi::TelemetrySegment) / sizeof(uint64_t);
    const size_t around = random() % 4 == 0 ? random() % kWords : NearASlot(random);
    for (uint64_t n = 1 + random() % 24; n > 0; --n) {
      uint64_t& word = words[(around + random() % 64) % kWords];
      const uint64_t values[] = {0, 1, 2, 3, 4, random(), UINT64_MAX, word + 2, word ^ (uint64_t{1} << random() % 64), random() % 300};
      word = values[random() % std::size(values)];
    }
    Look();
    return "";
  }

 private:
  /// Where flows, observations and the background thread are.
  size_t NearASlot(std::mt19937_64& random) const {
    const auto* begin = reinterpret_cast<const std::byte*>(segment_.segment);
    const std::byte* const places[] = {
        reinterpret_cast<const std::byte*>(&segment_.segment->flows[random() % 8]),
        begin + sizeof(abi::TelemetrySegment) - random() % (sizeof(abi::TelemetrySegment) / 4),
        reinterpret_cast<const std::byte*>(&segment_.segment->process),  // also how many slots are used
    };
    return static_cast<size_t>(places[random() % 3] - begin) / sizeof(uint64_t);
  }

  void Look() {
    v1::HostSample sample;
    telemetry_->Sample();
    telemetry_->Collect(&sample);
    collectives_->AppendDelays(&sample);
    (void)telemetry_->TakeSendFlows();
    (void)telemetry_->TakeClosedSendFlows();
    (void)telemetry_->TakeDoubtful();
    (void)telemetry_->TakeTraffic();
    (void)observations_->TakeStalls();
    (void)observations_->TakeSilence(now_ns_ += 1'000'000'000);
    std::vector<agent::RankProgress> progress;
    observations_->AppendProgress(&progress);
    (void)agent::FindStraggles(progress, now_ns_, 1);
    // One look says no more than the segment has room for, and goes in messages that gRPC takes.
    Require(sample.opened_size() <= static_cast<int>(abi::kMaxFlows), "more flows than slots");
    Require(sample.counters_size() <= static_cast<int>(abi::kMaxFlows), "more counters than slots");
    Require(map_->slots_used() <= abi::kMaxFlows, "more slots than the segment has");
    for (const v1::FlowIdentity& flow : sample.opened()) Require(flow.job_id() == map_->job(), "a flow of another job");
    agent::Outbox outbox;
    outbox.Add(std::move(sample));
    while (!outbox.empty()) Require(outbox.Take().ByteSizeLong() < (size_t{4} << 20), "a message of more than 4 MiB");
    Require(telemetry_->open_flows(true) + telemetry_->open_flows(false) <= agent::UserLimits().flows, "more flows than the user may have");
  }

  agent::TestSegment segment_{"fuzz"};
  std::unique_ptr<agent::TelemetryMap> map_;
  agent::UserQuotas quotas_;
  std::optional<agent::TelemetryReader> telemetry_;
  std::optional<agent::ObservationReader> observations_;
  std::optional<agent::CollectiveReader> collectives_;
  uint64_t now_ns_ = 1'000'000'000;
};

std::string OfHeader(const std::string& text) {
  // As large as the real one and aligned like it; what is not given is 0.
  static std::vector<uint64_t> room(sizeof(abi::TelemetrySegment) / sizeof(uint64_t) + 1);
  static size_t written = 0;  // bytes that the last one has left
  auto* const bytes = reinterpret_cast<char*>(room.data());
  std::fill_n(bytes, written, 0);
  written = std::min(text.size(), sizeof(abi::TelemetrySegment));
  std::copy_n(text.data(), written, bytes);
  const char* wrong = nullptr;
  for (const size_t mapped : {sizeof(abi::TelemetrySegmentV2), sizeof(abi::TelemetrySegment)}) {
    abi::SegmentShape shape;
    wrong = abi::ValidateSegment(room.data(), mapped, abi::kTelemetryMagic, &shape);
    if (wrong != nullptr) continue;
    const size_t end = offsetof(abi::TelemetrySegment, flows) + shape.flows * sizeof(abi::FlowSlot);
    Require(end <= mapped, "slots past the end of the segment");
  }
  return wrong == nullptr ? "" : wrong;
}

std::string HeaderOfASegment(uint32_t version) {
  agent::TestSegment segment("fuzz");
  if (version < abi::kSegmentVersion) segment.MakeOld(version);
  return {reinterpret_cast<const char*>(segment.segment), 512};
}

}  // namespace

std::vector<Target> SegmentTargets() {
  auto process = std::make_shared<HostileProcess>();
  return {{"segment", {"seed"}, [process](const std::string& text) { return process->Run(text); }},
          {"segment-header", {HeaderOfASegment(abi::kSegmentVersion), HeaderOfASegment(abi::kPreviousSegmentVersion)}, OfHeader}};
}

}  // namespace weft::fuzz
