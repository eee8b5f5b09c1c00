#include <algorithm>
#include <cstring>

#include "netplugin/tcp/wire.h"
#include "tests/fire/ends.h"

namespace weft::net::fire {
namespace {

constexpr char kUntouched = 0x5A;
/// What a sender left on its way comes up after TCP's retries, which wait 0.2, 0.6, 1.4, 3.0 and 6.2 s from the first.
constexpr uint64_t kNobodyComesNs = 10'000'000'000;

}  // namespace

RecvEnd::~RecvEnd() {
  table_.CloseRecv(comm_);
  table_.CloseListen(listen_);
}

bool RecvEnd::Step(uint64_t now) {
  if (finished_) return false;
  switch (state_) {
    case State::kListening:
      return Offer();
    case State::kAccepting:
      return Accept(now);
    case State::kEnded:  // both have left: the next life
      if (slot_.sender_left.load(std::memory_order_acquire) != generation_) return false;
      CheckDelivered();
      ++generation_;
      state_ = State::kListening;
      return true;
    case State::kRunning:
      break;
  }
  if (Dawdles(now)) return false;
  bool moved = false;
  for (int i = 0; i < 8 && !broken_ && Post(); ++i) moved = true;
  if (state_ == State::kRunning) moved = Test() || moved;
  if (state_ != State::kRunning) return true;
  const bool sudden = life_.end == End::kReceiverCloses && received_ >= life_.end_at;
  const bool all = received_ == life_.messages;
  if (sudden && !all) report_.cut_short.fetch_add(1, std::memory_order_relaxed);
  if (sudden || all || (broken_ && in_flight_.empty())) Leave();
  return moved;
}

bool RecvEnd::Offer() {
  if (control_.stop.load(std::memory_order_relaxed)) {
    slot_.offered.store(kNoMore, std::memory_order_release);
    finished_ = true;
    return true;
  }
  life_ = MakeLife(settings_.seed, index_, generation_, settings_.mean_life);
  if (listen_ && random_.OneIn(2)) {
    table_.CloseListen(listen_);
    listen_ = nullptr;
  }
  if (!listen_) {
    if (table_.Listen(0, slot_.handle, &listen_) != nccl::kSuccess) {
      Failed("listen");
      return false;
    }
    Handle handle;
    std::memcpy(&handle, slot_.handle, sizeof handle);
    slot_.listen_port.store(handle.port, std::memory_order_relaxed);
  }
  give_up_ns_ = 0;
  state_ = State::kAccepting;
  slot_.offered.store(generation_, std::memory_order_release);
  return true;
}

bool RecvEnd::Accept(uint64_t now) {
  // Before accept: what the sender did before it left has then arrived, or never will.
  const bool left = slot_.sender_left.load(std::memory_order_acquire) == generation_;
  const int code = table_.Accept(listen_, &comm_);
  if (code != nccl::kSuccess) {
    Failed("accept: code " + std::to_string(code));
    return false;
  }
  if (!comm_) {
    if (!left) return false;
    if (give_up_ns_ == 0 || CableWasDown(now)) give_up_ns_ = now + kNobodyComesNs;
    if (now < give_up_ns_) return false;
    // The sender came and went before it was let in. What it left may come up later: not to this listener.
    if (!ErrorIsDue(nccl::kRemoteError)) Failed("the sender has left and was never accepted");
    table_.CloseListen(listen_);
    listen_ = nullptr;
    groups_received_ = received_ = UINT64_MAX;  // nothing can be said of them
    state_ = State::kEnded;
    return true;
  }
  if (table_.RegMr(comm_, ring_.data(), ring_.size(), &memory_) != nccl::kSuccess) Failed("regMr");
  traffic_.emplace(life_, settings_.most_grouped);
  next_.reset();
  broken_ = false;
  received_ = groups_received_ = 0;
  state_ = State::kRunning;
  return true;
}

/// True if the plugin took a receive.
bool RecvEnd::Post() {
  if (!next_) {
    InFlight flight;
    if (!traffic_->Next(&flight.group)) return false;
    next_ = flight;
  }
  if (!next_->piece) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < next_->group.count; ++i) {
      next_->rooms[i] = next_->group.messages[i].size + random_.Below(64);  // more room than needed is allowed
      bytes += next_->rooms[i] + kGuard;
    }
    next_->bytes = bytes;
  }
  char* place = ring_.Take(next_->bytes);
  if (!place) return false;
  next_->piece = place;
  for (uint32_t i = 0; i < next_->group.count; ++i) {
    next_->data[i] = place;
    const size_t size = next_->group.messages[i].size;
    std::memset(place + size, kUntouched, next_->rooms[i] + kGuard - size);
    place += next_->rooms[i] + kGuard;
  }
  if (Irecv(&*next_)) return true;
  ring_.TakeBack(next_->piece);
  next_->piece = nullptr;
  return false;
}

