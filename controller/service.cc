#include "controller/service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "common/log.h"
#include "proto/controller.grpc.pb.h"

namespace weft::controller {
namespace {

constexpr size_t kMaxQueued = 1024;

grpc::Status ToGrpc(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code()), error.message()};
}

/// One agent's stream. gRPC calls the On… functions, each kind one at a time; Outbox::Send comes from any thread. The
/// outbox outlives the reactor, which gRPC deletes at the end of the call; what connects them is guarded by its mutex.
class Session final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ControllerMessage> {
 public:
  Session(ControlLoop* loop, grpc::CallbackServerContext* context)
      : loop_(loop), outbox_(std::make_shared<Outbox>(this, context)) {
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      outbox_->Finish(grpc::Status::OK);
      return;
    }
    if (!host_.empty()) {
      loop_->Receive(host_, outbox_.get(), std::move(incoming_));
    } else if (!incoming_.has_register_host()) {
      outbox_->Finish({grpc::StatusCode::INVALID_ARGUMENT, "session: the first message must be register_host"});
      return;
    } else if (const Status joined = loop_->Join(incoming_.register_host(), outbox_); !joined) {
      outbox_->Finish(ToGrpc(joined.error()));
      return;
    } else {
      host_ = incoming_.register_host().host();
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override { outbox_->Written(ok); }

  void OnDone() override {
    outbox_->Detach();
    if (!host_.empty()) loop_->Leave(host_, outbox_.get());
    delete this;
  }

 private:
  class Outbox final : public AgentOutbox {
   public:
    Outbox(Session* session, grpc::CallbackServerContext* context) : session_(session), context_(context) {}

    void Send(v1::ControllerMessage message) override {
      const std::lock_guard lock(mutex_);
      if (session_ == nullptr || finishing_) return;
      if (ReplaceQueued(message)) return;
      queue_.push_back(std::move(message));
      if (queue_.size() > kMaxQueued) {
        // Not read for long: a new session will get the present state in place of this backlog.
        context_->TryCancel();
        finishing_ = true;
        return;
      }
      if (!writing_) WriteNext();
    }

    void Close(Code code, const std::string& reason) override {
      Finish({static_cast<grpc::StatusCode>(code), reason});
    }

    /// Ends the call once the write in flight, if any, is done.
    void Finish(const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      if (session_ == nullptr || finished_) return;
      finishing_ = true;
      if (!final_) final_ = std::make_unique<grpc::Status>(status);
      if (!writing_) FinishNow();
    }

    void Written(bool ok) {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      queue_.pop_front();
      if (session_ == nullptr) return;
      if (final_) {
        FinishNow();
      } else if (ok && !finishing_ && !queue_.empty()) {
        WriteNext();
      }
    }

    void Detach() {
      const std::lock_guard lock(mutex_);
      session_ = nullptr;
    }

   private:
    /// A newer policy of a job makes one that still waits pointless, and so does a heartbeat. The front may be in flight and stays.
    bool ReplaceQueued(v1::ControllerMessage& message) {
      if (!message.has_policy() && !message.has_heartbeat()) return false;
      for (size_t i = writing_ ? 1 : 0; i < queue_.size(); ++i) {
        if (queue_[i].kind_case() != message.kind_case()) continue;
        if (message.has_policy() && queue_[i].policy().job_id() != message.policy().job_id()) continue;
        queue_[i] = std::move(message);
        return true;
      }
      return false;
    }
    void WriteNext() {
      writing_ = true;
      session_->StartWrite(&queue_.front());
    }
    void FinishNow() {
      if (std::exchange(finished_, true)) return;
      session_->Finish(*final_);
    }

    std::mutex mutex_;
    Session* session_;
    grpc::CallbackServerContext* context_;
    std::deque<v1::ControllerMessage> queue_;  // the front is in flight while writing_
    bool writing_ = false;
    bool finishing_ = false;                   // nothing more is queued
    bool finished_ = false;
    std::unique_ptr<grpc::Status> final_;
  };

  ControlLoop* loop_;
  std::shared_ptr<Outbox> outbox_;
  v1::AgentMessage incoming_;
  std::string host_;  // empty until registered
};

class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  explicit AgentServiceImpl(ControlLoop* loop) : loop_(loop) {}
  grpc::ServerBidiReactor<v1::AgentMessage, v1::ControllerMessage>* Session(
      grpc::CallbackServerContext* context) override {
    return new controller::Session(loop_, context);
  }

