// One net table, whichever its version, driven through its own signatures. The versions differ in four places, each a
// constant below: the width of sizes, the device handles of connect, the profiler handles of isend, the context.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/net_plugin.h"
#include "netplugin/abi/nccl_net.h"
#include "netplugin/abi/wait.h"

namespace weft::collectives {

/// An owned dlopen handle.
class SharedObject {
 public:
  explicit SharedObject(void* handle) : handle_(handle) {}
  SharedObject(SharedObject&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedObject& operator=(SharedObject&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedObject();

  void* Symbol(const std::string& name) const;

 private:
  void* handle_;
};

/// "ncclRemoteError" and so on.
std::string_view ResultName(int result);
/// The failure of a plugin's call. Errors of the operating system and of the peer are kUnavailable.
Error PluginError(const std::string& plugin, std::string_view call, int result);
/// The same number in all ranks of a job: a hash of WEFT_JOB_ID.
uint64_t CommIdOfEnvironment();

/// A started plugin. Each plugin call is one indirect call and a check.
template <typename Table, int kVersion>
class NetAdapter final : public NetPlugin {
  static constexpr bool kWideRegister = kVersion >= 8;  // size_t in regMr
  static constexpr bool kWide = kVersion >= 9;          // size_t in isend and irecv
  static constexpr bool kDeviceHandles = kVersion >= 7;
  static constexpr bool kProfilerHandles = kVersion >= 10;
  static constexpr bool kContext = kVersion >= 11;

 public:
  NetAdapter(SharedObject library, Table* table, std::string path)
      : library_(std::move(library)), table_(table), name_(table->name == nullptr ? "" : table->name),
        path_(std::move(path)), wait_(reinterpret_cast<abi::WaitCall*>(library_.Symbol(abi::kWaitName))) {}

  ~NetAdapter() override {
    if constexpr (kContext) {
      if (started_) table_->finalize(context_);
    }
  }

  Status Init(nccl::Logger logger);

  const std::string& name() const override { return name_; }
  const std::string& path() const override { return path_; }
  int version() const override { return kVersion; }
  const std::vector<NetDevice>& devices() const override { return devices_; }

  Status Listen(int device, void* handle, void** listen_comm) override {
    if constexpr (kContext) return Check("listen", table_->listen(context_, device, handle, listen_comm));
    else return Check("listen", table_->listen(device, handle, listen_comm));
  }

  Status Connect(int device, void* handle, void** send_comm) override {
    [[maybe_unused]] nccl::DeviceHandle* offload = nullptr;
    if constexpr (kContext) {
      return Check("connect", table_->connect(context_, device, handle, send_comm, &offload));
    } else if constexpr (kVersion == 10) {
      return Check("connect", table_->connect(device, &config_, handle, send_comm, &offload));
    } else if constexpr (kDeviceHandles) {
      return Check("connect", table_->connect(device, handle, send_comm, &offload));
    } else {
      return Check("connect", table_->connect(device, handle, send_comm));
    }
  }

  Status Accept(void* listen_comm, void** recv_comm) override {
    if constexpr (kDeviceHandles) {
      nccl::DeviceHandle* offload = nullptr;
      return Check("accept", table_->accept(listen_comm, recv_comm, &offload));
    } else {
      return Check("accept", table_->accept(listen_comm, recv_comm));
    }
  }

  Status Register(void* comm, void* data, size_t bytes, void** mhandle) override {
    if constexpr (kWideRegister) {
      return Check("regMr", table_->reg_mr(comm, data, bytes, nccl::kPtrHost, mhandle));
    } else {
      if (bytes > static_cast<size_t>(std::numeric_limits<int>::max())) {
        return Fail(Code::kInvalidArgument,
                    fmt::format("net plugin \"{}\": regMr of {} bytes: net v{} takes at most {}", name_, bytes,
                                kVersion, std::numeric_limits<int>::max()));
      }
      return Check("regMr", table_->reg_mr(comm, data, static_cast<int>(bytes), nccl::kPtrHost, mhandle));
    }
  }

  Status Deregister(void* comm, void* mhandle) override { return Check("deregMr", table_->dereg_mr(comm, mhandle)); }

  Status Send(void* send_comm, const void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    WEFT_RETURN_IF_ERROR(CheckMessage("isend", bytes));
    void* memory = const_cast<void*>(data);  // the interface has no const; a send only reads
    *request = nullptr;
    if constexpr (kProfilerHandles) {
      return Check("isend", table_->isend(send_comm, memory, bytes, tag, mhandle, nullptr, request));
    } else if constexpr (kWide) {
      return Check("isend", table_->isend(send_comm, memory, bytes, tag, mhandle, request));
    } else {
      return Check("isend", table_->isend(send_comm, memory, static_cast<int>(bytes), tag, mhandle, request));
    }
  }

  Status Receive(void* recv_comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    WEFT_RETURN_IF_ERROR(CheckMessage("irecv", bytes));
    *request = nullptr;  // no hints
    if constexpr (kProfilerHandles) {
      void* profiler = nullptr;
      return Check("irecv", table_->irecv(recv_comm, 1, &data, &bytes, &tag, &mhandle, &profiler, request));
    } else if constexpr (kWide) {
      return Check("irecv", table_->irecv(recv_comm, 1, &data, &bytes, &tag, &mhandle, request));
    } else {
      int size = static_cast<int>(bytes);
      return Check("irecv", table_->irecv(recv_comm, 1, &data, &size, &tag, &mhandle, request));
    }
  }

  Status Test(void* request, bool* done, size_t* bytes) override {
    int finished = 0;
    int size = -1;
    WEFT_RETURN_IF_ERROR(Check("test", table_->test(request, &finished, &size)));
    *done = finished != 0;
    if (bytes != nullptr) *bytes = size == -1 ? kBytesUnknown : static_cast<size_t>(static_cast<unsigned>(size));
    return Ok();
  }

  bool Sleep(std::span<void* const> requests, std::chrono::nanoseconds most) override {
    return wait_ != nullptr && wait_(requests.data(), static_cast<int>(requests.size()), most.count()) >= 0;
  }

  Status CloseSend(void* comm) override { return Check("closeSend", table_->close_send(comm)); }
  Status CloseReceive(void* comm) override { return Check("closeRecv", table_->close_recv(comm)); }
  Status CloseListen(void* comm) override { return Check("closeListen", table_->close_listen(comm)); }

 private:
  Status Check(std::string_view call, int result) const {
    if (result == nccl::kSuccess) [[likely]] return Ok();
    return Fail(PluginError(name_, call, result));
  }

  Status CheckMessage(std::string_view call, size_t bytes) const {
    if (bytes <= largest_message_) [[likely]] return Ok();
    return Fail(Code::kInvalidArgument, fmt::format("net plugin \"{}\": {} of {} bytes: net v{} takes at most {}",
                                                    name_, call, bytes, kVersion, largest_message_));
  }

  Status AddDevice(int index);

  SharedObject library_;
  Table* table_;
  std::string name_;
  std::string path_;
  abi::WaitCall* wait_;  // null: it has none
  std::vector<NetDevice> devices_;
  size_t largest_message_ = kWide ? nccl::kMaxMessageBytes : nccl::kMaxMessageBytesV8;
  nccl::CommConfig config_{nccl::kTrafficClassUndefined};
  void* context_ = nullptr;
  bool started_ = false;
};

template <typename Table, int kVersion>
Status NetAdapter<Table, kVersion>::Init(nccl::Logger logger) {
  if constexpr (kContext) {
    WEFT_RETURN_IF_ERROR(Check("init", table_->init(&context_, CommIdOfEnvironment(), &config_, logger, nullptr)));
  } else if constexpr (kProfilerHandles) {
    WEFT_RETURN_IF_ERROR(Check("init", table_->init(logger, nullptr)));
  } else {
    WEFT_RETURN_IF_ERROR(Check("init", table_->init(logger)));
  }
  started_ = true;
  int count = 0;
  WEFT_RETURN_IF_ERROR(Check("devices", table_->devices(&count)));
  if (count < 1) return Fail(Code::kFailedPrecondition, fmt::format("net plugin \"{}\": has no device, expected one at "
                                                                          "least; what it logs above says why", name_));
  for (int index = 0; index < count; ++index) WEFT_RETURN_IF_ERROR(AddDevice(index));
  return Ok();
}

template <typename Properties, typename Table>
Properties PropertiesOf(int (*)(int, Properties*), const Table*);

template <typename Table, int kVersion>
Status NetAdapter<Table, kVersion>::AddDevice(int index) {
  decltype(PropertiesOf(table_->get_properties, table_)) properties{};
  WEFT_RETURN_IF_ERROR(Check("getProperties", table_->get_properties(index, &properties)));
  if constexpr (kDeviceHandles) {
    if (properties.device_type != nccl::kNetDeviceHost) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("net plugin \"{}\": device {} is of offload type {}, expected a host device", name_,
                              index, properties.device_type));
    }
  }
  if constexpr (kWide) {
    if (properties.max_p2p_bytes > 0) largest_message_ = std::min(largest_message_, properties.max_p2p_bytes);
  }
  devices_.push_back({.name = properties.name == nullptr ? "" : properties.name,
                      .speed_mbps = properties.speed_mbps,
                      .ptr_support = properties.ptr_support,
                      .max_comms = properties.max_comms,
                      .max_recvs = properties.max_recvs});
  return Ok();
}

}  // namespace weft::collectives
