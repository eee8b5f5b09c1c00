#include "netplugin/rdma/verbs.h"

#include <dlfcn.h>

namespace weft::net::rdma {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

/// False with the missing name in `why`.
bool FindAll(void* library, Verbs* verbs, std::string* why) {
  const auto need = [&](const char* name, auto* function) {
    if (Find(library, name, function)) return true;
    *why = std::string("libibverbs.so.1 has no ") + name;
    return false;
  };
  return need("ibv_get_device_list", &verbs->get_device_list) &&
         need("ibv_free_device_list", &verbs->free_device_list) &&
         need("ibv_get_device_name", &verbs->get_device_name) && need("ibv_open_device", &verbs->open_device) &&
         need("ibv_close_device", &verbs->close_device) && need("ibv_query_device", &verbs->query_device) &&
         need("ibv_query_port", &verbs->query_port) && need("ibv_alloc_pd", &verbs->alloc_pd) &&
         need("ibv_dealloc_pd", &verbs->dealloc_pd) &&
         need("ibv_reg_mr", &verbs->reg_mr) && need("ibv_dereg_mr", &verbs->dereg_mr) &&
         need("ibv_create_cq", &verbs->create_cq) && need("ibv_destroy_cq", &verbs->destroy_cq) &&
         need("ibv_create_qp", &verbs->create_qp) && need("ibv_destroy_qp", &verbs->destroy_qp) &&
         need("ibv_modify_qp", &verbs->modify_qp) && need("ibv_get_async_event", &verbs->get_async_event) &&
         need("ibv_ack_async_event", &verbs->ack_async_event) && need("ibv_wc_status_str", &verbs->wc_status_str) &&
         need("ibv_event_type_str", &verbs->event_type_str);
}

}  // namespace

const Verbs* LoadVerbs(std::string* why) {
  // Never closed: providers leave threads and handlers of their own behind.
  static Verbs verbs;
  static bool loaded = false;
  if (loaded) return &verbs;
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* error = dlerror();
    *why = error ? error : "libibverbs.so.1 cannot be opened";
    return nullptr;
  }
  if (!FindAll(library, &verbs, why)) return nullptr;
  Find(library, "ibv_fork_init", &verbs.fork_init);
  Find(library, "ibv_reg_mr_iova2", &verbs.reg_mr_iova2);
  Find(library, "ibv_reg_dmabuf_mr", &verbs.reg_dmabuf_mr);
  if (void* mlx5 = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL)) {
    Find(mlx5, "mlx5dv_modify_qp_udp_sport", &verbs.mlx5_modify_udp_sport);
  }
  // Registered pages must not be copied away from the parent when the program forks. Kernels that do this by
  // themselves make it free.
  if (verbs.fork_init) verbs.fork_init();
  loaded = true;
  return &verbs;
}

}  // namespace weft::net::rdma
