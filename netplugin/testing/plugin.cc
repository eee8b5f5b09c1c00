#include "netplugin/testing/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "netplugin/tcp/socket.h"

namespace weft::net::testing {
namespace {

template <typename T>
inline constexpr int kVersion = 0;
template <>
inline constexpr int kVersion<nccl::NetV7> = 7;
template <>
inline constexpr int kVersion<nccl::NetV8> = 8;
template <>
inline constexpr int kVersion<nccl::NetV9> = 9;
template <>
inline constexpr int kVersion<nccl::NetV10> = 10;
template <>
inline constexpr int kVersion<nccl::NetV11> = 11;
template <>
inline constexpr int kVersion<nccl::NetV12> = 12;

template <int kVersion>
struct PropertiesOf {
  using Type = nccl::PropertiesV9;
};
template <>
struct PropertiesOf<7> {
  using Type = nccl::PropertiesV7;
};
template <>
struct PropertiesOf<8> {
  using Type = nccl::PropertiesV8;
};
template <>
struct PropertiesOf<11> {
  using Type = nccl::PropertiesV11;
};
template <>
struct PropertiesOf<12> {
  using Type = nccl::PropertiesV12;
};

template <typename Net>
class TableOf final : public Table {
 public:
  explicit TableOf(const Net* net) : net_(net) {}
  std::string Name() override { return net_->name; }

  int Init(nccl::Logger logger) override {
    if constexpr (kVersion<Net> >= 11) {
      nccl::CommConfig config{nccl::kTrafficClassUndefined};
      return net_->init(&context_, 0xC0FFEE, &config, logger, nullptr);
    } else if constexpr (kVersion<Net> == 10) {
      return net_->init(logger, nullptr);
    } else {
      return net_->init(logger);
    }
  }
  int Finalize() override {
    if constexpr (kVersion<Net> >= 11) return net_->finalize(std::exchange(context_, nullptr));
    return nccl::kSuccess;
  }
  int Devices(int* count) override { return net_->devices(count); }
  int Properties(int dev, std::string* name, int* ptr_support, int* max_recvs) override {
    using Properties = typename PropertiesOf<kVersion<Net>>::Type;
    Properties properties{};
    const int result = net_->get_properties(dev, &properties);
    if (result != nccl::kSuccess) return result;
    *name = properties.name;
    *ptr_support = properties.ptr_support;
    *max_recvs = properties.max_recvs;
    if constexpr (kVersion<Net> >= 8) {
      EXPECT_EQ(properties.reg_is_global, 0);  // TCP, as NCCL's own Socket says
    }
    if constexpr (kVersion<Net> >= 9) {
      EXPECT_EQ(properties.max_p2p_bytes, nccl::kMaxMessageBytes);
      EXPECT_EQ(properties.virtual_device.ndevs, 1);
      EXPECT_EQ(properties.virtual_device.devs[0], dev);
    }
    if constexpr (kVersion<Net> >= 11) {
      EXPECT_EQ(properties.max_multi_request_size, 1);
    }
    if constexpr (kVersion<Net> >= 12) {
      EXPECT_EQ(properties.rail_id, nccl::kIdUndefined);
      EXPECT_EQ(properties.plane_id, nccl::kIdUndefined);
    }
    return result;
  }
  int Listen(int dev, void* handle, void** comm) override {
    if constexpr (kVersion<Net> >= 11) return net_->listen(context_, dev, handle, comm);
    else return net_->listen(dev, handle, comm);
  }
  int Connect(int dev, void* handle, void** comm) override {
    nccl::DeviceHandle* device = nullptr;
    nccl::CommConfig config{nccl::kTrafficClassUndefined};
    if constexpr (kVersion<Net> >= 11) return net_->connect(context_, dev, handle, comm, &device);
    else if constexpr (kVersion<Net> == 10) return net_->connect(dev, &config, handle, comm, &device);
    else return net_->connect(dev, handle, comm, &device);
  }
  int Accept(void* listen, void** comm) override {
    nccl::DeviceHandle* device = nullptr;
    return net_->accept(listen, comm, &device);
  }
  int RegMr(void* comm, void* data, size_t size, void** mhandle) override {
    if constexpr (kVersion<Net> == 7) return net_->reg_mr(comm, data, static_cast<int>(size), nccl::kPtrHost, mhandle);
    else return net_->reg_mr(comm, data, size, nccl::kPtrHost, mhandle);
  }
  int DeregMr(void* comm, void* mhandle) override { return net_->dereg_mr(comm, mhandle); }
  int Isend(void* comm, const void* data, size_t size, int tag, void* mhandle, void** request) override {
    auto* bytes = const_cast<void*>(data);
    if constexpr (kVersion<Net> >= 10) return net_->isend(comm, bytes, size, tag, mhandle, nullptr, request);
    else if constexpr (kVersion<Net> == 9) return net_->isend(comm, bytes, size, tag, mhandle, request);
    else return net_->isend(comm, bytes, static_cast<int>(size), tag, mhandle, request);
  }
  int Irecv(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request) override {
    if constexpr (kVersion<Net> <= 8) {
      int narrow[kMostGrouped];
      for (int i = 0; i < n; ++i) narrow[i] = static_cast<int>(sizes[i]);
      return net_->irecv(comm, n, data, narrow, tags, mhandles, request);
    } else {
      if constexpr (kVersion<Net> >= 10) return net_->irecv(comm, n, data, sizes, tags, mhandles, nullptr, request);
      else return net_->irecv(comm, n, data, sizes, tags, mhandles, request);
    }
  }
  int Send(void* comm, const void* data, size_t size, void** request) override {
    return Isend(comm, data, size, 0, nullptr, request);
  }
  int Receive(void* comm, void* data, size_t size, void** request) override {
    int tag = 0;
    void* mhandle = nullptr;
    return Irecv(comm, 1, &data, &size, &tag, &mhandle, request);
  }
  int Test(void* request, int* done, int* size) override { return net_->test(request, done, size); }
  int CloseSend(void* comm) override { return net_->close_send(comm); }
  int CloseRecv(void* comm) override { return net_->close_recv(comm); }
  int CloseListen(void* comm) override { return net_->close_listen(comm); }

