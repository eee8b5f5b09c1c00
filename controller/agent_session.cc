#include "controller/agent_session.h"

#include <fmt/format.h>
#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "controller/grpc_answers.h"
#include "proto/controller.grpc.pb.h"
#include "proto/identity.h"

namespace weft::controller {
namespace {

constexpr size_t kMaxQueued = 1024;
constexpr int64_t kRegisterWithin = 10;  // seconds

gpr_timespec After(int64_t seconds) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(seconds, GPR_TIMESPAN));
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
    unregistered_.Set(After(kRegisterWithin), [outbox = outbox_](bool fired) {
      if (fired) outbox->EndUnlessRegistered();
    });
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
    } else if (!Join()) {
      return;
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

    void Registered() {
      const std::lock_guard lock(mutex_);
      registered_ = true;
    }

    void EndUnlessRegistered() {
      {
        const std::lock_guard lock(mutex_);
        if (registered_) return;
      }
      Finish({grpc::StatusCode::DEADLINE_EXCEEDED,
              fmt::format("session: no register_host within {} s of its start, expected as the first message", kRegisterWithin)});
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
    bool registered_ = false;
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

  bool Join() {
    outbox_->Registered();
    const Status joined = loop_->Join(incoming_.register_host(), outbox_);
    if (joined) {
      host_ = incoming_.register_host().host();
    } else if (joined.error().code() == Code::kAborted) {
      // An agent's word from before the one that stands: said again by somebody who has it, or by a second agent of this host.
      outbox_->Finish(ToGrpc(gate_->Refuse("replayed", peer_, joined.error())));
    } else {
      outbox_->Finish(ToGrpc(joined.error()));
    }
    return joined.has_value();
  }

  ControlLoop* loop_;
  Gate* gate_;
  const std::string peer_;
  std::optional<rpc::Identity> who_;  // empty without TLS
  std::shared_ptr<Outbox> outbox_;
  grpc::Alarm unregistered_;
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

}  // namespace

std::unique_ptr<grpc::Service> MakeAgentService(ControlLoop* loop, Gate* gate) {
  return std::make_unique<AgentServiceImpl>(loop, gate);
}

}  // namespace weft::controller
