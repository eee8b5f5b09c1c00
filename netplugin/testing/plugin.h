// Drives the built library as NCCL does: dlopen, one exported table, each call through that version's own signature.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "netplugin/abi/nccl_net.h"
#include "netplugin/testing/log_capture.h"

namespace weft::net::testing {

inline constexpr int kMostGrouped = 8;

/// One exported table behind common signatures. Return values are NCCL codes.
class Table {
 public:
  virtual ~Table() = default;
  virtual std::string Name() = 0;
  virtual int Init(nccl::Logger logger) = 0;
  virtual int Finalize() = 0;  ///< v11 and v12; nothing before
  virtual int Devices(int* count) = 0;
  virtual int Properties(int dev, std::string* name, int* ptr_support, int* max_recvs) = 0;
  virtual int Listen(int dev, void* handle, void** comm) = 0;
  virtual int Connect(int dev, void* handle, void** comm) = 0;
  virtual int Accept(void* listen, void** comm) = 0;
  virtual int RegMr(void* comm, void* data, size_t size, void** mhandle) = 0;
  virtual int Send(void* comm, const void* data, size_t size, void** request) = 0;
  virtual int Receive(void* comm, void* data, size_t size, void** request) = 0;
  virtual int DeregMr(void* comm, void* mhandle) = 0;
  /// isend and irecv with all that NCCL passes; `n` up to kMostGrouped.
  virtual int Isend(void* comm, const void* data, size_t size, int tag, void* mhandle, void** request) = 0;
  virtual int Irecv(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request) = 0;
  virtual int Test(void* request, int* done, int* size) = 0;
  virtual int CloseSend(void* comm) = 0;
  virtual int CloseRecv(void* comm) = 0;
  virtual int CloseListen(void* comm) = 0;
};

/// The library, loaded afresh: its environment is read again. Unloads at the end and tells whether that worked.
class Plugin {
 public:
  /// Without a net table.
  Plugin();
  /// Version 7 to 12 of the table.
  explicit Plugin(int version);
  ~Plugin();

  Table& operator*() { return *table_; }
  Table* operator->() { return table_.get(); }

  /// An exported struct of that name; a missing one is a failure of the test.
  const void* Symbol(const std::string& name);
  template <typename Face>
  const Face& Get(const std::string& name) {
    return *static_cast<const Face*>(Symbol(name));
  }

  /// dlclose now; true if the library is not mapped any more.
  bool Unload();

  /// Whether LogCapture has a line with `piece` since the newest Plugin was made.
  static bool Logged(const std::string& piece);

 private:
  void* library_ = nullptr;
  std::unique_ptr<Table> table_;
};

/// Connected ends of one flow on device 0.
struct Pair {
  void* listen = nullptr;
  void* send = nullptr;
  void* recv = nullptr;
};
Pair MakePair(Table& table);
/// Connects and accepts in turns, as one thread may.
bool Establish(Table& table, void* handle, void* listen, Pair* pair);
void ClosePair(Table& table, const Pair& pair);

/// Repeats `step` until it returns true; false after 30 s. Yields in between.
bool Eventually(const std::function<bool()>& step);

/// Posts, then tests until done. Returns the first code that is not success. `*size`: what test() said.
int SendAll(Table& table, void* comm, const void* data, size_t size);
int ReceiveAll(Table& table, void* comm, void* data, size_t room, int* size);

/// Bytes that depend on message and position.
void Fill(std::vector<char>* data, size_t size, uint64_t message);
bool Check(const std::vector<char>& data, size_t size, uint64_t message);

}  // namespace weft::net::testing