 private:
  const Net* net_;
  void* context_ = nullptr;
};

bool Mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with("libnccl-net-weft.so")) return true;
  }
  return false;
}

}  // namespace

Plugin::Plugin() {
  LogCapture::Clear();
  library_ = dlopen(WEFT_NETPLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library_, nullptr) << dlerror();
}

const void* Plugin::Symbol(const std::string& name) {
  const void* found = library_ ? dlsym(library_, name.c_str()) : nullptr;
  EXPECT_NE(found, nullptr) << name;
  return found;
}

Plugin::Plugin(int version) : Plugin() {
  if (!library_) return;
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
  const void* found = Symbol(symbol);
  if (version == 7) table_ = std::make_unique<TableOf<nccl::NetV7>>(static_cast<const nccl::NetV7*>(found));
  if (version == 8) table_ = std::make_unique<TableOf<nccl::NetV8>>(static_cast<const nccl::NetV8*>(found));
  if (version == 9) table_ = std::make_unique<TableOf<nccl::NetV9>>(static_cast<const nccl::NetV9*>(found));
  if (version == 10) table_ = std::make_unique<TableOf<nccl::NetV10>>(static_cast<const nccl::NetV10*>(found));
  if (version == 11) table_ = std::make_unique<TableOf<nccl::NetV11>>(static_cast<const nccl::NetV11*>(found));
  if (version == 12) table_ = std::make_unique<TableOf<nccl::NetV12>>(static_cast<const nccl::NetV12*>(found));
}

Plugin::~Plugin() { Unload(); }

bool Plugin::Unload() {
  table_.reset();
  if (library_) dlclose(std::exchange(library_, nullptr));
  return !Mapped();
}

bool Plugin::Logged(const std::string& piece) {
  for (const std::string& line : LogCapture::Lines()) {
    if (line.find(piece) != std::string::npos) return true;
  }
  return false;
}

bool Eventually(const std::function<bool()>& step) {
  const uint64_t deadline = NowNs() + 30'000'000'000;
  while (!step()) {
    if (NowNs() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

bool Establish(Table& table, void* handle, void* listen, Pair* pair) {
  int result = nccl::kSuccess;
  const bool ended = Eventually([&] {
    if (!pair->send) result = table.Connect(0, handle, &pair->send);
    if (result == nccl::kSuccess && !pair->recv) result = table.Accept(listen, &pair->recv);
    return result != nccl::kSuccess || (pair->send && pair->recv);
  });
  EXPECT_EQ(result, nccl::kSuccess);
  return ended && result == nccl::kSuccess;
}

Pair MakePair(Table& table) {
  Pair pair;
  char handle[nccl::kHandleMaxBytes];
  EXPECT_EQ(table.Listen(0, handle, &pair.listen), nccl::kSuccess);
  EXPECT_TRUE(Establish(table, handle, pair.listen, &pair));
  return pair;
}

void ClosePair(Table& table, const Pair& pair) {
  EXPECT_EQ(table.CloseSend(pair.send), nccl::kSuccess);  // nullptr is accepted
  EXPECT_EQ(table.CloseRecv(pair.recv), nccl::kSuccess);
  EXPECT_EQ(table.CloseListen(pair.listen), nccl::kSuccess);
}

namespace {
int Finish(Table& table, void* request, int* size) {
  int result = nccl::kSuccess;
  const bool ended = Eventually([&] {
    int done = 0;
    result = table.Test(request, &done, size);
    return done || result != nccl::kSuccess;
  });
  EXPECT_TRUE(ended) << "no completion within 30 s";
  return result;
}
}  // namespace

int SendAll(Table& table, void* comm, const void* data, size_t size) {
  void* request = nullptr;
  int result = nccl::kSuccess;
  Eventually([&] {
    result = table.Send(comm, data, size, &request);
    return request || result != nccl::kSuccess;
  });
  return result == nccl::kSuccess ? Finish(table, request, nullptr) : result;
}

int ReceiveAll(Table& table, void* comm, void* data, size_t room, int* size) {
  void* request = nullptr;
  int result = nccl::kSuccess;
  Eventually([&] {
    result = table.Receive(comm, data, room, &request);
    return request || result != nccl::kSuccess;
  });
  return result == nccl::kSuccess ? Finish(table, request, size) : result;
}

namespace {
uint64_t WordAt(uint64_t message, uint64_t index) { return (message + 1) * 0x9E3779B97F4A7C15u + index * 0x100000001B3u; }
}  // namespace

void Fill(std::vector<char>* data, size_t size, uint64_t message) {
  data->resize(size + sizeof(uint64_t));
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t word = WordAt(message, i);
    std::memcpy(data->data() + i, &word, sizeof word);
  }
}

bool Check(const std::vector<char>& data, size_t size, uint64_t message) {
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t word = WordAt(message, i);
    if (std::memcmp(data.data() + i, &word, std::min(sizeof word, size - i)) != 0) return false;
  }
  return true;
}

}  // namespace weft::net::testing
