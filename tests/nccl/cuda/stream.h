// Streams and events of the stand-in for the CUDA runtime: work in order, on a thread of each stream.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace weft::cuda_stand_in {

/// What was recorded on streams, and how far they have come.
class Event {
 public:
  /// A number for a record that is about to be queued.
  uint64_t Record();
  /// The newest record; 0: none.
  uint64_t recorded() const;
  /// Called by a stream that has come to the record.
  void Reach(uint64_t record);
  void Wait(uint64_t record);
  /// Whether all that was recorded is reached; true where nothing was.
  bool reached() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, reached_ = 0;
};

/// Tasks in the order in which they were added. Thread-safe.
class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// What is queued still runs; nobody waits for it.
  ~Stream();

  void Add(std::function<void()> task);
  /// Until all that was added before the call has run.
  void Synchronize();
  /// Whether nothing is queued or running.
  bool idle() const;
  uint64_t id() const { return id_; }

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  uint64_t id_;
};

}  // namespace weft::cuda_stand_in
