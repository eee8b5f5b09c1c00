// What one caller may ask of the controller, by real calls: how often, and for how long a plan is looked for.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <thread>

#include "controller/service.h"
#include "proto/controller.grpc.pb.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

class Running {
 public:
  Running() {
    const ControllerConfig config = DefaultConfig();
    loop_ = std::make_unique<ControlLoop>(ControlLoopOptions{config.core, config.planner, "test"}, nullptr, &clock_, &metrics_);
    grpc_ = std::move(*GrpcServer::Start({"127.0.0.1", 0}, {}, loop_.get()));
    people_ = v1::ControllerService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(grpc_->port()), grpc::InsecureChannelCredentials()));
  }
  v1::ControllerService::Stub& people() { return *people_; }
  ControlLoop& loop() { return *loop_; }
  std::string MetricsText() const { return loop_->MetricsText(); }

 private:
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<v1::ControllerService::Stub> people_;
};

TEST(ServiceLimits, WhoCallsTooOftenIsToldWhenToCallAgain) {
  Running controller;
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
  Running controller;
  std::stop_source gone;
  gone.request_stop();
  const auto submitted = controller.loop().Submit(Searched(), gone.get_token());
  ASSERT_FALSE(submitted);
  EXPECT_EQ(submitted.error().code(), Code::kCancelled);
  EXPECT_TRUE(controller.loop().Jobs().empty());
  EXPECT_EQ(controller.loop().Plan(Searched(), gone.get_token()).error().code(), Code::kCancelled);
  EXPECT_TRUE(controller.loop().Submit(Searched()));
}

// More calls that plan than planners, given up one after the other; whoever does not plan is served meanwhile.
TEST(ServiceLimits, CallsThatPlanAreGivenUpWithTheirCallersAndHoldNobodyUp) {
  Running controller;
  std::vector<std::jthread> callers;
  std::vector<grpc::ClientContext> contexts(8);
  for (size_t i = 0; i < contexts.size(); ++i) {
    callers.emplace_back([&controller, &context = contexts[i], i] {
      v1::SubmitJobRequest request;
      *request.mutable_spec() = Searched();
      request.mutable_spec()->set_job_id("j" + std::to_string(i));
      v1::SubmitJobResponse response;
      const grpc::Status status = controller.people().SubmitJob(&context, request, &response);
      EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) << status.error_message();
    });
  }
  grpc::ClientContext list;
  v1::ListJobsResponse jobs;
  EXPECT_TRUE(controller.people().ListJobs(&list, {}, &jobs).ok());
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  callers.clear();  // all have an answer
}

}  // namespace
}  // namespace weft::controller
