#include "netplugin/rdma/testing/fake_calls.h"

#include <algorithm>
#include <cerrno>

#include "netplugin/rdma/path.h"

namespace weft::net::rdma::testing {

Verbs Calls::Table() {
  return {.get_device_name = &Name,
          .open_device = &Open,
          .close_device = &Close,
          .query_device = &QueryDevice,
          .query_port = &QueryPort,
          .alloc_pd = &AllocatePd,
          .dealloc_pd = &FreePd,
          .reg_mr = &Register,
          .dereg_mr = &Deregister,
          .create_cq = &CreateQueue,
          .destroy_cq = &DestroyQueue,
          .create_qp = &CreatePair,
          .destroy_qp = &DestroyPair,
          .modify_qp = &Modify,
          .get_async_event = &NextEvent,
          .ack_async_event = &Acknowledge,
          .wc_status_str = &StatusText,
          .event_type_str = &EventText,
          .reg_dmabuf_mr = &RegisterDmaBuf};
}

int Calls::Modify(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  auto* pair = static_cast<F::Pair*>(qp);
  F& fabric = *pair->owner->fabric;
  const std::lock_guard lock(fabric.mutex_);
  if (mask & IBV_QP_AV) {
    if (!pair->owner->device_of->up) return ENETUNREACH;
    const int host = attributes->ah_attr.grh.dgid.raw[15];
    if (fabric.unroutable_.contains({pair->owner->device_of->index, host - 1})) return EHOSTUNREACH;
    pair->udp_port = PortOfFlowLabel(attributes->ah_attr.grh.flow_label);
    pair->host = static_cast<uint8_t>(host);
    pair->traffic_class = attributes->ah_attr.grh.traffic_class;
    fabric.counts_.class_by_port[pair->udp_port] = pair->traffic_class;
  }
  if (mask & IBV_QP_DEST_QPN) pair->destination = attributes->dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) pair->receive_number = attributes->rq_psn;
  if (mask & IBV_QP_SQ_PSN) pair->send_number = attributes->sq_psn;
  const ibv_qp_state from = pair->state, to = attributes->qp_state;
  const bool legal = to == IBV_QPS_RESET || to == IBV_QPS_ERR || (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
                     (from == IBV_QPS_INIT && to == IBV_QPS_RTR) || (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
  if (!legal) return EINVAL;
  pair->state = to;
  if (to == IBV_QPS_ERR) fabric.Flush(*pair);
  if (to == IBV_QPS_RESET) {
    pair->forgotten = false;
    pair->sends.clear();
    pair->receives.clear();
    // Some providers take the pair's completions out of the queue, others leave them there.
    if (fabric.random_() % 2) {
      for (ibv_cq* cq : {pair->send_cq, pair->recv_cq}) {
        std::erase_if(static_cast<F::Queue*>(cq)->entries, [&](const ibv_wc& wc) { return wc.qp_num == pair->qp_num; });
      }
    }
  }
  return 0;
}

int Calls::PostSend(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** refused) {
  auto* pair = static_cast<F::Pair*>(qp);
  F& fabric = *pair->owner->fabric;
  const std::lock_guard lock(fabric.mutex_);
  *refused = request;
  if (pair->state != IBV_QPS_RTS && pair->state != IBV_QPS_ERR) return EINVAL;
  if (pair->sends.size() >= pair->send_room) return ENOMEM;
  F::Send send{*request, {}, {}};
  if (request->num_sge > 0) send.piece = *request->sg_list;
  if (request->send_flags & IBV_SEND_INLINE) {
    const auto* from = reinterpret_cast<const char*>(send.piece.addr);
    send.inlined.assign(from, from + send.piece.length);
  }
  pair->sends.push_back(std::move(send));
  if (pair->state == IBV_QPS_ERR) fabric.Flush(*pair);
  return 0;
}

int Calls::PostReceive(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** refused) {
  auto* pair = static_cast<F::Pair*>(qp);
  F& fabric = *pair->owner->fabric;
  const std::lock_guard lock(fabric.mutex_);
  *refused = request;
  if (pair->receives.size() >= pair->receive_room) return ENOMEM;
  pair->receives.push_back(request->wr_id);
  if (pair->state == IBV_QPS_ERR) fabric.Flush(*pair);
  return 0;
}

int Calls::Poll(ibv_cq* cq, int most, ibv_wc* completions) {
  auto* queue = static_cast<F::Queue*>(cq);
  F& fabric = *static_cast<F::Context*>(cq->context)->fabric;
  const std::lock_guard lock(fabric.mutex_);
  fabric.Pump();
  int count = 0;
  for (; count < most && !queue->entries.empty(); ++count) {
    completions[count] = queue->entries.front();
    queue->entries.pop_front();
  }
  return count;
}

}  // namespace weft::net::rdma::testing
