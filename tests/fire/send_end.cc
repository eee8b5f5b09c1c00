#include <algorithm>
#include <cstring>

#include "tests/fire/ends.h"

namespace weft::net::fire {

bool SendEnd::Step(uint64_t now) {
  if (finished_) return false;
  if (state_ == State::kWaiting) {
    const uint32_t offered = slot_.offered.load(std::memory_order_acquire);
    if (offered == kNoMore) finished_ = true;
    if (offered != generation_) return finished_;
    std::memcpy(handle_, slot_.handle, sizeof handle_);
    life_ = MakeLife(settings_.seed, index_, generation_, settings_.mean_life);
    state_ = State::kConnecting;
  }
  if (state_ == State::kConnecting) return Connect(now);
  if (Dawdles(now)) return false;
  bool moved = false;
  for (int i = 0; i < 8 && state_ == State::kRunning && Post(); ++i) moved = true;
  if (state_ == State::kRunning) moved = Test() || moved;
  if (state_ != State::kRunning) return true;
  const bool sudden = life_.end == End::kSenderCloses && posted_ >= life_.end_at;
  if (sudden || (!more_ && in_flight_.empty())) Leave();
  return moved;
}

bool SendEnd::Connect(uint64_t now) {
  const int code = table_.Connect(0, handle_, &comm_);
  if (code != nccl::kSuccess) {
    if (CableWasDown(now) && code == nccl::kRemoteError) {
      std::memcpy(handle_, slot_.handle, sizeof handle_);  // the same listener again
      return false;
    }
    if (!ErrorIsDue(code)) Failed("connect: code " + std::to_string(code));
    Leave();
    return true;
  }
  if (!comm_) return false;
  if (table_.RegMr(comm_, ring_.data(), ring_.size(), &memory_) != nccl::kSuccess) Failed("regMr");
  traffic_.emplace(life_, settings_.most_grouped);
  more_ = traffic_->Next(&group_);
  in_group_ = 0;
  group_number_ = posted_ = dropped_groups_ = 0;
  state_ = State::kRunning;
  return true;
}

bool SendEnd::Post() {
  if (!more_) return false;
  const Message& message = group_.messages[group_.send_order[in_group_]];
  const size_t bytes = std::max<size_t>(message.size, 8);
  char* data = ring_.Take(bytes);
  if (!data) return false;
  FillMessage(data, life_.seed, message);
  void* request = nullptr;
  const int code = table_.Isend(comm_, data, message.size, message.tag, memory_, &request);
  if (code != nccl::kSuccess || !request) {
    ring_.TakeBack(data);
    if (code == nccl::kSuccess) return false;
    if (!ErrorIsDue(code)) Failed("isend: code " + std::to_string(code));
    Leave();
    return false;
  }
  in_flight_.push_back({request, data, bytes, group_number_, false});
  ++posted_;
  if (++in_group_ == group_.count) {
    in_group_ = 0;
    ++group_number_;
    more_ = traffic_->Next(&group_);
  }
  return true;
}

/// The oldest, and now and then any other.
bool SendEnd::Test() {
  if (in_flight_.empty()) return false;
  if (random_.OneIn(16)) TestOne(in_flight_[random_.Below(in_flight_.size())]);
  bool moved = false;
  while (state_ == State::kRunning && !in_flight_.empty()) {
    if (!in_flight_.front().done && !TestOne(in_flight_.front())) break;
    DropOldest();
    moved = true;
  }
  return moved;
}

bool SendEnd::TestOne(InFlight& flight) {
  if (flight.done) return true;
  int done = 0, size = -1;
  const int code = table_.Test(flight.request, &done, &size);
  if (code != nccl::kSuccess) {
    if (!ErrorIsDue(code)) Failed("test: code " + std::to_string(code));
    Leave();
    return false;
  }
  flight.done = done != 0;
  return flight.done;
}

void SendEnd::DropOldest() {
  const InFlight& oldest = in_flight_.front();
  ring_.GiveBack(oldest.data, oldest.bytes);
  // A group counts when its last message is done.
  const bool last = in_flight_.size() > 1 ? in_flight_[1].group != oldest.group : group_number_ != oldest.group;
  if (last) ++dropped_groups_;
  in_flight_.pop_front();
}

void SendEnd::Leave() {
  if (comm_ && memory_) table_.DeregMr(comm_, memory_);
  if (table_.CloseSend(comm_) != nccl::kSuccess) Failed("closeSend");
  comm_ = memory_ = nullptr;
  in_flight_.clear();
  ring_.Clear();
  more_ = false;
  slot_.done_groups.store(dropped_groups_, std::memory_order_relaxed);
  slot_.sender_left.store(generation_++, std::memory_order_release);
  state_ = State::kWaiting;
}

std::string SendEnd::Describe() const {
  return "connection " + std::to_string(index_) + " life " + std::to_string(generation_) + " sender, state " +
         std::to_string(static_cast<int>(state_)) + ", " + std::to_string(posted_) + " of " +
         std::to_string(life_.messages) + " messages posted, " + std::to_string(in_flight_.size()) + " in flight, end " +
         std::to_string(static_cast<int>(life_.end)) + " at " + std::to_string(life_.end_at);
}

}  // namespace weft::net::fire
