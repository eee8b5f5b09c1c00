#include "agent/policy_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>

#include "agent/telemetry_map.h"
#include "netplugin/abi/seqlock.h"

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

/// What the plugin does with the descriptor it gets.
template <typename Segment>
struct MappedOf {
  explicit MappedOf(const UniqueFd& fd) : data(::mmap(nullptr, sizeof(Segment), PROT_READ, MAP_SHARED, fd.get(), 0)) {}
  ~MappedOf() { ::munmap(data, sizeof(Segment)); }
  const auto& table() const { return static_cast<const Segment*>(data)->table; }
  void* data;
};
using Mapped = MappedOf<abi::PolicySegment>;
using MappedV2 = MappedOf<abi::PolicySegmentV2>;

v1::JobPolicy Policy(int64_t epoch, uint64_t flow = 7) {
  v1::JobPolicy policy;
  policy.set_job_id("a");
  policy.set_epoch(epoch);
  v1::FlowPolicy* entry = policy.add_flows();
  entry->set_flow(flow);
  v1::LanePolicy* lane = entry->add_lanes();
  lane->set_source_port(20001);
  lane->set_weight(3);
  entry->set_traffic_class(0x68);
  entry->set_pacing_bps(5'000'000);
  entry->set_lease_s(2.5);
  return policy;
}

class PolicyStoreTest : public ::testing::Test {
 protected:
  uint64_t now_ = 100 * kSecond;
  PolicyStore store_{[this] { return now_; }};
};

TEST_F(PolicyStoreTest, ProcessReadsThePolicyThroughItsDescriptor) {
  const auto fd = store_.Attach("a", 1000);
  ASSERT_TRUE(fd) << fd.error().message();
  const Mapped mapped(*fd);
  EXPECT_EQ(abi::ValidateSegment(mapped.data, sizeof(abi::PolicySegment), abi::kPolicyMagic), nullptr);
  EXPECT_EQ(mapped.table().epoch, 0u);
  ASSERT_TRUE(store_.Apply(Policy(12)));
  EXPECT_EQ(mapped.table().epoch, 12u) << "the controller's epoch, not a count";
  abi::FlowPolicy flow{};
  ASSERT_EQ(abi::ReadFlowPolicy(mapped.table(), 7, &flow), abi::PolicyRead::kFound);
  EXPECT_EQ(flow.lanes[0].source_port, 20001);
  EXPECT_EQ(flow.lanes[0].weight, 3u);
  EXPECT_EQ(flow.traffic_class, 0x68u);
  EXPECT_EQ(flow.pacing_bps, 5'000'000u);
  EXPECT_EQ(flow.lease_until_ns, 102 * kSecond + kSecond / 2);
  ASSERT_TRUE(store_.Apply(Policy(13, 8)));
  EXPECT_EQ(abi::ReadFlowPolicy(mapped.table(), 7, &flow), abi::PolicyRead::kAbsent) << "a policy replaces the last";
}

