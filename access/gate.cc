#include "access/gate.h"

#include <fmt/format.h>

#include "common/log.h"

namespace weft::access {
namespace {

/// Without its port: a caller's next connection comes from another one.
std::string AddressOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

Status Gate::Load() {
  if (!options_.tls && !options_.tokens.empty()) {
    return Fail(Code::kInvalidArgument, "tokens without TLS would cross the network in plain text: expected certificate, key and "
                                        "authority as well");
  }
  WEFT_RETURN_IF_ERROR(revoked_.Load());
  return tokens_.Load();
}

tl::expected<std::optional<rpc::Identity>, Refusal> Gate::Admit(const Caller& caller, Access access) {
  // Who cannot say who he is costs as much as others, and has no name to count by.
  if (options_.tls) {
    if (auto late = Take(addresses_, AddressOf(caller.peer), kCallersOfAnAddress, caller, access)) {
      return tl::unexpected<Refusal>(*std::move(late));
    }
  }
  auto who = Identify(caller, access);
  if (!who) return who;
  if (auto late = Take(budget_, NameOf(*who, caller.peer), 1, caller, access)) return tl::unexpected<Refusal>(*std::move(late));
  return who;
}

std::string Gate::NameOf(const std::optional<rpc::Identity>& who, const std::string& peer) {
  return who ? fmt::format("{} \"{}\"", rpc::RoleName(who->role), who->name) : AddressOf(peer);
}

std::optional<Refusal> Gate::Take(CallBudget& budget, const std::string& name, double times, const Caller& caller, Access access) {
  Seconds wait;
  {
    const std::lock_guard lock(mutex_);
    wait = budget.Take(name, access, options_.now());
  }
  if (wait <= Seconds(0)) return std::nullopt;
  const Error error(Code::kResourceExhausted,
                    fmt::format("{} calls more often than {} times a second: expected at most that, call again in {:.3f} s", name,
                                RateOf(access).per_s * times, wait.count()));
  return Refusal{Refuse("rate", caller.peer, error), "rate", wait};
}

tl::expected<std::optional<rpc::Identity>, Refusal> Gate::Identify(const Caller& caller, Access access) {
  const auto refuse = [&](const char* why, const Error& error) {
    return tl::unexpected<Refusal>(Refusal{Refuse(why, caller.peer, error), why});
  };
  if (!options_.tls) return std::nullopt;
  if (!caller.token.empty()) {
    std::optional<rpc::Identity> who = tokens_.Find(caller.token);
    if (!who) return refuse("token", Error(Code::kUnauthenticated, "the token is nobody's"));
    if (const Status role = CheckRole(*who, access); !role) return refuse("role", role.error());
    return who;
  }
  if (caller.certificate.empty()) {
    return refuse("identity", Error(Code::kUnauthenticated, "no certificate was shown, expected one with a role"));
  }
  const Result<rpc::Identity> who = rpc::ParseIdentity(caller.certificate);
  if (!who) return refuse("identity", who.error());
  if (const Status present = CheckPresent(*who); !present) return refuse("revoked", present.error());
  if (const Status role = CheckRole(*who, access); !role) return refuse("role", role.error());
  return *who;
}

Status Gate::CheckPresent(const rpc::Identity& who) {
  if (!revoked_.Contains(who.serial)) return Ok();
  return Fail(Code::kUnauthenticated, fmt::format("the certificate of {} \"{}\" is revoked", rpc::RoleName(who.role), who.name));
}

Error Gate::Refuse(const char* why, const std::string& peer, const Error& error) {
  options_.count(why);
  const auto now = static_cast<uint64_t>(options_.now().count() * 1e9);
  const std::lock_guard lock(mutex_);
  for (const auto& [key, lines] : lines_.TakeLeftOut(now)) {
    LogWarn(options_.component, "left out lines about refused calls", {{"why", key}, {"lines", lines}});
  }
  if (lines_.Take(why, now)) LogWarn(options_.component, "refused a call", {{"peer", peer}, {"reason", error.message()}});
  return error;
}

}  // namespace weft::access
