#include "controller/service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "controller/loop_gate.h"
#include "controller/plan_desk.h"
#include "proto/controller.grpc.pb.h"
#include "proto/identity.h"

namespace weft::controller {
namespace {

constexpr size_t kMaxQueued = 1024;

grpc::Status ToGrpc(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code()), error.message()};
}

// Plans that are made at once. A search takes seconds at most (JobPlannerOptions::patience).
constexpr size_t kPlanners = 2;
constexpr Seconds kAgainAfterFullDesk{1};  // about as long as a search takes
// What gRPC's clients read of a refusal: milliseconds until they may try again.
constexpr char kRetryAfter[] = "grpc-retry-pushback-ms";

Caller CallerOf(const grpc::CallbackServerContext* context) {
  const std::vector<grpc::string_ref> pem = context->auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return {.peer = context->peer(), .certificate = pem.empty() ? "" : std::string(pem[0].data(), pem[0].size()),
          .token = ""};
}

/// With when to try again, where that is known.
grpc::Status ToGrpc(const Refusal& refusal, grpc::CallbackServerContext* context) {
  if (refusal.again_after > Seconds(0)) {
    context->AddTrailingMetadata(kRetryAfter, std::to_string(static_cast<int64_t>(std::ceil(refusal.again_after.count() * 1e3))));
  }
  return ToGrpc(refusal.error);
}

/// One agent's stream. gRPC calls the On… functions, each kind one at a time; Outbox::Send comes from any thread. The
/// outbox outlives the reactor, which gRPC deletes at the end of the call; what connects them is guarded by its mutex.
class Session final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ControllerMessage> {
 public:
  Session(ControlLoop* loop, Gate* gate, grpc::CallbackServerContext* context)
      : loop_(loop), gate_(gate), peer_(context->peer()), outbox_(std::make_shared<Outbox>(this, context)) {
    auto who = gate_->Admit(CallerOf(context), Access::kSession);
    if (!who) {
      outbox_->Finish(ToGrpc(who.error(), context));
      return;
    }
    who_ = *std::move(who);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      outbox_->Finish(grpc::Status::OK);
      return;
    }
    if (const Status may = CheckMay(); !may) {
      outbox_->Finish(ToGrpc(gate_->Refuse(host_.empty() ? "host" : "revoked", peer_, may.error())));
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

  /// A session lasts: its certificate may be revoked meanwhile. It is for the host that the certificate names.
  Status CheckMay() const {
    if (!who_) return Ok();
    if (const std::string& host = incoming_.register_host().host(); incoming_.has_register_host() && host != who_->name) {
      return Fail(Code::kUnauthenticated, fmt::format("agent \"{}\" may not speak for host \"{}\"", who_->name, host));
    }
    return gate_->CheckPresent(*who_);
  }

  ControlLoop* loop_;
  Gate* gate_;
  const std::string peer_;
  std::optional<rpc::Identity> who_;  // empty without TLS
  std::shared_ptr<Outbox> outbox_;
  v1::AgentMessage incoming_;
  std::string host_;  // empty until registered
};

class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  AgentServiceImpl(ControlLoop* loop, Gate* gate) : loop_(loop), gate_(gate) {}
  grpc::ServerBidiReactor<v1::AgentMessage, v1::ControllerMessage>* Session(grpc::CallbackServerContext* context) override {
    return new controller::Session(loop_, gate_, context);
  }

 private:
  ControlLoop* loop_;
  Gate* gate_;
};