TEST_F(PolicyStoreTest, TheWindowIsWrittenInTheHostsNanoseconds) {
  const auto fd = store_.Attach("a", 1000);
  ASSERT_TRUE(fd);
  v1::JobPolicy policy = Policy(1);
  policy.mutable_flows(0)->set_window_period_s(0.5);
  policy.mutable_flows(0)->set_window_offset_s(12.25);
  policy.mutable_flows(0)->set_window_length_s(0.125);
  ASSERT_TRUE(store_.Apply(policy));
  abi::FlowPolicy flow{};
  ASSERT_EQ(abi::ReadFlowPolicy(Mapped(*fd).table(), 7, &flow), abi::PolicyRead::kFound);
  EXPECT_EQ(flow.window_period_ns, 500'000'000u);
  EXPECT_EQ(flow.window_offset_ns, 12'250'000'000u);
  EXPECT_EQ(flow.window_length_ns, 125'000'000u);
}

TEST_F(PolicyStoreTest, LeasesAreRenewedWithoutANewEpoch) {
  const auto fd = store_.Attach("a", 1000);
  ASSERT_TRUE(fd);
  const Mapped mapped(*fd);
  ASSERT_TRUE(store_.Apply(Policy(4)));
  EXPECT_EQ(mapped.table().renewed_until_ns, 0u);
  now_ += kSecond;
  store_.Renew();
  EXPECT_EQ(mapped.table().renewed_until_ns, 111 * kSecond);
  EXPECT_EQ(mapped.table().epoch, 4u);
}

TEST_F(PolicyStoreTest, ProcessesOfBothVersionsReadTheSamePolicy) {
  const auto now = store_.Attach("a", 1000);
  ASSERT_TRUE(now);
  ASSERT_TRUE(store_.Apply(Policy(4)));
  const auto old = store_.Attach("a", 1000, abi::kOldestSegmentVersion);
  ASSERT_TRUE(old) << old.error().message();
  void* const data = ::mmap(nullptr, sizeof(abi::PolicySegmentV1), PROT_READ, MAP_SHARED, old->get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const auto& segment = *static_cast<const abi::PolicySegmentV1*>(data);
  EXPECT_EQ(segment.header.version, 1u);
  EXPECT_EQ(segment.table.epoch, 4u) << "what was decided before it came";
  abi::FlowPolicy flow{};
  const auto entry = [&]() -> const abi::FlowPolicy& {
    std::memcpy(&flow, &segment.table.flows[0], sizeof(abi::FlowPolicyV1));
    return flow;
  };
  EXPECT_EQ(entry().traffic_class, 0x68u);
  v1::JobPolicy next = Policy(5);
  next.mutable_flows(0)->set_traffic_class(0);
  ASSERT_TRUE(store_.Apply(next));
  EXPECT_EQ(segment.table.epoch, 5u);
  EXPECT_EQ(entry().traffic_class, 0u);
  EXPECT_EQ(Mapped(*now).table().epoch, 5u);
  ::munmap(data, sizeof(abi::PolicySegmentV1));
}

TEST_F(PolicyStoreTest, APolicyOf300FlowsIsWholeInVersion3AndCutInVersion2) {
  const auto now = store_.Attach("a", 1000);
  ASSERT_TRUE(now);
  v1::JobPolicy policy = Policy(4, 5000);
  for (uint64_t i = 1; i < 300; ++i) {
    *policy.add_flows() = policy.flows(0);
    policy.mutable_flows(static_cast<int>(i))->set_flow(5000 - i);  // the first ones have the largest numbers
  }
  ASSERT_TRUE(store_.Apply(policy));
  EXPECT_EQ(store_.CutOff("a"), 0) << "nobody has an older plugin";
  const auto old = store_.Attach("a", 1000, abi::kPreviousSegmentVersion);
  ASSERT_TRUE(old) << old.error().message();
  EXPECT_EQ(store_.CutOff("a"), 44);
  const Mapped whole(*now);
  const MappedV2 cut(*old);
  EXPECT_EQ(static_cast<const abi::PolicySegmentV2*>(cut.data)->header.version, 2u);
  EXPECT_EQ(whole.table().count, 300u);
  EXPECT_EQ(cut.table().count, 256u);
  for (uint64_t i = 0; i < 300; ++i) {
    abi::FlowPolicy flow{};
    EXPECT_EQ(abi::ReadFlowPolicy(whole.table(), 5000 - i, &flow), abi::PolicyRead::kFound) << i;
    EXPECT_EQ(flow.traffic_class, 0x68u);
    EXPECT_EQ(abi::ReadFlowPolicy(cut.table(), 5000 - i, &flow), i < 256 ? abi::PolicyRead::kFound : abi::PolicyRead::kAbsent) << i;
  }
  ASSERT_TRUE(store_.Apply(Policy(5)));
  EXPECT_EQ(store_.CutOff("a"), 0);
  EXPECT_EQ(cut.table().count, 1u);
  EXPECT_EQ(cut.table().epoch, 5u);
}

TEST_F(PolicyStoreTest, RoomThatNoPolicyNeedsTakesNoMemory) {
  const auto fd = store_.Attach("a", 1000);
  ASSERT_TRUE(fd);
  ASSERT_TRUE(store_.Apply(Policy(1)));
  struct stat status{};
  ASSERT_EQ(::fstat(fd->get(), &status), 0);
  EXPECT_EQ(static_cast<size_t>(status.st_size), sizeof(abi::PolicySegment));
  EXPECT_LT(static_cast<size_t>(status.st_blocks) * 512, sizeof(abi::PolicySegment) / 4);
}

TEST_F(PolicyStoreTest, NobodyElseCanWriteTheSegment) {
  const auto fd = store_.Attach("a", 1000);
  ASSERT_TRUE(fd);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(fd->get(), 0), 0);
  EXPECT_LT(::pwrite(fd->get(), "x", 1, 0), 0);
}

TEST_F(PolicyStoreTest, PolicyThatCameFirstIsThereForALaterProcess) {
  ASSERT_TRUE(store_.Apply(Policy(3)));
  const auto fd = store_.Attach("a", 1000);
  ASSERT_TRUE(fd);
  EXPECT_EQ(Mapped(*fd).table().epoch, 3u);
}

TEST_F(PolicyStoreTest, EpochsOnlyGrow) {
  ASSERT_TRUE(store_.Apply(Policy(5)));
  for (const int64_t epoch : {5, 4}) {
    const Status status = store_.Apply(Policy(epoch));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), Code::kAborted);
    EXPECT_THAT(status.error().message(), HasSubstr("expected above 5"));
  }
  EXPECT_EQ(store_.Epochs().at("a"), 5);
}

