#include "netplugin/rdma/queue_pairs.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "netplugin/tcp/socket.h"

namespace weft::net::rdma {
namespace {

constexpr uint64_t kStopPatienceNs = 100'000'000;
constexpr uint8_t kHopLimit = 255;
constexpr uint8_t kReceiverNotReadyTimer = 12;  // 0.64 ms
constexpr uint8_t kRetryWhenNotReady = 7;       // for ever
constexpr uint32_t kInline = sizeof(Credit);

void Because(std::string* why, const char* what, int error) { *why = std::string(what) + ": " + std::strerror(error); }

}  // namespace

std::unique_ptr<QueuePairs> QueuePairs::Make(std::shared_ptr<Port> port, uint32_t lanes, bool receives,
                                             std::string* why) {
  std::unique_ptr<QueuePairs> made(new QueuePairs(std::move(port), lanes, receives));
  if (!made->MakeMemory(why) || !made->MakePairs(why)) return nullptr;
  return made;
}

QueuePairs::~QueuePairs() {
  const Verbs& verbs = port_->verbs();
  // Pairs first: nothing may write into the memory any more when it is freed.
  for (ibv_qp* pair : pairs_) {
    if (pair) verbs.destroy_qp(pair);
  }
  if (cq_) verbs.destroy_cq(cq_);
  if (memory_mr_) verbs.dereg_mr(memory_mr_);
}

bool QueuePairs::MakeMemory(std::string* why) {
  if (!pages_.Allocate(sizeof(FlowMemory))) {
    Because(why, "allocate memory", errno);
    return false;
  }
  memory_ = new (pages_.data()) FlowMemory{};
  memory_mr_ = port_->verbs().reg_mr(port_->pd(), pages_.data(), pages_.size(),
                                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (memory_mr_) return true;
  Because(why, "register memory", errno);
  return false;
}

bool QueuePairs::MakePairs(std::string* why) {
  const Verbs& verbs = port_->verbs();
  const uint32_t completions = lanes_ * (kDataDepth + (receives_ ? kReceives : 0)) + 2 * kSlots;
  cq_ = verbs.create_cq(port_->context(), static_cast<int>(completions), nullptr, nullptr, 0);
  if (!cq_) {
    Because(why, "create completion queue", errno);
    return false;
  }
  const bool made = ForEachLane([&](uint32_t lane) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {Depth(lane), receives_ && lane != kControlLane ? kReceives : 1, 1, 1, kInline};
    pairs_[lane] = verbs.create_qp(port_->pd(), &attributes);
    if (!pairs_[lane]) {  // a device that takes nothing in line
      attributes.cap.max_inline_data = 0;
      pairs_[lane] = verbs.create_qp(port_->pd(), &attributes);
    }
    if (!pairs_[lane]) {
      Because(why, "create queue pair", errno);
      return false;
    }
    longest_inline_ = lane == 0 ? attributes.cap.max_inline_data
                                : std::min(longest_inline_, attributes.cap.max_inline_data);
    return ToInit(pairs_[lane], why);
  });
  if (made) ChoosePacketNumbers();
  return made;
}

void QueuePairs::ChoosePacketNumbers() {
  // Not the same twice: a packet of the last generation that is still on its way must not fit.
  for (uint32_t& number : packet_numbers_) number = static_cast<uint32_t>(RandomBits() & 0xFFFFFF);
}

bool QueuePairs::ToInit(ibv_qp* qp, std::string* why) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port_->number();
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error = port_->verbs().modify_qp(qp, &attributes,
                                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return true;
  Because(why, "queue pair to INIT", error);
  return false;
}

void QueuePairs::Describe(ControlMessage* message) const {
  message->lanes = static_cast<uint8_t>(lanes_);
  message->generation = generation_;
  message->port = port_->info();
  message->port.traffic_class = data_class_;
  message->port.control_traffic_class = control_class_;
  message->memory_address = reinterpret_cast<uint64_t>(memory_);
  message->memory_key = memory_mr_->rkey;
  ForEachLane([&](uint32_t lane) {
    message->queue_pairs[lane] = {pairs_[lane]->qp_num, packet_numbers_[lane]};
    return true;
  });
}

void QueuePairs::AskAs(const QueuePairs& former) {
  udp_ports_ = former.udp_ports_;
  data_class_ = former.data_class_;
  control_class_ = former.control_class_;
}

uint16_t QueuePairs::UdpPort(uint32_t lane) const {
  switch (port_->rule()) {
    case PortRule::kNone:
      return 0;
    case PortRule::kPairNumber:
      return PortOfPairNumber(pairs_[lane]->qp_num);
    case PortRule::kFlowLabel:
      break;
  }
  return udp_ports_[lane];
}

bool QueuePairs::MoveUdpPort(uint32_t lane, uint16_t port) {
  const auto move = port_->verbs().mlx5_modify_udp_sport;
  if (!port_->mlx5() || !move || move(pairs_[lane], port) != 0) return false;
  udp_ports_[lane] = port;
  return true;
}

bool QueuePairs::Connect(const ControlMessage& peer, std::string* why) {
  if (peer.port.link != port_->info().link) {
    *why = "one end is InfiniBand, the other Ethernet";
    return false;
  }
  in_flight_.fill(0);
  receives_posted_.fill(0);
  return ForEachLane([&](uint32_t lane) {
    peer_numbers_[lane] = peer.queue_pairs[lane].number;
    if (!ToReady(lane, peer, why)) return false;
    for (uint32_t i = 0; receives_ && lane != kControlLane && i < kReceives; ++i) {
      if (!PostReceive(lane)) {
        Because(why, "post receive", errno);
        return false;
      }
    }
    return true;
  });
}

bool QueuePairs::ToReady(uint32_t lane, const ControlMessage& peer, std::string* why) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(peer.port.mtu, port_->info().mtu));
  attributes.dest_qp_num = peer.queue_pairs[lane].number;
  attributes.rq_psn = peer.queue_pairs[lane].packet_number;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  ibv_ah_attr& address = attributes.ah_attr;
  address.port_num = port_->number();
  address.sl = port_->info().service_level;  // never from the traffic class
  address.dlid = peer.port.lid;
  // Always with a global header on Ethernet; on InfiniBand when the subnets (upper half of the GID) differ.
  if (port_->ethernet() || std::memcmp(peer.port.gid, port_->info().gid, 8) != 0) {
    address.is_global = 1;
    std::memcpy(address.grh.dgid.raw, peer.port.gid, sizeof peer.port.gid);
    address.grh.sgid_index = static_cast<uint8_t>(port_->gid_index());
    address.grh.hop_limit = kHopLimit;
    address.grh.traffic_class = lane == kControlLane ? control_class_ : data_class_;
    if (udp_ports_[lane] != 0) address.grh.flow_label = FlowLabelOfPort(udp_ports_[lane]);
  }
  int error = port_->verbs().modify_qp(pairs_[lane], &attributes,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    Because(why, "queue pair to RTR", error);
    return false;
  }
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = static_cast<uint8_t>(port_->environment().timeout);
  send.retry_cnt = static_cast<uint8_t>(port_->environment().retry_count);
  send.rnr_retry = kRetryWhenNotReady;
  send.sq_psn = packet_numbers_[lane];
  send.max_rd_atomic = 1;
  error = port_->verbs().modify_qp(pairs_[lane], &send,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC);
  if (error == 0) return true;
  Because(why, "queue pair to RTS", error);
  return false;
}

