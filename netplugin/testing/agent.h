// The agent's side of the shared memory, small and real: a Unix socket, sealed memory files, nothing but abi/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "netplugin/abi/agent_socket.h"
#include "netplugin/abi/observations.h"
#include "netplugin/abi/segment.h"
#include "netplugin/tcp/socket.h"

namespace weft::net::testing {

/// A memory file with a policy segment in it.
class PolicyFile {
 public:
  explicit PolicyFile(bool sealed = true);
  ~PolicyFile();
  PolicyFile(const PolicyFile&) = delete;
  PolicyFile& operator=(const PolicyFile&) = delete;

  int fd() const { return fd_.get(); }
  abi::PolicySegment& segment() { return *segment_; }
  void Write(const abi::FlowPolicy& flow);

 private:
  Fd fd_;
  abi::PolicySegment* segment_ = nullptr;
};

class Agent {
 public:
  /// Listens on `run_dir`/agent.sock, replacing what lies there.
  explicit Agent(const std::string& run_dir);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Whether a plugin waits to be greeted. Never waits.
  bool IsCalled() const;
  /// Waits for a plugin and takes its hello and telemetry. False after 30 s or if any of it is wrong.
  bool Greet();
  const abi::Hello& hello() const { return hello_; }
  const abi::TelemetrySegment& telemetry() const { return *telemetry_; }
  /// What profiler, tuner and watchdog write.
  const abi::Observations& observations() const { return *abi::FindObservations(telemetry_, telemetry_bytes_); }
  ino_t telemetry_inode() const { return telemetry_inode_; }

  bool SendPolicy(int fd);
  bool SendReject(const std::string& reason);
  /// The token of the next question about a silent lane, which must bring exactly one descriptor; 0 if it is something else.
  uint64_t TakeUnsentRequest();
  bool AnswerUnsent(uint64_t token, uint64_t bytes, const std::string& reason, int fd);
  /// What the plugin's descriptor of the telemetry may not do: true if it cannot be mapped for writing again.
  bool telemetry_is_read_only() const { return telemetry_read_only_; }

 private:
  bool Send(abi::MessageType type, const void* body, size_t bytes, int fd);

  std::string path_;
  Fd listener_;
  Fd plugin_;
  abi::Hello hello_{};
  const abi::TelemetrySegment* telemetry_ = nullptr;
  size_t telemetry_bytes_ = 0;
  ino_t telemetry_inode_ = 0;
  bool telemetry_read_only_ = false;
};

/// A port of 127.0.0.1 that nobody uses now, a different one each time. Threads: one at a time.
uint16_t FreePort();

/// The slots that were ever taken.
std::span<const abi::FlowSlot> SlotsOf(const abi::TelemetrySegment& telemetry);

/// The open flow of that direction; nullptr if there is none.
const abi::FlowSlot* FindFlow(const abi::TelemetrySegment& telemetry, abi::Direction direction);

struct WantedLane {
  uint16_t port;
  uint32_t weight;
};
abi::FlowPolicy MakePolicy(uint64_t flow, std::span<const WantedLane> lanes);

}  // namespace weft::net::testing
