// A user's process that means no good, at the agent's socket: it takes as much of one thing as it is told, says in one line of JSON
// why the last was refused, and holds what it has until it is ended.
//
//   weft-hostile SOCKET connections COUNT     says nothing on any of them
//   weft-hostile SOCKET segments COUNT JOB    of which each says that it uses more slots than it has
//   weft-hostile SOCKET flows SEGMENTS JOB    all slots of each, every flow to a port of its own
//   weft-hostile SOCKET close NUMBER JOB      has a flow of this number, and ends it
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

class Hostile {
 public:
  explicit Hostile(std::string socket) : socket_(std::move(socket)) {}

  void Connect() { peers_.push_back(std::make_unique<TestPeer>(socket_)); }
  /// Attaches one more segment; why it was refused, or nothing.
  std::string Attach(const std::string& job) {
    Connect();
    segments_.push_back(std::make_unique<TestSegment>(job));
    peers_.back()->SendHello(job, segments_.back()->fd.get());
    return peers_.back()->Receive().reason();
  }
  void OpenAll() {
    for (uint32_t i = 0; i < abi::kMaxFlows; ++i) {
      // Open() puts one port for all.
      abi::FlowSlot& slot = segments_.back()->Open(i, next_++);
      slot.generation.fetch_add(1);
      slot.peer_port = static_cast<uint16_t>(1024 + next_ % 60'000);
      slot.generation.fetch_add(1);
    }
  }
  /// Says that more slots are taken than there are.
  void ClaimAll() { segments_.back()->segment->process.slots_used.store(UINT32_MAX); }
  void OpenAndClose(uint64_t flow) {
    abi::FlowSlot& slot = segments_.back()->Open(0, flow);
    ::usleep(500'000);  // several looks of the agent, which reads 10 times a second
    slot.state.store(static_cast<uint32_t>(abi::SlotState::kClosed));
  }

 private:
  const std::string socket_;
  uint64_t next_ = 0x1000;
  std::vector<std::unique_ptr<TestPeer>> peers_;
  std::vector<std::unique_ptr<TestSegment>> segments_;
};

int Main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string what = argv[2], job = argc > 4 ? argv[4] : "";
  const uint64_t number = std::stoull(argv[3]);
  Hostile hostile(argv[1]);
  std::string refused;
  if (what == "close") {
    refused = hostile.Attach(job);
    if (refused.empty()) hostile.OpenAndClose(number);
  }
  for (uint64_t i = 0; i < number && what != "close" && refused.empty(); ++i) {
    if (what == "connections") {
      hostile.Connect();
      continue;
    }
    refused = hostile.Attach(job);
    if (refused.empty() && what == "flows") hostile.OpenAll();
    if (refused.empty() && what == "segments") hostile.ClaimAll();
  }
  std::erase(refused, '"');
  fmt::print("{{\"refused\":\"{}\"}}\n", refused);
  std::fflush(stdout);
  ::pause();  // until somebody ends it
  return 0;
}

}  // namespace
}  // namespace weft::agent

int main(int argc, char** argv) { return weft::agent::Main(argc, argv); }
