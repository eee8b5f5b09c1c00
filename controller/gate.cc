#include "controller/gate.h"

#include <fmt/format.h>

#include "common/log.h"

namespace weft::controller {

namespace {

/// Without its port: a caller's next connection comes from another one.
std::string AddressOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

tl::expected<std::optional<rpc::Identity>, Refusal> Gate::Admit(const Caller& caller, Access access) {
  // Who cannot say who he is costs as much as others, and has no name to count by.
  if (tls_) {
    if (auto late = Take(addresses_, AddressOf(caller.peer), kCallersOfAnAddress, caller, access)) {
      return tl::unexpected<Refusal>(*std::move(late));
    }
  }
  Result<std::optional<rpc::Identity>> who = Identify(caller, access);
  if (!who) return tl::unexpected<Refusal>(Refusal{who.error()});
  if (auto late = Take(budget_, NameOf(*who, caller.peer), 1, caller, access)) return tl::unexpected<Refusal>(*std::move(late));
  return *std::move(who);
}

std::string Gate::NameOf(const std::optional<rpc::Identity>& who, const std::string& peer) {
  return who ? fmt::format("{} \"{}\"", rpc::RoleName(who->role), who->name) : AddressOf(peer);
}

std::optional<Refusal> Gate::Take(CallBudget& budget, const std::string& name, double times, const Caller& caller, Access access) {
  Seconds wait;
  {
    const std::lock_guard lock(mutex_);
    wait = budget.Take(name, access, loop_->Now());
  }
  if (wait <= Seconds(0)) return std::nullopt;
  const Error error(Code::kResourceExhausted,
                    fmt::format("{} calls more often than {} times a second: expected at most that, call again in {:.3f} s", name,
                                RateOf(access).per_s * times, wait.count()));
  return Refusal{Refuse("rate", caller.peer, error), wait};
}

Result<std::optional<rpc::Identity>> Gate::Identify(const Caller& caller, Access access) {
  if (!tls_) return std::nullopt;
  Result<rpc::Identity> who = rpc::ParseIdentity(caller.certificate);
  if (!who) return Fail(Refuse("identity", caller.peer, who.error()));
  if (const Status present = CheckPresent(*who); !present) return Fail(Refuse("revoked", caller.peer, present.error()));
  if (const Status role = CheckRole(*who, access); !role) return Fail(Refuse("role", caller.peer, role.error()));
  return *std::move(who);
}

Status Gate::CheckPresent(const rpc::Identity& who) {
  if (!revoked_.Contains(who.serial)) return Ok();
  return Fail(Code::kUnauthenticated, fmt::format("the certificate of {} \"{}\" is revoked", rpc::RoleName(who.role), who.name));
}

Error Gate::Refuse(const char* why, const std::string& peer, const Error& error) {
  loop_->CountRefusal(why);
  const auto now = static_cast<uint64_t>(loop_->Now().count() * 1e9);
  const std::lock_guard lock(mutex_);
  for (const auto& [key, lines] : lines_.TakeLeftOut(now)) {
    LogWarn("controller", "left out lines about refused calls", {{"why", key}, {"lines", lines}});
  }
  if (lines_.Take(why, now)) LogWarn("controller", "refused a call", {{"peer", peer}, {"reason", error.message()}});
  return error;
}

}  // namespace weft::controller
