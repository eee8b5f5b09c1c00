// NCCL's net plugin interface, versions 6 to 12, as laid out on x86-64 Linux: our own declarations of the documented
// tables, pinned by the static_asserts below. A plugin exports one struct `ncclNetPlugin_vN` per version; a driver
// (NCCL, or our collectives/) takes the newest it knows. What each call must do is said in docs/netplugin.md.
//
// Only data layouts and constants: this header is shared by the plugin and by drivers of foreign plugins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::nccl {

/// ncclResult_t.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

inline constexpr int kHandleMaxBytes = 128;  ///< NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kMaxRequests = 32;      ///< outstanding requests per connection (8 in v6)
inline constexpr int kPtrHost = 1;
inline constexpr int kPtrCuda = 2;
inline constexpr int kPtrDmaBuf = 4;
inline constexpr int kNetDeviceHost = 0;
inline constexpr int kTrafficClassUndefined = -1;
inline constexpr int16_t kIdUndefined = -1;                         ///< rail and plane of v12
inline constexpr size_t kMaxMessageBytes = size_t{1} << 40;         ///< v9 and later
inline constexpr size_t kMaxMessageBytesV8 = size_t{1} << 30;       ///< v8 and earlier
inline constexpr uintptr_t kHintOptionalRecvCompletion = 0x1;       ///< passed in through *request of irecv, v9+

/// ncclDebugLogLevel and subsystem flags of the logger that NCCL hands to init.
enum LogLevel : int { kLogNone = 0, kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogAbort = 4, kLogTrace = 5 };
inline constexpr unsigned long kLogInit = 1, kLogNet = 16, kLogEnv = 128;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
/// ncclProfilerCallback_t (v10+): type 0 start, 1 stop, 2 update, 3 update and stop.
using ProfilerCallback = int (*)(void** event, int type, void* parent, int64_t plugin_id, void* data);

struct VirtualDeviceV9 {
  int ndevs;
  int devs[4];
};
struct VirtualDeviceV12 {
  int ndevs;
  int devs[8];
};

struct DeviceHandle {
  int type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};

struct CommConfig {
  int traffic_class;
};

struct CommAttr {
  int32_t max_concurrent_peers, min_concurrent_peers, max_flows_per_peer, min_flows_per_peer;
};
struct NetAttr {
  CommAttr send, recv;
  uint32_t op, algorithm, protocol;
};

struct PropertiesV6 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
};
struct PropertiesV7 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
};
struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
};
struct PropertiesV9 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDeviceV9 virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};
using PropertiesV10 = PropertiesV9;
struct PropertiesV11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDeviceV9 virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
};
struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDeviceV12 virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
  int16_t rail_id;
  int16_t plane_id;
};

struct NetV6 {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int dev, PropertiesV6* properties);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm);
  int (*accept)(void* listen_comm, void** recv_comm);
  int (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
};

/// v7 and v8 differ only in the properties and in the type of a registration's size.
template <typename Properties, typename RegisterSize>
struct NetIntSizes {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int dev, Properties* properties);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** device_handle);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  int (*reg_mr)(void* comm, void* data, RegisterSize size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  int (*irecv_consumed)(void* recv_comm, int n, void* request);
};
using NetV7 = NetIntSizes<PropertiesV7, int>;
using NetV8 = NetIntSizes<PropertiesV8, size_t>;

struct NetV9 {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int dev, PropertiesV9* properties);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** device_handle);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  int (*irecv_consumed)(void* recv_comm, int n, void* request);
  int (*make_vdevice)(int* dev, VirtualDeviceV9* properties);
};

struct NetV10 {
  const char* name;
  int (*init)(Logger logger, ProfilerCallback profiler);
  int (*devices)(int* count);
  int (*get_properties)(int dev, PropertiesV10* properties);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, CommConfig* config, void* handle, void** send_comm, DeviceHandle** device_handle);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  int (*irecv_consumed)(void* recv_comm, int n, void* request);
  int (*make_vdevice)(int* dev, VirtualDeviceV9* properties);
};

/// v11 and v12 differ only in the properties and virtual-device structs.
template <typename Properties, typename VirtualDevice>
struct NetWithContext {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, CommConfig* config, Logger logger, ProfilerCallback profiler);
  int (*devices)(int* count);
  int (*get_properties)(int dev, Properties* properties);
  int (*listen)(void* context, int dev, void* handle, void** listen_comm);
  int (*connect)(void* context, int dev, void* handle, void** send_comm, DeviceHandle** device_handle);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  int (*irecv_consumed)(void* recv_comm, int n, void* request);
  int (*make_vdevice)(int* dev, VirtualDevice* properties);
  int (*finalize)(void* context);
  int (*set_net_attr)(void* context, NetAttr* attr);
};
using NetV11 = NetWithContext<PropertiesV11, VirtualDeviceV9>;
using NetV12 = NetWithContext<PropertiesV12, VirtualDeviceV12>;

static_assert(sizeof(NetV6) == 136 && sizeof(NetV7) == 152 && sizeof(NetV8) == 152);
static_assert(sizeof(NetV9) == 160 && sizeof(NetV10) == 160 && sizeof(NetV11) == 176 && sizeof(NetV12) == 176);
static_assert(sizeof(PropertiesV6) == 48 && sizeof(PropertiesV7) == 56 && sizeof(PropertiesV8) == 64);
static_assert(sizeof(PropertiesV9) == 104 && sizeof(PropertiesV11) == 112 && sizeof(PropertiesV12) == 128);
static_assert(offsetof(PropertiesV11, max_p2p_bytes) == 88 && offsetof(PropertiesV12, virtual_device) == 64);
static_assert(offsetof(PropertiesV12, max_p2p_bytes) == 104 && offsetof(PropertiesV12, rail_id) == 124);
static_assert(offsetof(PropertiesV8, reg_is_global) == 28 && offsetof(PropertiesV9, speed_mbps) == 36);
static_assert(sizeof(NetAttr) == 44 && sizeof(DeviceHandle) == 32 && sizeof(CommConfig) == 4);
static_assert(offsetof(NetV8, isend) == 80 && offsetof(NetV8, test) == 104 && offsetof(NetV8, irecv_consumed) == 144);
static_assert(offsetof(NetV9, make_vdevice) == 152 && offsetof(NetV10, connect) == 40);
static_assert(offsetof(NetV11, finalize) == 160 && offsetof(NetV11, set_net_attr) == 168);

}  // namespace weft::nccl
