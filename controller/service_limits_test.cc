// What one caller may ask of the controller, by real calls: how often, and for how long a plan is looked for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include "controller/service.h"
#include "proto/controller.grpc.pb.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

class Running {
 public:
  /// `clock` must outlive it.
  explicit Running(Clock* clock) {
    const ControllerConfig config = DefaultConfig();
    loop_ = std::make_unique<ControlLoop>(ControlLoopOptions{config.core, config.planner, "test"}, nullptr, clock, &metrics_);
    grpc_ = std::move(*GrpcServer::Start({"127.0.0.1", 0}, {}, loop_.get()));
    people_ = v1::ControllerService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(grpc_->port()), grpc::InsecureChannelCredentials()));
  }
  v1::ControllerService::Stub& people() { return *people_; }
  int port() const { return grpc_->port(); }
  ControlLoop& loop() { return *loop_; }
  /// Takes no more calls; returns when those that are on their way have ended.
  void Stop() { grpc_.reset(); }
  std::string MetricsText() const { return loop_->MetricsText(); }

 private:
  Metrics metrics_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<v1::ControllerService::Stub> people_;
};

TEST(ServiceLimits, WhoConnectsAndSaysNothingIsCutOff) {
  SystemClock clock;
  Running controller(&clock);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(fd, 0);
  const timeval most{.tv_sec = 50, .tv_usec = 0};  // ten times what is promised
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(controller.port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  char said[256];
  ssize_t got = 1;
  while (got > 0) got = recv(fd, said, sizeof said, 0);  // what the server says first
  EXPECT_TRUE(got == 0 || errno == ECONNRESET) << std::strerror(errno);
  close(fd);
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  EXPECT_TRUE(controller.people().ListJobs(&context, {}, &jobs).ok()) << "others are served";
}

TEST(ServiceLimits, ASessionThatNeverSaysItsHostIsEnded) {
  SystemClock clock;
  Running controller(&clock);
  const auto agents = v1::AgentService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(controller.port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));  // ten times what is promised
  const auto session = agents->Session(&context);
  v1::ControllerMessage message;
  EXPECT_FALSE(session->Read(&message));
  EXPECT_THAT(session->Finish().error_message(), HasSubstr("no register_host within 10 s"));
}

TEST(ServiceLimits, AJobOfNineMebibytesIsRefusedUnread) {
  SystemClock clock;
  Running controller(&clock);
  v1::SubmitJobRequest request;
  request.mutable_spec()->set_job_id("large");
  request.mutable_spec()->set_model_config_json(std::string(9 << 20, ' '));
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  EXPECT_EQ(controller.people().SubmitJob(&context, request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(ServiceLimits, WhoCallsTooOftenIsToldWhenToCallAgain) {
  SystemClock clock;
  Running controller(&clock);
  EXPECT_THAT(controller.MetricsText(), HasSubstr("weft_controller_calls_refused_total{why=\"rate\"} 0")) << "from the start";
  grpc::Status status;
  std::string pushback;
  // The bucket holds some calls and fills at 10 a second: a loop is faster.
  for (int i = 0; i < 100'000 && status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED; ++i) {
    grpc::ClientContext context;
    v1::SetModeResponse response;
    status = controller.people().SetMode(&context, {}, &response);
    const auto& trailer = context.GetServerTrailingMetadata();
    const auto after = trailer.find("grpc-retry-pushback-ms");
    if (after != trailer.end()) pushback.assign(after->second.data(), after->second.size());
  }
  ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("127.0.0.1 calls more often than 10 times a second: expected at most that, call again in "));
  ASSERT_FALSE(pushback.empty());
  EXPECT_GT(std::stoi(pushback), 0);
  EXPECT_LE(std::stoi(pushback), 100) << "ms, of one token";
  EXPECT_THAT(controller.MetricsText(), HasSubstr("weft_controller_calls_refused_total{why=\"rate\"} "));
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  EXPECT_TRUE(controller.people().ListJobs(&context, {}, &jobs).ok()) << "other calls have a bucket of their own";
}

/// A job with a model, for which a strategy is searched.
v1::JobSpec Searched() {
  v1::JobSpec spec;
  spec.set_job_id("j");
  spec.add_hosts("h1");
  spec.add_hosts("h2");
  spec.set_model_config_json(R"({"model_type":"gpt2","n_layer":2,"n_embd":64,"n_head":2,"vocab_size":256,"n_positions":128})");
  spec.set_global_batch(8);
  spec.set_sequence(64);
  return spec;
}

TEST(ServiceLimits, APlanWhoseCallerHasGoneIsNotKept) {
  SystemClock clock;
  Running controller(&clock);
  std::stop_source gone;
  gone.request_stop();
  const auto submitted = controller.loop().Submit(Searched(), gone.get_token());
  ASSERT_FALSE(submitted);
  EXPECT_EQ(submitted.error().code(), Code::kCancelled);
  EXPECT_TRUE(controller.loop().Jobs().empty());
  EXPECT_EQ(controller.loop().Plan(Searched(), gone.get_token()).error().code(), Code::kCancelled);
  EXPECT_TRUE(controller.loop().Submit(Searched()));
}

/// Holds the two planners, each as it asks when its plan begins: a call asks for the time when it is admitted, its plan next.
class HoldingClock final : public Clock {
 public:
  Seconds Now() const override {
    const int call = calls.fetch_add(1) + 1;
    if (call == first_held || call == first_held + 2) open_.wait();
    return SystemClock().Now();
  }
  /// The next call but one, and the second after that, wait until Open().
  void HoldTwoPlans() { first_held = calls + 2; }
  void AwaitCalls(int count) const {
    while (calls < count) std::this_thread::yield();
  }
  void Open() const {
    if (!open_.try_wait()) open_.count_down();
  }
  mutable std::atomic<int> calls = 0;
  std::atomic<int> first_held = -10;

 private:
  mutable std::latch open_{1};
};

/// Calls of SubmitJob that are on their way at once.
class Submissions {
 public:
  explicit Submissions(v1::ControllerService::Stub* stub) : stub_(stub) {}
  void Begin() {
    Call& call = calls_.emplace_back();
    *call.request.mutable_spec() = Searched();
    call.request.mutable_spec()->set_job_id(fmt::format("j{}", calls_.size() - 1));
    stub_->async()->SubmitJob(&call.context, &call.request, &call.response, [this, &call](const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      call.status = status;
      changed_.notify_all();
    });
  }
  void Cancel(size_t index) { calls_[index].context.TryCancel(); }
  size_t AwaitAny() {
    const auto any = [&] { return std::ranges::find_if(calls_, [](const Call& call) { return call.status.has_value(); }); };
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return any() != calls_.end(); });
    return static_cast<size_t>(any() - calls_.begin());
  }
  grpc::Status Await(size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_[index].status.has_value(); });
    return *calls_[index].status;
  }
  const grpc::ClientContext& context(size_t index) const { return calls_[index].context; }
  size_t size() const { return calls_.size(); }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    v1::SubmitJobResponse response;
    std::optional<grpc::Status> status;
  };
  v1::ControllerService::Stub* const stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;  // their statuses guarded by mutex_
};

