// Who calls, whether he may, and whether he calls too often: every call of the API and every request of HTTP passes here before
// anything is done for it. Refusals are logged (20 lines a minute and kind) and counted.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "access/call_budget.h"
#include "access/roles.h"
#include "access/tokens.h"
#include "common/log_budget.h"
#include "common/result.h"
#include "proto/identity.h"

namespace weft::access {

/// The other end of a call.
struct Caller {
  std::string peer;         ///< address and port, as gRPC says it: "ipv4:10.0.0.7:40112"
  std::string certificate;  ///< PEM; empty: it showed none
  std::string token;        ///< wins over the certificate; empty: it showed none
};

/// What the caller is told.
struct Refusal {
  Error error;
  const char* why = "";     ///< in a word: identity, token, revoked, role, rate
  Seconds again_after{0};   ///< above 0: he calls too often
};

struct GateOptions {
  bool tls = false;                        ///< else nobody is told from anybody but by his address, and tokens are not looked at
  std::string revoked;                     ///< path of a list of revoked certificates; empty: none
  TokenFiles tokens;
  std::string component;                   ///< in log lines
  std::function<Seconds()> now;
  std::function<void(const char*)> count;  ///< a refusal, by why
};

/// Threads: any, so `now` and `count` must be for any.
class Gate {
 public:
  explicit Gate(GateOptions options) : options_(std::move(options)), revoked_(options_.revoked), tokens_(options_.tokens) {}

  /// Errors: as RevokedCertificates::Load and Tokens::Load; kInvalidArgument for tokens without TLS.
  [[nodiscard]] Status Load();
  /// With TLS the calls of one address are as many as those of so many callers at most, whoever they are.
  static constexpr double kCallersOfAnAddress = 16;

  /// The caller; empty without TLS. Refusals: kUnauthenticated for who may not, kResourceExhausted for who calls too often.
  [[nodiscard]] tl::expected<std::optional<rpc::Identity>, Refusal> Admit(const Caller& caller, Access access);
  /// What a caller is counted as: role and name, without TLS his address. `peer` as in Caller.
  static std::string NameOf(const std::optional<rpc::Identity>& who, const std::string& peer);
  /// Whether the certificate still counts, for calls that last. Errors: kUnauthenticated.
  [[nodiscard]] Status CheckPresent(const rpc::Identity& who);
  /// Logs and counts a refusal that somebody else has decided, and hands it back; `why` in a word.
  Error Refuse(const char* why, const std::string& peer, const Error& error);

 private:
  tl::expected<std::optional<rpc::Identity>, Refusal> Identify(const Caller& caller, Access access);
  /// Takes one call of `name`, for which there are `times` what RateOf says; the refusal if there is none left.
  std::optional<Refusal> Take(CallBudget& budget, const std::string& name, double times, const Caller& caller, Access access);

  const GateOptions options_;
  RevokedCertificates revoked_;
  Tokens tokens_;
  std::mutex mutex_;       // guards what follows
  LogBudget lines_{20};
  CallBudget budget_;      // by name
  CallBudget addresses_{kCallersOfAnAddress};
};

}  // namespace weft::access
