// The whole controller in one process: a real gRPC server and a real HTTP server on free ports, and clients that act as
// agents and tools.
#include "controller/service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "controller/http_server.h"
#include "controller/testing/temp_dir.h"
#include "proto/controller.grpc.pb.h"

namespace weft::controller {
namespace {

using testing::TempDir;
using ::testing::HasSubstr;

/// Controller with servers and a timer, as main.cc puts them together.
class Running {
 public:
  explicit Running(const std::string& state_dir = "") {
    ControllerConfig config = DefaultConfig();
    std::unique_ptr<Journal> journal;
    if (!state_dir.empty()) journal = std::move(*Journal::Open(state_dir));
    loop_ = std::make_unique<ControlLoop>(ControlLoopOptions{config.core, config.planner, "test"}, std::move(journal),
                                          &clock_, &metrics_);
    EXPECT_TRUE(loop_->Recover());
    http_ = std::move(*HttpServer::Start({"127.0.0.1", 0}, loop_.get()));
    grpc_ = std::move(*GrpcServer::Start({"127.0.0.1", 0}, {}, loop_.get()));
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(grpc_->port()), grpc::InsecureChannelCredentials());
    people_ = v1::ControllerService::NewStub(channel_);
  }

  v1::ControllerService::Stub& people() { return *people_; }
  std::unique_ptr<v1::AgentService::Stub> agents() { return v1::AgentService::NewStub(channel_); }
  std::string Get(const std::string& path) {
    httplib::Client client("127.0.0.1", http_->port());
    const auto response = client.Get(path.c_str());
    return response ? response->body : "no answer";
  }
  ControlLoop& loop() { return *loop_; }
  int grpc_port() const { return grpc_->port(); }
  int http_port() const { return http_->port(); }

 private:
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ControllerService::Stub> people_;
};

/// One agent's session, synchronously.
class Agent {
 public:
  Agent(Running& controller, const std::string& host, int64_t incarnation,
        std::vector<std::pair<std::string, int64_t>> held = {})
      : host_(host), stub_(controller.agents()) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    stream_ = stub_->Session(&context_);
    v1::AgentMessage message;
    v1::Register& registration = *message.mutable_register_host();
    registration.set_host(host);
    registration.set_incarnation(incarnation);
    registration.add_interfaces()->add_addresses("addr-" + host);
    for (const auto& [job, epoch] : held) {
      v1::JobEpoch* policy = registration.add_policies();
      policy->set_job_id(job);
      policy->set_epoch(epoch);
    }
    stream_->Write(message);
  }
  ~Agent() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  /// The next message down; not set at the end of the stream.
  v1::ControllerMessage Read() {
    v1::ControllerMessage message;
    if (!stream_->Read(&message)) message.Clear();
    return message;
  }
  void OpenFlow(uint64_t flow, const std::string& job, const std::string& peer) {
    v1::AgentMessage message;
    v1::HostSample& sample = *message.mutable_sample();
    sample.set_time_s(100);
    v1::FlowIdentity* identity = sample.add_opened();
    identity->set_flow(flow);
    identity->set_job_id(job);
    identity->set_send(true);
    identity->set_local_address("addr-" + host_);
    identity->set_peer_address("addr-" + peer);
    v1::FlowCounters* counters = sample.add_counters();
    counters->set_flow(flow);
    counters->set_send(true);
    v1::LaneCounters* lane = counters->add_lanes();
    lane->set_source_port(33000);
    lane->set_weight(1);
    lane->set_state("active");
    v1::PolicyApplied* applied = sample.add_applied();
    applied->set_job_id(job);
    applied->set_delay_s(0.002);
    stream_->Write(message);
    v1::AgentMessage paths;
    v1::PathReport& report = *paths.mutable_paths();
    report.set_flow(flow);
    report.set_local_address("addr-" + host_);
    report.set_peer_address("addr-" + peer);
    report.set_hop_count(3);
    for (const auto& [port, spine] :
         {std::pair(33000, "spine1"), std::pair(41000, "spine1"), std::pair(41001, "spine2")}) {
      v1::Path* path = report.add_paths();
      path->set_source_port(port);
      path->set_complete(true);
      for (const char* hop : {"leaf1", spine, "leaf2"}) path->add_hops(hop);
    }
    stream_->Write(paths);
  }
  grpc::Status Finish() {
    finished_ = true;
    return stream_->Finish();
  }