// Two plans are held, 64 wait, one is refused; all but one are given up. Whoever does not plan is served meanwhile.
TEST(ServiceLimits, CallsThatPlanAreGivenUpWithTheirCallersAndHoldNobodyUp) {
  HoldingClock clock;
  Running controller(&clock);
  Submissions submissions(&controller.people());
  const std::unique_ptr<HoldingClock, void (*)(HoldingClock*)> opened(&clock, [](HoldingClock* held) { held->Open(); });
  const int before = clock.calls;
  clock.HoldTwoPlans();
  for (int plan = 1; plan <= 2; ++plan) {
    submissions.Begin();
    clock.AwaitCalls(before + 2 * plan);
  }
  for (int i = 0; i < 65; ++i) submissions.Begin();
  const size_t refused = submissions.AwaitAny();
  EXPECT_EQ(submissions.Await(refused).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(submissions.Await(refused).error_message(), HasSubstr("64 plans of ipv4:127.0.0.1 wait already"));
  EXPECT_EQ(submissions.context(refused).GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  EXPECT_THAT(controller.MetricsText(), HasSubstr("weft_controller_calls_refused_total{why=\"plans\"} 1"));
  const size_t kept = refused == 2 ? 3 : 2;  // one that waits
  for (size_t i = 0; i < submissions.size(); ++i) {
    if (i == kept || i == refused) continue;
    submissions.Cancel(i);
    EXPECT_EQ(submissions.Await(i).error_code(), grpc::StatusCode::CANCELLED);
  }
  // On the same connection, behind what told of the cancelled calls.
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::ListJobsResponse jobs;
    ASSERT_TRUE(controller.people().ListJobs(&context, {}, &jobs).ok());
    EXPECT_EQ(jobs.jobs_size(), 0);
  }
  clock.Open();
  EXPECT_TRUE(submissions.Await(kept).ok()) << submissions.Await(kept).error_message();
  controller.Stop();  // all calls have ended
  const std::vector<v1::JobStatus> jobs = controller.loop().Jobs();
  ASSERT_EQ(jobs.size(), 1u) << "a plan whose caller has gone is not kept";
  EXPECT_EQ(jobs[0].spec().job_id(), fmt::format("j{}", kept));
}

}  // namespace
}  // namespace weft::controller