bool RecvEnd::Irecv(InFlight* flight) {
  const uint32_t count = flight->group.count;
  void* data[kMostGroup];
  void* handles[kMostGroup];
  size_t sizes[kMostGroup];
  int tags[kMostGroup];
  for (uint32_t i = 0; i < count; ++i) {
    data[i] = flight->data[i];
    handles[i] = memory_;
    sizes[i] = flight->rooms[i];
    tags[i] = flight->group.messages[i].tag;
  }
  const int code = table_.Irecv(comm_, static_cast<int>(count), data, sizes, tags, handles, &flight->request);
  if (code != nccl::kSuccess) {
    if (!ErrorIsDue(code)) Failed("irecv: code " + std::to_string(code));
    broken_ = true;  // what has arrived can still be tested
    return false;
  }
  if (!flight->request) return false;
  if (count > 1) report_.groups.fetch_add(1, std::memory_order_relaxed);
  in_flight_.push_back(*flight);
  next_.reset();
  return true;
}

bool RecvEnd::Test() {
  if (in_flight_.empty()) return false;
  if (random_.OneIn(16)) TestOne(in_flight_[random_.Below(in_flight_.size())]);
  bool moved = false;
  while (state_ == State::kRunning && !in_flight_.empty()) {
    if (!in_flight_.front().done && !TestOne(in_flight_.front())) break;
    ring_.GiveBack(in_flight_.front().piece, in_flight_.front().bytes);
    in_flight_.pop_front();
    ++groups_received_;
    moved = true;
  }
  return moved;
}

bool RecvEnd::TestOne(InFlight& flight) {
  if (flight.done) return true;
  int done = 0;
  int sizes[kMostGroup] = {};
  const int code = table_.Test(flight.request, &done, sizes);
  if (code != nccl::kSuccess) {
    if (!ErrorIsDue(code)) Failed("test: code " + std::to_string(code));
    if (&flight != &in_flight_.front()) return false;  // an older one may have arrived whole
    Leave();
    return false;
  }
  if (!done) return false;
  flight.done = true;
  Verify(flight, sizes);
  return true;
}

void RecvEnd::Verify(const InFlight& flight, const int* sizes) {
  for (uint32_t i = 0; i < flight.group.count; ++i) {
    const Message& message = flight.group.messages[i];
    const auto say = [&](const std::string& what) {
      Failed("message " + std::to_string(message.number) + " of " + std::to_string(message.size) + " bytes (" +
             std::to_string(i) + " of " + std::to_string(flight.group.count) + ") " + what);
    };
    if (static_cast<size_t>(sizes[i]) != message.size) say("came with size " + std::to_string(sizes[i]));
    const size_t wrong = FirstWrongByte(flight.data[i], life_.seed, message);
    if (wrong != message.size) say("is wrong from byte " + std::to_string(wrong));
    const char* end = flight.data[i] + message.size;
    const char* guard = flight.data[i] + flight.rooms[i] + kGuard;
    if (std::find_if(end, guard, [](char c) { return c != kUntouched; }) != guard) {
      say("is right, but bytes behind it were written to");
    }
    report_.bytes.fetch_add(message.size, std::memory_order_relaxed);
  }
  received_ += flight.group.count;
  report_.messages.fetch_add(flight.group.count, std::memory_order_relaxed);
}

void RecvEnd::Leave() {
  if (memory_) table_.DeregMr(comm_, memory_);
  if (table_.CloseRecv(comm_) != nccl::kSuccess) Failed("closeRecv");
  comm_ = memory_ = nullptr;
  in_flight_.clear();
  ring_.Clear();
  report_.lives.fetch_add(1, std::memory_order_relaxed);
  state_ = State::kEnded;
}

/// What test() called done at the sender has arrived, unless this end closed first or somebody shut a socket.
void RecvEnd::CheckDelivered() {
  if (life_.end == End::kReceiverCloses || received_ == life_.messages || received_ == UINT64_MAX) return;
  if (life_.end == End::kSenderCloses) report_.cut_short.fetch_add(1, std::memory_order_relaxed);
  if (Shut()) return;
  const uint64_t done = slot_.done_groups.load(std::memory_order_relaxed);
  if (groups_received_ < done) {
    Failed(std::to_string(done) + " groups were done at the sender, " + std::to_string(groups_received_) + " arrived");
  }
}

std::string RecvEnd::Describe() const {
  return "connection " + std::to_string(index_) + " life " + std::to_string(generation_) + " receiver, state " +
         std::to_string(static_cast<int>(state_)) + ", " + std::to_string(received_) + " of " +
         std::to_string(life_.messages) + " messages received, " + std::to_string(in_flight_.size()) +
         " receives posted, end " + std::to_string(static_cast<int>(life_.end)) + " at " + std::to_string(life_.end_at);
}

}  // namespace weft::net::fire
