#include "agent/controller_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "agent/outbox.h"
#include "common/log.h"
#include "proto/controller.grpc.pb.h"

namespace weft::agent {
namespace {

constexpr size_t kMostWaitingEvents = 100'000;
constexpr int kKeepaliveMs = 30'000;

using Stream = grpc::ClientReaderWriterInterface<v1::AgentMessage, v1::ControllerMessage>;

grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Our own backoff rules; gRPC's would outlive the channel in a shared pool.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

class GrpcControllerClient final : public ControllerClient {
 public:
  GrpcControllerClient(ControllerClientOptions options, ControllerHandlers handlers,
                       std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(std::move(options)),
        handlers_(std::move(handlers)),
        credentials_(std::move(credentials)),
        thread_([this](const std::stop_token& stop) { Run(stop); }) {}

  void Stop() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  void StartReporting(FullAccount account) override;
  void Report(v1::HostSample sample) override;
  void Report(v1::PathReport report) override;
  void Report(v1::Register registration) override;
  void Report(v1::QosReport qos) override;
  bool connected() const override { return reporting_.load(std::memory_order_relaxed); }
  ControllerClientCounters counters() const override;

 private:
  template <typename News>
  void Add(News news);
  void Run(const std::stop_token& stop);
  /// One session from connect to loss; whether it ever stood.
  bool RunSession(const std::stop_token& stop, std::string* why);
  void ReadCertificates();
  void Write(Stream& stream, const std::stop_token& over);
  /// False: the session is to end.
  bool Dispatch(const v1::ControllerMessage& message);

  const ControllerClientOptions options_;
  const ControllerHandlers handlers_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;  // once it runs: the thread's alone
  std::string certificates_wrong_;                         // likewise; as it was said

  mutable std::mutex mutex_;  // guards outbox_ and counters_
  std::condition_variable_any changed_;
  Outbox outbox_;
  ControllerClientCounters counters_;
  std::atomic<bool> reporting_{false};  // written under mutex_; read alone for display, so relaxed suffices there

  std::jthread thread_;  // last: uses all of the above
};

void GrpcControllerClient::StartReporting(FullAccount account) {
  {
    const std::lock_guard lock(mutex_);
    outbox_.Clear();
    outbox_.Add(std::move(account.sample));
    for (v1::PathReport& report : account.reports) outbox_.Add(std::move(report));
    reporting_.store(true, std::memory_order_relaxed);
    ++counters_.sessions;
  }
  changed_.notify_all();
}

void GrpcControllerClient::Report(v1::HostSample sample) {
  {
    const std::lock_guard lock(mutex_);
    if (!reporting_.load(std::memory_order_relaxed)) return;
    counters_.samples_merged += outbox_.Add(std::move(sample));
  }
  changed_.notify_all();
}

template <typename News>
void GrpcControllerClient::Add(News news) {
  {
    const std::lock_guard lock(mutex_);
    if (!reporting_.load(std::memory_order_relaxed)) return;
    outbox_.Add(std::move(news));
  }
  changed_.notify_all();
}

void GrpcControllerClient::Report(v1::PathReport report) { Add(std::move(report)); }
void GrpcControllerClient::Report(v1::Register registration) { Add(std::move(registration)); }
void GrpcControllerClient::Report(v1::QosReport qos) { Add(std::move(qos)); }

ControllerClientCounters GrpcControllerClient::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void GrpcControllerClient::Write(Stream& stream, const std::stop_token& over) {
  for (;;) {
    v1::AgentMessage message;
    {
      std::unique_lock lock(mutex_);
      const bool some =
          changed_.wait(lock, over, [&] { return reporting_.load(std::memory_order_relaxed) && !outbox_.empty(); });
      if (!some || over.stop_requested()) return;
      if (outbox_.events() > kMostWaitingEvents) return;  // ends the session; the next begins with a full account
      message = outbox_.Take();
      counters_.samples_sent += message.has_sample();
    }
    if (!stream.Write(message)) return;
  }
}

bool GrpcControllerClient::Dispatch(const v1::ControllerMessage& message) {
  switch (message.kind_case()) {
    case v1::ControllerMessage::kPolicy: handlers_.policy(message.policy()); break;
    case v1::ControllerMessage::kLaunch: handlers_.launch(message.launch()); break;
    case v1::ControllerMessage::kEnded: handlers_.ended(message.ended().job_id()); break;
    case v1::ControllerMessage::kHeartbeat: handlers_.heartbeat(message.heartbeat()); break;
    case v1::ControllerMessage::kProbeAgain: handlers_.probe_again(message.probe_again()); break;
    case v1::ControllerMessage::kQosDeclared: handlers_.qos_declared(message.qos_declared()); break;
    case v1::ControllerMessage::kQosCommand: handlers_.qos_command(message.qos_command()); break;
    case v1::ControllerMessage::kWelcome: return handlers_.welcome(message.welcome());
    case v1::ControllerMessage::KIND_NOT_SET: break;  // a newer controller's message
  }
  return true;
}

/// A certificate that was replaced counts from the next session on; with one that is of no use the last one stays.
void GrpcControllerClient::ReadCertificates() {
  if (options_.tls.empty()) return;
  auto fresh = rpc::MakeChannelCredentials(options_.tls);
  const std::string wrong = fresh ? "" : fresh.error().message();
  if (fresh) credentials_ = std::move(*fresh);
  if (!wrong.empty() && wrong != certificates_wrong_) {
    LogWarn("agent", "certificate files are of no use; the last ones stay", {{"reason", wrong}});
  }
  certificates_wrong_ = wrong;
}

bool GrpcControllerClient::RunSession(const std::stop_token& stop, std::string* why) {
  ReadCertificates();
  const auto channel = grpc::CreateCustomChannel(options_.address, credentials_, ChannelArguments());
  const auto stub = v1::AgentService::NewStub(channel);
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&] { context.TryCancel(); });
  const auto stream = stub->Session(&context);
  v1::AgentMessage first;
  *first.mutable_register_host() = handlers_.registration();
  bool stood = false;
  bool refused = false;
  if (stream->Write(first)) {
    // Whichever side ends first takes the other along.
    std::jthread writer([&](const std::stop_token& over) {
      Write(*stream, over);
      if (!over.stop_requested()) context.TryCancel();  // else the controller has ended the session, and said why
    });
    v1::ControllerMessage message;
    while (stream->Read(&message)) {
      if (!Dispatch(message)) {
        refused = true;
        break;
      }
      if (!stood && message.has_welcome()) {
        stood = true;
        LogInfo("agent", "joined controller", {{"address", options_.address}, {"cluster", message.welcome().cluster()}});
      }
    }
  }
  {
    const std::lock_guard lock(mutex_);
    reporting_.store(false, std::memory_order_relaxed);
    outbox_.Clear();
  }
  if (refused) context.TryCancel();
  const grpc::Status status = stream->Finish();
  if (refused) return *why = "a newer controller steers this host", false;
  *why = status.ok() ? "the controller ended the session" : status.error_message();
  if (status.error_code() == grpc::UNAVAILABLE && !stood) *why = rpc::ExplainNoConnection(options_.tls, *why);
  return stood;
}

void GrpcControllerClient::Run(const std::stop_token& stop) {
  std::mt19937_64 random(std::random_device{}());
  std::uniform_real_distribution<double> share(0, 1);
  std::mutex pause_mutex;
  std::condition_variable_any pause;
  bool was_away = false;
  for (int failures = 0; !stop.stop_requested();) {
    std::string why;
    const bool stood = RunSession(stop, &why);
    if (stop.stop_requested()) return;
    if (stood) {
      failures = 0;
      was_away = false;
      handlers_.lost();
    }
    if (!was_away) {
      LogWarn("agent", "no session with the controller; the last policies stay in force, trying again",
              {{"address", options_.address}, {"reason", why}});
    }
    was_away = true;
    const Seconds wait =
        BackoffAfter(failures++, options_.first_backoff, options_.longest_backoff, share(random));
    std::unique_lock lock(pause_mutex);
    pause.wait_for(lock, stop, wait, [] { return false; });
  }
}

}  // namespace

Result<std::unique_ptr<ControllerClient>> ControllerClient::Start(ControllerClientOptions options,
                                                                  ControllerHandlers handlers) {
  WEFT_ASSIGN_OR_RETURN(auto credentials, rpc::MakeChannelCredentials(options.tls));
  return std::make_unique<GrpcControllerClient>(std::move(options), std::move(handlers), std::move(credentials));
}

Seconds BackoffAfter(int attempt, Seconds first, Seconds longest, double random) {
  const Seconds wait = std::min(longest, first * std::exp2(std::min(attempt, 30)));
  return wait * (0.5 + 0.5 * random);
}

}  // namespace weft::agent