/// A call that plans, at the desk. Nobody waits for a plan whose caller has gone: its search ends and nothing is kept. OnDone
/// deletes it.
template <typename Response>
class Planning final : public grpc::ServerUnaryReactor {
 public:
  explicit Planning(Response* response) : response_(response) {}
  std::stop_token gone() const { return gone_.get_token(); }
  void Answer(Result<v1::JobPlan> plan) {
    if (!plan) return Finish(ToGrpc(plan.error()));
    response_->mutable_plan()->Swap(&*plan);
    Finish(grpc::Status::OK);
  }
  void OnCancel() override { gone_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  Response* const response_;
  std::stop_source gone_;
};

class ControllerServiceImpl final : public v1::ControllerService::CallbackService {
 public:
  ControllerServiceImpl(ControlLoop* loop, Gate* gate, PlanDesk* desk) : loop_(loop), gate_(gate), desk_(desk) {}
  using Context = grpc::CallbackServerContext*;
  using Reactor = grpc::ServerUnaryReactor*;
  using Who = std::optional<rpc::Identity>;

  Reactor SubmitJob(Context context, const v1::SubmitJobRequest* request, v1::SubmitJobResponse* response) override {
    return Admitted(context, Access::kSubmit, [&](const Who& who) {
      const auto submit = [loop = loop_, spec = SpecOf(*request, who)](const std::stop_token& gone) {
        return loop->Submit(spec, gone);
      };
      return Planned(context, who, response, submit);
    });
  }
  Reactor PlanJob(Context context, const v1::PlanJobRequest* request, v1::PlanJobResponse* response) override {
    return Admitted(context, Access::kSubmit, [&](const Who& who) {
      const auto plan = [loop = loop_, spec = request->spec()](const std::stop_token& gone) { return loop->Plan(spec, gone); };
      return Planned(context, who, response, plan);
    });
  }
  Reactor ReleaseJob(Context context, const v1::ReleaseJobRequest* request, v1::ReleaseJobResponse* response) override {
    return Admitted(context, Access::kSubmit, [&](const Who& who) {
      if (const Status owner = CheckOwner(who, request->job_id()); !owner) {
        return Done(context, ToGrpc(gate_->Refuse("owner", context->peer(), owner.error())));
      }
      response->set_warning(loop_->Release(request->job_id()));
      return Done(context, grpc::Status::OK);
    });
  }
  Reactor ReshardJob(Context context, const v1::ReshardJobRequest* request, v1::ReshardJobResponse* response) override {
    return Admitted(context, Access::kOperate, [&](const Who& who) {
      const auto reshard = [loop = loop_, asked = *request, by = Gate::NameOf(who, context->peer())](const std::stop_token&) {
        return loop->Reshard(asked, by);
      };
      return Planned(context, who, response, reshard);
    });
  }
  Reactor ListJobs(Context context, const v1::ListJobsRequest*, v1::ListJobsResponse* response) override {
    return Admitted(context, Access::kRead, [&](const Who&) {
      for (v1::JobStatus& job : loop_->Jobs()) response->add_jobs()->Swap(&job);
      return Done(context, grpc::Status::OK);
    });
  }
  Reactor ExplainJob(Context context, const v1::ExplainJobRequest* request, v1::ExplainJobResponse* response) override {
    return Admitted(context, Access::kRead, [&](const Who&) {
      return Answer(context, loop_->Explain(request->job_id()),
                    [&](v1::ExplainJobResponse& explained) { response->Swap(&explained); });
    });
  }
  Reactor GetTopology(Context context, const v1::GetTopologyRequest*, v1::GetTopologyResponse* response) override {
    return Admitted(context, Access::kRead, [&](const Who&) {
      *response = loop_->Topology();
      return Done(context, grpc::Status::OK);
    });
  }
  Reactor ListDecisions(Context context, const v1::ListDecisionsRequest*, v1::ListDecisionsResponse* response) override {
    return Admitted(context, Access::kRead, [&](const Who&) {
      *response = loop_->Decisions();
      return Done(context, grpc::Status::OK);
    });
  }
  Reactor SetMode(Context context, const v1::SetModeRequest* request, v1::SetModeResponse* response) override {
    return Admitted(context, Access::kOperate, [&](const Who&) {
      return Answer(context, loop_->SetMode(request->mode()),
                    [&](std::string& warning) { response->set_warning(std::move(warning)); });
    });
  }
  Reactor GetQos(Context context, const v1::GetQosRequest*, v1::GetQosResponse* response) override {
    return Admitted(context, Access::kRead, [&](const Who&) {
      *response = loop_->Qos();
      return Done(context, grpc::Status::OK);
    });
  }
  Reactor ChangeQos(Context context, const v1::ChangeQosRequest* request, v1::ChangeQosResponse* response) override {
    return Admitted(context, Access::kOperate, [&](const Who&) {
      return Answer(context, loop_->ChangeQos(*request), [&](v1::ChangeQosResponse& changed) { response->Swap(&changed); });
    });
  }

