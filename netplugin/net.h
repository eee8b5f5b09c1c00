// The calls of the ncclNet interface on one implementation. What differs between versions 7 to 12 is in net_v7.cc to
// net_v12.cc. All return NCCL codes; Guarded keeps exceptions inside the library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "netplugin/abi/nccl_net.h"
#include "netplugin/devices.h"
#include "netplugin/guarded.h"

namespace weft::net {

inline constexpr char kName[] = "Weft";
inline constexpr int kMaxComms = 65536;

/// What v11 and v12 keep per communicator; earlier versions have none.
struct Context {
  uint64_t comm_id = 0;
  int traffic_class = nccl::kTrafficClassUndefined;
};

int Init(int net_version, nccl::Logger logger);  // v7 to v10
int InitContext(int net_version, void** context, uint64_t comm_id, const nccl::CommConfig* config,
                nccl::Logger logger);  // v11 and v12
int Finalize(void* context);

int Devices(int* count);
/// Device `dev`, or nullptr.
const Device* GetDevice(int dev);
/// Buffers that one receive may group: the properties' max_recvs.
int MaxRecvs();

int ListenWith(const Context& context, int dev, void* handle, void** listen_comm);
int ConnectWith(const Context& context, int dev, void* handle, void** send_comm);
int Accept(void* listen_comm, void** recv_comm, nccl::DeviceHandle** device_handle);

int RegMr(void* comm, void* data, size_t size, int type, void** mhandle);
int RegMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
int DeregMr(void* comm, void* mhandle);

int SendBytes(void* send_comm, void* data, uint64_t size, int tag, void* mhandle, void** request);
/// One buffer. `tags` and `mhandles` may be nullptr, as may the handle of an empty buffer.
int ReceiveBytes(void* recv_comm, int n, void** data, uint64_t size, const int* tags, void** mhandles, void** request);
/// Into memory that the GPU polls for flags (protocols LL and LL128).
int ReceivePolled(void* recv_comm, int n, void** data, uint64_t size, const int* tags, void** mhandles, void** request);
/// 1 to kMaxRecvs buffers; likewise.
int ReceiveGroup(void* recv_comm, int n, void** data, const uint64_t* sizes, const int* tags, void** mhandles,
                 void** request);
int Flush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
int Test(void* request, int* done, int* sizes);

/// Contract of abi/wait.h; throws nothing.
int Wait(void* const* requests, int count, int64_t most_ns);

int CloseSend(void* send_comm);
int CloseRecv(void* recv_comm);
int CloseListen(void* listen_comm);

/// The fields that all versions of the properties have.
template <typename Properties>
int FillProperties(int dev, Properties* properties) {
  const Device* device = GetDevice(dev);
  if (!device || !properties) return nccl::kInvalidArgument;
  *properties = {};
  properties->name = const_cast<char*>(device->name.c_str());
  properties->pci_path = device->pci_path.empty() ? nullptr : const_cast<char*>(device->pci_path.c_str());
  properties->guid = device->guid;
  properties->ptr_support = device->ptr_support;
  // Over TCP there is nothing to share, and a driver that reads "global" may send more than the receive has room for.
  if constexpr (requires { properties->reg_is_global; }) properties->reg_is_global = device->rdma != nullptr;
  properties->speed_mbps = device->speed_mbps;
  properties->port = device->port;
  properties->latency_us = 0;
  properties->max_comms = kMaxComms;
  properties->max_recvs = MaxRecvs();
  properties->device_type = nccl::kNetDeviceHost;
  return nccl::kSuccess;
}

/// The same, and what version 9 added.
template <typename Properties>
int FillPropertiesV9(int dev, Properties* properties) {
  const int result = FillProperties(dev, properties);
  if (result != nccl::kSuccess) return result;
  properties->virtual_device = {1, {dev}};
  properties->max_p2p_bytes = nccl::kMaxMessageBytes;
  properties->max_coll_bytes = nccl::kMaxMessageBytes;
  return nccl::kSuccess;
}

}  // namespace weft::net
