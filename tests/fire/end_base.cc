#include "netplugin/tcp/socket.h"
#include "tests/fire/ends.h"

namespace weft::net::fire {
namespace {

constexpr size_t kRingBytes = 3 * kLargestMessage;
/// A connect or accept may fail for so long after the cable was down.
constexpr uint64_t kCableEffectNs = 5'000'000'000;

}  // namespace

EndBase::EndBase(testing::Table& table, const Settings& settings, Control& control, uint32_t rank, uint32_t index)
    : table_(table),
      settings_(settings),
      control_(control),
      report_(control.reports[rank]),
      slot_(control.connections[index]),
      index_(index),
      random_(settings.seed * 977 + index * 2 + rank),
      ring_(kRingBytes),
      life_(MakeLife(settings.seed, index, 1, settings.mean_life)) {}

void EndBase::Failed(const std::string& what) {
  // What follows from a failure, here or at the other rank, is none of its own.
  for (const Report& report : control_.reports) {
    if (report.failed.load(std::memory_order_relaxed)) return;
  }
  const std::string text = Describe() + ": " + what;
  text.copy(report_.failure, sizeof report_.failure - 1);
  report_.failed.store(true, std::memory_order_release);
}

bool EndBase::Shut() const {
  // What is shut belongs to one life, but may be shut a moment after it has ended: a listener serves several.
  const uint32_t hurt = slot_.hurt.load(std::memory_order_acquire);
  return hurt != 0 && (hurt == generation_ || hurt + 1 == generation_);
}

bool EndBase::ErrorIsDue(int code) {
  const bool due = code == nccl::kRemoteError && (life_.end != End::kBothDone || Shut());
  if (due) report_.errors.fetch_add(1, std::memory_order_relaxed);
  return due;
}

bool EndBase::CableWasDown(uint64_t now) const {
  const uint64_t down = control_.cable_down_ns.load(std::memory_order_relaxed);
  return down != 0 && now < down + kCableEffectNs;
}

bool EndBase::Dawdles(uint64_t now) {
  if (now < dawdle_until_) return true;
  if (settings_.slow_peers && random_.OneIn(20'000)) {
    dawdle_until_ = now + 1'000'000 + random_.Below(5'000'000);
    return true;
  }
  return false;
}

}  // namespace weft::net::fire