 private:
  /// Carries out what the caller may do.
  template <typename Act>
  Reactor Admitted(Context context, Access access, Act act) {
    const auto who = gate_->Admit(CallerOf(context), access);
    return who ? act(*who) : Done(context, ToGrpc(who.error(), context));
  }
  /// Has `plan` made when the caller's turn comes.
  template <typename Response, typename Plan>
  Reactor Planned(Context context, const Who& who, Response* response, Plan plan) {
    auto* const call = new Planning<Response>(response);
    const auto answer = [call](Result<v1::JobPlan> made) { call->Answer(std::move(made)); };
    const Status taken = desk_->Ask(Gate::NameOf(who, context->peer()), {.gone = call->gone(), .plan = plan, .answer = answer});
    if (!taken) {
      call->Finish(ToGrpc(Refusal{gate_->Refuse("plans", context->peer(), taken.error()), "plans", kAgainAfterFullDesk}, context));
    }
    return call;
  }
  /// As submitted, with the submitter whom the certificate names.
  static v1::JobSpec SpecOf(const v1::SubmitJobRequest& request, const Who& who) {
    v1::JobSpec spec = request.spec();
    spec.set_submitter(who ? who->name : "");
    return spec;
  }
  /// A submitter ends his own jobs; an operator all, also those that nobody submitted. Unknown ones are no error.
  Status CheckOwner(const Who& who, const std::string& job_id) const {
    if (!who || who->role != rpc::Role::kSubmitter) return Ok();
    const auto job = loop_->Explain(job_id);
    if (!job || job->job().spec().submitter() == who->name) return Ok();
    return Fail(Code::kUnauthenticated, fmt::format("job \"{}\" is not one of submitter \"{}\"", job_id, who->name));
  }
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
  Gate* gate_;
  PlanDesk* desk_;
};

}  // namespace

struct GrpcServer::Impl {
  Impl(ControlLoop* loop, bool tls, const std::string& revoked)
      : gate(GateOptionsOf(loop, tls, revoked)), agents(loop, &gate), people(loop, &gate, &desk) {}
  Gate gate;
  PlanDesk desk{kPlanners};
  AgentServiceImpl agents;
  ControllerServiceImpl people;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Endpoint& endpoint, const rpc::TlsFiles& tls,
                                                      ControlLoop* loop, const std::string& revoked) {
  WEFT_ASSIGN_OR_RETURN(const auto credentials, rpc::MakeServerCredentials(tls));
  auto impl = std::make_unique<Impl>(loop, !tls.empty(), revoked);
  WEFT_RETURN_IF_ERROR(impl->gate.Load());
  grpc::ServerBuilder builder;
  // Without this a second controller would share the port and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Agents ping idle sessions; the default would answer the third ping with "too_many_pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // Until TLS and HTTP/2 have begun nobody is known, and no budget counts: the default is two minutes.
  builder.AddChannelArgument("grpc.server_handshake_timeout_ms", 5'000);
  builder.SetMaxReceiveMessageSize(8 << 20);
  builder.AddListeningPort(endpoint.text(), credentials, &impl->port);
  builder.RegisterService(&impl->agents);
  builder.RegisterService(&impl->people);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("listen at {} for gRPC: the address cannot be used, expected one of this host's that no other program "
                            "listens at: see which does with ss -ltnp, or configure another", endpoint.text()));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200)), impl_->server->Wait(); }
int GrpcServer::port() const { return impl_->port; }

}  // namespace weft::controller
