// The connection to the host's agent, kept by the background thread: hands over the telemetry segment, takes the policy
// segment, and comes back when the agent does. Training never notices whether it is there.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "netplugin/abi/agent_socket.h"
#include "netplugin/background.h"
#include "netplugin/environment.h"
#include "netplugin/policy/policy.h"
#include "netplugin/policy/unsent.h"
#include "netplugin/telemetry/telemetry.h"

namespace weft::net {

class AgentLink final : public BackgroundTask, public UnsentBytes {
 public:
  static constexpr uint64_t kRetryNs = 500'000'000;
  static constexpr uint64_t kRetryRefusedNs = 10'000'000'000;

  AgentLink(const Environment& environment, Telemetry& telemetry, PolicyStore& policies)
      : environment_(environment), telemetry_(telemetry), policies_(policies) {}

  void Sweep(const Tick& tick) override;
  void Watch(std::vector<pollfd>* fds) override;

  bool Ask(int fd, uint64_t token, uint64_t until_ns) override;
  std::optional<Answer> Take(uint64_t token) override;
  void Forget(uint64_t token) override;

 private:
  static constexpr size_t kMostQuestions = 4096;

  void Connect(uint64_t now);
  /// Once: why there is no agent, and what to do.
  void TellNoAgent(const std::string& path, int error);
  bool SendHello();
  bool SendWithFd(abi::MessageType type, const void* body, uint32_t bytes, int fd);
  void TakeUnsent(const abi::MessageHeader& header, const char* body, Fd fd);
  void RefuseQuestions();
  /// One message; false when there is none now or the connection is gone.
  bool Receive(uint64_t now);
  void Handle(const abi::MessageHeader& header, const char* body, Fd fd, uint64_t now);
  void AdoptPolicy(int fd);
  void Drop(uint64_t retry_at);
  /// Once: the first policy is in force.
  void TellPolicy();

  const Environment& environment_;
  Telemetry& telemetry_;
  PolicyStore& policies_;
  Fd fd_;
  uint64_t retry_at_ = 0;
  std::string last_reject_, last_unsent_reason_;
  // What was asked about silent lanes, by token; nullopt: no answer yet.
  std::mutex questions_mutex_;  // guards what follows, and fd_ where it changes
  std::map<uint64_t, std::optional<Answer>> questions_;
  bool unsent_unknown_ = false;  // the agent is older than the question

  bool none_told_ = false, job_told_ = false, attached_told_ = false, policy_told_ = false;
};

}  // namespace weft::net
