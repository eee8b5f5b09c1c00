#include "collectives/schedule_runner.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <span>

#include "collectives/reduce.h"

namespace weft::collectives {

using planner::BufferKind;
using planner::StepKind;

namespace {

constexpr std::chrono::milliseconds kPeerCheckPeriod{20};
constexpr std::chrono::nanoseconds kShortestNap{100'000};
constexpr std::chrono::nanoseconds kLongestNap{2'000'000};
constexpr std::chrono::nanoseconds kLongestFirstNap{10'000'000};
constexpr std::chrono::nanoseconds kLongestSleep{5'000'000};
constexpr size_t kMostWaited = 16;  // requests that end a sleep

bool Travels(const ProgramStep& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; }
size_t IndexOf(BufferKind buffer) { return static_cast<size_t>(buffer); }

}  // namespace

ScheduleRunner::ScheduleRunner(const Program& program, const RunBuffers& buffers, NetPlugin& plugin,
                               Connections& connections, const RunnerOptions& options)
    : program_(program), buffers_(buffers), plugin_(plugin), connections_(connections), options_(options),
      done_(program.steps.size(), 0), queued_(program.steps.size(), false),
      remaining_(static_cast<int64_t>(program.steps.size()) * program.slices) {}

void ScheduleRunner::AddToLane(int32_t step) {
  const ProgramStep& what = program_.steps[static_cast<size_t>(step)];
  const bool sends = what.kind == StepKind::kSend;
  auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                           [&](const Lane& each) { return each.peer == what.peer && each.sends == sends; });
  if (lane == lanes_.end()) lane = lanes_.insert(lane, Lane{.peer = what.peer, .sends = sends});
  lane->steps.push_back(step);
}

/// Whole buffers, once per connection: a later run on the same memory finds them registered.
Status ScheduleRunner::RegisterLanes() {
  for (Lane& lane : lanes_) {
    Connection& connection = lane.sends ? connections_.To(lane.peer) : connections_.From(lane.peer);
    lane.comm = connection.comm();
    for (const int32_t index : lane.steps) {
      const ProgramStep& step = program_.steps[static_cast<size_t>(index)];
      const size_t buffer = IndexOf(lane.sends ? step.source.buffer : step.destination.buffer);
      if (lane.mhandles[buffer] != nullptr || buffers_.bytes[buffer] == 0) continue;
      auto mhandle = connection.Register(buffers_.base[buffer], buffers_.bytes[buffer]);
      if (!mhandle) {
        return Fail(mhandle.error().WithContext(fmt::format("rank {}: memory for {} rank {}", options_.rank,
                                                            lane.sends ? "sends to" : "receives from", lane.peer)));
      }
      lane.mhandles[buffer] = *mhandle;
    }
  }
  return Ok();
}

int64_t ScheduleRunner::SliceElements(const ProgramStep& step, int64_t slice) const {
  return std::clamp<int64_t>(step.elements - slice * program_.slice_elements, 0, program_.slice_elements);
}

std::byte* ScheduleRunner::At(const Operand& operand, int64_t slice) const {
  const int64_t element = operand.offset + slice * program_.slice_elements;
  return buffers_.base[IndexOf(operand.buffer)] + element * static_cast<int64_t>(ElementBytes(options_.type));
}

bool ScheduleRunner::Ready(const ProgramStep& step, int64_t slice) const {
  return std::all_of(step.needs.begin(), step.needs.end(),
                     [&](int32_t need) { return done_[static_cast<size_t>(need)] > slice; });
}

std::string ScheduleRunner::Describe(const Lane& lane, int32_t step, size_t bytes) const {
  return fmt::format("rank {}: step {} ({} bytes {} rank {})", options_.rank, step, bytes, lane.sends ? "to" : "from",
                     lane.peer);
}

/// Hands one slice to the plugin; false when it cannot take it now.
Result<bool> ScheduleRunner::Post(Lane* lane, int32_t index, int64_t slice) {
  const ProgramStep& step = program_.steps[static_cast<size_t>(index)];
  const size_t bytes = static_cast<size_t>(SliceElements(step, slice)) * ElementBytes(options_.type);
  void* request = nullptr;
  if (bytes > 0) {
    const Operand& place = lane->sends ? step.source : step.destination;
    void* mhandle = lane->mhandles[IndexOf(place.buffer)];
    // The tag is the sender's rank, as with NCCL.
    const Status status =
        lane->sends ? plugin_.Send(lane->comm, At(place, slice), bytes, options_.rank, mhandle, &request)
                    : plugin_.Receive(lane->comm, At(place, slice), bytes, lane->peer, mhandle, &request);
    if (!status) return Fail(status.error().WithContext(Describe(*lane, index, bytes)));
    if (request == nullptr) return false;
    if (lane->sends) bytes_sent_ += static_cast<int64_t>(bytes);
  }
  lane->flying.push_back({index, slice, bytes, request});
  return true;
}

/// Issues what is ready, in order: the first slice that is not ready holds back the rest of the lane.
Result<bool> ScheduleRunner::Issue(Lane* lane) {
  bool any = false;
  while (lane->next_step < lane->steps.size() && lane->flying.size() < kMaxFlying) {
    const int32_t index = lane->steps[lane->next_step];
    if (!Ready(program_.steps[static_cast<size_t>(index)], lane->next_slice)) break;
    WEFT_ASSIGN_OR_RETURN(const bool posted, Post(lane, index, lane->next_slice));
    if (!posted) break;
    any = true;
    if (++lane->next_slice == program_.slices) {
      lane->next_slice = 0;
      ++lane->next_step;
    }
  }
  return any;
}

/// Takes back what is finished. Completion is in order on a connection, so that only the oldest need be asked.
Result<bool> ScheduleRunner::Poll(Lane* lane) {
  bool any = false;
  while (!lane->flying.empty()) {
    const Slice slice = lane->flying.front();
    if (slice.request != nullptr) {
      bool done = false;
      size_t arrived = 0;
      if (auto status = plugin_.Test(slice.request, &done, &arrived); !status) {
        return Fail(status.error().WithContext(Describe(*lane, slice.step, slice.bytes)));
      }
      if (!done) break;
      if (!lane->sends && arrived != slice.bytes && arrived != kBytesUnknown) {
        return Fail(Code::kInternal, fmt::format("{}: {} bytes arrived: the ranks run different schedules",
                                                 Describe(*lane, slice.step, slice.bytes), arrived));
      }
    }
    lane->flying.pop_front();
    Finish(slice.step);
    any = true;
  }
  return any;
}

void ScheduleRunner::QueueLocal(int32_t index) {
  const ProgramStep& step = program_.steps[static_cast<size_t>(index)];
  const int64_t next = done_[static_cast<size_t>(index)];
  if (Travels(step) || queued_[static_cast<size_t>(index)] || next == program_.slices || !Ready(step, next)) return;
  queued_[static_cast<size_t>(index)] = true;
  local_.push_back(index);
}

void ScheduleRunner::Finish(int32_t index) {
  ++done_[static_cast<size_t>(index)];
  --remaining_;
  for (const int32_t dependent : program_.steps[static_cast<size_t>(index)].dependents) QueueLocal(dependent);
}

void ScheduleRunner::Compute(const ProgramStep& step, int64_t slice) const {
  const int64_t elements = SliceElements(step, slice);
  std::byte* to = At(step.destination, slice);
  const std::byte* from = At(step.source, slice);
  if (elements == 0) return;
  if (step.kind == StepKind::kReduce) {
    ReduceInto(options_.type, options_.operation, to, from, elements);
  } else if (to != from) {
    std::memcpy(to, from, static_cast<size_t>(elements) * ElementBytes(options_.type));
  }
}

/// One slice of one step, so that the connections are not left alone for long.
bool ScheduleRunner::RunLocal() {
  if (local_.empty()) return false;
  const int32_t index = local_.front();
  local_.pop_front();
  queued_[static_cast<size_t>(index)] = false;
  Compute(program_.steps[static_cast<size_t>(index)], done_[static_cast<size_t>(index)]);
  Finish(index);
  QueueLocal(index);
  return true;
}

Error ScheduleRunner::StallError() const {
  std::string waiting;
  // A receive that does not come says more than a send that is not taken: name it first.
  for (const bool sends : {false, true}) {
    for (const Lane& lane : lanes_) {
      if (lane.sends != sends || lane.flying.empty()) continue;
      const Slice& slice = lane.flying.front();
      waiting += fmt::format("{}step {} ({} bytes {} rank {})", waiting.empty() ? "" : ", ", slice.step, slice.bytes,
                             sends ? "to" : "from", lane.peer);
    }
  }
  if (waiting.empty()) waiting = "a plugin that takes no request";
  return Error(Code::kDeadlineExceeded, fmt::format("rank {}: no progress for {:g} s: waiting for {}", options_.rank,
                                                    options_.stall_timeout.count(), waiting));
}

/// Most of what a wait usually takes at once, then a quarter of the wait so far: a wake-up costs the computation on this
/// core as much as the kernel's work for a whole slice does.
std::chrono::nanoseconds ScheduleRunner::NextNap(std::chrono::nanoseconds idle) const {
  const std::chrono::nanoseconds usual =
      options_.usual_wait == nullptr ? std::chrono::nanoseconds(0) : *options_.usual_wait * 5 / 8;
  if (usual > idle + kShortestNap) return std::min(usual - idle, kLongestFirstNap);
  return std::clamp(idle / 4, kShortestNap, kLongestNap);
}

/// A wait is over: what is usual follows it, at once where it was shorter.
void ScheduleRunner::EndWait() {
  idle_ = false;
  if (options_.usual_wait == nullptr) return;
  const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - idle_since_);
  if (wait <= options_.idle_spin) return;
  std::chrono::nanoseconds& usual = *options_.usual_wait;
  usual = wait < usual ? wait : usual + (wait - usual) / 8;
}

