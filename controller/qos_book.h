// What the site declares of its traffic classes, and what each host's agent says that it has. Nothing here decides anything about
// paths or classes. Reports come from hosts and are hostile until checked: their number of entries and lengths are bounded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/controller.pb.h"

namespace weft::controller {

/// Not thread-safe.
class QosBook {
 public:
  explicit QosBook(std::optional<v1::QosDeclaration> declared) : declared_(std::move(declared)) {}

  const std::optional<v1::QosDeclaration>& declared() const { return declared_; }

  /// The newest report of a host takes the place of the one before. What is too long is cut; false: something was.
  bool Take(const std::string& host, v1::QosReport report, double now_s);
  /// A host that is gone for good.
  void Forget(const std::string& host) { hosts_.erase(host); }
  /// The number of the next command. Grows over restarts too, by the wall clock in milliseconds.
  int64_t NextCommand(int64_t wall_ms);

  /// `connected`: hosts with a session.
  v1::GetQosResponse Answer(const std::set<std::string>& connected) const;
  /// A line for each thing that is not as declared on these hosts or on the ways from them; no hosts: on all.
  std::vector<std::string> Lines(const std::set<std::string>& hosts) const;
  /// What is not as declared, by host.
  std::map<std::string, int64_t> Drifts() const;

 private:
  struct Known {
    v1::QosReport report;
    double reported_s = 0;
  };
  std::vector<std::string> Differences() const;

  const std::optional<v1::QosDeclaration> declared_;
  std::map<std::string, Known> hosts_;
  int64_t newest_command_ = 0;
};

}  // namespace weft::controller
