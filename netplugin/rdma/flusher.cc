#include "netplugin/rdma/flusher.h"

#include <cerrno>
#include <cstring>

#include "netplugin/tcp/socket.h"

namespace weft::net::rdma {

std::unique_ptr<Flusher> Flusher::Make(std::shared_ptr<Port> port, std::string* why) {
  std::unique_ptr<Flusher> made(new Flusher(std::move(port)));
  const Verbs& verbs = made->port_->verbs();
  if (made->landing_.Allocate(1)) {
    made->mr_ = verbs.reg_mr(made->port_->pd(), made->landing_.data(), made->landing_.size(), IBV_ACCESS_LOCAL_WRITE);
  }
  // Twice: completions of a connection that failed may lie there still when it is set up anew.
  made->cq_ = verbs.create_cq(made->port_->context(), 2 * kDepth, nullptr, nullptr, 0);
  if (made->mr_ && made->cq_) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = made->cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {kDepth, 1, 1, 1, 0};
    made->pair_ = verbs.create_qp(made->port_->pd(), &attributes);
  }
  if (!made->pair_) {
    *why = std::string("queue pair to flush with: ") + std::strerror(errno);
    return nullptr;
  }
  return made->Connect(why) ? std::move(made) : nullptr;
}

Flusher::~Flusher() {
  const Verbs& verbs = port_->verbs();
  if (pair_) verbs.destroy_qp(pair_);
  if (cq_) verbs.destroy_cq(cq_);
  if (mr_) verbs.dereg_mr(mr_);
}

bool Flusher::Connect(std::string* why) {
  const auto modify = [&](ibv_qp_attr attributes, int mask) {
    const int error = port_->verbs().modify_qp(pair_, &attributes, mask | IBV_QP_STATE);
    if (error != 0) *why = std::string("connect the queue pair to flush with: ") + std::strerror(error);
    return error == 0;
  };
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = port_->number();
  init.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = static_cast<ibv_mtu>(port_->info().mtu);
  ready.dest_qp_num = pair_->qp_num;
  ready.max_dest_rd_atomic = 1;
  ready.ah_attr.port_num = port_->number();
  ready.ah_attr.dlid = port_->info().lid;
  if (port_->ethernet()) {
    ready.ah_attr.is_global = 1;
    std::memcpy(ready.ah_attr.grh.dgid.raw, port_->info().gid, sizeof port_->info().gid);
    ready.ah_attr.grh.sgid_index = static_cast<uint8_t>(port_->gid_index());
    ready.ah_attr.grh.hop_limit = 255;
  }
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = static_cast<uint8_t>(port_->environment().timeout);
  send.retry_cnt = static_cast<uint8_t>(port_->environment().retry_count);
  send.rnr_retry = 7;
  send.max_rd_atomic = 1;
  return modify(init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) &&
         modify(ready, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                           IBV_QP_MIN_RNR_TIMER) &&
         modify(send, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void Flusher::Start(uint64_t address, uint32_t key, uint32_t slot) {
  reads_[slot] = {address, key, true};
  if (!broken_ && !Post(slot)) Broke();
}

bool Flusher::Post(uint32_t slot) {
  ibv_sge piece{};
  piece.addr = reinterpret_cast<uint64_t>(landing_.data());
  piece.length = 1;
  piece.lkey = mr_->lkey;
  ibv_send_wr request{};
  request.wr_id = generation_ << 32 | slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reads_[slot].address;
  request.wr.rdma.rkey = reads_[slot].key;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(pair_, &request, &refused) == 0;
}

void Flusher::Broke() {
  broken_ = true;
  if (broken_since_ == 0) broken_since_ = NowNs();
}

bool Flusher::Repair() {
  const uint64_t now = NowNs();
  if (now > broken_since_ + static_cast<uint64_t>(port_->environment().recovery_s) * 1'000'000'000u) return false;
  if (now < next_repair_ || port_->down()) return true;
  next_repair_ = now + kRepairEveryNs;
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  std::string why;
  ++generation_;
  if (port_->verbs().modify_qp(pair_, &reset, IBV_QP_STATE) != 0 || !Connect(&why)) return true;
  bool posted = false;
  for (uint32_t slot = 0; slot < kDepth; ++slot) {
    if (!reads_[slot].under_way) continue;
    if (!Post(slot)) return true;
    posted = true;
  }
  broken_ = false;
  if (!posted) broken_since_ = 0;  // nothing that could show it
  return true;
}

}  // namespace weft::net::rdma
