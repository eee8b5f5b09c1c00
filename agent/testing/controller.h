// For tests: the controller's side of the agents' session, over real gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "proto/controller.grpc.pb.h"

namespace weft::agent {

/// Takes one session at a time and keeps what came up.
class TestController final : public v1::AgentService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ControllerMessage, v1::AgentMessage>;

  /// `address`: HOST:PORT to listen on; port 0: any.
  explicit TestController(const std::string& address = "127.0.0.1:0") : host_(address.substr(0, address.rfind(':'))) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~TestController() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  std::atomic<int64_t> incarnation = 0;          ///< that the next session is welcomed with
  std::atomic<double> heartbeat_interval_s = 0;

  std::string address() const { return host_ + ":" + std::to_string(port_); }

  /// The first message (of those not yet taken) for which `wanted` holds, waiting at most 10 s.
  std::optional<v1::AgentMessage> Await(const std::function<bool(const v1::AgentMessage&)>& wanted) {
    return AwaitWithin(std::chrono::seconds(10), wanted);
  }
  /// Likewise, for another time.
  std::optional<v1::AgentMessage> AwaitWithin(std::chrono::seconds time, const std::function<bool(const v1::AgentMessage&)>& wanted) {
    std::unique_lock lock(mutex_);
    std::optional<v1::AgentMessage> found;
    came_.wait_for(lock, time, [&] {
      while (!found && !messages_.empty()) {
        if (wanted(messages_.front())) found = messages_.front();
        messages_.pop_front();
      }
      return found.has_value();
    });
    return found;
  }
  void Send(const v1::ControllerMessage& message) {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, std::chrono::seconds(10), [&] { return stream_ != nullptr; });
    if (stream_) stream_->Write(message);
  }

  grpc::Status Session(grpc::ServerContext*, Stream* stream) override {
    v1::AgentMessage message;
    while (stream->Read(&message)) {
      const std::lock_guard lock(mutex_);
      if (message.has_register_host()) {
        v1::ControllerMessage welcome;
        welcome.mutable_welcome()->set_cluster("test");
        welcome.mutable_welcome()->set_sample_interval_s(0.05);
        welcome.mutable_welcome()->set_controller_incarnation(incarnation);
        welcome.mutable_welcome()->set_heartbeat_interval_s(heartbeat_interval_s);
        stream->Write(welcome);
        stream_ = stream;
      }
      messages_.push_back(message);
      came_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    return grpc::Status::OK;
  }

 private:
  const std::string host_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<v1::AgentMessage> messages_;
  Stream* stream_ = nullptr;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weft::agent
