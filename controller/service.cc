#include "controller/service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "controller/agent_session.h"
#include "controller/grpc_answers.h"
#include "controller/loop_gate.h"
#include "controller/plan_desk.h"
#include "proto/controller.grpc.pb.h"
#include "proto/identity.h"

namespace weft::controller {
namespace {

// Plans that are made at once. A search takes seconds at most (JobPlannerOptions::patience).
constexpr size_t kPlanners = 2;
constexpr Seconds kAgainAfterFullDesk{1};  // about as long as a search takes
constexpr std::chrono::milliseconds kPatienceAtEnd{200};  // calls that last longer are cancelled

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
      const auto submit = [this, peer = context->peer(), spec = SpecOf(*request, who)](const std::stop_token& gone) -> Result<v1::JobPlan> {
        auto plan = loop_->Submit(spec, gone);
        // The same job once more, by whomever: it stays what it is.
        if (!plan && plan.error().code() == Code::kAlreadyExists) return Fail(gate_->Refuse("replayed", peer, plan.error()));
        return plan;
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
      : gate(GateOptionsOf(loop, tls, revoked)), agents(MakeAgentService(loop, &gate)), people(loop, &gate, &desk) {}
  Gate gate;
  PlanDesk desk{kPlanners};
  std::unique_ptr<grpc::Service> agents;
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
  builder.RegisterService(impl->agents.get());
  builder.RegisterService(&impl->people);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("listen at {} for gRPC: the address cannot be used, expected one of this host's that no other program "
                            "listens at: see which does with ss -ltnp, or configure another", endpoint.text()));
  }
  if (!tls.empty()) {
    rpc::TellFailedHandshakes([gate = &impl->gate](const std::string& why) {
      const Error error(Code::kUnauthenticated, fmt::format("no TLS handshake: {}: expected one with a certificate of this site's", why));
      static_cast<void>(gate->Refuse("handshake", "not known to gRPC", error));
    });
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + kPatienceAtEnd);
  impl_->server->Wait();
  rpc::TellFailedHandshakes({});
}

int GrpcServer::port() const { return impl_->port; }

}  // namespace weft::controller
