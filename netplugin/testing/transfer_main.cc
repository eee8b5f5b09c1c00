// weft-netplugin-transfer LIBRARY MESSAGES BYTES: sends so many messages to itself over loopback through the library's
// newest net table, one thread, each message received in one go. What the overhead test counts instructions of.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "netplugin/abi/nccl_net.h"

namespace {

using weft::nccl::kSuccess;
using weft::nccl::NetV12;

bool Transfer(const NetV12& net, void* send, void* receive, std::vector<char>* from, std::vector<char>* to) {
  void *sending = nullptr, *receiving = nullptr;
  if (net.isend(send, from->data(), from->size(), 0, nullptr, nullptr, &sending) != kSuccess || !sending) return false;
  void* into = to->data();
  size_t room = to->size();
  int tag = 0;
  void* mhandle = nullptr;
  if (net.irecv(receive, 1, &into, &room, &tag, &mhandle, nullptr, &receiving) != kSuccess || !receiving) return false;
  for (void* request : {receiving, sending}) {
    int done = 0, size = 0;
    while (!done) {
      if (net.test(request, &done, &size) != kSuccess) return false;
    }
  }
  return true;
}

int Run(const NetV12& net, long messages, size_t bytes) {
  void *context = nullptr, *listen = nullptr, *send = nullptr, *receive = nullptr;
  char handle[weft::nccl::kHandleMaxBytes];
  weft::nccl::CommConfig config{weft::nccl::kTrafficClassUndefined};
  if (net.init(&context, 1, &config, nullptr, nullptr) != kSuccess) return 1;
  if (net.listen(context, 0, handle, &listen) != kSuccess) return 1;
  while (!send || !receive) {
    weft::nccl::DeviceHandle* device = nullptr;
    if (!send && net.connect(context, 0, handle, &send, &device) != kSuccess) return 1;
    if (!receive && net.accept(listen, &receive, &device) != kSuccess) return 1;
  }
  std::vector<char> from(bytes, 'x'), to(bytes);
  for (long i = 0; i < messages; ++i) {
    if (!Transfer(net, send, receive, &from, &to)) return 1;
  }
  net.close_send(send);
  net.close_recv(receive);
  net.close_listen(listen);
  net.finalize(context);
  return to == from ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s LIBRARY MESSAGES BYTES\n", argv[0]);
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  const auto* net = library ? static_cast<const NetV12*>(dlsym(library, "ncclNetPlugin_v12")) : nullptr;
  if (!net) {
    std::fprintf(stderr, "load \"%s\": %s\n", argv[1], dlerror());
    return 1;
  }
  return Run(*net, std::atol(argv[2]), static_cast<size_t>(std::atol(argv[3])));
}
