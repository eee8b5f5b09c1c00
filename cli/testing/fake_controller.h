// A controller that answers what the test wants, over real gRPC, and a call of an online command with what it printed.
#pragma once

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/online.h"
#include "proto/controller.grpc.pb.h"

namespace weft::cli::testing {

/// Knows one job, "known".
class FakeController final : public v1::ControllerService::Service {
 public:
  FakeController() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeController() override { server_->Shutdown(); }

  OnlineOptions Options(const std::string& job = "") const {
    OnlineOptions options;
    options.controller.address = fmt::format("127.0.0.1:{}", port_);
    options.controller.timeout = Seconds(20);
    options.job = job;
    return options;
  }

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    submitted = request->spec();
    *response->mutable_plan() = plan;
    return grpc::Status::OK;
  }
  grpc::Status ReleaseJob(grpc::ServerContext*, const v1::ReleaseJobRequest* request,
                          v1::ReleaseJobResponse*) override {
    released.push_back(request->job_id());
    return grpc::Status::OK;
  }
  grpc::Status ReshardJob(grpc::ServerContext*, const v1::ReshardJobRequest* request, v1::ReshardJobResponse* response) override {
    asked = *request;
    *response->mutable_plan() = plan;
    return refusal;
  }
  grpc::Status GetQos(grpc::ServerContext*, const v1::GetQosRequest*, v1::GetQosResponse* response) override {
    *response = qos;
    return grpc::Status::OK;
  }
  grpc::Status ChangeQos(grpc::ServerContext*, const v1::ChangeQosRequest* request, v1::ChangeQosResponse* response) override {
    changed.push_back(*request);
    response->set_id(7);
    for (const auto& host : qos.hosts()) response->add_hosts(host.host());
    return grpc::Status::OK;
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*, v1::ListJobsResponse* response) override {
    *response = jobs;
    return grpc::Status::OK;
  }
  grpc::Status ExplainJob(grpc::ServerContext*, const v1::ExplainJobRequest* request,
                          v1::ExplainJobResponse* response) override {
    if (request->job_id() != "known") {
      return {grpc::StatusCode::NOT_FOUND, fmt::format("no job \"{}\"", request->job_id())};
    }
    *response = explained;
    response->mutable_job()->mutable_spec()->set_job_id("known");
    return grpc::Status::OK;
  }

  v1::JobPlan plan;
  v1::ListJobsResponse jobs;
  v1::ExplainJobResponse explained;
  v1::JobSpec submitted;
  v1::GetQosResponse qos;
  std::vector<v1::ChangeQosRequest> changed;
  std::vector<std::string> released;
  v1::ReshardJobRequest asked;
  grpc::Status refusal;  ///< of ReshardJob

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct Outcome {
  int status = 0;
  std::string out, err;
};

inline Outcome Call(int (*command)(const OnlineOptions&), const OnlineOptions& options) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = command(options);
  std::fflush(stdout);
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

}  // namespace weft::cli::testing
