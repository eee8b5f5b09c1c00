// What the loop does whatever else goes wrong: brakes that hold with a full disk, heartbeats that stop when it hangs, and making way
// for a controller that started later.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/log.h"
#include "controller/control_loop.h"

namespace weft::controller {
namespace {

constexpr char kComponent[] = "controller";
constexpr size_t kMostUnkept = 100'000;
constexpr size_t kMostSuperseded = 1'000;   // hosts
constexpr int64_t kMostAheadMs = 24 * 3600 * 1000;  // a controller's clock may be ahead of ours by so much

}  // namespace

int64_t WallClockIncarnation() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Of what was set while it ran and what this start asks for. A mode on the command line is of now, but a service's command line is
/// written once: a crash must not take the brake off that somebody pulled. So observe holds whoever asks for it.
void ControlLoop::ReconcileMode(v1::Mode journalled) {
  const v1::Mode asked = core_.mode();
  if (journalled == v1::MODE_UNSPECIFIED || journalled == asked) return;
  const char* const name = journalled == v1::MODE_OBSERVE ? "observe" : "enforce";
  const bool asked_to_observe = asked == v1::MODE_OBSERVE && options_.mode_given;
  if (asked_to_observe) {
    LogWarn(kComponent, "mode: observe, as this start asks for; the journal says enforce", {{"to enforce", "SetMode"}});
    static_cast<void>(Brake({.body = ModeSet{v1::MODE_OBSERVE}}));
    return;
  }
  LogWarn(kComponent, "mode: as set while the controller ran last, not as this start asks for", {{"mode", name}});
  Handle({.body = ModeSet{journalled, fmt::format("set while the controller ran last; {} asks for {}",
                                                  options_.mode_given ? "the command line" : "the configuration",
                                                  asked == v1::MODE_OBSERVE ? "observe" : "enforce")}});
}

/// Something that only takes away: it happens, whatever becomes of the journal.
std::string ControlLoop::Brake(Event event) {
  const auto* released = std::get_if<JobReleased>(&event.body);
  const Status kept = released != nullptr ? KeepOrLater("job " + released->job_id, *released)
                                          : KeepOrLater("mode", std::get<ModeSet>(event.body));
  Handle(std::move(event));
  if (kept) return "";
  return fmt::format("{}; it is done, and written as soon as that works: a controller that restarts before does not know of it",
                     kept.error().message());
}

Status ControlLoop::KeepOrLater(const std::string& about, const Unkept& change) {
  Status kept = std::visit([this](const auto& one) { return KeepInJournal(one); }, change);
  if (kept) unkept_.erase(about);
  else if (unkept_.size() < kMostUnkept || unkept_.contains(about)) unkept_.insert_or_assign(about, change);
  return kept;
}

void ControlLoop::KeepWhatWaits() {
  while (!unkept_.empty()) {
    if (!std::visit([this](const auto& one) { return KeepInJournal(one); }, unkept_.begin()->second)) return;
    LogInfo(kComponent, "journal written after all", {{"what", unkept_.begin()->first}});
    unkept_.erase(unkept_.begin());
  }
}

/// A host that obeys a controller which started later is not ours to steer; where several do, nothing is.
Status ControlLoop::CheckNotSuperseded(const v1::Register& message) {
  const int64_t newer = message.controller_incarnation();
  if (newer <= incarnation_ || newer > WallClockIncarnation() + kMostAheadMs) {
    superseded_by_.erase(message.host());
    return Ok();
  }
  if (superseded_by_.size() < kMostSuperseded) superseded_by_.insert(message.host());
  LogError(kComponent, "a host obeys a newer controller", {{"host", message.host()}, {"its", newer}, {"ours", incarnation_}});
  // One host alone could be making it up.
  if (superseded_by_.size() >= std::min<size_t>(2, std::max<size_t>(1, core_.host_count())) && core_.mode() == v1::MODE_ENFORCE) {
    Handle({.body = ModeSet{v1::MODE_OBSERVE, fmt::format("host {} obeys a controller that started later ({}, this one {})", message.host(),
                                                          newer, incarnation_)}});
  }
  return Fail(Code::kAborted, fmt::format("register: host \"{}\" obeys a newer controller, {}; this one is {}", message.host(), newer,
                                          incarnation_));
}

/// From under the lock that every decision takes: a loop that hangs sends none.
void ControlLoop::Beat() {
  if (Now() < next_beat_) return;
  next_beat_ = Now() + kHeartbeatInterval;
  KeepWhatWaits();
  v1::ControllerMessage message;
  const auto hosts = static_cast<double>(std::max<size_t>(1, sessions_.size()));
  message.mutable_heartbeat()->set_probe_rate_per_s(options_.switch_answers_per_s / hosts);
  for (const auto& [host, session] : sessions_) session->Send(message);
}

}  // namespace weft::controller
