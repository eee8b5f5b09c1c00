#include "netplugin/net.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include "netplugin/log.h"
#include "netplugin/process.h"
#include "netplugin/rdma/transport.h"
#include "netplugin/tcp/listener.h"
#include "netplugin/tcp/recv_comm.h"
#include "netplugin/tcp/send_comm.h"

namespace weft::net {
namespace {

class TcpListenComm final : public ListenComm {
 public:
  TcpListenComm(std::shared_ptr<Listener> listener, const Context& context, int device)
      : listener_(std::move(listener)), comm_id_(context.comm_id), device_(static_cast<uint32_t>(device)) {}
  int Accept(std::unique_ptr<Comm>* comm) override;

 private:
  const std::shared_ptr<Listener> listener_;
  const uint64_t comm_id_;
  const uint32_t device_;
};

int TcpListenComm::Accept(std::unique_ptr<Comm>* comm) {
  const std::unique_ptr<Arrival> arrival = listener_->TakeFlow();
  if (const uint16_t version = listener_->other_version(); !arrival && version != 0) {
    Log(nccl::kLogWarn, "accept: a rank has another version of this plugin (wire format %u, this one has %u)", version, kWireVersion);
    return nccl::kInvalidUsage;
  }
  if (!arrival) return nccl::kSuccess;  // ask again
  const Process& process = *Process::Get();
  RecvComm::Setup setup;
  setup.identity = {.flow = arrival->hello.flow,
                    .comm = comm_id_,
                    .direction = abi::Direction::kReceive,
                    .rank = process.environment().rank,
                    .peer_rank = arrival->hello.rank,
                    .device = device_,
                    .local = listener_->address(),
                    .peer = arrival->peer,
                    .peer_port = listener_->address().port};
  setup.lane0 = std::move(arrival->fd);
  setup.tos = arrival->hello.tos;
  setup.listener = listener_;
  *comm = std::make_unique<RecvComm>(process.services(), std::move(setup));
  return nccl::kSuccess;
}

uint8_t TrafficClass(const Context& context) {
  const int value = context.traffic_class;
  return value >= 0 && value <= 255 ? static_cast<uint8_t>(value & 0xFC) : 0;
}

bool GivenUp(const Comm& comm) { return comm.in_flight.given_up.load(std::memory_order_relaxed); }

/// `result`, an error where the communicator was given up; an error is noted for the watchdog.
int NoteError(Comm& comm, int result) {
  if (GivenUp(comm)) result = nccl::kRemoteError;
  if (result != nccl::kSuccess) comm.in_flight.failed.store(true, std::memory_order_relaxed);
  return result;
}

void* Watch(void* comm) {
  Process::Get()->watchdog().Add(static_cast<Comm*>(comm));
  return comm;
}

/// Counts what NCCL holds as open until it is deleted by Close(). A communicator is held as its base, so that the calls
/// need not know its transport.
template <typename Held, typename T>
void* Opened(std::unique_ptr<T> comm) {
  Process::Get()->open_comms.fetch_add(1, std::memory_order_relaxed);
  return static_cast<Held*>(comm.release());
}

template <typename Held>
int Close(void* comm) {
  if (!comm) return nccl::kSuccess;
  delete static_cast<Held*>(comm);
  if (Process* process = Process::Get()) process->open_comms.fetch_sub(1, std::memory_order_relaxed);
  return nccl::kSuccess;
}

rdma::LocalEnd EndOf(const Context& context, int dev, const Device& device) {
  return {static_cast<uint32_t>(dev), device.rdma, device.address, context.comm_id, TrafficClass(context)};
}

int ListenRdma(const Context& context, int dev, const Device& device, void* handle, void** listen_comm) {
  Handle made;
  auto listener = rdma::RdmaListenComm::Open(Process::Get()->services(), EndOf(context, dev, device), &made);
  if (!listener) {
    Log(nccl::kLogWarn, "listen for %s on %s: %s", device.name.c_str(), device.address.Text().c_str(),
        std::strerror(errno));
    return nccl::kSystemError;
  }
  std::memset(handle, 0, nccl::kHandleMaxBytes);
  std::memcpy(handle, &made, sizeof made);
  *listen_comm = Opened<ListenComm>(std::move(listener));
  return nccl::kSuccess;
}

int CloseComm(void* comm) {
  Process* process = Process::Get();
  if (comm && process) process->watchdog().Remove(static_cast<Comm*>(comm));
  return Close<Comm>(comm);
}

}  // namespace

int Init(int net_version, nccl::Logger logger) {
  Process::Acquire(net_version, logger, true);
  return nccl::kSuccess;
}

int InitContext(int net_version, void** context, uint64_t comm_id, const nccl::CommConfig* config,
                nccl::Logger logger) {
  if (!context) return nccl::kInvalidArgument;
  *context = nullptr;  // NCCL 2.28 finalizes what is there also after a failed init
  auto made = std::make_unique<Context>();
  made->comm_id = comm_id;
  if (config) made->traffic_class = config->traffic_class;
  Process::Acquire(net_version, logger, false);
  *context = made.release();
  return nccl::kSuccess;
}

int Finalize(void* context) {
  if (!context) return nccl::kSuccess;
  delete static_cast<Context*>(context);
  Process::Release();
  return nccl::kSuccess;
}

int Devices(int* count) {
  const Process* process = Process::Get();
  if (!count || !process) return nccl::kInvalidUsage;
  *count = static_cast<int>(process->devices().size());
  return nccl::kSuccess;
}

const Device* GetDevice(int dev) {
  const Process* process = Process::Get();
  if (!process || dev < 0 || static_cast<size_t>(dev) >= process->devices().size()) return nullptr;
  return &process->devices()[static_cast<size_t>(dev)];
}

int MaxRecvs() { return static_cast<int>(Process::Get()->environment().max_recvs); }

int ListenWith(const Context& context, int dev, void* handle, void** listen_comm) {
  const Device* device = GetDevice(dev);
  if (!device || !handle || !listen_comm) return nccl::kInvalidArgument;
  Process& process = *Process::Get();
  if (device->rdma) return ListenRdma(context, dev, *device, handle, listen_comm);
  auto listener = Listener::Open(device->address, process.services().background);
  if (!listener) {
    Log(nccl::kLogWarn, "listen on %s (%s): %s", device->name.c_str(), device->address.Text().c_str(),
        std::strerror(errno));
    return nccl::kSystemError;
  }
  const Handle made = MakeHandle(listener->address(), listener->cookie(), process.environment());
  std::memset(handle, 0, nccl::kHandleMaxBytes);
  std::memcpy(handle, &made, sizeof made);
  *listen_comm = Opened<ListenComm>(std::make_unique<TcpListenComm>(std::move(listener), context, dev));
  return nccl::kSuccess;
}

int ConnectWith(const Context& context, int dev, void* handle, void** send_comm) {
  const Device* device = GetDevice(dev);
  if (!device || !handle || !send_comm) return nccl::kInvalidArgument;
  *send_comm = nullptr;
  Handle copy;  // NCCL promises no alignment
  std::memcpy(&copy, handle, sizeof copy);
  if (device->rdma) {
    std::unique_ptr<Comm> comm;
    const int result = Process::Get()->rdma_connector().Step(&copy, EndOf(context, dev, *device), &comm);
    std::memcpy(handle, &copy, sizeof copy);
    if (comm) *send_comm = Watch(Opened<Comm>(std::move(comm)));
    return result;
  }
  std::unique_ptr<SendComm> comm;
  const int result =
      Process::Get()->connector().Step(&copy,
                                       {.device = static_cast<uint32_t>(dev),
                                        .local = device->address,
                                        .comm_id = context.comm_id,
                                        .traffic_class = TrafficClass(context)},
                                       &comm);
  std::memcpy(handle, &copy, sizeof copy);
  if (comm) *send_comm = Watch(Opened<Comm>(std::move(comm)));
  return result;
}

int Accept(void* listen_comm, void** recv_comm, nccl::DeviceHandle**) {
  if (!listen_comm || !recv_comm) return nccl::kInvalidArgument;
  *recv_comm = nullptr;
  std::unique_ptr<Comm> comm;
  const int result = static_cast<ListenComm*>(listen_comm)->Accept(&comm);
  if (comm) *recv_comm = Watch(Opened<Comm>(std::move(comm)));
  return result;
}

int RegMr(void* comm, void* data, size_t size, int type, void** mhandle) {
  if (!comm || !mhandle) return nccl::kInvalidArgument;
  return static_cast<Comm*>(comm)->RegMr(data, size, type, mhandle);
}

int RegMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle) {
  if (!comm || !mhandle) return nccl::kInvalidArgument;
  return static_cast<Comm*>(comm)->RegMrDmaBuf(data, size, type, offset, fd, mhandle);
}

