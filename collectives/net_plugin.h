// Any ncclNet plugin, versions 6 to 12, behind one interface: the newest table that the library exports is taken, as
// NCCL takes it, and driven through its own signatures.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace weft::collectives {

/// What getProperties said, in the fields that a host-memory driver uses.
struct NetDevice {
  std::string name;
  int speed_mbps = 0;
  int ptr_support = 0;
  int max_comms = 0;
  int max_recvs = 1;
};

/// What Test says of a receive whose plugin does not tell how much arrived (google/nccl-fastsocket does not).
inline constexpr size_t kBytesUnknown = static_cast<size_t>(-1);

/// Our own plugin: ../lib of the running program, as built and as installed, else the bare name for the loader to find.
std::string DefaultPluginPath();

/// A loaded plugin. Opaque comms and requests are the plugin's own. Calls never block where the plugin keeps its
/// contract, but for Sleep(). Errors carry the plugin's name, the call and NCCL's result code by name.
class NetPlugin {
 public:
  /// dlopens `path` and initialises the newest net table not above `newest_version`.
  /// Errors: kNotFound when the file is missing or exports no net table; kFailedPrecondition when it has no device.
  [[nodiscard]] static Result<std::unique_ptr<NetPlugin>> Load(const std::string& path, int newest_version = 12);
  virtual ~NetPlugin() = default;

  virtual const std::string& name() const = 0;
  virtual const std::string& path() const = 0;
  virtual int version() const = 0;
  virtual const std::vector<NetDevice>& devices() const = 0;

  [[nodiscard]] virtual Status Listen(int device, void* handle, void** listen_comm) = 0;
  /// *comm stays null until connected: call again with the same handle memory.
  [[nodiscard]] virtual Status Connect(int device, void* handle, void** send_comm) = 0;
  [[nodiscard]] virtual Status Accept(void* listen_comm, void** recv_comm) = 0;
  [[nodiscard]] virtual Status Register(void* comm, void* data, size_t bytes, void** mhandle) = 0;
  [[nodiscard]] virtual Status Deregister(void* comm, void* mhandle) = 0;
  /// *request stays null when the plugin cannot take it now: call again.
  [[nodiscard]] virtual Status Send(void* send_comm, const void* data, size_t bytes, int tag, void* mhandle,
                                    void** request) = 0;
  [[nodiscard]] virtual Status Receive(void* recv_comm, void* data, size_t bytes, int tag, void* mhandle,
                                       void** request) = 0;
  /// `bytes` (may be null) is what arrived, of a finished receive, or kBytesUnknown. Ask for the oldest request of a
  /// connection first: some plugins answer no other.
  [[nodiscard]] virtual Status Test(void* request, bool* done, size_t* bytes) = 0;
  /// Sleeps until Test() of one of `requests`, which are not done, may get further, at most `most`. False: the plugin cannot tell,
  /// and nothing was slept. Only our own has a call for it (netplugin/abi/wait.h).
  [[nodiscard]] virtual bool Sleep(std::span<void* const> requests, std::chrono::nanoseconds most) = 0;
  [[nodiscard]] virtual Status CloseSend(void* comm) = 0;
  [[nodiscard]] virtual Status CloseReceive(void* comm) = 0;
  [[nodiscard]] virtual Status CloseListen(void* comm) = 0;
};

}  // namespace weft::collectives