void QueuePairs::BeginStop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ForEachLane([&](uint32_t lane) {
    port_->verbs().modify_qp(pairs_[lane], &attributes, IBV_QP_STATE);
    return true;
  });
  stop_deadline_ = NowNs() + kStopPatienceNs;
}

bool QueuePairs::Stopped() const {
  const bool open = !ForEachLane([&](uint32_t lane) { return in_flight_[lane] == 0 && receives_posted_[lane] == 0; });
  return !open || NowNs() > stop_deadline_;
}

bool QueuePairs::Restart(uint32_t generation, std::string* why) {
  generation_ = generation;
  ChoosePacketNumbers();
  return Rewind(why);
}

bool QueuePairs::Rewind(std::string* why) {
  return ForEachLane([&](uint32_t lane) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    const int error = port_->verbs().modify_qp(pairs_[lane], &attributes, IBV_QP_STATE);
    if (error != 0) {
      Because(why, "queue pair to RESET", error);
      return false;
    }
    return ToInit(pairs_[lane], why);
  });
}

int QueuePairs::BusyLane() const {
  int busy = -1;
  ForEachLane([&](uint32_t lane) {
    if (in_flight_[lane] > 0) busy = static_cast<int>(lane);
    return busy < 0;
  });
  return busy;
}

void QueuePairs::Finished(const ibv_wc& completion) {
  ++completed_;
  const WorkId id = WorkId::Unpack(completion.wr_id);
  if (id.generation != generation_ || id.lane > kControlLane) return;
  uint32_t& counter = id.receive ? receives_posted_[id.lane] : in_flight_[id.lane];
  if (counter > 0) --counter;
}

bool QueuePairs::Post(const Write& write) {
  ibv_sge piece{};
  piece.addr = reinterpret_cast<uint64_t>(write.from);
  piece.length = static_cast<uint32_t>(write.length);
  piece.lkey = write.local_key;
  ibv_send_wr request{};
  request.wr_id = write.id.Pack();
  request.sg_list = &piece;
  request.num_sge = write.length > 0 ? 1 : 0;
  request.opcode = write.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  if (write.inlined && write.length <= longest_inline_) request.send_flags |= IBV_SEND_INLINE;
  if (write.immediate) request.imm_data = htonl(Encode(*write.immediate));
  request.wr.rdma.remote_addr = write.to;
  request.wr.rdma.rkey = write.remote_key;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pairs_[write.id.lane], &request, &refused);
  if (error != 0) {
    errno = error;
    return false;
  }
  ++in_flight_[write.id.lane];
  return true;
}

bool QueuePairs::PostReceive(uint32_t lane) {
  ibv_recv_wr request{};
  request.wr_id = WorkId{.generation = generation_, .lane = static_cast<uint8_t>(lane), .receive = true}.Pack();
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(pairs_[lane], &request, &refused);
  if (error != 0) {
    errno = error;
    return false;
  }
  ++receives_posted_[lane];
  return true;
}

}  // namespace weft::net::rdma