int DeregMr(void* comm, void* mhandle) {
  return comm && mhandle ? static_cast<Comm*>(comm)->DeregMr(mhandle) : int{nccl::kSuccess};
}

int SendBytes(void* send_comm, void* data, uint64_t size, int tag, void* mhandle, void** request) {
  if (!send_comm || !request || (!data && size > 0)) return nccl::kInvalidArgument;
  auto& comm = *static_cast<Comm*>(send_comm);
  *request = nullptr;
  if (GivenUp(comm)) return NoteError(comm, nccl::kRemoteError);
  Request* made = nullptr;
  const int result = comm.Isend(data, size, tag, mhandle, &made);
  if (made) comm.in_flight.Posted(size);
  *request = made;
  return NoteError(comm, result);
}

namespace {

template <int (Comm::*kReceive)(void*, uint64_t, int, void*, Request**)>
int ReceiveOne(void* recv_comm, int n, void** data, uint64_t size, const int* tags, void** mhandles, void** request) {
  if (!recv_comm || !request || n != 1 || !data || (!data[0] && size > 0)) return nccl::kInvalidArgument;
  auto& comm = *static_cast<Comm*>(recv_comm);
  *request = nullptr;
  if (GivenUp(comm)) return NoteError(comm, nccl::kRemoteError);
  Request* made = nullptr;
  const int result = (comm.*kReceive)(data[0], size, tags ? tags[0] : 0, mhandles ? mhandles[0] : nullptr, &made);
  if (made) comm.in_flight.Posted(size);
  *request = made;
  return NoteError(comm, result);
}

}  // namespace