TEST_F(PolicyStoreTest, BadPoliciesAreRefusedWholeAndNamed) {
  ASSERT_TRUE(store_.Apply(Policy(1)));
  const auto refused = [&](auto change, const char* says) {
    v1::JobPolicy policy = Policy(9);
    change(policy, *policy.mutable_flows(0));
    const Status status = store_.Apply(policy);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument) << says;
    EXPECT_THAT(status.error().message(), HasSubstr(says));
  };
  using P = v1::JobPolicy;
  using F = v1::FlowPolicy;
  refused([](P&, F& f) { f.mutable_lanes(0)->set_source_port(0); }, "flow 0000000000000007: source port 0");
  refused([](P&, F& f) { f.mutable_lanes(0)->set_source_port(65536); }, "source port 65536, expected 1 to 65535");
  refused([](P&, F& f) { *f.add_lanes() = f.lanes(0); }, "source port 20001 is named twice");
  refused([](P&, F& f) { f.mutable_lanes(0)->set_weight(-1); }, "weight -1");
  refused([](P&, F& f) { f.mutable_lanes(0)->set_weight(0); }, "no lane has a weight above 0");
  refused([](P&, F& f) { f.set_traffic_class(256); }, "traffic class 256");
  refused([](P&, F& f) { f.set_pacing_bps(-5); }, "pacing -5 bit/s");
  refused([](P&, F& f) { f.set_lease_s(NAN); }, "lease nan s");
  // What the plugin would refuse is refused here, with a reason that somebody reads.
  refused([](P&, F& f) { f.set_lease_s(61); }, "lease 61 s, expected 0 to 60");
  refused([](P&, F& f) { f.set_pacing_bps(1000); }, "pacing 1000 bit/s, expected 0 or at least 1000000");
  refused([](P&, F& f) { f.mutable_lanes(0)->set_weight(1 << 21); }, "weight 2097152, expected 0 to 1048576");
  const auto window = [](F& f, double period, double offset, double length) {
    f.set_window_period_s(period);
    f.set_window_offset_s(offset);
    f.set_window_length_s(length);
  };
  refused([&](P&, F& f) { window(f, 0.0005, 0, 0.0005); }, "window period 0.0005 s, expected 0 or 0.001 to 60");
  refused([&](P&, F& f) { window(f, NAN, 0, 1); }, "window period nan s");
  refused([&](P&, F& f) { window(f, 1, -1, 1); }, "window offset -1 s, expected 0 to");
  refused([&](P&, F& f) { window(f, 1, 0, 1.5); }, "window length 1.5 s, expected above 0 and at most its period of 1 s");
  refused([&](P&, F& f) { window(f, 1, 0, 0); }, "window length 0 s");
  refused([](P& p, F&) { p.set_epoch(0); }, "expected an epoch above 0");
  refused([](P& p, F&) { *p.add_flows() = p.flows(0); }, "flow 0000000000000007 is named twice");
  refused([](P&, F& f) {
    for (int i = 0; i < 8; ++i) f.add_lanes()->set_source_port(i + 1);
  }, "9 lanes, expected at most 8");
  refused([](P& p, F&) {
    for (int i = 0; i < 4096; ++i) p.add_flows()->set_flow(100 + static_cast<uint64_t>(i));
  }, "4097 flows, expected at most 4096");
  EXPECT_EQ(store_.Epochs().at("a"), 1);
}