 private:
  ControlLoop* loop_;
};

class ControllerServiceImpl final : public v1::ControllerService::CallbackService {
 public:
  explicit ControllerServiceImpl(ControlLoop* loop) : loop_(loop) {}
  using Context = grpc::CallbackServerContext*;
  using Reactor = grpc::ServerUnaryReactor*;

  Reactor SubmitJob(Context context, const v1::SubmitJobRequest* request, v1::SubmitJobResponse* response) override {
    return Answer(context, loop_->Submit(request->spec()),
                  [&](v1::JobPlan& plan) { response->mutable_plan()->Swap(&plan); });
  }
  Reactor PlanJob(Context context, const v1::PlanJobRequest* request, v1::PlanJobResponse* response) override {
    return Answer(context, loop_->Plan(request->spec()),
                  [&](v1::JobPlan& plan) { response->mutable_plan()->Swap(&plan); });
  }
  Reactor ReleaseJob(Context context, const v1::ReleaseJobRequest* request, v1::ReleaseJobResponse* response) override {
    response->set_warning(loop_->Release(request->job_id()));
    return Done(context, grpc::Status::OK);
  }
  Reactor ListJobs(Context context, const v1::ListJobsRequest*, v1::ListJobsResponse* response) override {
    for (v1::JobStatus& job : loop_->Jobs()) response->add_jobs()->Swap(&job);
    return Done(context, grpc::Status::OK);
  }
  Reactor ExplainJob(Context context, const v1::ExplainJobRequest* request,
                     v1::ExplainJobResponse* response) override {
    return Answer(context, loop_->Explain(request->job_id()),
                  [&](v1::ExplainJobResponse& explained) { response->Swap(&explained); });
  }
  Reactor GetTopology(Context context, const v1::GetTopologyRequest*, v1::GetTopologyResponse* response) override {
    *response = loop_->Topology();
    return Done(context, grpc::Status::OK);
  }
  Reactor ListDecisions(Context context, const v1::ListDecisionsRequest*,
                        v1::ListDecisionsResponse* response) override {
    *response = loop_->Decisions();
    return Done(context, grpc::Status::OK);
  }
  Reactor SetMode(Context context, const v1::SetModeRequest* request, v1::SetModeResponse* response) override {
    return Answer(context, loop_->SetMode(request->mode()), [&](std::string& warning) { response->set_warning(std::move(warning)); });
  }

 private:
  static Reactor Done(Context context, const grpc::Status& status) {
    Reactor reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }
  template <typename T, typename Use>
  static Reactor Answer(Context context, Result<T> result, Use use) {
    if (!result) return Done(context, ToGrpc(result.error()));
    use(*result);
    return Done(context, grpc::Status::OK);
  }

  ControlLoop* loop_;
};

}  // namespace

struct GrpcServer::Impl {
  explicit Impl(ControlLoop* loop) : agents(loop), people(loop) {}
  AgentServiceImpl agents;
  ControllerServiceImpl people;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Endpoint& endpoint, const rpc::TlsFiles& tls,
                                                      ControlLoop* loop) {
  WEFT_ASSIGN_OR_RETURN(const auto credentials, rpc::MakeServerCredentials(tls));
  auto impl = std::make_unique<Impl>(loop);
  grpc::ServerBuilder builder;
  // Without this a second controller would share the port and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Agents ping idle sessions; the default would answer the third ping with "too_many_pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.SetMaxReceiveMessageSize(8 << 20);
  builder.AddListeningPort(endpoint.text(), credentials, &impl->port);
  builder.RegisterService(&impl->agents);
  builder.RegisterService(&impl->people);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("listen at {}: the address cannot be used (is another program listening there?)",
                            endpoint.text()));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  impl_->server->Wait();
}
int GrpcServer::port() const { return impl_->port; }

}  // namespace weft::controller