 private:
  std::string host_;
  bool finished_ = false;
  std::unique_ptr<v1::AgentService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ControllerMessage>> stream_;
};

v1::SubmitJobRequest Submission(const std::string& id) {
  v1::SubmitJobRequest request;
  request.mutable_spec()->set_job_id(id);
  request.mutable_spec()->add_hosts("h1");
  request.mutable_spec()->add_hosts("h2");
  return request;
}

/// Ticks until the agent has a policy: the only wait is for the stream.
v1::JobPolicy AwaitPolicy(Running& controller, Agent& agent) {
  std::jthread timer([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      controller.loop().Tick();
      std::this_thread::yield();
    }
  });
  for (;;) {
    const v1::ControllerMessage message = agent.Read();
    if (message.has_policy() || message.kind_case() == v1::ControllerMessage::KIND_NOT_SET) return message.policy();
  }
}

TEST(Service, AgentIsWelcomedToldOfItsJobAndGivenPaths) {
  Running controller;
  Agent agent(controller, "h1", 1);
  const v1::ControllerMessage welcome = agent.Read();
  ASSERT_TRUE(welcome.has_welcome());
  EXPECT_EQ(welcome.welcome().cluster(), "test");
  EXPECT_GT(welcome.welcome().sample_interval_s(), 0);
  Agent peer(controller, "h2", 1);
  ASSERT_TRUE(peer.Read().has_welcome());
  {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const grpc::Status status = controller.people().SubmitJob(&context, Submission("j"), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.plan().environment().at("NCCL_NET"), "Weft");
  }
  const v1::ControllerMessage launch = agent.Read();
  ASSERT_TRUE(launch.has_launch());
  EXPECT_EQ(launch.launch().environment().at("WEFT_JOB_ID"), "j");
  agent.OpenFlow(5, "j", "h2");
  const v1::JobPolicy policy = AwaitPolicy(controller, agent);
  EXPECT_EQ(policy.job_id(), "j");
  EXPECT_GT(policy.epoch(), 0);
  ASSERT_EQ(policy.flows_size(), 1);
  ASSERT_EQ(policy.flows(0).lanes_size(), 2);
  EXPECT_EQ(policy.flows(0).lanes(0).source_port(), 33000);
  EXPECT_EQ(policy.flows(0).lanes(1).source_port(), 41001);
  grpc::ClientContext context;
  v1::ReleaseJobRequest request;
  request.set_job_id("j");
  v1::ReleaseJobResponse released;
  ASSERT_TRUE(controller.people().ReleaseJob(&context, request, &released).ok());
  EXPECT_EQ(agent.Read().ended().job_id(), "j");
}

