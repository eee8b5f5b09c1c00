// A receiver whose lanes the test feeds.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "netplugin/tcp/recv_comm.h"
#include "netplugin/tcp/wire.h"
#include "netplugin/testing/wire_fixture.h"

namespace weft::net::testing {

/// A receiver of which the test holds the sending ends of the lanes.
class Lanes {
 public:
  Lanes(const Services& services, std::shared_ptr<Listener> listener) {
    RecvComm::Setup setup;
    setup.identity.peer = setup.identity.local = Loopback();
    setup.identity.flow = 5;
    setup.lane0 = NewLane(0);
    setup.listener = std::move(listener);
    comm_ = std::make_unique<RecvComm>(services, std::move(setup));
  }

  RecvComm& comm() { return *comm_; }
  void AddLane(uint32_t index) {
    Fd end = NewLane(index);
    ASSERT_TRUE(comm_->AttachLate(index, &end, 0));
    LaneAck ack{};  // unread, it would make a reset of what closes later
    ASSERT_EQ(read(ends_[index].get(), &ack, sizeof ack), static_cast<ssize_t>(sizeof ack));
    EXPECT_EQ(ack.accepted, 1u);
  }
  void Send(uint32_t lane, const void* data, size_t bytes) {
    ASSERT_EQ(write(ends_[lane].get(), data, bytes), static_cast<ssize_t>(bytes));
  }
  void Send(uint32_t lane, const ChunkHeader& header, char byte) {
    Send(lane, &header, sizeof header);
    const std::vector<char> payload(header.length, byte);
    Send(lane, payload.data(), payload.size());
  }
  void Close(uint32_t lane) { ends_[lane].Reset(); }
  /// Sends the beginning of a connection that takes over `lane` at `position`, once the receiver has accepted it; what is sent from then
  /// on goes over that. False if it did not.
  bool Move(uint32_t lane, uint64_t position) {
    Fd old = std::move(ends_[lane]);
    Fd end = NewLane(lane);
    LaneAck ack{};
    if (!comm_->Offer(lane, &end) || read(ends_[lane].get(), &ack, sizeof ack) != sizeof ack || ack.accepted != 1) return false;
    const LaneResume resume{kResumeMagic, 0, position};
    moved_.push_back(std::move(old));  // it stays open: its path is silent, nothing tells the receiver
    return write(ends_[lane].get(), &resume, sizeof resume) == sizeof resume;
  }
  Fd& old_end() { return moved_.back(); }

 private:
  Fd NewLane(uint32_t index) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    ends_[index].Reset(ends[1]);
    return Fd(ends[0]);
  }

  std::array<Fd, abi::kMaxLanes> ends_;
  std::vector<Fd> moved_;
  std::unique_ptr<RecvComm> comm_;
};

inline ChunkHeader Chunk(uint32_t sequence, uint32_t length, uint64_t offset, uint64_t total) {
  return {kChunkMagic, 0, 0, 0, sequence, length, offset, total, 0, 0};
}

}  // namespace weft::net::testing