TEST_F(PolicyStoreTest, JobBelongsToItsFirstUser) {
  ASSERT_TRUE(store_.Attach("a", 1000));
  const auto other = store_.Attach("a", 1001);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kUnauthenticated);
  EXPECT_THAT(other.error().message(), HasSubstr("belongs to uid 1000"));
  store_.Detach("a");
  EXPECT_TRUE(store_.Attach("a", 1001));
}

TEST_F(PolicyStoreTest, AnotherUserTakesNoJobWhoseProcessesAreGoneForAMoment) {
  ASSERT_TRUE(store_.Attach("a", 1000));
  ASSERT_TRUE(store_.Apply(Policy(1)));
  store_.Detach("a");
  EXPECT_FALSE(store_.Attach("a", 1001)) << "its policy names the job's flows and paths";
  EXPECT_TRUE(store_.Attach("a", 1000));
  store_.Detach("a");
  store_.Ended("a");
  EXPECT_TRUE(store_.Attach("a", 1001)) << "another job of that name";
}

TEST_F(PolicyStoreTest, TheBatchSystemsUserOwnsTheJobWhoeverComesFirst) {
  v1::JobLaunch launch;
  launch.set_job_id("a");
  launch.set_user_id(1000);
  ASSERT_TRUE(store_.SetLaunch(launch));
  const auto thief = store_.Attach("a", 1001);
  ASSERT_FALSE(thief);
  EXPECT_THAT(thief.error().message(), HasSubstr("belongs to uid 1000 on this host, not to uid 1001"));
  EXPECT_FALSE(store_.MayAsk("a", 1001));
  EXPECT_TRUE(store_.MayAsk("a", 1000) && store_.MayAsk("a", 0) && store_.MayAsk("unknown", 1001));
  EXPECT_TRUE(store_.Attach("a", 1000));
  EXPECT_TRUE(store_.IsOwner("a", 1000) && store_.IsOwner("a", 0));
  EXPECT_FALSE(store_.IsOwner("a", 1001));
}

TEST_F(PolicyStoreTest, AJobWithoutAUserIsItsFirstProcesses) {
  EXPECT_FALSE(store_.IsOwner("a", 1000)) << "nobody knows";
  ASSERT_TRUE(store_.Attach("a", 1000));
  EXPECT_TRUE(store_.IsOwner("a", 1000));
  EXPECT_FALSE(store_.IsOwner("a", 1001));
}

TEST_F(PolicyStoreTest, EndedJobGoesWithItsLastProcess) {
  ASSERT_TRUE(store_.Attach("a", 1000));
  ASSERT_TRUE(store_.Apply(Policy(1)));
  store_.Ended("a");
  EXPECT_EQ(store_.jobs(), 1);
  store_.Detach("a");
  EXPECT_EQ(store_.jobs(), 0);
  ASSERT_TRUE(store_.Apply(Policy(2)));
  store_.Ended("a");
  EXPECT_EQ(store_.jobs(), 0);
  ASSERT_TRUE(store_.Attach("unheard-of", 1000));
  store_.Detach("unheard-of");
  EXPECT_EQ(store_.jobs(), 0);
}