TEST(Service, CallsAnswerWithCodes) {
  Running controller;
  const auto submit = [&](const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    return controller.people().SubmitJob(&context, request, &response);
  };
  EXPECT_TRUE(submit(Submission("j")).ok());
  EXPECT_EQ(submit(Submission("j")).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  const grpc::Status empty = submit({});
  EXPECT_EQ(empty.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(empty.error_message(), HasSubstr("job_id"));
  grpc::ClientContext explain;
  v1::ExplainJobRequest request;
  request.set_job_id("no such");
  v1::ExplainJobResponse response;
  const grpc::Status unknown = controller.people().ExplainJob(&explain, request, &response);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "no job \"no such\"");
  grpc::ClientContext mode;
  v1::SetModeResponse set;
  EXPECT_EQ(controller.people().SetMode(&mode, {}, &set).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Service, NewerSessionReplacesTheOlderAndAnOlderIsRefused) {
  Running controller;
  Agent first(controller, "h1", 5);
  ASSERT_TRUE(first.Read().has_welcome());
  Agent second(controller, "h1", 6);
  ASSERT_TRUE(second.Read().has_welcome());
  EXPECT_EQ(first.Read().kind_case(), v1::ControllerMessage::KIND_NOT_SET);
  EXPECT_EQ(first.Finish().error_code(), grpc::StatusCode::ABORTED);
  Agent old(controller, "h1", 4);
  EXPECT_EQ(old.Read().kind_case(), v1::ControllerMessage::KIND_NOT_SET);
  EXPECT_THAT(old.Finish().error_message(), HasSubstr("incarnation 4"));
  EXPECT_TRUE(controller.loop().Topology().hosts(0).connected());
}

TEST(Service, JobThatCouldNotBePlannedMayBeSubmittedAgain) {
  Running controller;
  v1::JobSpec spec = Submission("j").spec();
  spec.set_model_config_json("{");
  ASSERT_TRUE(controller.loop().Submit(spec).has_value());
  ASSERT_FALSE(controller.loop().Jobs().at(0).planning_errors().empty());
  EXPECT_TRUE(controller.loop().Submit(spec).has_value());
  spec.clear_model_config_json();
  EXPECT_TRUE(controller.loop().Submit(spec).has_value());
  EXPECT_EQ(controller.loop().Submit(spec).error().code(), Code::kAlreadyExists);
}

TEST(Service, GivenStrategySurvivesARestartAndAnIllegalOneIsRefused) {
  const TempDir dir;
  v1::SubmitJobRequest request = Submission("own");
  request.mutable_spec()->set_model_config_json(
      R"({"model_type":"gpt2","n_layer":2,"n_embd":64,"n_head":2,"vocab_size":256,"n_positions":128})");
  request.mutable_spec()->set_global_batch(8);
  request.mutable_spec()->set_sequence(64);
  v1::StrategyValue* tp = request.mutable_spec()->mutable_given_strategy()->add_values();
  tp->set_name("tp");
  tp->set_value("3");
  request.mutable_spec()->mutable_given_strategy()->set_source("plan.json, plan 0");
  {
    Running controller(dir.path());
    grpc::ClientContext refused, taken;
    v1::SubmitJobResponse response;
    const grpc::Status status = controller.people().SubmitJob(&refused, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("given strategy (plan.json, plan 0): tp=3, expected 1 to the job's 2 GPUs"));
    EXPECT_TRUE(controller.loop().Jobs().empty());
    tp->set_value("2");
    ASSERT_TRUE(controller.people().SubmitJob(&taken, request, &response).ok());
    EXPECT_EQ(response.plan().origin(), "given");
  }
  Running controller(dir.path());
  const v1::JobStatus job = controller.loop().Jobs().at(0);
  EXPECT_EQ(job.state(), "planned");
  EXPECT_EQ(job.plan().strategy().text(), "dp=1 tp=2 micro_batch=1");
  EXPECT_EQ(job.spec().given_strategy().source(), "plan.json, plan 0");
}

TEST(Service, SessionMustBeginWithRegister) {
  Running controller;
  const auto stub = controller.agents();
  grpc::ClientContext context;
  const auto stream = stub->Session(&context);
  v1::AgentMessage message;
  message.mutable_sample()->set_time_s(1);
  stream->Write(message);
  EXPECT_FALSE(stream->Read(&*std::make_unique<v1::ControllerMessage>()));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Service, PortsInUseAreNamed) {
  Running controller;
  const Endpoint grpc{"127.0.0.1", controller.grpc_port()};
  const auto second = GrpcServer::Start(grpc, {}, &controller.loop());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.error().message(), HasSubstr(grpc.text()));
  const Endpoint http{"127.0.0.1", controller.http_port()};
  const auto third = HttpServer::Start(http, &controller.loop());
  ASSERT_FALSE(third.has_value());
  EXPECT_THAT(third.error().message(), HasSubstr(http.text()));
}

TEST(Service, JobsModeAndEpochsSurviveARestart) {
  const TempDir dir;
  int64_t epoch = 0;
  {
    Running controller(dir.path());
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    ASSERT_TRUE(controller.people().SubmitJob(&context, Submission("j"), &response).ok());
    Agent agent(controller, "h1", 1);
    Agent peer(controller, "h2", 1);
    ASSERT_TRUE(peer.Read().has_welcome());
    agent.OpenFlow(5, "j", "h2");
    epoch = AwaitPolicy(controller, agent).epoch();
    ASSERT_GT(epoch, 0);
  }
  {
    Running controller(dir.path());
    ASSERT_EQ(controller.loop().Jobs().size(), 1u);
    EXPECT_EQ(controller.loop().Jobs()[0].policy_epoch(), epoch);
    Agent agent(controller, "h1", 1, {{"j", epoch}});
    Agent peer(controller, "h2", 1);
    ASSERT_TRUE(peer.Read().has_welcome());
    agent.OpenFlow(5, "j", "h2");
    EXPECT_GT(AwaitPolicy(controller, agent).epoch(), epoch);
    ASSERT_TRUE(controller.loop().SetMode(v1::MODE_OBSERVE));
    ASSERT_EQ(controller.loop().Release("j"), "");
  }
  Running controller(dir.path());
  EXPECT_TRUE(controller.loop().Jobs().empty());
  EXPECT_EQ(controller.loop().mode(), v1::MODE_OBSERVE);
}

std::set<std::string> DocumentedMetrics() {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/metrics.md");
  std::set<std::string> names;
  const std::regex row("^\\| *`(weft_controller_[a-z0-9_]+)`");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_search(line, match, row)) names.insert(match[1]);
  }
  return names;
}

