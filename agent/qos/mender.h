// Sets a port's QoS settings, all of them or none; keeps a record of what was there before the first change, and puts that back.
// The record lies in the agent's run directory: like the settings it does not outlive the machine's next start.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/qos/drift.h"
#include "common/result.h"

namespace weft::agent {

/// The ways to the kernel; tests put in their own.
struct QosWriters {
  std::function<Status(const std::string& interface, const DcbChange&)> dcb;
  std::function<Status(const PortChange::Number&)> roce_tos;
  std::function<Status(const PortChange::Number&)> forced_class;
};

/// Of one interface, what was there.
struct PortBefore {
  std::optional<DcbState> dcb;
  std::vector<PortChange::Number> roce_tos, forced_class;
};

class QosMender {
 public:
  /// A record that another life of the agent left at `record_path` counts. `problem`, if one is said, is why it is not readable:
  /// then
  /// nothing is set until somebody has moved it away.
  QosMender(std::string record_path, QosWriters writers);

  /// Makes the change after `port` as it is now is on record. If the kernel refuses a part, what was set is undone.
  /// Errors: kFailedPrecondition where the record can't be written, and then nothing is set; the kernel's.
  [[nodiscard]] Status Apply(const PortSettings& port, const PortChange& change);
  /// Puts back what is on record for the port, given as it is now; lines for people are added to `done`. Errors: the kernel's; the
  /// record then stays.
  [[nodiscard]] Status Revert(const PortSettings& port, std::vector<std::string>* done);

  bool has_record() const { return !before_.empty(); }
  const std::string& problem() const { return problem_; }

 private:
  Status Write(const std::string& interface, const PortChange& change, PortChange* undo, const PortSettings& port);
  Status Keep(const std::map<std::string, PortBefore>& before);

  const std::string path_;
  const QosWriters writers_;
  std::map<std::string, PortBefore> before_;  // by interface
  std::string problem_;
};

/// The record as text, and back. Errors: kDataLoss naming what is wrong.
std::string RecordText(const std::map<std::string, PortBefore>& before);
[[nodiscard]] Result<std::map<std::string, PortBefore>> ParseRecord(const std::string& text);

}  // namespace weft::agent
