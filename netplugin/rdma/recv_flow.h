// The receiving end of an RDMA flow: announces each posted buffer to the sender by a credit, and counts the parts that
// the sender's immediate values say are there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "netplugin/rdma/flow.h"
#include "netplugin/rdma/flusher.h"

namespace weft::net::rdma {

class RecvFlow final : public Flow {
 public:
  /// Requires: the sender has said kReady, so that it can take credits.
  RecvFlow(const Services& services, Setup setup);
  ~RecvFlow() override;

  int Irecv(void* data, uint64_t size, int tag, void* mhandle, Request** request) override {
    return IrecvGroup(1, &data, &size, &tag, &mhandle, request);
  }
  int IrecvGroup(int n, void** data, const uint64_t* sizes, const int* tags, void** mhandles,
                 Request** request) override;
  /// Only for memory of a GPU.
  int Iflush(void* data, uint64_t size, void* mhandle, Request** request) override;
  int Test(Request* request, int* done, int* size) override;

 private:
  static constexpr uint64_t kCreditNs = 1'500'000'000;  // credits that nobody acknowledges for so long, while nothing comes, are taken for lost

  /// A buffer; those of a group lie side by side, and the first is the group's request.
  struct RecvRequest : Request {
    void* data = nullptr;
    MemoryRegion* region = nullptr;
    int tag = 0;
    uint8_t count = 1;     // of the group
    uint64_t room = 0;     // of the buffer
    uint64_t total = 0;    // bytes that arrived
    uint8_t parts = 0;     // 0: none has arrived yet
    uint8_t arrived = 0;   // bit i: part i
    bool used = false;     // ever
    bool announced = false;
    std::array<uint64_t, kMaxParts> came_ns{};  // MeterNs(); 0: not known
    uint64_t late_ns = 0;  // they may have come so much earlier
  };

  struct FlushRequest : Request {
    uint64_t address = 0;
    MemoryRegion* region = nullptr;
    bool started = false;
  };

  // NCCL's thread.
  int TestFlush(Request* request, int* done, int* size);
  void StartFlushes();
  bool FlusherFollows();

  void OnMessage(const ControlMessage& message) override;
  void Work(const Tick& tick) override;
  void OnCompletion(const ibv_wc& completion) override;
  void Unanswered(uint32_t lane) override { credits_lost_ = credits_lost_ || lane == kControlLane; }

  bool HasRoom(int n) const;
  void Post(void* data, uint64_t size, int tag, MemoryRegion* region, uint32_t key);
  bool Complete(const RecvRequest& first) const;
  void Release(RecvRequest& first, int* sizes);
  void Announce();
  void PartArrived(uint32_t lane, const ibv_wc& completion);
  Arrivals NextTold();
  std::optional<uint64_t> Length(const RecvRequest& request, const Immediate& immediate, const ibv_wc& completion);
  void BeginAnew(const ControlMessage& message);
  void OnStopped() override;
  void OnMoved(PortChoice::Reason reason) override;
  bool ReachesAllFrom(const std::shared_ptr<Port>& port) override;
  void WantAnotherPort() override;
  void AskToMove();
  void WatchCredits(uint64_t now);
  void OnConnected(const ControlMessage& message) override;

  std::array<RecvRequest, kSlots> requests_;
  // NCCL's thread alone.
  std::unique_ptr<Flusher> flusher_;  // where the port can reach a GPU's memory
  const Port* flusher_port_ = nullptr;
  uint64_t follow_not_before_ = 0, start_not_before_ = 0;
  std::array<FlushRequest, Flusher::kDepth> flushes_;
  uint32_t next_ = 0;      // sequence of the next message
  uint32_t told_ = 0;      // first message whose arrival the sender has not been told of
  uint32_t pending_ = 0;   // posted and not complete
  uint64_t credited_ns_ = 0;  // when a credit was last acknowledged, or none was in flight
  uint64_t acknowledged_ = 0, seen_acknowledged_ = 0;  // credits
  bool credits_lost_ = false; // the path of credits is to be another one
  uint32_t given_up_ = 0;     // times since a credit was acknowledged soon
  uint32_t unannounced_ = 0;
  std::optional<uint32_t> newest_credit_;  // written since the last connection was made
  ControlMessage reset_{};  // the sender's word that is being followed
  bool asked_ = false;     // kPleaseReset was said for this failure
  uint32_t relocations_ = 0;  // of this end since the sender named its port, for it could not be reached
  bool moving_ = false;    // nothing failed: there is a better port
  std::atomic<const Port*> arrives_at_;  // release: the background thread's word to NCCL's; one of ports_
};

}  // namespace weft::net::rdma
