// The agent's Unix socket: plugins bring their telemetry segment and get their job's policy segment, hooks ask for a
// job's launch environment. Every message is untrusted; a peer that talks nonsense gets one reject and is cut off.
// The socket's file belongs to whoever holds the lock beside it, so that two agents never share a run directory and a
// dead one's file is simply replaced.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/peer_users.h"
#include "agent/silent_lanes.h"
#include "agent/telemetry_map.h"
#include "common/log_budget.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "common/units.h"
#include "netplugin/abi/agent_socket.h"

namespace weft::agent {

/// One connection's other end.
struct Peer : PeerProcess {
  uint64_t connection = 0;  ///< unique in this agent's life: what a process is known by, since pids may be hidden
};

/// What one user may take of what all share, and for how long nobody may sit there in silence.
struct PluginLimits {
  size_t connections = 1024;     ///< of all users; more wait outside
  size_t of_user = 512;          ///< of them, of one user; his next is refused
  int questions = 64;            ///< environment requests on one connection
  Seconds idle{10};              ///< for which a connection that has brought no segment may say nothing
};

/// What rank 0 says of the strategy that it runs (abi::StrategyRequest).
struct StrategyNews {
  uint64_t epoch = 0, digest = 0;
  double iteration_s = 0;  ///< finite, 0 or more
  bool refused = false;
  std::string reason;  ///< printable
};

/// Called on the socket's thread.
struct PluginHandlers {
  /// A process has come with a checked segment; the answer is its job's policy segment.
  std::function<Result<UniqueFd>(const Peer&, std::unique_ptr<TelemetryMap>)> attach;
  /// A process that `attach` has accepted is gone.
  std::function<void(const Peer&)> detach;
  /// KEY=VALUE lines for `job` on `host`, or nullopt. Errors: kUnauthenticated for a job of another user.
  std::function<Result<std::optional<std::string>>(const Peer&, const std::string& job, const std::string& host)> environment;
  /// The same for rank 0 of a job that changes its strategy while it runs; strings in it are checked. Errors: kUnauthenticated for a
  /// process that is not the job's.
  std::function<Result<std::optional<std::string>>(const Peer&, const std::string& job, const std::string& host,
                                                   const StrategyNews&)> strategy;
  /// Takes the bytes of a silent TCP connection of a process that has come with a segment: TakeUnsent(), or nothing where such wait for
  /// their path. On a thread of its own, which may outlive the socket.
  std::function<Result<UnsentBytes>(int fd)> take_unsent;
  /// A process has asked for that.
  std::function<void(bool moved)> silent_lane;
  /// A peer was refused; `label` says why in a word.
  std::function<void(const char* label)> rejected;
};

class PluginSocket {
 public:
  /// Makes `run_dir` if need be and listens on `run_dir`/agent.sock, open to all users.
  /// Errors: kAlreadyExists when another agent lives there; kFailedPrecondition naming file and cause.
  [[nodiscard]] static Result<std::unique_ptr<PluginSocket>> Listen(const std::string& run_dir,
                                                                   PluginHandlers handlers, const PluginLimits& limits = {});
  /// Cuts all peers off (without `detach`) and removes the socket and its lock.
  ~PluginSocket();

  const std::string& path() const { return path_; }

 private:
  struct Connection {
    UniqueFd fd;
    Peer peer;
    std::optional<MemoryId> attached;  // its telemetry
    uint64_t heard_ns = 0;             // when it connected, or said something
    int questions = 0;
  };

  explicit PluginSocket(const PluginLimits& limits) : limits_(limits) {}
  Status Lock(const std::string& run_dir);
  Status Bind();
  void Run(const std::stop_token& stop);
  void Accept();
  /// Cuts off who sits there in silence; how long until the next one is due, in ms, -1: nobody.
  int CutIdle();
  /// Logs, counts and tells the peer that it is refused.
  void Refuse(const Connection& connection, const char* label, const std::string& reason);
  /// False: the connection is to be closed.
  bool Receive(Connection& connection);
  Status Handle(Connection& connection, const abi::MessageHeader& header, const char* body, UniqueFd fd);
  Status HandleHello(Connection& connection, const abi::Hello& hello, UniqueFd fd);
  /// Whether `connection` may bring `map`: its user is one that can be told from others, and nobody has brought it before.
  Status CheckIdentity(const Connection& connection, const TelemetryMap& map) const;
  Status HandleEnvironment(Connection& connection, const abi::EnvironmentRequest& request);
  Status HandleStrategy(Connection& connection, const abi::StrategyRequest& request);
  Status HandleUnsent(Connection& connection, const abi::UnsentRequest& request, UniqueFd fd);
  void AnswerUnsent(const Connection& connection, uint64_t token, const Result<UnsentBytes>& taken);
  void AnswerSilentLanes();
  /// Counts a question, whose connection may ask so many. Errors: kInvalidArgument past that.
  Status CountQuestion(Connection& connection) const;
  void Close(Connection& connection);

  const PluginLimits limits_;
  const PeerUsers users_ = PeerUsers::Read();
  PluginHandlers handlers_;
  std::string path_, lock_path_;
  UniqueFd lock_, listener_, wake_;
  std::map<int, Connection> connections_;  // the thread's alone
  uint64_t next_connection_ = 1;
  std::unique_ptr<SilentLanes> silent_lanes_;
  LogBudget refusal_lines_{20};            // by what is wrong: anybody on the host may connect, again and again
  bool out_of_descriptors_ = false;  // a moment's pause before the next accept
  std::jthread thread_;
};

}  // namespace weft::agent