Status ScheduleRunner::Idle() {
  const auto now = std::chrono::steady_clock::now();
  if (!idle_) {
    idle_ = true;
    idle_since_ = now;
    next_check_ = now + kPeerCheckPeriod;
  }
  if (now >= next_check_) {
    next_check_ = now + kPeerCheckPeriod;
    if (options_.check_peers) WEFT_RETURN_IF_ERROR(options_.check_peers());
    if (now - idle_since_ > options_.stall_timeout) return Fail(StallError());
  }
  const auto idle = now - idle_since_;
  if (idle > options_.idle_spin) {
    Rest(idle);
  } else {
    sched_yield();
  }
  return Ok();
}

/// Sleeps until something comes, or naps where the plugin cannot tell.
void ScheduleRunner::Rest(std::chrono::nanoseconds idle) {
  std::array<void*, kMostWaited> requests;
  size_t count = 0;
  for (const Lane& lane : lanes_) {
    if (lane.flying.empty() || lane.flying.front().request == nullptr || count == requests.size()) continue;
    requests[count++] = lane.flying.front().request;
  }
  if (count > 0 && plugin_.Sleep(std::span(requests).first(count), kLongestSleep)) return;
  const timespec nap{0, static_cast<long>(NextNap(idle).count())};
  nanosleep(&nap, nullptr);
}

Status ScheduleRunner::Run() {
  if (remaining_ == 0) return Ok();
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    if (Travels(program_.steps[i])) AddToLane(static_cast<int32_t>(i));
    QueueLocal(static_cast<int32_t>(i));
  }
  WEFT_RETURN_IF_ERROR(RegisterLanes());
  while (remaining_ > 0) {
    bool progress = false;
    for (Lane& lane : lanes_) {
      WEFT_ASSIGN_OR_RETURN(const bool issued, Issue(&lane));
      WEFT_ASSIGN_OR_RETURN(const bool finished, Poll(&lane));
      progress = progress || issued || finished;
    }
    progress = RunLocal() || progress;
    if (progress) {
      if (idle_) EndWait();
    } else {
      WEFT_RETURN_IF_ERROR(Idle());
    }
  }
  return Ok();
}

}  // namespace weft::collectives
