// The tuner, profiler and environment faces of the built library, each through its own version's table, with a real agent
// socket and real shared memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <type_traits>

#include "netplugin/abi/nccl_environment.h"
#include "netplugin/abi/nccl_profiler.h"
#include "netplugin/abi/nccl_tuner.h"
#include "netplugin/testing/faces_fixture.h"

namespace weft::net::testing {
namespace {

// --- tuner -----------------------------------------------------------------------------------------------------------

template <typename Tuner>
constexpr bool kHasId = requires(Tuner tuner) { tuner.finalize; };

template <typename Tuner>
void* InitTuner(const Tuner& tuner, nccl::TunerConstants* constants) {
  void* context = nullptr;
  if constexpr (kHasId<Tuner>) {
    nccl::NvlDomainInfo domains{4, 1, 1};
    EXPECT_EQ(tuner.init(&context, 0xC0FFEE, 4, 4, &LogCapture::Logger, &domains, constants), nccl::kSuccess);
  } else {
    EXPECT_EQ(tuner.init(4, 4, &LogCapture::Logger, &context), nccl::kSuccess);
  }
  EXPECT_NE(context, nullptr);
  return context;
}

template <typename Tuner>
void EndTuner(const Tuner& tuner, void* context) {
  if constexpr (kHasId<Tuner>) EXPECT_EQ(tuner.finalize(context), nccl::kSuccess);
  else EXPECT_EQ(tuner.destroy(context), nccl::kSuccess);
}

/// What NCCL would take: the least cost that is not negative.
std::pair<int, int> Cheapest(const float (&costs)[7][3]) {
  std::pair<int, int> best{-1, -1};
  for (int a = 0; a < 7; ++a) {
    for (int p = 0; p < 3; ++p) {
      if (costs[a][p] >= 0 && (best.first < 0 || costs[a][p] < costs[best.first][best.second])) best = {a, p};
    }
  }
  return best;
}

/// Version 3 knows nothing of registered buffers.
template <typename Tuner>
int AskTuner(const Tuner& tuner, void* context, size_t bytes, float (&costs)[7][3], int* channels) {
  auto** table = reinterpret_cast<float**>(costs);
  if constexpr (std::is_same_v<Tuner, nccl::TunerV3>) {
    return tuner.get_coll_info(context, nccl::kAllReduce, bytes, 1, table, 7, 3, channels);
  } else {
    return tuner.get_coll_info(context, nccl::kAllReduce, bytes, 1, table, 7, 3, 0, channels);
  }
}

template <typename Tuner>
void DriveTuner(const Tuner& tuner) {
  EXPECT_STREQ(tuner.name, "Weft");
  nccl::TunerConstants constants{};
  constants.hardware_latencies[nccl::kNetLink][1][2] = 14;
  constants.channel_tree_bandwidths[2][1] = 41.4;
  void* context = InitTuner(tuner, &constants);
  const struct {
    size_t bytes;
    std::pair<int, int> choice;
    int channels;
  } cases[] = {{1024, {0, 0}, 0}, {1 << 20, {1, 2}, 2}, {1 << 30, {1, 1}, 0 /* asks for NVLS, which is not there */}};
  for (const auto& c : cases) {
    float costs[7][3];
    for (int a = 0; a < 7; ++a) {
      for (int p = 0; p < 3; ++p) costs[a][p] = a == 4 ? nccl::kCostIgnore : a == 1 && p == 1 ? 5.0f : 50.0f;
    }
    int channels = 0;
    EXPECT_EQ(AskTuner(tuner, context, c.bytes, costs, &channels), nccl::kSuccess);
    EXPECT_EQ(Cheapest(costs), c.choice) << c.bytes;
    EXPECT_EQ(costs[4][2], nccl::kCostIgnore);
    EXPECT_EQ(channels, c.channels);
  }
  if constexpr (kHasId<Tuner>) {
    EXPECT_EQ(constants.hardware_latencies[nccl::kNetLink][1][2], 20);
    EXPECT_EQ(constants.channel_tree_bandwidths[2][1], 20.7);
  }
  if constexpr (requires { tuner.get_chunk_size; }) {
    EXPECT_EQ(tuner.get_chunk_size, nullptr);
  }
  EndTuner(tuner, context);
  EndTuner(tuner, nullptr);
}

TEST_F(FacesTest, EveryTunerVersionEditsTheCostsOfWhatNcclOffers) {
  Set("WEFT_COLLECTIVES", "1;4x4:allreduce:0-4096:tree:ll:0;4x4:allreduce:4097-1048576:ring:simple:2;"
                          "*:allreduce:0-:nvls:simple:16");
  Set("WEFT_FABRIC", "bandwidth:0.5,latency_us:6");
  Plugin& plugin = Load();
  const auto& oldest = plugin.Get<nccl::TunerV4>("ncclTunerPlugin_v4");
  void* first = InitTuner(oldest, nullptr);
  ASSERT_TRUE(agent_->Greet()) << "the tuner alone connects to the agent";
  DriveTuner(oldest);
  DriveTuner(plugin.Get<nccl::TunerV5>("ncclTunerPlugin_v5"));
  DriveTuner(plugin.Get<nccl::TunerV6>("ncclTunerPlugin_v6"));
  EXPECT_TRUE(Plugin::Logged("tuner: 4 ranks on 4 nodes, table of 3 entries"));
  EXPECT_EQ(communicator(2).comm, 0xC0FFEEu);
  EXPECT_EQ(communicator(2).decided.load(), 2u);
  EXPECT_EQ(communicator(2).left.load(), 1u);
  EXPECT_EQ(communicator(1).decision_digest.load(), communicator(2).decision_digest.load()) << "all versions alike";
  EXPECT_EQ(communicator(2).decision_digest.load(), communicator(3).decision_digest.load());
  EXPECT_EQ(communicator(1).table_digest.load(), communicator(0).table_digest.load());
  EndTuner(oldest, first);
}

TEST_F(FacesTest, Version3OfTheTunerIsVersion4WithoutRegisteredBuffers) {
  Set("WEFT_COLLECTIVES", "1;4x4:allreduce:0-4096:tree:ll:0;4x4:allreduce:4097-1048576:ring:simple:2;"
                          "*:allreduce:0-:nvls:simple:16");
  DriveTuner(Load().Get<nccl::TunerV3>("ncclTunerPlugin_v3"));
}

TEST_F(FacesTest, Version2OfTheTunerNamesOnlyWhatNccl221HasForCertain) {
  Set("WEFT_COLLECTIVES", "1;*:allreduce:0-4096:tree:ll:0;*:allreduce:4097-65536:ring:ll128:4;"
                          "*:allreduce:65537-1048576:nvls:simple:16;*:allgather:0-:tree:simple:2");
  const auto& tuner = Load().Get<nccl::TunerV2>("ncclTunerPlugin_v2");
  void* context = InitTuner(tuner, nullptr);
  const auto ask = [&](int function, size_t bytes, int nvls) {
    std::pair<int, int> choice{-1, -1};  // NCCL's own
    int channels = 0;
    EXPECT_EQ(tuner.get_coll_info(context, function, bytes, 0, nvls, 1, &choice.first, &choice.second, &channels),
              nccl::kSuccess);
    return choice;
  };
  const std::pair none{-1, -1};
  EXPECT_EQ(ask(nccl::kAllReduce, 1024, 0), (std::pair{0, 0}));
  EXPECT_EQ(ask(nccl::kAllReduce, 8192, 0), none) << "whether links carry LL128 is not said";
  EXPECT_EQ(ask(nccl::kAllReduce, 100'000, 0), none);
  EXPECT_EQ(ask(nccl::kAllReduce, 100'000, 1), (std::pair{4, 2}));
  EXPECT_EQ(ask(nccl::kAllGather, 1024, 1), none) << "no tree gathers";
  EXPECT_EQ(ask(nccl::kAllReduce, 1 << 30, 1), none);
  EndTuner(tuner, context);
  EndTuner(tuner, nullptr);
}

TEST_F(FacesTest, TheUsersNcclAlgoWinsOverTheTableAndIsSaid) {
  Set("WEFT_COLLECTIVES", "1;*:allreduce:0-:ring:simple:2");
  Set("NCCL_ALGO", "Tree");
  const auto& tuner = Load().Get<nccl::TunerV5>("ncclTunerPlugin_v5");
  nccl::TunerConstants constants{};
  void* context = InitTuner(tuner, &constants);
  float costs[7][3];
  for (auto& row : costs) {
    for (float& cost : row) cost = 7;
  }
  int channels = 0;
  EXPECT_EQ(tuner.get_coll_info(context, nccl::kAllReduce, 8, 1, reinterpret_cast<float**>(costs), 7, 3, 0, &channels),
            nccl::kSuccess);
  EXPECT_EQ(Cheapest(costs), (std::pair{0, 0})) << "untouched";
  EXPECT_EQ(channels, 0);
  EXPECT_TRUE(Plugin::Logged("NCCL_ALGO set: the table of 1 entries decides nothing"));
  ASSERT_TRUE(agent_->Greet());
  EXPECT_EQ(communicator().overridden.load(), 1u);
  EndTuner(tuner, context);
}

// --- profiler --------------------------------------------------------------------------------------------------------

template <typename Profiler>
void* InitProfiler(const Profiler& profiler, int* mask) {
  void* context = nullptr;
  if constexpr (std::is_same_v<Profiler, nccl::ProfilerV4>) {
    EXPECT_EQ(profiler.init(&context, mask, "world", 0xABC, 2, 2, 1, &LogCapture::Logger), nccl::kSuccess);
  } else {
    EXPECT_EQ(profiler.init(&context, 0xABC, mask, "world", 2, 2, 1, &LogCapture::Logger), nccl::kSuccess);
  }
  EXPECT_NE(context, nullptr);
  return context;
}

/// One all-reduce of 1,000 floats by ring and LL128, as NCCL tells it: one send to rank 0 in one step.
template <typename Profiler, typename Descriptor>
void TellAllReduce(const Profiler& profiler, void* context, uint64_t sequence) {
  Descriptor group{};
  group.type = static_cast<decltype(group.type)>(nccl::kEventGroup);
  void* handle = nullptr;
  EXPECT_EQ(profiler.start_event(context, &handle, &group), nccl::kSuccess);
  EXPECT_NE(handle, nullptr) << "NCCL 2.27 tells nothing of what is in a group without a handle";
  EXPECT_EQ(profiler.stop_event(handle), nccl::kSuccess);
  Descriptor coll{};
  coll.type = static_cast<decltype(coll.type)>(nccl::kEventColl);
  coll.rank = 1;
  coll.coll.sequence = sequence;
  coll.coll.function = "AllReduce";
  coll.coll.count = 1000;
  coll.coll.datatype = "ncclFloat32";
  coll.coll.channels = 2;
  coll.coll.algorithm = "RING";
  coll.coll.protocol = "LL128";
  void *operation = nullptr, *proxy = nullptr, *step = nullptr;
  EXPECT_EQ(profiler.start_event(context, &operation, &coll), nccl::kSuccess);
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(profiler.stop_event(operation), nccl::kSuccess);
  Descriptor op{};
  op.type = static_cast<decltype(op.type)>(nccl::kEventProxyOp);
  op.parent = operation;
  op.proxy_op.pid = getpid();
  op.proxy_op.peer = 0;
  op.proxy_op.is_send = 1;
  EXPECT_EQ(profiler.start_event(context, &proxy, &op), nccl::kSuccess);
  Descriptor of_step{};
  of_step.type = static_cast<decltype(of_step.type)>(nccl::kEventProxyStep);
  of_step.parent = proxy;
  EXPECT_EQ(profiler.start_event(context, &step, &of_step), nccl::kSuccess);
  nccl::ProfilerStateArgumentsV4 arguments{.step_bytes = 4000};
  for (const int state : {nccl::kStateSendGpuWait, nccl::kStateSendPeerWait, nccl::kStateSendWait}) {
    EXPECT_EQ(profiler.record_event_state(step, state, &arguments), nccl::kSuccess);
  }
  for (void* event : {step, proxy}) EXPECT_EQ(profiler.stop_event(event), nccl::kSuccess);
  EXPECT_EQ(profiler.stop_event(step), nccl::kSuccess) << "NCCL has been seen to stop a step twice";
  EXPECT_EQ(profiler.record_event_state(step, nccl::kStateSendWait, nullptr), nccl::kSuccess);
  EXPECT_EQ(profiler.stop_event(nullptr), nccl::kSuccess);
}

class ProfilerFaceTest : public FacesTest {
 protected:
  template <typename Profiler, typename Descriptor>
  void Drive(const char* symbol) {
    Set("WEFT_PROFILE", "steps");
    const auto& profiler = Load().Get<Profiler>(symbol);
    EXPECT_STREQ(profiler.name, "Weft");
    int mask = -1;
    void* context = InitProfiler(profiler, &mask);
    EXPECT_EQ(mask, 2 | 4 | 8 | 16);
    ASSERT_TRUE(agent_->Greet());
    EXPECT_EQ(communicator().comm, 0xABCu);
    EXPECT_EQ(communicator().rank, 1);
    EXPECT_EQ(communicator().ranks, 2);
    EXPECT_STREQ(communicator().name, "world");
    TellAllReduce<Profiler, Descriptor>(profiler, context, 17);
    const auto& counters = communicator().operations[static_cast<int>(abi::Operation::kAllReduce)];
    EXPECT_EQ(counters.last_started.load(), 17u);
    EXPECT_TRUE(Eventually([&] { return counters.finished.load() == 1; }));
    EXPECT_EQ(counters.last_finished.load(), 17u);
    EXPECT_EQ(counters.bytes.load(), 4000u);
    const abi::OperationRecord& record = communicator().recent[0];
    EXPECT_EQ(record.algorithm.load(), 1u);
    EXPECT_EQ(record.protocol.load(), 1u);
    EXPECT_EQ(record.channels.load(), 2u);
    EXPECT_GE(record.end_ns.load(), record.start_ns.load());
    EXPECT_EQ(profiler.finalize(context), nccl::kSuccess);
    EXPECT_EQ(communicator().state.load(), static_cast<uint32_t>(abi::SlotState::kClosed));
  }
};

TEST_F(ProfilerFaceTest, Version4) { Drive<nccl::ProfilerV4, nccl::ProfilerDescriptorV4>("ncclProfiler_v4"); }
TEST_F(ProfilerFaceTest, Version5) { Drive<nccl::ProfilerV5, nccl::ProfilerDescriptorV5>("ncclProfiler_v5"); }
TEST_F(ProfilerFaceTest, Version6) { Drive<nccl::ProfilerV6, nccl::ProfilerDescriptorV6>("ncclProfiler_v6"); }

TEST_F(ProfilerFaceTest, TheAgentSwitchesItOnAndOffWhileTheJobRuns) {
  const auto& profiler = Load().Get<nccl::ProfilerV6>("ncclProfiler_v6");
  int mask = -1;
  void* context = InitProfiler(profiler, &mask);
  const auto seen = [&] { return __atomic_load_n(&mask, __ATOMIC_RELAXED); };
  EXPECT_EQ(seen(), 0) << "off unless somebody asks";
  ASSERT_TRUE(agent_->Greet());
  PolicyFile file;
  file.segment().table.profile.store(static_cast<uint32_t>(abi::ProfileLevel::kCollectives));
  file.segment().table.profile_until_ns.store(NowNs() + 30'000'000'000);
  file.Write(MakePolicy(1, {}));
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  EXPECT_TRUE(Eventually([&] { return seen() == (2 | 4 | 8); }));
  EXPECT_EQ(communicator().profile.load(), 1u);
  file.segment().table.profile.store(static_cast<uint32_t>(abi::ProfileLevel::kKernels));
  EXPECT_TRUE(Eventually([&] { return seen() == (2 | 4 | 8 | 16 | 64); }));
  file.segment().table.profile_until_ns.store(NowNs());  // an agent that is gone renews nothing
  EXPECT_TRUE(Eventually([&] { return seen() == 0; }));
  EXPECT_EQ(profiler.finalize(context), nccl::kSuccess);
}

TEST_F(ProfilerFaceTest, NetTunerAndProfilerShareOneProcess) {
  Set("WEFT_COLLECTIVES", "1;*:allreduce:0-:ring:ll128:2");
  Set("WEFT_PROFILE", "collectives");
  plugin_ = std::make_unique<Plugin>(12);
  Plugin& plugin = *plugin_;
  ASSERT_EQ(plugin->Init(&LogCapture::Logger), nccl::kSuccess);
  const auto& profiler = plugin.Get<nccl::ProfilerV6>("ncclProfiler_v6");
  const auto& tuner = plugin.Get<nccl::TunerV6>("ncclTunerPlugin_v6");
  int mask = 0;
  void *observed = nullptr, *tuned = nullptr;
  ASSERT_EQ(profiler.init(&observed, 0xC0FFEE, &mask, nullptr, 4, 4, 2, nullptr), nccl::kSuccess);
  nccl::TunerConstants constants{};
  ASSERT_EQ(tuner.init(&tuned, 0xC0FFEE, 4, 4, nullptr, nullptr, &constants), nccl::kSuccess);
  ASSERT_TRUE(agent_->Greet());
  EXPECT_EQ(agent_->telemetry().process.net_version, 12);
  EXPECT_EQ(communicator().rank, 2);
  EXPECT_NE(communicator().table_digest.load(), 0u) << "the tuner writes where the profiler does";
  EXPECT_EQ(communicator(1).comm, 0u);
  EXPECT_EQ(tuner.finalize(tuned), nccl::kSuccess);
  EXPECT_EQ(profiler.finalize(observed), nccl::kSuccess);
  EXPECT_EQ(plugin->Finalize(), nccl::kSuccess);
}

// --- environment -----------------------------------------------------------------------------------------------------

template <typename Face>
void DriveEnvironment(const Face& face) {
  EXPECT_STREQ(face.name, "Weft");
  if constexpr (std::is_same_v<Face, nccl::EnvironmentV1>) {
    EXPECT_EQ(face.init(2, 28, 9, ""), nccl::kSuccess);
  } else {
    EXPECT_EQ(face.init(2, 30, 7, "", &LogCapture::Logger), nccl::kSuccess);
  }
  EXPECT_STREQ(face.get("NCCL_MAX_CTAS"), "8");
  EXPECT_STREQ(face.get("NCCL_ALGO"), "Ring") << "the user's own";
  EXPECT_EQ(face.get("NCCL_NO_SUCH_VARIABLE"), nullptr);
  EXPECT_EQ(face.finalize(), nccl::kSuccess);
}

TEST_F(FacesTest, EveryEnvironmentVersionFillsWhatTheUserLeavesUnset) {
  Set("WEFT_NCCL_DEFAULTS", "NCCL_MAX_CTAS=8;NCCL_ALGO=Tree");
  Set("NCCL_ALGO", "Ring");
  unsetenv("NCCL_MAX_CTAS");
  Plugin& plugin = Load();
  DriveEnvironment(plugin.Get<nccl::EnvironmentV1>("ncclEnvPlugin_v1"));
  DriveEnvironment(plugin.Get<nccl::EnvironmentV2>("ncclEnvPlugin_v2"));
  EXPECT_TRUE(Plugin::Logged("ENV/Weft: NCCL_ALGO=Ring is the user's; the plan would have Tree"));
}

}  // namespace
}  // namespace weft::net::testing
