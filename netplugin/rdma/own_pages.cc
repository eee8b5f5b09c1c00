#include "netplugin/rdma/own_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace weft::net::rdma {

OwnPages::~OwnPages() {
  if (data_) munmap(data_, size_);
}

bool OwnPages::Allocate(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_ = (bytes + page - 1) / page * page;
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  data_ = memory;
  return madvise(memory, size_, MADV_DONTFORK) == 0;
}

}  // namespace weft::net::rdma