int ReceiveBytes(void* recv_comm, int n, void** data, uint64_t size, const int* tags, void** mhandles, void** request) {
  return ReceiveOne<&Comm::Irecv>(recv_comm, n, data, size, tags, mhandles, request);
}

int ReceivePolled(void* recv_comm, int n, void** data, uint64_t size, const int* tags, void** mhandles, void** request) {
  return ReceiveOne<&Comm::IrecvPolled>(recv_comm, n, data, size, tags, mhandles, request);
}

int ReceiveGroup(void* recv_comm, int n, void** data, const uint64_t* sizes, const int* tags, void** mhandles,
                 void** request) {
  if (!recv_comm || !request || n < 1 || n > kMaxRecvs || !data) return nccl::kInvalidArgument;
  for (int i = 0; i < n; ++i) {
    if ((!data[i] && sizes[i] > 0) || sizes[i] > nccl::kMaxMessageBytes) return nccl::kInvalidArgument;
  }
  auto& comm = *static_cast<Comm*>(recv_comm);
  *request = nullptr;
  if (GivenUp(comm)) return NoteError(comm, nccl::kRemoteError);
  Request* made = nullptr;
  const int result = comm.IrecvGroup(n, data, sizes, tags, mhandles, &made);
  if (made) comm.in_flight.Posted(made->size);
  *request = made;
  return NoteError(comm, result);
}

int Flush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) {
  if (!recv_comm || !request) return nccl::kInvalidArgument;
  *request = nullptr;
  if (!data || !sizes || n > kMaxRecvs) return nccl::kSuccess;
  // Of a group one buffer will do: what is read back from one place has pushed all before it into memory.
  int last = n - 1;
  while (last >= 0 && sizes[last] == 0) --last;
  if (last < 0) return nccl::kSuccess;
  auto& comm = *static_cast<Comm*>(recv_comm);
  Request* made = nullptr;
  const int result =
      comm.Iflush(data[last], static_cast<uint64_t>(sizes[last]), mhandles ? mhandles[last] : nullptr, &made);
  if (made) comm.in_flight.Posted(made->size);
  *request = made;
  return NoteError(comm, result);
}

int Test(void* request, int* done, int* sizes) {
  if (!request || !done) return nccl::kInvalidArgument;
  *done = 0;
  auto* slot = static_cast<Request*>(request);
  Comm& comm = *slot->comm;
  const uint64_t size = slot->size;  // the slot is the communicator's again once it is done
  const int result = comm.Test(slot, done, sizes);
  if (*done == 0) return NoteError(comm, result);
  comm.in_flight.Done(size);
  return result;
}

int CloseSend(void* send_comm) { return CloseComm(send_comm); }
int CloseRecv(void* recv_comm) { return CloseComm(recv_comm); }
int CloseListen(void* listen_comm) { return Close<ListenComm>(listen_comm); }

}  // namespace weft::net
