// Memory that a device writes to by itself: whole pages that hold nothing else and that a forked child does not get.
// libibverbs keeps registered pages from children (ibv_fork_init); whatever else lay on them would be gone there too.
#pragma once

#include <cstddef>

namespace weft::net::rdma {

class OwnPages {
 public:
  OwnPages() = default;
  ~OwnPages();
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;

  /// Maps zeroed pages for `bytes`. False (errno set) where there is no memory. Requires: not yet allocated.
  bool Allocate(size_t bytes);
  void* data() const { return data_; }
  size_t size() const { return size_; }  ///< whole pages

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weft::net::rdma
