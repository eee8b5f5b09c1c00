// A net plugin for tests: every table from v6 to v12 over one TCP connection per pair on 127.0.0.1, driven by test().
// It is strict where a driver could be sloppy: memory must be registered, the context must be passed, at most eight
// requests may be outstanding, and a connection is refused once before it is made, so that retries are exercised.
// WEFT_LOOPBACK_DEVICES sets the number of devices; with WEFT_LOOPBACK_SILENT test() does not say how much arrived.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "netplugin/abi/nccl_net.h"

namespace weft::testing {
namespace {

using namespace weft::nccl;

constexpr size_t kMaxOutstanding = 8;

struct Memory {
  char* data;
  size_t bytes;
};

struct Request {
  struct Comm* comm;
  char* data;
  uint64_t size;      // sent first
  size_t capacity;    // of a receive
  size_t moved = 0;   // header and payload
  bool done = false;
};

struct Comm {
  int fd;
  bool sends;
  std::deque<Request*> pending;
  size_t outstanding = 0;
  ~Comm() { close(fd); }
};

struct ListenComm {
  int fd;
  ~ListenComm() { close(fd); }
};

struct Handle {
  uint16_t port;
  uint16_t tries;
};

void NonBlocking(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Moves what the socket takes of header and payload; 0, or an NCCL code.
int Move(Comm* comm, Request* request) {
  constexpr size_t kHeader = sizeof request->size;
  while (request->moved < kHeader + (request->moved < kHeader ? 0 : request->size)) {
    const bool header = request->moved < kHeader;
    char* at = header ? reinterpret_cast<char*>(&request->size) + request->moved
                      : request->data + (request->moved - kHeader);
    const size_t left = header ? kHeader - request->moved : kHeader + request->size - request->moved;
    const ssize_t n = comm->sends ? send(comm->fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                                  : recv(comm->fd, at, left, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return kSuccess;
    if (n <= 0) return kRemoteError;
    request->moved += static_cast<size_t>(n);
    if (!comm->sends && request->moved == kHeader && request->size > request->capacity) return kInternalError;
  }
  request->done = true;
  return kSuccess;
}

int Progress(Comm* comm) {
  while (!comm->pending.empty()) {
    if (const int result = Move(comm, comm->pending.front()); result != kSuccess) return result;
    if (!comm->pending.front()->done) return kSuccess;
    comm->pending.pop_front();
  }
  return kSuccess;
}

int Post(Comm* comm, void* data, size_t size, void* mhandle, void** request) {
  const auto* memory = static_cast<const Memory*>(mhandle);
  auto* at = static_cast<char*>(data);
  if (memory == nullptr || at < memory->data || at + size > memory->data + memory->bytes) return kInvalidUsage;
  *request = nullptr;
  if (comm->outstanding == kMaxOutstanding) return kSuccess;
  auto* made = new Request{.comm = comm, .data = at, .size = comm->sends ? size : 0, .capacity = size};
  comm->pending.push_back(made);
  ++comm->outstanding;
  *request = made;
  return Progress(comm);
}

int DeviceCount() {
  const char* count = std::getenv("WEFT_LOOPBACK_DEVICES");
  return count == nullptr ? 1 : std::atoi(count);
}

int Devices(int* count) {
  *count = DeviceCount();
  return kSuccess;
}

template <typename Properties>
int GetProperties(int dev, Properties* properties) {
  static char name[] = "loop0";
  if (dev < 0 || dev >= DeviceCount()) return kInvalidArgument;
  *properties = {};
  properties->name = name;
  properties->ptr_support = kPtrHost;
  properties->speed_mbps = 10000;
  properties->max_comms = 1024;
  properties->max_recvs = 1;
  if constexpr (requires { properties->max_p2p_bytes; }) properties->max_p2p_bytes = kMaxMessageBytes;
  return kSuccess;
}

int Listen(int, void* handle, void** listen_comm) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 1) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    if (fd >= 0) close(fd);
    return kSystemError;
  }
  const Handle made{ntohs(address.sin_port), 0};
  std::memcpy(handle, &made, sizeof made);
  *listen_comm = new ListenComm{fd};
  return kSuccess;
}

int Connect(int, void* handle, void** send_comm) {
  Handle to;
  std::memcpy(&to, handle, sizeof to);
  *send_comm = nullptr;
  if (to.tries++ == 0) {  // kept in the handle, as NCCL's own transports do
    std::memcpy(handle, &to, sizeof to);
    return kSuccess;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(to.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (fd >= 0) close(fd);
    return kSystemError;
  }
  NonBlocking(fd);
  *send_comm = new Comm{.fd = fd, .sends = true};
  return kSuccess;
}

int Accept(void* listen_comm, void** recv_comm) {
  *recv_comm = nullptr;
  const int fd = accept4(static_cast<ListenComm*>(listen_comm)->fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return errno == EAGAIN ? kSuccess : kSystemError;
  *recv_comm = new Comm{.fd = fd, .sends = false};
  return kSuccess;
}

template <typename Size>
int Register(void*, void* data, Size size, int type, void** mhandle) {
  if (type != kPtrHost || size <= 0) return kInvalidArgument;
  *mhandle = new Memory{static_cast<char*>(data), static_cast<size_t>(size)};
  return kSuccess;
}

int Deregister(void*, void* mhandle) {
  delete static_cast<Memory*>(mhandle);
  return kSuccess;
}

int Test(void* request, int* done, int* sizes) {
  auto* asked = static_cast<Request*>(request);
  *done = 0;
  if (!asked->done) {
    if (const int result = Progress(asked->comm); result != kSuccess) return result;
  }
  if (!asked->done) return kSuccess;
  *done = 1;
  if (sizes != nullptr && std::getenv("WEFT_LOOPBACK_SILENT") == nullptr) *sizes = static_cast<int>(asked->size);
  --asked->comm->outstanding;
  delete asked;
  return kSuccess;
}

int CloseComm(void* comm) {
  auto* closed = static_cast<Comm*>(comm);
  for (Request* request : closed->pending) delete request;
  delete closed;
  return kSuccess;
}

int CloseListen(void* listen_comm) {
  delete static_cast<ListenComm*>(listen_comm);
  return kSuccess;
}

template <typename Size>
int Send(void* comm, void* data, Size size, int, void* mhandle, void** request) {
  return Post(static_cast<Comm*>(comm), data, static_cast<size_t>(size), mhandle, request);
}
template <typename Size>
int Receive(void* comm, int n, void** data, Size* sizes, int*, void** mhandles, void** request) {
  if (n != 1) return kInvalidArgument;
  return Post(static_cast<Comm*>(comm), data[0], static_cast<size_t>(sizes[0]), mhandles[0], request);
}
int SendProfiled(void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
  return Send(comm, data, size, tag, mhandle, request);
}
int ReceiveProfiled(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles,
                    void** request) {
  if (phandles == nullptr) return kInvalidArgument;
  return Receive(comm, n, data, sizes, tags, mhandles, request);
}
int ConnectOffload(int dev, void* handle, void** send_comm, DeviceHandle** offload) {
  return offload == nullptr ? static_cast<int>(kInvalidArgument) : Connect(dev, handle, send_comm);
}
int AcceptOffload(void* listen_comm, void** recv_comm, DeviceHandle** offload) {
  return offload == nullptr ? static_cast<int>(kInvalidArgument) : Accept(listen_comm, recv_comm);
}
int InitPlain(Logger logger) {
  logger(kLogInfo, kLogInit, __FILE__, __LINE__, "loopback %d", 1);
  return kSuccess;
}
int InitProfiled(Logger logger, ProfilerCallback) { return InitPlain(logger); }

char context_token;
int InitContext(void** context, uint64_t, CommConfig* config, Logger logger, ProfilerCallback) {
  *context = &context_token;
  return config == nullptr ? static_cast<int>(kInvalidArgument) : InitPlain(logger);
}
int ListenContext(void* context, int dev, void* handle, void** listen_comm) {
  return context != &context_token ? static_cast<int>(kInvalidUsage) : Listen(dev, handle, listen_comm);
}
int ConnectContext(void* context, int dev, void* handle, void** send_comm, DeviceHandle** offload) {
  return context != &context_token ? static_cast<int>(kInvalidUsage) : ConnectOffload(dev, handle, send_comm, offload);
}
int Finalize(void* context) { return context != &context_token ? kInvalidUsage : kSuccess; }

template <typename Table>
constexpr Table Common(const char* name) {
  Table table{};
  table.name = name;
  table.devices = &Devices;
  table.get_properties = &GetProperties;
  table.dereg_mr = &Deregister;
  table.test = &Test;
  table.close_send = &CloseComm;
  table.close_recv = &CloseComm;
  table.close_listen = &CloseListen;
  return table;
}

/// v6 to v9.
template <typename Table, typename RegisterSize, typename MessageSize>
constexpr Table Plain(const char* name) {
  Table table = Common<Table>(name);
  table.init = &InitPlain;
  table.listen = &Listen;
  table.reg_mr = &Register<RegisterSize>;
  table.isend = &Send<MessageSize>;
  table.irecv = &Receive<MessageSize>;
  if constexpr (requires { table.get_device_mr; }) {
    table.connect = &ConnectOffload;
    table.accept = &AcceptOffload;
  } else {
    table.connect = &Connect;
    table.accept = &Accept;
  }
  return table;
}

constexpr NetV10 Profiled(const char* name) {
  NetV10 table = Common<NetV10>(name);
  table.init = &InitProfiled;
  table.listen = &Listen;
  table.connect = [](int dev, CommConfig* config, void* handle, void** send_comm, DeviceHandle** offload) -> int {
    return config == nullptr ? static_cast<int>(kInvalidArgument) : ConnectOffload(dev, handle, send_comm, offload);
  };
  table.accept = &AcceptOffload;
  table.reg_mr = &Register<size_t>;
  table.isend = &SendProfiled;
  table.irecv = &ReceiveProfiled;
  return table;
}

template <typename Table>
constexpr Table WithContext(const char* name) {
  Table table = Common<Table>(name);
  table.init = &InitContext;
  table.listen = &ListenContext;
  table.connect = &ConnectContext;
  table.accept = &AcceptOffload;
  table.reg_mr = &Register<size_t>;
  table.isend = &SendProfiled;
  table.irecv = &ReceiveProfiled;
  table.finalize = &Finalize;
  return table;
}

}  // namespace
}  // namespace weft::testing

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))
WEFT_EXPORT weft::nccl::NetV6 ncclNetPlugin_v6;
WEFT_EXPORT weft::nccl::NetV7 ncclNetPlugin_v7;
WEFT_EXPORT weft::nccl::NetV8 ncclNetPlugin_v8;
WEFT_EXPORT weft::nccl::NetV9 ncclNetPlugin_v9;
WEFT_EXPORT weft::nccl::NetV10 ncclNetPlugin_v10;
WEFT_EXPORT weft::nccl::NetV11 ncclNetPlugin_v11;
WEFT_EXPORT weft::nccl::NetV12 ncclNetPlugin_v12;

using namespace weft::testing;
using namespace weft::nccl;
NetV6 ncclNetPlugin_v6 = Plain<NetV6, int, int>("loopback6");
NetV7 ncclNetPlugin_v7 = Plain<NetV7, int, int>("loopback7");
NetV8 ncclNetPlugin_v8 = Plain<NetV8, size_t, int>("loopback8");
NetV9 ncclNetPlugin_v9 = Plain<NetV9, size_t, size_t>("loopback9");
NetV10 ncclNetPlugin_v10 = Profiled("loopback10");
NetV11 ncclNetPlugin_v11 = WithContext<NetV11>("loopback11");
NetV12 ncclNetPlugin_v12 = WithContext<NetV12>("loopback12");
