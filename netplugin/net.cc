#include "netplugin/net.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include "netplugin/listener.h"
#include "netplugin/log.h"
#include "netplugin/process.h"
#include "netplugin/recv_comm.h"
#include "netplugin/send_comm.h"

namespace weft::net {
namespace {

/// What NCCL holds as listenComm.
struct ListenComm {
  std::shared_ptr<Listener> listener;
  Context context;
  uint32_t device;
};

uint8_t TrafficClass(const Context& context) {
  const int value = context.traffic_class;
  return value >= 0 && value <= 255 ? static_cast<uint8_t>(value & 0xFC) : 0;
}

/// Counts a communicator as open until it is deleted by Close().
template <typename T>
void* Opened(std::unique_ptr<T> comm) {
  Process::Get()->open_comms.fetch_add(1, std::memory_order_relaxed);
  return comm.release();
}

template <typename T>
int Close(void* comm) {
  if (!comm) return nccl::kSuccess;
  delete static_cast<T*>(comm);
  if (Process* process = Process::Get()) process->open_comms.fetch_sub(1, std::memory_order_relaxed);
  return nccl::kSuccess;
}

}  // namespace

int Init(int net_version, nccl::Logger logger) {
  Process::Acquire(net_version, logger, true);
  return nccl::kSuccess;
}

int InitContext(void** context, uint64_t comm_id, const nccl::CommConfig* config, nccl::Logger logger) {
  if (!context) return nccl::kInvalidArgument;
  auto made = std::make_unique<Context>();
  made->comm_id = comm_id;
  if (config) made->traffic_class = config->traffic_class;
  Process::Acquire(11, logger, false);
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

int ListenWith(const Context& context, int dev, void* handle, void** listen_comm) {
  const Device* device = GetDevice(dev);
  if (!device || !handle || !listen_comm) return nccl::kInvalidArgument;
  Process& process = *Process::Get();
  auto listener = Listener::Open(device->address, process.services().background);
  if (!listener) {
    Log(nccl::kLogWarn, "listen on %s (%s): %s", device->name.c_str(), device->address.Text().c_str(),
        std::strerror(errno));
    return nccl::kSystemError;
  }
  const Handle made = MakeHandle(listener->address(), listener->cookie(), process.environment());
  std::memset(handle, 0, nccl::kHandleMaxBytes);
  std::memcpy(handle, &made, sizeof made);
  *listen_comm = Opened(
      std::make_unique<ListenComm>(ListenComm{std::move(listener), context, static_cast<uint32_t>(dev)}));
  return nccl::kSuccess;
}

int ConnectWith(const Context& context, int dev, void* handle, void** send_comm) {
  const Device* device = GetDevice(dev);
  if (!device || !handle || !send_comm) return nccl::kInvalidArgument;
  *send_comm = nullptr;
  Handle copy;  // NCCL promises no alignment
  std::memcpy(&copy, handle, sizeof copy);
  std::unique_ptr<SendComm> comm;
  const int result =
      Process::Get()->connector().Step(&copy,
                                       {.device = static_cast<uint32_t>(dev),
                                        .local = device->address,
                                        .comm_id = context.comm_id,
                                        .traffic_class = TrafficClass(context)},
                                       &comm);
  std::memcpy(handle, &copy, sizeof copy);
  if (comm) *send_comm = Opened(std::move(comm));
  return result;
}

int Accept(void* listen_comm, void** recv_comm, nccl::DeviceHandle**) {
  if (!listen_comm || !recv_comm) return nccl::kInvalidArgument;
  *recv_comm = nullptr;
  const auto& from = *static_cast<ListenComm*>(listen_comm);
  const std::unique_ptr<Arrival> arrival = from.listener->TakeFlow();
  if (!arrival) return nccl::kSuccess;  // ask again
  const Process& process = *Process::Get();
  RecvComm::Setup setup;
  setup.identity = {.flow = arrival->hello.flow,
                    .comm = from.context.comm_id,
                    .direction = abi::Direction::kReceive,
                    .rank = process.environment().rank,
                    .peer_rank = arrival->hello.rank,
                    .device = from.device,
                    .local = from.listener->address(),
                    .peer = arrival->peer,
                    .listen_port = from.listener->address().port};
  setup.lane0 = std::move(arrival->fd);
  setup.tos = arrival->hello.tos;
  setup.listener = from.listener;
  *recv_comm = Opened(std::make_unique<RecvComm>(process.services(), std::move(setup)));
  return nccl::kSuccess;
}

int RegMr(void* comm, void*, size_t, int type, void** mhandle) {
  if (!comm || !mhandle) return nccl::kInvalidArgument;
  if (type != nccl::kPtrHost) return nccl::kInvalidUsage;
  *mhandle = comm;  // host memory needs no registration; any value that is not nullptr will do
  return nccl::kSuccess;
}

int RegMrDmaBuf(void*, void*, size_t, int, uint64_t, int, void**) { return nccl::kInvalidUsage; }

int DeregMr(void*, void*) { return nccl::kSuccess; }

int SendBytes(void* send_comm, void* data, uint64_t size, void** request) {
  if (!send_comm || !request || (!data && size > 0)) return nccl::kInvalidArgument;
  Request* made = nullptr;
  const int result = static_cast<SendComm*>(send_comm)->Send(data, size, &made);
  *request = made;
  return result;
}

int ReceiveBytes(void* recv_comm, int n, void** data, uint64_t size, void** request) {
  if (!recv_comm || !request || n != 1 || !data || (!data[0] && size > 0)) return nccl::kInvalidArgument;
  Request* made = nullptr;
  const int result = static_cast<RecvComm*>(recv_comm)->Receive(data[0], size, &made);
  *request = made;
  return result;
}

int Flush(void*, int, void**, int*, void**, void** request) {
  if (request) *request = nullptr;  // host memory: nothing to do
  return nccl::kSuccess;
}

int Test(void* request, int* done, int* sizes) {
  if (!request || !done) return nccl::kInvalidArgument;
  *done = 0;
  auto* slot = static_cast<Request*>(request);
  return slot->comm->Test(slot, done, sizes);
}

int CloseSend(void* send_comm) { return Close<SendComm>(send_comm); }
int CloseRecv(void* recv_comm) { return Close<RecvComm>(recv_comm); }
int CloseListen(void* listen_comm) { return Close<ListenComm>(listen_comm); }

}  // namespace weft::net
