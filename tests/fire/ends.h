// The two ends of a connection in a fire run, as NCCL's progress thread drives them: step by step, never waiting. Each
// lives life after life: set-up, messages, an end that may be sudden, and again.
//
// What may go wrong is known: an error is due only where a life ends suddenly, where a socket of it was shut, or, while
// connecting, where the cable was down. Everything else is reported as a failure of the run.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "netplugin/testing/plugin.h"
#include "tests/fire/control.h"
#include "tests/fire/ring.h"
#include "tests/fire/traffic.h"

namespace weft::net::fire {

struct Settings {
  uint64_t seed = 1;
  uint64_t messages = 0;       ///< after so many no new life begins
  uint64_t mean_life = 2000;   ///< messages of a connection's life
  uint32_t connections = 8;    ///< every second one from rank 1 to rank 0
  uint32_t most_grouped = 1;   ///< buffers in one irecv
  bool slow_peers = true;
};

/// What both kinds of end have.
class EndBase {
 public:
  virtual ~EndBase() = default;
  /// Does what can be done now. True if anything moved.
  virtual bool Step(uint64_t now) = 0;
  bool finished() const { return finished_; }
  virtual std::string Describe() const = 0;

 protected:
  EndBase(testing::Table& table, const Settings& settings, Control& control, uint32_t rank, uint32_t index);

  /// The run has failed: `what` with what identifies this end. Only the first failure of a rank is kept.
  void Failed(const std::string& what);
  /// A code that is not success. True if this life may end so.
  bool ErrorIsDue(int code);
  /// Whether a socket of this life may have been shut.
  bool Shut() const;
  /// So short a while ago that a connect may fail for it.
  bool CableWasDown(uint64_t now) const;
  /// True while this end pretends to be slow.
  bool Dawdles(uint64_t now);

  testing::Table& table_;
  const Settings& settings_;
  Control& control_;
  Report& report_;
  ConnectionSlot& slot_;
  const uint32_t index_;
  Random random_;
  Ring ring_;
  uint32_t generation_ = 1;
  Life life_;
  uint64_t dawdle_until_ = 0;
  bool finished_ = false;
};

class SendEnd final : public EndBase {
 public:
  SendEnd(testing::Table& table, const Settings& settings, Control& control, uint32_t rank, uint32_t index)
      : EndBase(table, settings, control, rank, index) {}
  bool Step(uint64_t now) override;
  std::string Describe() const override;

 private:
  struct InFlight {
    void* request = nullptr;
    char* data = nullptr;
    size_t bytes = 0;
    uint64_t group = 0;
    bool done = false;
  };

  bool Connect(uint64_t now);
  bool Post();
  bool Test();
  bool TestOne(InFlight& flight);
  void Leave();
  void DropOldest();

  enum class State : uint8_t { kWaiting, kConnecting, kRunning } state_ = State::kWaiting;
  char handle_[nccl::kHandleMaxBytes] = {};
  void* comm_ = nullptr;
  void* memory_ = nullptr;  // NCCL's handle of the ring
  std::optional<Traffic> traffic_;
  Group group_;
  uint32_t in_group_ = 0;   // messages of the group that were posted
  bool more_ = false;       // `group_` holds messages to send
  uint64_t group_number_ = 0;
  uint64_t posted_ = 0;
  uint64_t dropped_groups_ = 0;
  std::deque<InFlight> in_flight_;
};

class RecvEnd final : public EndBase {
 public:
  RecvEnd(testing::Table& table, const Settings& settings, Control& control, uint32_t rank, uint32_t index)
      : EndBase(table, settings, control, rank, index) {}
  ~RecvEnd() override;
  bool Step(uint64_t now) override;
  std::string Describe() const override;

 private:
  static constexpr size_t kGuard = 16;  // bytes behind a buffer that must stay as they are

  struct InFlight {
    void* request = nullptr;
    Group group;
    std::array<char*, kMostGroup> data{};
    std::array<size_t, kMostGroup> rooms{};
    char* piece = nullptr;
    size_t bytes = 0;
    bool done = false;
  };

  bool Offer();
  bool Accept(uint64_t now);
  bool Post();
  bool Irecv(InFlight* flight);
  bool Test();
  bool TestOne(InFlight& flight);
  void Verify(const InFlight& flight, const int* sizes);
  void Leave();
  void CheckDelivered();

  enum class State : uint8_t { kListening, kAccepting, kRunning, kEnded } state_ = State::kListening;
  void* listen_ = nullptr;
  void* comm_ = nullptr;
  void* memory_ = nullptr;
  std::optional<Traffic> traffic_;
  bool broken_ = false;           // the communicator takes no more
  std::optional<InFlight> next_;  // prepared, not yet taken by the plugin
  uint64_t received_ = 0;         // messages of this life, all before it too
  uint64_t groups_received_ = 0;
  uint64_t give_up_ns_ = 0;
  std::deque<InFlight> in_flight_;
};

}  // namespace weft::net::fire
