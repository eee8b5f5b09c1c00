// A net plugin that carries messages the way NCCL's own Socket transport does, to be measured beside others: no more
// is borrowed than its documented behaviour (docs/performance.md says which). Not for use.
//
// isend and irecv only note the request; all happens in test(), on the oldest request: four bytes of size on the
// control socket, followed by up to 128 bytes of the payload. Without helper threads, the default, the rest follows on
// the same socket. With NCCL_SOCKET_NTHREADS threads and NCCL_NSOCKS_PERTHREAD data sockets each, the rest is cut into
// pieces of at least 64 KiB, one per socket, dealt round robin; the piece's thread moves it and test() waits for all.
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "netplugin/abi/nccl_net.h"

namespace weft::bench {
namespace {

using namespace weft::nccl;

constexpr size_t kInlineBytes = 128;
constexpr size_t kLeastPiece = 64 << 10;

int NumberOf(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::clamp(std::atoi(text), 0, 16);
}

/// Moves what the socket takes or has; false when the peer is gone.
bool Move(int fd, bool sends, char* data, size_t size, size_t* offset) {
  while (*offset < size) {
    const ssize_t n = sends ? send(fd, data + *offset, size - *offset, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : recv(fd, data + *offset, size - *offset, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    *offset += static_cast<size_t>(n);
  }
  return true;
}

struct Piece {
  char* data;
  size_t size;
  size_t offset = 0;
  std::atomic<int> done{0};  // 1 moved, -1 failed; the release of the data to whoever sees it
};

/// A thread and its sockets; of each socket only the oldest piece moves.
class Helper {
 public:
  Helper(std::vector<int> sockets, bool sends)
      : sockets_(std::move(sockets)), sends_(sends), queues_(sockets_.size()),
        thread_([this](std::stop_token stop) { Run(stop); }) {}

  void Give(size_t socket, Piece* piece) {
    const std::lock_guard lock(mutex_);
    queues_[socket].push_back(piece);
    ++queued_;
    wake_.notify_one();
  }

 private:
  Piece* Oldest(size_t socket) {
    const std::lock_guard lock(mutex_);
    return queues_[socket].empty() ? nullptr : queues_[socket].front();
  }

  void Run(std::stop_token stop) {
    while (!stop.stop_requested()) {
      for (size_t i = 0; i < sockets_.size(); ++i) {
        Piece* piece = Oldest(i);
        if (piece == nullptr) continue;
        const bool alive = Move(sockets_[i], sends_, piece->data, piece->size, &piece->offset);
        if (alive && piece->offset < piece->size) continue;
        {
          const std::lock_guard lock(mutex_);
          queues_[i].pop_front();
          --queued_;
        }
        piece->done.store(alive ? 1 : -1, std::memory_order_release);
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [this] { return queued_ > 0; });
    }
  }

  const std::vector<int> sockets_;
  const bool sends_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<std::deque<Piece*>> queues_;
  size_t queued_ = 0;
  std::jthread thread_;
};

struct Comm;
struct Request {
  Comm* comm = nullptr;
  char* data = nullptr;
  size_t size = 0;
  size_t offset = 0;
  bool taken = false;
  bool announced = false;
  std::deque<Piece> pieces;
};

struct Comm {
  bool sends;
  int control;
  std::vector<int> sockets;
  std::vector<std::unique_ptr<Helper>> helpers;
  std::array<Request, kMaxRequests> requests;
  size_t next_socket = 0;

  ~Comm() {
    helpers.clear();
    close(control);
    for (const int fd : sockets) close(fd);
  }
};

struct Handle {
  sockaddr_in address;
  int sockets;
  int helpers;
};

struct ListenComm {
  int fd;
  Handle handle;
  std::unique_ptr<Comm> coming;  // what has been accepted so far
  int accepted = 0;
};

sockaddr_in InterfaceAddress() {
  const char* wanted = std::getenv("NCCL_SOCKET_IFNAME");
  sockaddr_in found{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if (wanted != nullptr && std::string(one->ifa_name) == wanted) std::memcpy(&found, one->ifa_addr, sizeof found);
  }
  freeifaddrs(all);
  found.sin_port = 0;
  return found;
}

void StartHelpers(Comm* comm, int helpers) {
  const size_t each = helpers == 0 ? 0 : comm->sockets.size() / static_cast<size_t>(helpers);
  for (size_t i = 0; i < static_cast<size_t>(helpers); ++i) {
    const auto first = comm->sockets.begin() + static_cast<std::ptrdiff_t>(i * each);
    comm->helpers.push_back(std::make_unique<Helper>(
        std::vector<int>(first, first + static_cast<std::ptrdiff_t>(each)), comm->sends));
  }
}

int Init(Logger) { return kSuccess; }
int Devices(int* count) {
  *count = 1;
  return kSuccess;
}

int GetProperties(int, PropertiesV8* properties) {
  static char name[] = "socket0";
  *properties = {};
  properties->name = name;
  properties->ptr_support = kPtrHost;
  properties->speed_mbps = 10000;
  properties->max_comms = 65536;
  properties->max_recvs = 1;
  return kSuccess;
}

int Listen(int, void* handle, void** listen_comm) {
  const int helpers = NumberOf("NCCL_SOCKET_NTHREADS");
  const int sockets = std::min(64, helpers * std::max(1, NumberOf("NCCL_NSOCKS_PERTHREAD")));
  Handle made{InterfaceAddress(), sockets, helpers};
  socklen_t length = sizeof made.address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&made.address), length) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&made.address), &length) != 0) {
    if (fd >= 0) close(fd);
    return kSystemError;
  }
  std::memcpy(handle, &made, sizeof made);
  *listen_comm = new ListenComm{fd, made, nullptr};
  return kSuccess;
}

void NoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Waits for the kernel to connect, which a benchmark may. The first byte of each connection is its number.
int Connect(int, void* handle, void** send_comm, DeviceHandle**) {
  Handle to;
  std::memcpy(&to, handle, sizeof to);
  auto comm = std::make_unique<Comm>(true, -1);
  for (int i = 0; i <= to.sockets; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto number = static_cast<uint8_t>(i);
    if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&to.address), sizeof to.address) != 0 ||
        send(fd, &number, 1, MSG_NOSIGNAL) != 1) {
      if (fd >= 0) close(fd);
      return kSystemError;
    }
    NoDelay(fd);
    if (i == to.sockets) comm->control = fd;
    else comm->sockets.push_back(fd);
  }
  StartHelpers(comm.get(), to.helpers);
  *send_comm = comm.release();
  return kSuccess;
}

int Accept(void* listen_comm, void** recv_comm, DeviceHandle**) {
  auto* listener = static_cast<ListenComm*>(listen_comm);
  const int sockets = listener->handle.sockets;
  *recv_comm = nullptr;
  if (!listener->coming) {
    listener->coming = std::make_unique<Comm>(false, -1);
    listener->coming->sockets.resize(static_cast<size_t>(sockets), -1);
  }
  while (listener->accepted <= sockets) {
    const int fd = accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return errno == EAGAIN ? kSuccess : kSystemError;
    uint8_t number = 0;
    if (recv(fd, &number, 1, MSG_WAITALL) != 1 || number > sockets) {
      close(fd);
      return kInternalError;
    }
    NoDelay(fd);
    (number == sockets ? listener->coming->control : listener->coming->sockets[number]) = fd;
    ++listener->accepted;
  }
  StartHelpers(listener->coming.get(), listener->handle.helpers);
  *recv_comm = listener->coming.release();
  return kSuccess;
}

int Register(void*, void*, size_t, int type, void** mhandle) {
  *mhandle = nullptr;
  return type == kPtrHost ? kSuccess : kInternalError;
}
int Deregister(void*, void*) { return kSuccess; }

int Note(void* opaque, void* data, int size, void** request) {
  auto* comm = static_cast<Comm*>(opaque);
  *request = nullptr;
  for (Request& slot : comm->requests) {
    if (slot.taken) continue;
    slot.comm = comm;
    slot.data = static_cast<char*>(data);
    slot.size = static_cast<size_t>(size);
    slot.offset = 0;
    slot.taken = true;
    slot.announced = false;
    slot.pieces.clear();
    *request = &slot;
    return kSuccess;
  }
  return kSuccess;
}
int Send(void* comm, void* data, int size, int, void*, void** request) { return Note(comm, data, size, request); }
int Receive(void* comm, int n, void** data, int* sizes, int*, void**, void** request) {
  return n == 1 ? Note(comm, data[0], sizes[0], request) : static_cast<int>(kInternalError);
}

