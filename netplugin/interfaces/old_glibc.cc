// The C++ runtime that the library brings (linked statically) was built on a newer glibc than the hosts of training jobs
// have, and asks it for two symbols that glibc has since 2.35 and 2.36 only: with them the plugin would not load there.
// Both are answered here with what every glibc has.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/random.h>

#include <cstdint>

/// For std::random_device, which the runtime contains and the plugin does not use.
extern "C" [[gnu::visibility("hidden")]] uint32_t arc4random() noexcept {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
  }
  return bits;
}

// What the unwinder asks: which loaded object has this address, and where its table of frames is. dl_iterate_phdr knows
// it too; it is slower, and used only while an exception is on its way.
#ifdef DLFO_STRUCT_HAS_EH_DBASE
#if DLFO_STRUCT_HAS_EH_DBASE
#error "this machine's unwinder wants more than the address of the frame header"
#endif

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* result;
};

/// Stops (1) at the object that has the address in a loaded segment.
int Visit(dl_phdr_info* info, size_t, void* data) {
  const auto& search = *static_cast<Search*>(data);
  const ElfW(Phdr)* frame = nullptr;
  uintptr_t start = UINTPTR_MAX, end = 0;
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_GNU_EH_FRAME) frame = &header;
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t from = info->dlpi_addr + header.p_vaddr, to = from + header.p_memsz;
    start = from < start ? from : start;
    end = to > end ? to : end;
    inside = inside || (search.address >= from && search.address < to);
  }
  if (!inside) return 0;
  search.result->dlfo_flags = 0;
  search.result->dlfo_map_start = reinterpret_cast<void*>(start);
  search.result->dlfo_map_end = reinterpret_cast<void*>(end);
  search.result->dlfo_link_map = nullptr;
  search.result->dlfo_eh_frame = frame ? reinterpret_cast<void*>(info->dlpi_addr + frame->p_vaddr) : nullptr;
  return frame ? 1 : -1;
}

}  // namespace

extern "C" [[gnu::visibility("hidden")]] int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(&Visit, &search) == 1 ? 0 : -1;
}
#endif
