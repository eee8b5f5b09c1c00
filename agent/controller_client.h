// The session with the controller: connects, registers, gives a full account of the host, then streams what changed and
// hands on what comes down; connects again for ever, with jittered backoff. The only file of the agent that sees gRPC.
// Nothing in the agent waits for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "proto/controller.pb.h"
#include "proto/credentials.h"

namespace weft::agent {

/// Everything the host has to say at the start of a session.
struct FullAccount {
  v1::HostSample sample;
  std::vector<v1::PathReport> reports;
};

/// Called on the client's threads, with no lock of the client held.
struct ControllerHandlers {
  std::function<v1::Register()> registration;
  /// The session stands. The handler calls StartReporting with a full account, under whatever lock makes that account
  /// and later reports one sequence. False: not this controller; the session is ended.
  std::function<bool(const v1::Welcome&)> welcome;
  std::function<void(const v1::JobPolicy&)> policy;
  std::function<void(const v1::JobLaunch&)> launch;
  std::function<void(const std::string& job)> ended;
  std::function<void(const v1::Heartbeat&)> heartbeat;
  std::function<void(const v1::ProbeAgain&)> probe_again;
  std::function<void(const v1::QosDeclaration&)> qos_declared;
  std::function<void(const v1::QosCommand&)> qos_command;
  /// After every loss of a session that stood.
  std::function<void()> lost;
};

struct ControllerClientOptions {
  std::string address;  ///< HOST:PORT
  rpc::TlsFiles tls;
  Seconds first_backoff{0.2};
  Seconds longest_backoff{5};
};

struct ControllerClientCounters {
  int64_t sessions = 0;        ///< that stood
  int64_t samples_sent = 0;
  int64_t samples_merged = 0;  ///< into a later one, because the controller was slow
};

class ControllerClient {
 public:
  /// Starts trying; no controller need be there. Errors: those of MakeChannelCredentials.
  [[nodiscard]] static Result<std::unique_ptr<ControllerClient>> Start(ControllerClientOptions options,
                                                                      ControllerHandlers handlers);
  virtual ~ControllerClient() = default;

  /// Ends the session and waits for the threads; no handler runs afterwards. The destructor does the same, but handlers
  /// that use the owner's pointer to this must be over before that pointer goes.
  virtual void Stop() = 0;

  // Threads: any, for all of these; without a session what is given is dropped, since the next begins with a full account.
  virtual void StartReporting(FullAccount account) = 0;
  virtual void Report(v1::HostSample sample) = 0;
  virtual void Report(v1::PathReport report) = 0;
  /// The host's interfaces changed.
  virtual void Report(v1::Register registration) = 0;
  virtual void Report(v1::QosReport qos) = 0;
  virtual bool connected() const = 0;
  virtual ControllerClientCounters counters() const = 0;
};

/// The wait after the `attempt`-th failure in a row (0: the first): doubles from `first` to `longest`, then anywhere
/// between half of that and all of it, as `random` in [0, 1) says, so that hosts do not come back in step.
Seconds BackoffAfter(int attempt, Seconds first, Seconds longest, double random);

}  // namespace weft::agent