TEST_F(PolicyStoreTest, ApplicationIsReportedOnceWithItsDelay) {
  ASSERT_TRUE(store_.Attach("a", 1000));
  EXPECT_FALSE(store_.Pending(kSecond));
  ASSERT_TRUE(store_.Apply(Policy(5)));
  EXPECT_TRUE(store_.Pending(kSecond));
  EXPECT_FALSE(store_.Observe("a", 4).has_value());
  now_ += kSecond / 4;
  const auto applied = store_.Observe("a", 5);
  ASSERT_TRUE(applied.has_value());
  EXPECT_EQ(applied->epoch(), 5);
  EXPECT_NEAR(applied->delay_s(), 0.25, 1e-9);
  EXPECT_FALSE(store_.Observe("a", 5).has_value());
  EXPECT_FALSE(store_.Pending(kSecond));
}

TEST_F(PolicyStoreTest, LaunchEnvironmentIsKeptUntilTheJobEnds) {
  v1::JobLaunch launch;
  launch.set_job_id("a");
  (*launch.mutable_environment())["NCCL_NET"] = "weft";
  (*launch.mutable_environment())["WEFT_ARGUMENTS"] = "";
  ASSERT_TRUE(store_.SetLaunch(launch));
  EXPECT_EQ(store_.Environment("a"), "NCCL_NET=weft\nWEFT_ARGUMENTS=\n");
  EXPECT_FALSE(store_.Environment("b").has_value());
  (*launch.mutable_environment())["WEFT_ARGUMENTS"] = std::string(8200, 'x');
  EXPECT_THAT(store_.SetLaunch(launch).error().message(), HasSubstr("expected at most 8184"));
  store_.Ended("a");
  EXPECT_FALSE(store_.Environment("a").has_value());
}

// Of all users together: it says nothing of what this one has.
TEST_F(PolicyStoreTest, TooManyJobsOnAHostAreNoUsersQuota) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0) << "each job has a descriptor";
  Result<UniqueFd> shared = store_.Attach("0", 1001);
  for (int i = 1; i < 2000 && shared; ++i) {
    shared->reset();
    shared = store_.Attach(std::to_string(i), 1001);
  }
  ASSERT_FALSE(shared);
  EXPECT_THAT(shared.error().message(), HasSubstr("1024 jobs on this host already"));
  EXPECT_STREQ(RejectionLabel(shared.error().code()), "system");
}

TEST_F(PolicyStoreTest, AHostileControllerGetsNoCodeIntoALaunch) {
  v1::JobLaunch launch;
  launch.set_job_id("a");
  auto& environment = *launch.mutable_environment();
  environment["NCCL_NET"] = "Weft";
  environment["LD_PRELOAD"] = "/tmp/evil.so";
  environment["NCCL_NET_PLUGIN"] = "/tmp/evil.so";
  environment["WEFT_ARGUMENTS"] = "x\nLD_PRELOAD=y";
  const auto refused = store_.SetLaunch(launch);
  ASSERT_TRUE(refused);
  EXPECT_THAT(*refused, ElementsAre("LD_PRELOAD", "NCCL_NET_PLUGIN", "WEFT_ARGUMENTS"));
  EXPECT_EQ(store_.Environment("a"), "NCCL_NET=Weft\n");
  for (int i = 0; i < 2000; ++i) {
    launch.set_job_id(std::to_string(i));
    const auto kept = store_.SetLaunch(launch);
    EXPECT_TRUE(kept || kept.error().code() == Code::kResourceExhausted);
  }
  EXPECT_FALSE(store_.Environment("1999").has_value()) << "the store is bounded";
}

}  // namespace
}  // namespace weft::agent
