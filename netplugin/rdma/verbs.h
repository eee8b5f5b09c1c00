// libibverbs as far as the plugin uses it, found at run time: the plugin loads, and serves TCP, where it is not
// installed. Types come from rdma-core's header; of its functions only those are called directly that the header
// defines in line through a context's own table (ibv_post_send, ibv_post_recv, ibv_poll_cq).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace weft::net::rdma {

/// The library's functions under their own names without "ibv_". Optional ones are nullptr in an old library.
struct Verbs {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_wc_status_str) wc_status_str = nullptr;
  decltype(&::ibv_event_type_str) event_type_str = nullptr;

  decltype(&::ibv_fork_init) fork_init = nullptr;            ///< optional
  decltype(&::ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;      ///< optional: takes IBV_ACCESS_RELAXED_ORDERING
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;    ///< optional: memory of a GPU by its dma-buf
  /// Optional, from libmlx5: moves a live queue pair to another UDP source port.
  int (*mlx5_modify_udp_sport)(ibv_qp* qp, uint16_t port) = nullptr;
};

/// The library of this process, loaded at the first call and kept. nullptr where it cannot be used; `why` then says
/// what was missing. Threads: one at a time.
const Verbs* LoadVerbs(std::string* why);

}  // namespace weft::net::rdma