/// Moves all of [data, data + size): what has begun on the control socket is finished on it before anything else.
bool MoveAll(int fd, bool sends, char* data, size_t size, size_t offset) {
  while (offset < size) {
    if (!Move(fd, sends, data, size, &offset)) return false;
  }
  return true;
}

/// Size and inline payload; leaves `announced` false when the socket has nothing yet.
int Announce(Request* request) {
  Comm* comm = request->comm;
  char message[sizeof(uint32_t) + kInlineBytes];
  auto size = static_cast<uint32_t>(request->size);
  std::memcpy(message, &size, sizeof size);
  size_t offset = 0;
  if (comm->sends) {
    const size_t inlined = std::min(request->size, kInlineBytes);
    std::memcpy(message + sizeof size, request->data, inlined);
    if (!Move(comm->control, true, message, sizeof size + inlined, &offset)) return kRemoteError;
    if (offset == 0) return kSuccess;
    if (!MoveAll(comm->control, true, message, sizeof size + inlined, offset)) return kRemoteError;
    request->offset = inlined;
  } else {
    if (!Move(comm->control, false, message, sizeof size, &offset)) return kRemoteError;
    if (offset == 0) return kSuccess;
    if (!MoveAll(comm->control, false, message, sizeof size, offset)) return kRemoteError;
    std::memcpy(&size, message, sizeof size);
    if (size > request->size) return kInvalidUsage;
    request->size = size;
    request->offset = std::min<size_t>(size, kInlineBytes);
    if (!MoveAll(comm->control, false, request->data, request->offset, 0)) return kRemoteError;
  }
  request->announced = true;
  if (comm->sockets.empty()) return kSuccess;
  const size_t left = request->size - request->offset;
  const size_t piece = std::max(kLeastPiece, (left + comm->sockets.size() - 1) / comm->sockets.size());
  const size_t each = comm->sockets.size() / comm->helpers.size();
  for (; request->offset < request->size; request->offset += request->pieces.back().size) {
    request->pieces.emplace_back(request->data + request->offset, std::min(piece, request->size - request->offset));
    comm->helpers[comm->next_socket / each]->Give(comm->next_socket % each, &request->pieces.back());
    comm->next_socket = (comm->next_socket + 1) % comm->sockets.size();
  }
  return kSuccess;
}

int Test(void* opaque, int* done, int* sizes) {
  auto* request = static_cast<Request*>(opaque);
  *done = 0;
  if (!request->announced) {
    if (const int result = Announce(request); result != kSuccess || !request->announced) return result;
  }
  Comm* comm = request->comm;
  if (!Move(comm->control, comm->sends, request->data, request->size, &request->offset)) return kRemoteError;
  if (request->offset < request->size) return kSuccess;
  for (const Piece& piece : request->pieces) {
    const int state = piece.done.load(std::memory_order_acquire);
    if (state < 0) return kRemoteError;
    if (state == 0) return kSuccess;
  }
  *done = 1;
  if (sizes != nullptr) *sizes = static_cast<int>(request->size);
  request->taken = false;
  return kSuccess;
}

int CloseComm(void* comm) {
  delete static_cast<Comm*>(comm);
  return kSuccess;
}
int CloseListen(void* opaque) {
  auto* listener = static_cast<ListenComm*>(opaque);
  close(listener->fd);
  delete listener;
  return kSuccess;
}

}  // namespace
}  // namespace weft::bench

extern "C" __attribute__((visibility("default"))) const weft::nccl::NetV8 ncclNetPlugin_v8 = {
    .name = "SocketLike",
    .init = weft::bench::Init,
    .devices = weft::bench::Devices,
    .get_properties = weft::bench::GetProperties,
    .listen = weft::bench::Listen,
    .connect = weft::bench::Connect,
    .accept = weft::bench::Accept,
    .reg_mr = weft::bench::Register,
    .reg_mr_dma_buf = nullptr,
    .dereg_mr = weft::bench::Deregister,
    .isend = weft::bench::Send,
    .irecv = weft::bench::Receive,
    .iflush = nullptr,
    .test = weft::bench::Test,
    .close_send = weft::bench::CloseComm,
    .close_recv = weft::bench::CloseComm,
    .close_listen = weft::bench::CloseListen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
};