TEST(Http, MetricsAreThoseOfTheDocumentation) {
  Running controller;
  const std::string text = controller.Get("/metrics");
  std::set<std::string> served;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name;
    if (words >> hash >> keyword >> name && hash == "#" && keyword == "TYPE") served.insert(name);
  }
  EXPECT_GE(served.size(), 15u);
  EXPECT_EQ(served, DocumentedMetrics());
}

TEST(Http, StateAndMetricsShowJobsAndLinks) {
  Running controller;
  Agent agent(controller, "h1", 1);
  Agent peer(controller, "h2", 1);
  ASSERT_TRUE(peer.Read().has_welcome());
  agent.OpenFlow(5, "j\"<", "h2");
  ASSERT_EQ(AwaitPolicy(controller, agent).flows_size(), 1);
  const std::string metrics = controller.Get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("weft_controller_hosts_connected 2"));
  EXPECT_THAT(metrics, HasSubstr("weft_controller_jobs{state=\"running\"} 1"));
  EXPECT_THAT(metrics,
              HasSubstr("weft_controller_link_available_bytes_per_second{from=\"leaf1\",to=\"spine2\"} 12500000"));
  EXPECT_THAT(metrics, HasSubstr("weft_controller_policy_apply_seconds_count 1"));
  EXPECT_THAT(metrics, HasSubstr("weft_controller_policies_total 1"));
  const std::string state = controller.Get("/api/v1/state");
  EXPECT_THAT(state, HasSubstr(R"("job_id":"j\"<")"));
  EXPECT_THAT(state, HasSubstr(R"("from":"leaf1")"));
  EXPECT_THAT(state, HasSubstr(R"("kind":"place")"));
}

TEST(Http, PageIsSelfContained) {
  Running controller;
  const std::string page = controller.Get("/");
  EXPECT_THAT(page, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(page, HasSubstr("/api/v1/state"));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("http://")));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("https://")));
  EXPECT_EQ(controller.Get("/healthz"), "ok\n");
}

}  // namespace
}  // namespace weft::controller
